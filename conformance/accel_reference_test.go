package conformance

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// tracked is a model whose every operation is compared with the reference's.
type tracked struct {
	file   string // below the golden directory
	kv     accel.KVFormat
	tokens int
	bound  float64 // relative L2 of every operation at every position
	long   bool
}

// bound32 is what a model of a few layers may be off in float32: cases.md allows the
// logits 1e-5. Rounding errors of some 2e-8 a step grow with the roots of the layers and
// of the sums, so that a smaller bound holds for models this small.
const bound32 = 2e-6

// bound16 and boundB16 allow for numbers that another rounding error made be rounded to
// the other side: by one spacing of the format, which is up to 2^-10 or 2^-7 of them. What
// is computed of them is off by no more in proportion.
const (
	bound16  = 1.0 / (1 << 10)
	boundB16 = 1.0 / (1 << 7)
)

// modelFiles are the golden models in a folder.
func modelFiles(folder string) []string {
	var files []string
	for _, c := range golden.Cases() {
		if filepath.Dir(c.Model) == folder && !slices.Contains(files, c.Model) {
			files = append(files, c.Model)
		}
	}
	return files
}

func trackedModels() []tracked {
	var all []tracked
	for _, f := range modelFiles("arch") {
		all = append(all,
			tracked{f, accel.KVF32, 18, bound32, false}, tracked{f, accel.KVF32, 70, bound32, true},
			tracked{f, accel.KVF16, 70, bound16, true}, tracked{f, accel.KVBF16, 70, boundB16, true})
	}
	all = append(all, tracked{"arch/llama-gqa.gguf", accel.KVF16, 18, bound16, false}, tracked{"arch/llama-gqa.gguf", accel.KVBF16, 18, boundB16, false})
	for i, f := range modelFiles("quant") {
		all = append(all, tracked{f, accel.KVF32, 3, bound32, i%3 != 0}, tracked{f, accel.KVF32, 70, bound32, true})
	}
	return all
}

// TestAccelOperations holds every operation of every layer to the reference, positions by
// the dozen and one by one.
func TestAccelOperations(t *testing.T) {
	notShort(t)
	for _, c := range trackedModels() {
		if c.long && !*longCases {
			continue
		}
		name := strings.TrimSuffix(c.file, ".gguf") + "/" + c.kv.String()
		name += fmt.Sprintf("/%d positions", c.tokens)
		t.Run(name, func(t *testing.T) {
			m := goldenModel(t, c.file)
			tokens := spread(m.Config.Vocab, c.tokens)
			want := refTrace(t, m, ref.Numerics{KV: c.kv.Format()}, tokens)
			want.Round(toFormat(c.kv.Format()), "key", "value")
			got := NewTrace()
			e := accelEngine(t, m, smallDevice, accel.Options{KV: c.kv, Prefill: accel.Stepwise, Tap: got.AddFloats})
			teacherForced(t, e, tokens, len(tokens)-2, 1)
			checkTrace(t, want, got, c.bound)
		})
	}
}

// checkTrace demands that every operation stays within a bound at every position.
func checkTrace(t *testing.T, want, got *Trace, bound float64) {
	t.Helper()
	list, err := want.Compare(got)
	if err != nil {
		t.Fatal(err)
	}
	worst := Difference{Worst: -1}
	for _, d := range list {
		if !(d.Worst <= bound) {
			t.Fatalf("%v, position %d, element %d: off by %.3g, the bound is %.3g", d.Operation, d.Position, d.Element, d.Worst, bound)
		}
		if d.Worst > worst.Worst {
			worst = d
		}
	}
	t.Logf("%d operations; the worst is %v at position %d, off by %.2g; logits by %.2g",
		len(list), worst.Operation, worst.Position, worst.Worst, list[len(list)-1].Relative)
}

// toFormat rounds as storing in a format does.
func toFormat(f quant.Format) func(float64) float64 {
	return func(x float64) float64 {
		switch y := float32(x); f {
		case quant.F16:
			return float64(quant.F16ToF32(quant.F32ToF16(y)))
		case quant.BF16:
			return float64(quant.BF16ToF32(quant.F32ToBF16(y)))
		default:
			return float64(y)
		}
	}
}

// TestAccelTraceSeesFaults plants faults that a comparison of traces must name.
func TestAccelTraceSeesFaults(t *testing.T) {
	m := goldenModel(t, "arch/llama-gqa.gguf")
	tokens := spread(m.Config.Vocab, 9)
	want := refTrace(t, m, ref.Numerics{}, tokens)
	for _, c := range []struct {
		name  string
		spoil func(*Trace)
		names string
	}{
		{"another value", func(g *Trace) { g.rows[Operation{1, "attention"}][4][7] += 0.01 }, "layer 1, attention"},
		{"a position that is not there", func(g *Trace) { delete(g.rows[Operation{0, "key"}], 8) }, "layer 0, key"},
		{"NaN", func(g *Trace) { g.rows[Operation{-1, "logits"}][0][3] = math.NaN() }, "logits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := refTrace(t, m, ref.Numerics{}, tokens)
			c.spoil(got)
			list, err := want.Compare(got)
			if err != nil {
				if !strings.HasPrefix(err.Error(), c.names) {
					t.Errorf("the error names %v", err)
				}
				return
			}
			i := slices.IndexFunc(list, func(d Difference) bool { return !(d.Worst <= bound32) })
			if i < 0 || list[i].String() != c.names {
				t.Errorf("the first operation that is off is %d of %v, want %s", i, list, c.names)
			}
		})
	}
}
