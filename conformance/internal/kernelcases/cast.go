package kernelcases

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/quant"
)

func castCases() []harness.Case {
	var all []harness.Case
	add := func(f quant.Format, name, reason string, long bool, width, stride int, inputs func(r *harness.Fixture) []float32) {
		all = append(all, harness.Case{
			Operation: "cast", Format: f.String(), Name: f.String() + "/" + name, Reason: reason, Long: long,
			Run: func(r *harness.Fixture) { checkCast(r, f, inputs(r), width, stride) },
		})
	}
	for _, f := range []quant.Format{quant.F16, quant.BF16} {
		for _, width := range []int{1, 31, 32, 33, 255, 257, 2880, 9000, 28672} {
			add(f, fmt.Sprintf("width=%d", width), WidthReason(width), width > 9000, width, width, func(r *harness.Fixture) []float32 { return r.Vector(harness.Gaussian, 2*width) })
		}
		for _, d := range harness.Distributions() {
			add(f, d.String(), "the distribution of a row", false, 96, 96, func(r *harness.Fixture) []float32 { return r.Vector(d, 3*96) })
		}
		add(f, "stride", "rows in a wider buffer", false, 70, 75, func(r *harness.Fixture) []float32 { return r.Vector(harness.Gaussian, 3*75) })
		add(f, "last largest", "the largest number, above 2^127, is in the last warp and iteration", false, 5001, 5001, func(r *harness.Fixture) []float32 {
			x := r.Vector(harness.Gaussian, 5001)
			for i := range 5 {
				x[4996+i] = 3e38 + float32(i)*1e36
			}
			return x
		})
		add(f, "extremes", "rows of zeros, of the largest and of the smallest numbers; rows with infinities and NaN", false, 4, 4, func(*harness.Fixture) []float32 {
			inf, nan := float32(math.Inf(1)), float32(math.NaN())
			return []float32{
				0, 0, 0, 0, math.MaxFloat32, -1e38, 1, 1e-30, math.SmallestNonzeroFloat32, 0, -2 * math.SmallestNonzeroFloat32, 0,
				inf, 3, -inf, 1e-3, nan, 2, -5, 0, inf, nan, -inf, inf, 85807, -65520, 65504, 1, 0x1p-126, 0x1p-127, 0x1p-140, 0,
			}
		})
	}
	return all
}

func checkCast(r *harness.Fixture, f quant.Format, x []float32, width, stride int) {
	spec := elementwise.Cast(f)
	rows, padded := len(x)/stride, elementwise.PaddedWidth(width)
	in, out := r.F32s("x", x), r.Output("y", 2*rows*padded)
	a := elementwise.CastArgs{X: in.Addr(), Y: out.Addr(), Rows: rows, Width: width, Stride: stride}
	var scale *harness.Buffer
	if f == quant.F16 {
		scale = r.Output("scale", 4*rows)
		a.Scale = scale.Addr()
	}
	r.Launch(spec.Launch(r.Kernel(spec), a))
	var want, scales []float32
	for i := range rows {
		row := x[i*stride:][:width]
		s := float32(1)
		if f == quant.F16 {
			s = castScale(row)
			scales = append(scales, s)
		}
		scaled := make([]float32, padded)
		for j, v := range row {
			scaled[j] = float32(float64(v) / float64(s))
		}
		want = append(want, roundAll(f, scaled)...)
	}
	harness.Exact(r, "y", out.Floats(f), want)
	if f == quant.F16 {
		harness.Exact(r, "scale", scale.F32s(), scales)
	}
}

// castScale returns the power of two that scales the largest finite number to at least 2¹⁴.
// Both it and its inverse are normal numbers.
func castScale(x []float32) float32 {
	top := 0.0
	for _, v := range x {
		if size := math.Abs(float64(v)); size > top && size <= math.MaxFloat32 {
			top = size
		}
	}
	if top == 0 {
		return 1
	}
	_, e := math.Frexp(top)
	return float32(math.Ldexp(1, max(e-1-14, -126)))
}
