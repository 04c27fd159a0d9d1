package kernelcases

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/quant"
)

// softmaxCase computes the softmax of rows of width numbers.
type softmaxCase struct {
	name, reason string
	rows, width  int
	stride       int
	spread       float64 // multiplies Gaussian numbers; 0: 1
	scale, cap   float32
	plant        map[int]float32
	inPlace      bool
	long         bool
}

func softmaxCases() []harness.Case {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	rows := []softmaxCase{
		{name: "spread", reason: "probabilities down to 0, each within its own bound", rows: 2, width: 500, spread: 40},
		{name: "scale", reason: "the scale of attention", rows: 2, width: 130, spread: 20, scale: 0.08838835},
		{name: "cap", reason: "the softcap is applied before the maximum", rows: 2, width: 130, spread: 100, scale: 0.5, cap: 50},
		{name: "cap, small", reason: "scores far below the softcap keep their precision", rows: 2, width: 130, spread: 0.4, cap: 1},
		{name: "cap, bend", reason: "scores around the softcap, where tanh changes its method", rows: 2, width: 530, spread: 1.2, cap: 1},
		{name: "in place, stride", reason: "rows in a wider buffer, in place and unaligned", rows: 3, width: 66, stride: 71, inPlace: true},
		{name: "masked", reason: "-Inf gets probability 0", rows: 2, width: 40, plant: map[int]float32{0: -inf, 39: -inf, 40: -inf}},
		{name: "special", reason: "rows of -Inf only, with NaN or with Inf give NaN; other rows do not", rows: 4, width: 2,
			plant: map[int]float32{0: -inf, 1: -inf, 2: nan, 5: inf}},
		{name: "largest last", reason: "the maximum is in a later iteration of a thread", rows: 1, width: 8300, plant: map[int]float32{8299: 300}},
		{name: "large", reason: "the maximum is subtracted before the exponential", rows: 1, width: 33, spread: 1e4},
	}
	for _, width := range []int{1, 3, 31, 33, 127, 129, 1025, 4099, 8300, 32768} {
		rows = append(rows, softmaxCase{name: fmt.Sprintf("width=%d", width), reason: "around a warp, with a tail, and rows of several iterations", rows: 2, width: width, spread: 5, long: width > 8300})
	}
	var all []harness.Case
	for _, c := range rows {
		c.stride = max(c.stride, c.width)
		all = append(all, harness.Case{Operation: "softmax", Format: "F32", Name: c.name, Reason: c.reason, Long: c.long, Run: func(r *harness.Fixture) { checkSoftmax(r, c) }})
	}
	return all
}

func checkSoftmax(r *harness.Fixture, c softmaxCase) {
	x := r.Vector(harness.Gaussian, c.rows*c.stride)
	if c.spread != 0 {
		for i := range x {
			x[i] *= float32(c.spread)
		}
	}
	for i, v := range c.plant {
		x[i] = v
	}
	out := r.Output("y", 4*len(x))
	a := ptxgen.SoftmaxArgs{Y: out.Addr(), Rows: c.rows, Width: c.width, XStride: c.stride, YStride: c.stride, Scale: c.scale, Cap: c.cap}
	if c.inPlace {
		out.SetF32s(0, x)
		a.X = out.Addr()
	} else {
		a.X = r.F32s("x", x).Addr()
	}
	spec := ptxgen.Softmax{}
	r.Launch(spec.Launch(r.Kernel(spec), a))
	for i := range c.rows {
		want, bound := softmaxRef(x[i*c.stride:][:c.width], float64(c.scale), float64(c.cap))
		got := decodeFloats(quant.F32, out.Range(4*i*c.stride, 4*c.width))
		r.Within(fmt.Sprintf("row %d", i), got, want, bound)
		if !math.IsNaN(want[0]) {
			r.SumsToOne(fmt.Sprintf("row %d", i), got, c.width)
		}
	}
}

// softmaxRef returns softmax(cap(scale·x)) and the error bound of each probability: (2|z −
// max| + 16)·u relative, plus 16 units of z and max if there is a softcap.
func softmaxRef(x []float32, scale, cap float64) (y, bound []float64) {
	if scale == 0 {
		scale = 1
	}
	y, bound = make([]float64, len(x)), make([]float64, len(x))
	const subnormal = 4 * 0x1p-149 // subnormal results: 2 units of the exponential and two roundings
	top, sum := math.Inf(-1), 0.0
	for i, v := range x {
		y[i] = float64(float64(v) * scale)
		if cap > 0 {
			y[i] = float64(cap * math.Tanh(y[i]/cap))
			bound[i] = 16 * math.Abs(y[i])
		}
		top = math.Max(top, y[i])
	}
	for i := range y {
		d := y[i] - top
		bound[i] += 2*math.Abs(d) + 16
		if cap > 0 {
			bound[i] += 16 * math.Abs(top)
		}
		y[i] = math.Exp(d)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
		bound[i] = float64(bound[i]*0x1p-24*y[i]) + subnormal
		if math.IsNaN(bound[i]) { // 0 times the infinite distance of a masked number
			bound[i] = 0
		}
	}
	return y, bound
}
