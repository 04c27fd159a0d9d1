package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/internal/prefill"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// TestAccelPrefill compares prefill on tensor cores with a reference that rounds the same
// values: operation by operation on the accelerator's own inputs, and as a whole. As a
// whole, values that float32 errors push across a rounding boundary add to the bound.
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
			n := layerdiff.Numerics{KV: quant.F16, Input: quant.F16, Float: float32Bound}
			if m.Weights.Layers[0].Q.W.Format == quant.BF16 {
				n.Input = quant.BF16
			}
			tokens, rounding := testTokens(m.Config.Vocab, positions), prefill.Numerics(model.KVF16, m.Config.HeadDim)
			got := accelTrace(t, m, smallDevice, accel.Options{}, tokens)
			whole := refTrace(t, m, rounding, tokens, nil)
			effects, err := layerdiff.Effects(refTrace(t, m, ref.Numerics{}, tokens, nil), whole)
			if err != nil {
				t.Fatal(err)
			}
			checkTrace(t, whole, got, n, effects)
			n.Followed = true
			followed := refTrace(t, m, rounding, tokens, got)
			checkTrace(t, followed, got, n, nil)
			if err := mostlyWithinFloat32(followed, got); err != nil {
				t.Error(err)
			}
		})
	}
}

// mostlyWithinFloat32 returns an error if more than half of the rows of an operation exceed
// the float32 bound. Rounding to the other side explains fewer rows: an input lies within
// 2^-23 of the boundary between two float16 values, 2^-11 apart, once in about 4096.
func mostlyWithinFloat32(want, got *layerdiff.Trace) error {
	r, err := layerdiff.Compare(want, got, layerdiff.Numerics{Float: float32Bound}, nil)
	if err != nil {
		return err
	}
	for _, res := range r.Ops {
		if 2*res.Exceeded > res.Positions {
			return fmt.Errorf("%v: %d of %d positions exceed the float32 bound", res.Op, res.Exceeded, res.Positions)
		}
	}
	return nil
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
		{"weights", func(n *ref.Numerics) { n.Weights = ref.Exact }, "layer 0, query: "},
		{"inputs", func(n *ref.Numerics) { n.Input = ref.Exact }, "layer 0, query: "},
		{"inputs to bf16", func(n *ref.Numerics) { n.Input = ref.ToBF16 }, "layer 0, query: "},
		{"the cache to bf16", func(n *ref.Numerics) { n.KV = model.KVBF16 }, "layer 0, key: "},
		{"attention", func(n *ref.Numerics) { n.FlashBlock = 0 }, "layer 0, attention: "},
		{"other blocks", func(n *ref.Numerics) { n.FlashBlock = 16 }, "layer 0, attention: "},
	} {
		n := prefill.Numerics(model.KVF16, m.Config.HeadDim)
		c.spoil(&n)
		err := mostlyWithinFloat32(refTrace(t, m, n, tokens, got), got)
		if (err == nil) != (c.shows == "") || err != nil && !strings.HasPrefix(err.Error(), c.shows) {
			t.Errorf("%s: %v, want %q", c.name, err, c.shows)
		}
	}
}

// TestAccelChunks cuts one prompt in many ways and demands the same bits for each position.
func TestAccelChunks(t *testing.T) {
	slowParallel(t)
	files := []string{"arch/qwen3moe.gguf"}
	if *longCases {
		files = slices.Concat(modelFiles("arch"), modelFiles("quant"))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".gguf"), func(t *testing.T) {
			m := goldenModel(t, file)
			tokens := testTokens(m.Config.Vocab, 70) // more than a page
			var want []float32
			for _, c := range []struct {
				chunk int
				parts []int
			}{{0, nil}, {1, nil}, {7, nil}, {64, nil}, {0, []int{2, 3, 63}}, {5, []int{68}}, {17, []int{1, 64}}} {
				if (c.chunk == 1 || c.chunk == 5) && !*longCases {
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
			// A single token after others is a decode step, which rounds differently. So
			// the comparison above can fail.
			e := accelEngine(t, m, smallDevice, accel.Options{})
			if at := firstDifference(want, teacherForced(t, e, tokens, 69)); at < 69*m.Config.Vocab {
				t.Errorf("a decode step at position 69 first differs in logit %d", at)
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
