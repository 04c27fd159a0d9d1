package ref_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// TestMemoryOfAPosition creates engines for models of which single positions take much
// memory. Shapes alone decide, so there are no weights.
func TestMemoryOfAPosition(t *testing.T) {
	llama405 := model.Config{
		Layers: 126, Hidden: 16384, Heads: 128, KVHeads: 8, HeadDim: 128, ValueDim: 128,
		FFN: 53248, Vocab: 128256, Context: 131072, Rope: model.Rope{Dim: 128},
	}
	with := func(change func(*model.Config)) model.Config {
		c := llama405
		change(&c)
		return c
	}
	for _, c := range []struct {
		name, reason string
		config       model.Config
		chunk        int    // 0: refused
		part         string // of the error
	}{
		{"405B", "the largest dense model is computed in full chunks", llama405, 32, ""},
		{"long context", "only the positions of a chunk count", with(func(c *model.Config) { c.Context = 1 << 24 }), 32, ""},
		{"wide network", "the chunk shrinks", with(func(c *model.Config) { c.FFN = 1 << 22 }), 2, ""},
		{"wide experts", "as wide as a network", with(func(c *model.Config) { c.FFN, c.ExpertFFN = 0, 1<<22 }), 2, ""},
		{"wide shared expert", "as wide as a network", with(func(c *model.Config) { c.FFN, c.SharedFFN = 0, 1<<22 }), 2, ""},
		{"widest network", "one position is too much", with(func(c *model.Config) { c.FFN = 1 << 24 }), 0, "activations 404121600"},
		{"values", "16,384 heads of 16,384", with(func(c *model.Config) { c.Heads, c.ValueDim = 1<<14, 1<<14 }), 0, "activations 43"},
		{"keys", "16,384 heads of 16,384", with(func(c *model.Config) { c.Heads, c.HeadDim = 1<<14, 1<<14 }), 0, "activations 64"},
		{"vocabulary", "logits of each position", with(func(c *model.Config) { c.Vocab = 1 << 24 }), 1, ""},
		{"cache", "all layers keep keys and values", with(func(c *model.Config) { c.Layers, c.KVHeads, c.Heads = 512, 1024, 1024 }), 0, "keys and values 536870912"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := ref.New(&model.Model{Config: c.config}, ref.Options{})
			if c.chunk == 0 {
				if !errors.Is(err, model.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), c.part) || !strings.HasSuffix(err.Error(), ", more than 268435456") {
					t.Errorf("%s: error %v, want one with %q", c.reason, err, c.part)
				}
				return
			}
			if err != nil || e.Chunk() != c.chunk {
				t.Errorf("%s: error %v, want chunks of %d", c.reason, err, c.chunk)
			}
		})
	}
}

// TestMemoryOfStates refuses states of Gated DeltaNets by their size.
func TestMemoryOfStates(t *testing.T) {
	c := model.Config{
		Layers: 2, Hidden: 64, Heads: 1, KVHeads: 1, HeadDim: 64, ValueDim: 64, FFN: 64, Vocab: 64, Recurrent: []bool{true, false},
		DeltaNet: model.DeltaNetShape{KeyHeads: 2, ValueHeads: 2, Dim: 1 << 14, Taps: 4},
	}
	const want = "ref: unsupported: the states of a sequence need 4298113024 bytes, more than 4294967296"
	if _, err := ref.New(&model.Model{Config: c}, ref.Options{}); !errors.Is(err, model.ErrUnsupported) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	c.DeltaNet.Dim /= 2
	if _, err := ref.New(&model.Model{Config: c}, ref.Options{}); err != nil {
		t.Error(err)
	}
}

// TestChunk counts the positions of each pass.
func TestChunk(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	var passes []int
	e := engine(t, m, ref.Options{Tap: func(_ int, op string, _, width int, values []float64) {
		if op == "embed" {
			passes = append(passes, len(values)/width)
		}
	}})
	e.SetChunk(7)
	forward(t, newText(t, e), oracleTokens()[:17], model.WantNothing)
	if got := fmt.Sprint(passes); got != "[7 7 3]" {
		t.Errorf("17 positions in chunks of 7 are computed as %s", got)
	}
}

// TestCacheLimit asks for more keys and values than a sequence may have: a step that does not
// fit is refused with both numbers, and the sequence goes on.
func TestCacheLimit(t *testing.T) {
	m := open(t, filepath.Join("..", "golden", "arch", "llama-gqa.gguf"))
	e := engine(t, m, ref.Options{})
	e.SetCacheBytes(16 << 30) // room for 4 positions
	s := newText(t, e)
	forward(t, s, []int{1, 2}, model.WantNothing)
	_, err := s.Forward(t.Context(), []int{3, 4, 5}, model.WantNothing)
	const want = "ref: row 0: context limit: the keys and values of 5 positions need 85899345920 bytes, more than 68719476736"
	if !errors.Is(err, model.ErrContextLimit) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	forward(t, s, []int{3, 4}, model.WantNothing)
	if s.Len() != 4 {
		t.Errorf("%d positions, want 4", s.Len())
	}
}
