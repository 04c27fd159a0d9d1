package conformance

import (
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/quant"
)

// redTerms is how many products the sums below have.
const redTerms = 16

// sums is a matrix product's results, from x and w of so many terms each, changed.
type sums struct {
	got  []float32
	want []Ref
}

// honestSums are serial float32 sums of n products, for 512 elements.
func honestSums(r *KernelRig, n int) sums {
	var s sums
	for range 512 {
		w, x := r.Vector(Gaussian, n), r.Vector(Gaussian, n)
		var y float32
		for i := range w {
			y = float32(math.FMA(float64(w[i]), float64(x[i]), float64(y))) // near enough to a fused one
		}
		s.got, s.want = append(s.got, y), append(s.want, DotRef(w, x))
	}
	return s
}

var gateFaults = []struct {
	name   string
	change func(i int, y float32, w Ref) float32
	want   string // part of the complaint; "": none
}{
	{"honest", func(_ int, y float32, _ Ref) float32 { return y }, ""},
	{"biased up by a quarter of an ulp: one in four by a whole one", func(i int, y float32, w Ref) float32 {
		if i%4 == 0 {
			return float32(float64(y) + ulp(quant.F32, w.P))
		}
		return y
	}, "bias gate"},
	{"biased toward zero by a quarter", func(i int, y float32, w Ref) float32 {
		if i%4 == 0 {
			return float32(float64(y) - math.Copysign(ulp(quant.F32, w.P), w.Y))
		}
		return y
	}, "bias gate"},
	{"one element of 512 off by the hundredth part of its terms", func(i int, y float32, w Ref) float32 {
		if i == 100 {
			return y + float32(w.P)/100
		}
		return y
	}, "hard gate: 1 beyond"},
	{"one element beyond the sharp gate only", func(i int, y float32, w Ref) float32 {
		if i == 100 {
			return float32(w.Y + 9*unit*math.Sqrt(redTerms)*w.P)
		}
		return y
	}, "sharp gate: 1 beyond"},
	{"a row whose every error is large, but none beyond the sharp gate", func(i int, y float32, w Ref) float32 {
		if i/64 == 3 {
			return float32(w.Y + float64(1-2*(i%2))*4*unit*math.Sqrt(redTerms)*w.P)
		}
		return y
	}, "row gate: 1 beyond"},
	{"NaN", func(i int, y float32, _ Ref) float32 {
		if i == 511 {
			return float32(math.NaN())
		}
		return y
	}, "class gate: 1 beyond"},
	{"sums of 16-bit halves", func(_ int, y float32, _ Ref) float32 {
		return quant.F16ToF32(quant.F32ToF16(y))
	}, "hard gate"},
}

func TestCloseSeesFaults(t *testing.T) {
	for _, fault := range gateFaults {
		t.Run(fault.name, func(t *testing.T) {
			got := gateComplaints(t, func(r *KernelRig) {
				s := honestSums(r, redTerms)
				for i, y := range s.got {
					s.got[i] = fault.change(i, y, s.want[i])
				}
				r.Close("y", s.got, s.want, 64, Tolerance{L: redTerms})
			})
			expect(t, got, fault.want)
		})
	}
}

// expect demands a complaint that contains want, or none where it is "".
func expect(t *testing.T, complaints []string, want string) {
	t.Helper()
	all := strings.Join(complaints, "\n")
	if want == "" && all != "" || !strings.Contains(all, want) {
		t.Errorf("complaints:\n%s\nwant one with %q", all, want)
	}
}

func gateComplaints(t *testing.T, run func(r *KernelRig)) []string {
	t.Helper()
	return redComplaints(t, nil, KernelCase{Operation: "gates", Name: "gates", Reason: "planted results", Run: run})
}

var inf, nan = math.Inf(1), math.NaN()

