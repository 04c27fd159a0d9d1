package conformance

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// TestAccelPrefill holds prefill on tensor cores to a reference that rounds as it does:
// the cache, what is multiplied and, in layers, the weights. What the reference does not
// round are queries and attention's weights. So the first projections are held to a bound
// of their own; everything behind may be off by as much as the roundings that the
// reference has move it.
func TestAccelPrefill(t *testing.T) {
	notShort(t)
	files := modelFiles("arch")
	for _, f := range []string{"bf16", "f16", "q4_k", "q8_0"} {
		files = append(files, "quant/"+f+".gguf")
	}
	if *longCases {
		files = slices.Concat(modelFiles("arch"), modelFiles("quant"))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".gguf"), func(t *testing.T) {
			m := goldenModel(t, file)
			input, to := ref.ToF16, quant.F16
			if m.Weights.Layers[0].Q.W.Format == quant.BF16 {
				input, to = ref.ToBF16, quant.BF16
			}
			rounded, err := RoundedWeights(m, to)
			if err != nil {
				t.Fatal(err)
			}
			tokens := spread(m.Config.Vocab, 19)
			if *longCases {
				tokens = spread(m.Config.Vocab, 150)
			}
			exact := refTrace(t, m, ref.Numerics{}, tokens)
			want := refTrace(t, rounded, ref.Numerics{KV: quant.F16, Input: input}, tokens)
			want.Round(toFormat(quant.F16), "key", "value")
			got := NewTrace()
			e := accelEngine(t, m, smallDevice, accel.Options{Tap: got.AddFloats})
			teacherForced(t, e, tokens)
			checkRounded(t, exact, want, got)
		})
	}
}

// boundInput is what the first queries may be off, over all positions. An input within
// 2^-23 of the border between two halves, which are 2^-11 apart, may be rounded to either:
// one of about 4,096. With 64 inputs that is one row in 64, which is then off by 2^-10/√64;
// over all rows by 2^-10/64, here with a factor of two for bad luck.
const boundInput = bound16 / 8 / 8 * 2

// checkRounded compares what was computed with roundings, and the effect of these with
// what is left.
func checkRounded(t *testing.T, exact, want, got *Trace) {
	t.Helper()
	effects, err := exact.Compare(want)
	if err != nil {
		t.Fatal(err)
	}
	list, err := want.Compare(got)
	if err != nil {
		t.Fatal(err)
	}
	worst := 0.0
	for i, d := range list {
		bound := effects[i].Relative
		switch {
		case d.Op == "embed":
			bound = bound32
		case d.Layer == 0 && d.Op == "query":
			bound = boundInput
		case d.Layer == 0 && (d.Op == "key" || d.Op == "value"):
			bound = bound16
		default:
			worst = max(worst, d.Relative/effects[i].Relative)
		}
		if !(d.Relative <= bound) {
			t.Errorf("%v: off by %.3g, most at position %d; the bound is %.3g", d.Operation, d.Relative, d.Position, bound)
		}
	}
	last := len(list) - 1
	t.Logf("logits are off by %.2g, where rounding moves them by %.2g; at most %.2f of what rounding does", list[last].Relative, effects[last].Relative, worst)
}

// TestAccelChunks cuts one prompt in many ways, which may not show in a bit of any
// position's logits.
func TestAccelChunks(t *testing.T) {
	notShort(t)
	files := []string{"arch/qwen3moe.gguf"}
	if *longCases {
		files = slices.Concat(modelFiles("arch"), modelFiles("quant"))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(file, ".gguf"), func(t *testing.T) {
			m := goldenModel(t, file)
			tokens := spread(m.Config.Vocab, 70) // more than a page
			var want []float32
			for _, c := range []struct {
				chunk int
				parts []int
			}{{0, nil}, {1, nil}, {7, nil}, {64, nil}, {0, []int{2, 3, 63}}, {5, []int{68}}, {17, []int{1, 64}}} {
				if (c.chunk == 1 || c.chunk == 5) && !*longCases {
					continue // many passes
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
			// A single token behind others is a step: that it shows is what makes the
			// comparison above one that can fail.
			e := accelEngine(t, m, smallDevice, accel.Options{})
			if at := firstDifference(want, teacherForced(t, e, tokens, 69)); at < 69*m.Config.Vocab {
				t.Errorf("a step at position 69 shows first in logit %d", at)
			}
		})
	}
}
