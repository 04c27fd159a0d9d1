package conformance

import (
	"fmt"
	"math"
)

// approximation is an instruction that is right within a documented bound.
type approximation struct {
	op       string
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
var approximations = []approximation{
	{"ex2.approx.f32", math.Exp2, 2 * 0x1p-23, 0x1p-149, false},
	{"ex2.approx.ftz.f32", math.Exp2, 2 * 0x1p-23, 0x1p-126, true},
	{"lg2.approx.f32", math.Log2, 0x1p-22, 0x1p-22, false},
	{"rcp.approx.f32", func(x float64) float64 { return 1 / x }, 0x1p-23, 0x1p-149, false},
	{"rsqrt.approx.f32", func(x float64) float64 { return 1 / math.Sqrt(x) }, 0x1.12p-23, 0, false},
	{"sqrt.approx.f32", math.Sqrt, 0x1p-22, 0x1p-149, false},
	{"tanh.approx.f32", math.Tanh, 0x1p-11, 0x1p-126, false},
}

func approximationOf(op string) (approximation, bool) {
	for _, a := range approximations {
		if a.op == op {
			return a, true
		}
	}
	return approximation{}, false
}

// check holds results to the bound and gives the largest error ÷ bound.
func (a approximation) check(x, got []uint64) (worst float64, err error) {
	for i := range x {
		in, y := f32Of(x[i]), float64(f32Of(got[i]))
		want := a.of(float64(in))
		near := float64(float32(want))
		switch {
		case want != want && y != y, math.IsInf(near, 0) && y == near:
			continue
		}
		bound := a.relative*math.Abs(want) + a.absolute
		ratio := math.Abs(y-want) / bound
		if a.subnormal && math.Abs(float64(in)) < 0x1p-126 && !(ratio <= 1) {
			continue // the unit may take it for 0
		}
		if !(ratio <= 1) {
			return ratio, fmt.Errorf("%s of %v gives %v, want %v within %.3g", a.op, in, y, want, bound)
		}
		worst = max(worst, ratio)
	}
	return worst, nil
}
