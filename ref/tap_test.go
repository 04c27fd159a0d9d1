package ref_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// The tap receives every layer's operations in order. Its last values are the output.
func TestTap(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "phi2.gguf"))
	var ops []string
	var last []float64
	e := engine(t, m, ref.Options{Tap: func(layer int, op string, position, width int, values []float64) {
		if len(values) != width*3 && op != "logits" {
			t.Errorf("%s of layer %d: %d values of width %d for 3 positions", op, layer, len(values), width)
		}
		ops = append(ops, op)
		last = append(last[:0], values...)
	}})
	got := forward(t, newText(t, e), []int{5, 6, 7}, model.WantLogits)
	layer := []string{"query", "key", "value", "attention", "layer"}
	want := slices.Concat([]string{"embed"}, layer, layer, []string{"logits"})
	if !slices.Equal(ops, want) {
		t.Errorf("operations %v, want %v", ops, want)
	}
	for i, v := range last {
		if float32(v) != got[i] {
			t.Fatalf("logit %d: the tap saw %v, Forward gave %v", i, v, got[i])
		}
	}
}

// Later operations use the values that a tap writes: if it writes another token's values,
// of a layer or of all operations inside it, that token's logits result.
func TestTapChanges(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "phi2.gguf"))
	run := func(token int, tap ref.Tap) []float32 {
		return forward(t, newText(t, engine(t, m, ref.Options{Tap: tap})), []int{token}, model.WantLogits)
	}
	type operation struct {
		layer int
		op    string
	}
	other := map[operation][]float64{}
	want := run(7, func(layer int, op string, _, _ int, values []float64) {
		other[operation{layer, op}] = slices.Clone(values)
	})
	last := m.Config.Layers - 1
	for _, c := range []struct {
		layer int
		op    string
		same  bool
	}{{-1, "embed", true}, {last, "layer", true}, {last, "key", false}, {0, "attention", false}} {
		got := run(8, func(layer int, op string, _, _ int, values []float64) {
			if layer == c.layer && op == c.op {
				copy(values, other[operation{layer, op}])
			}
		})
		if slices.Equal(got, want) != c.same {
			t.Errorf("with the other token's %s in layer %d: its logits are equal: %v", c.op, c.layer, !c.same)
		}
	}
}

// TestTapPanics panics in each operation of a prompt. The sequence is then as before.
func TestTapPanics(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "phi2.gguf"))
	calls, at := 0, -1
	e := engine(t, m, ref.Options{Tap: func(int, string, int, int, []float64) {
		if calls++; calls == at {
			panic("from a tap")
		}
	}})
	e.SetChunk(4) // a chunk before the one that panics is dropped, too
	tokens := oracleTokens()[:12]
	want := forward(t, newText(t, e), tokens, model.WantLogits)
	s := newText(t, e)
	forward(t, s, tokens[:3], model.WantNothing)
	calls = 0
	forward(t, newText(t, e), tokens[3:], model.WantLogits)
	for last := calls; at < last; {
		at, calls = max(at, 0)+1, 0
		func() {
			defer func() {
				if recover() != "from a tap" {
					t.Errorf("the panic in call %d was lost", at)
				}
			}()
			s.Forward(t.Context(), tokens[3:], model.WantLogits)
		}()
		if s.Len() != 3 {
			t.Fatalf("%d positions after a panic in call %d, want 3", s.Len(), at)
		}
	}
	at = -1
	if got := forward(t, s, tokens[3:], model.WantLogits); !slices.Equal(got, want) {
		t.Error("the sequence computes something else after the panics")
	}
}
