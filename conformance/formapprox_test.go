package conformance

import (
	"fmt"
	"math"
)

// approximation is an instruction that is right within a documented bound.
type approximation struct {
	of       func(x float64) float64
	relative float64 // bound of the error, of the result
	absolute float64 // and on top of it
	// subnormal operands may be taken for 0.
	subnormal bool
}

// approximations are as the PTX ISA documents them; one of n ulp is n·2⁻²³ of the
// result at most. Beyond the bound float32 itself ends: results below its normal
// numbers may be off by a step of the subnormal ones, or by 2⁻¹²⁶ where the unit
// flushes.
var approximations = map[string]approximation{
	"ex2.approx.f32":     {math.Exp2, 2 * 0x1p-23, 0x1p-149, false},
	"ex2.approx.ftz.f32": {math.Exp2, 2 * 0x1p-23, 0x1p-126, true},
	"lg2.approx.f32":     {math.Log2, 0x1p-22, 0, false}, // absolute in (0.5, 2)
	"rcp.approx.f32":     {func(x float64) float64 { return 1 / x }, 0x1p-23, 0x1p-149, false},
	"rsqrt.approx.f32":   {func(x float64) float64 { return 1 / math.Sqrt(x) }, math.Exp2(-22.9), 0, false},
	"sqrt.approx.f32":    {math.Sqrt, 0x1p-23, 0x1p-149, false},
	"tanh.approx.f32":    {math.Tanh, 0x1p-11, 0x1p-126, false},
}

// check holds results to the bound and gives the largest error ÷ bound. Infinities,
// NaN and the sign of infinity must be as they are in the limit.
func (a approximation) check(f form, x, got []uint64) (worst float64, err error) {
	f32 := floatFormats["f32"]
	for i := range x {
		in, y := f32.value(x[i]), f32.value(got[i])
		want := a.of(in)
		near := f32.value(f32.near(want))
		if want != want && y != y || math.IsInf(near, 0) && y == near {
			continue
		}
		bound := a.relative*math.Abs(want) + a.absolute
		if f.op == "lg2.approx.f32" && in > 0.5 && in < 2 {
			bound = a.relative
		}
		ratio := math.Abs(y-want) / bound
		if y == want {
			ratio = 0
		}
		if a.subnormal && math.Abs(in) < 0x1p-126 && y == a.of(0) {
			continue
		}
		if !(ratio <= 1) {
			return ratio, fmt.Errorf("%v of %v gives %v, want %v within %.3g", f, in, y, want, bound)
		}
		worst = max(worst, ratio)
	}
	return worst, nil
}
