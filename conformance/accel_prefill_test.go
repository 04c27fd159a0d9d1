package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// TestAccelPrefill compares prompts with a reference that rounds the same values.
func TestAccelPrefill(t *testing.T) {
	slowParallel(t)
	files := modelFiles("arch")
	for _, f := range []string{"bf16", "f16", "q4_k", "q8_0"} {
		files = append(files, "quant/"+f+".gguf")
	}
	positions := 19
	if *longCases {
		files, positions = slices.Concat(modelFiles("arch"), modelFiles("quant")), 150
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".gguf"), func(t *testing.T) {
			m := goldenModel(t, file)
			tokens := testTokens(m.Config.Vocab, positions)
			got := accelTrace(t, m, smallDevice, accel.Options{}, tokens)
			checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, got)
		})
	}
}

// TestAccelPrefillSeesRoundings compares with a reference that rounds other values, and
// demands a failure in the operation that differs.
func TestAccelPrefillSeesRoundings(t *testing.T) {
	m := goldenModel(t, "arch/llama-gqa.gguf")
	tokens := testTokens(m.Config.Vocab, 40)
	got := accelTrace(t, m, smallDevice, accel.Options{}, tokens)
	for _, c := range []struct {
		name  string
		spoil func(*ref.Numerics)
		shows string
	}{
		{"nothing", func(n *ref.Numerics) {}, ""},
		{"products", func(n *ref.Numerics) { n.F16Products = false }, "layer 0, query: "},
		{"the cache to bf16", func(n *ref.Numerics) { n.KV = model.KVBF16 }, "layer 0, key: "},
		{"attention", func(n *ref.Numerics) { n.FlashBlock = 0 }, "layer 0, attention: "},
		{"other blocks", func(n *ref.Numerics) { n.FlashBlock = 16 }, "layer 0, attention: "},
	} {
		n := accelnumerics.Of(model.KVF16, m.Config.HeadDim)
		c.spoil(&n)
		err := mostlyWithinFloat32(refTrace(t, m, n, tokens, got), got)
		if (err == nil) != (c.shows == "") || err != nil && !strings.HasPrefix(err.Error(), c.shows) {
			t.Errorf("%s: %v, want %q", c.name, err, c.shows)
		}
	}
}

// TestAccelChunks cuts one text in many ways and demands the same bits for each position. A part of one token is a decode step.
func TestAccelChunks(t *testing.T) {
	slowParallel(t)
	files := []string{"arch/qwen3moe.gguf", "arch/qwen35.gguf"}
	if *longCases {
		files = slices.Concat(modelFiles("arch"), modelFiles("quant"))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".gguf"), func(t *testing.T) {
			m := goldenModel(t, file)
			tokens := testTokens(m.Config.Vocab, 140) // more than a split of attention
			var want []float32
			for _, c := range []struct {
				chunk int
				parts []int
			}{{0, nil}, {1, nil}, {7, nil}, {64, nil}, {0, []int{2, 3, 63}}, {5, []int{68}}, {17, []int{1, 64}}, {0, []int{1, 63, 1, 1, 61, 1, 1, 1, 1}}, {0, slices.Repeat([]int{1}, 139)}} {
				if (c.chunk == 1 || c.chunk == 5 || len(c.parts) > 60) && !*longCases {
					continue // too many forward passes
				}
				e := accelEngine(t, m, smallDevice, accel.Options{Chunk: c.chunk})
				got := teacherForced(t, e, tokens, c.parts...)
				if want == nil {
					want = got
				}
				if at := firstDifference(want, got); at >= 0 {
					t.Errorf("chunks of %d, parts %v: position %d differs", c.chunk, c.parts, at/m.Config.Vocab)
				}
			}
		})
	}
}

// TestAccelSharedChunks computes several prompts in one step. It demands that they share chunks, and
// that each has the bits that it has alone.
func TestAccelSharedChunks(t *testing.T) {
	slowParallel(t)
	m := goldenModel(t, "arch/qwen3moe.gguf")
	var prompts [][]int
	for i, n := range []int{5, 20, 1, 33, 12} {
		prompts = append(prompts, testTokens(m.Config.Vocab, 40)[i:][:n])
	}
	for _, c := range []struct {
		o      accel.Options
		chunks int
	}{
		{accel.Options{Chunk: 24}, 3},                  // the tokens fill two and begin a third
		{accel.Options{Chunk: 64, MaxSequences: 2}, 3}, // of two prompts, two, and one
	} {
		e := accelEngine(t, m, smallDevice, c.o)
		r := &fixture{t: t, engine: &spy{Engine: e}, vocab: m.Config.Vocab}
		var rows []model.Row
		for _, p := range prompts {
			rows = append(rows, r.sequence(0).row(p, model.WantAll))
		}
		before := e.Stats().Chunks
		results := r.step(rows...)
		if n := e.Stats().Chunks - before; n != c.chunks {
			t.Errorf("%d chunks, want %d", n, c.chunks)
		}
		for i, got := range results {
			r.sameBits(fmt.Sprintf("prompt %d among others", i), r.forward(r.sequence(0), prompts[i], model.WantAll).Logits, got.Logits)
		}
		for _, s := range r.sequences {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