// Each comparison, on two numbers of which the second is the interesting one.
var comparisons = []struct {
	name string
	run  func(r *KernelRig)
	want string
}{
	{"1 ulp of 2", func(r *KernelRig) {
		r.ULP("y", quant.F32, []float32{1, nextUp(3)}, []float64{1, 3}, 2)
	}, ""},
	{"3 ulp of 2", func(r *KernelRig) {
		r.ULP("y", quant.F32, []float32{1, nextUp(nextUp(nextUp(3)))}, []float64{1, 3}, 2)
	}, "ulp gate: 1 beyond"},
	{"subnormal, 3 ulp of 2", func(r *KernelRig) {
		r.ULP("y", quant.F32, []float32{1, 0x1p-149 * 8}, []float64{1, 0x1p-149 * 5}, 2)
	}, "ulp gate: 1 beyond"},
	{"half, the last place", func(r *KernelRig) { r.ULP("y", quant.F16, []float32{1, 1 + 0x1p-10}, []float64{1, 1}, 1) }, ""},
	{"half, two places", func(r *KernelRig) { r.ULP("y", quant.F16, []float32{1, 1 + 0x1p-9}, []float64{1, 1}, 1) }, "ulp gate"},
	{"half, overflow is an infinity", func(r *KernelRig) {
		r.ULP("y", quant.F16, []float32{1, float32(inf)}, []float64{1, 70000}, 1)
	}, ""},
	{"float32, no overflow there", func(r *KernelRig) {
		r.ULP("y", quant.F32, []float32{1, float32(inf)}, []float64{1, 70000}, 1)
	}, "class gate"},
	{"NaN for a number", func(r *KernelRig) { r.Within("y", []float32{1, float32(nan)}, []float64{1, 1}, []float64{inf, inf}) }, "class gate"},
	{"a NaN bound lets nothing through", func(r *KernelRig) { r.Within("y", []float32{1, 2}, []float64{1, 1}, []float64{0, nan}) }, "bound gate"},
	{"the wrong infinity", func(r *KernelRig) {
		r.Within("y", []float32{1, float32(-inf)}, []float64{1, inf}, []float64{1, 1})
	}, "class gate"},
	{"no worse", func(r *KernelRig) {
		r.NoWorse("y", []float32{1, 1.2}, []float64{1, 1}, []float32{1, 1.1}, 2)
	}, ""},
	{"worse", func(r *KernelRig) {
		r.NoWorse("y", []float32{1, 1.3}, []float64{1, 1}, []float32{1, 1.1}, 2)
	}, "bound gate"},
	{"a softmax of 1", func(r *KernelRig) { r.SumsToOne("y", []float32{0.25, 0.75}, 2) }, ""},
	{"a softmax of less", func(r *KernelRig) { r.SumsToOne("y", []float32{0.25, 0.7499}, 2) }, "bound gate"},
	{"equal words", func(r *KernelRig) { Exact(r, "y", []uint32{1, 2}, []uint32{1, 2}) }, ""},
	{"another word", func(r *KernelRig) { Exact(r, "y", []uint32{1, 2}, []uint32{1, 3}) }, "1 of 2 differ"},
	{"minus zero is not zero", func(r *KernelRig) {
		Exact(r, "y", []float32{0, float32(math.Copysign(0, -1))}, []float32{0, 0})
	}, "1 of 2 differ"},
	{"NaN is NaN", func(r *KernelRig) { Exact(r, "y", []float32{0, float32(nan)}, []float32{0, float32(nan)}) }, ""},
	{"a number short", func(r *KernelRig) { Exact(r, "y", []uint32{1}, []uint32{1, 2}) }, "1 numbers to compare with 2"},
	{"nothing to compare", func(r *KernelRig) { Exact(r, "y", []uint32{}, []uint32{}) }, "0 numbers"},
	{"no comparison", func(r *KernelRig) {}, "nothing was compared"},
}

func TestComparisons(t *testing.T) {
	for _, c := range comparisons {
		t.Run(c.name, func(t *testing.T) { expect(t, gateComplaints(t, c.run), c.want) })
	}
}
