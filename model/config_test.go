package model

import (
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
)

func TestFirstVisible(t *testing.T) {
	global := Config{}
	sliding := Config{Window: 4, Windowed: []bool{true, false}}
	chunks := Config{Window: 4, Windowed: []bool{true, false}, WindowChunks: true}
	for _, tt := range []struct {
		name            string
		config          Config
		layer, position int
		want            int
	}{
		{"global", global, 0, 9, 0},
		{"the window has not filled", sliding, 0, 2, 0},
		{"the window is full", sliding, 0, 3, 0},
		{"the window has moved", sliding, 0, 4, 1},
		{"a layer without window", sliding, 1, 9, 0},
		{"the last position of a chunk", chunks, 0, 3, 0},
		{"the first position of a chunk", chunks, 0, 4, 4},
		{"inside a chunk", chunks, 0, 10, 8},
		{"a layer without chunks", chunks, 1, 9, 0},
	} {
		if got := tt.config.FirstVisible(tt.layer, tt.position); got != tt.want {
			t.Errorf("%s: position %d sees positions from %d on, want %d", tt.name, tt.position, got, tt.want)
		}
	}
}

func TestLayerQueryScale(t *testing.T) {
	c := Config{Rope: Rope{Dim: 8}, Unrotated: []bool{false, true}, QueryScale: QueryScale{Scale: 0.5, Block: 4, Offset: 1, Unrotated: true}}
	at := c.LayerQueryScale(1).At
	if at(2) != 1 || at(3) <= 1 || at(3) != at(6) || at(7) <= at(6) {
		t.Errorf("factors %v, %v, %v, %v of positions 2, 3, 6 and 7", at(2), at(3), at(6), at(7))
	}
	if got := c.LayerQueryScale(0); got != (QueryScale{}) {
		t.Errorf("a layer with RoPE has %+v", got)
	}
	c.QueryScale.Unrotated = false
	if got := c.LayerQueryScale(0); got != c.QueryScale {
		t.Errorf("all layers have factors, but one with RoPE has %+v", got)
	}
}

// The size of Llama 4 with 128 experts has no norms of queries and keys.
func TestSizeWithoutQKNorms(t *testing.T) {
	const experts = 128
	spec := tiny.New("llama4", 1)
	spec.Set(".expert_count", uint32(experts))
	spec.Reshape("blk.1.ffn_gate_inp.weight", tiny.Hidden, experts)
	spec.Reshape("blk.1.ffn_gate_exps.weight", tiny.Hidden, tiny.FFN, experts)
	spec.Reshape("blk.1.ffn_up_exps.weight", tiny.Hidden, tiny.FFN, experts)
	spec.Reshape("blk.1.ffn_down_exps.weight", tiny.FFN, tiny.Hidden, experts)
	m, err := Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	if l := m.Weights.Layers[0]; l.QNorm.Weight != nil || l.KNorm.Weight != nil {
		t.Error("there are norms")
	}
}
