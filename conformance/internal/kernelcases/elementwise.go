package kernelcases

import (
	"cmp"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/quant"
)

// activationRefs are the activations in a form without cancellation in 1 + tanh.
var activationRefs = map[elementwise.Activation]func(x float64) float64{
	elementwise.Identity: func(x float64) float64 { return x },
	elementwise.SiLU:     func(x float64) float64 { return overOnePlusExp(x, -x) },
	elementwise.GELU: func(x float64) float64 {
		cube := float64(0.044715 * x * x * x)
		return overOnePlusExp(x, -2*math.Sqrt(2/math.Pi)*(x+cube))
	},
	elementwise.ClampedSwiGLU: func(x float64) float64 {
		if x > 7 {
			x = 7
		}
		return overOnePlusExp(x, -1.702*x)
	},
	elementwise.Sigmoid: func(x float64) float64 { return overOnePlusExp(1, -x) },
}

var activationNames = map[elementwise.Activation]string{
	elementwise.SiLU: "silu", elementwise.GELU: "gelu", elementwise.ClampedSwiGLU: "clamped swiglu", elementwise.Sigmoid: "sigmoid",
}

// overOnePlusExp returns x / (1 + e^t).
func overOnePlusExp(x, t float64) float64 {
	if t > 700 && !math.IsInf(x, 0) {
		return float64(x * math.Exp(-t))
	}
	return x / (1 + math.Exp(t))
}

func launchElementwise(r *harness.Fixture, a elementwise.FusedArgs) {
	r.T.Helper()
	e := elementwise.Fused()
	r.Launch(e.Launch(r.Kernel(e), a))
}

// elementCase runs an elementwise kernel on rows × width numbers.
type elementCase struct {
	name, reason  string
	rows, width   int
	bias, up, add bool
	oneBuffer     bool // gate and up share a row, and the result overwrites gate
	apart         bool // each buffer has another stride
	scale, cap    float32
	upScale       float32 // of the numbers of up; 0: 1
	limits        bool    // some numbers are the limits of the activation
	huge          bool    // some numbers overflow divided by the cap
	act           elementwise.Activation
}

func elementwiseCases() []harness.Case {
	rows := []elementCase{
		{name: "residual", reason: "a plain addition, in place", rows: 3, width: 100, add: true},
		{name: "bias", reason: "all rows share the bias", rows: 3, width: 103, bias: true},
		{name: "bias, whole vec4", reason: "vec4 loads of a bias", rows: 3, width: 100, bias: true},
		{name: "multiply", reason: "a plain product", rows: 2, width: 65, up: true},
		{name: "scale", reason: "the embedding's scale", rows: 2, width: 65, scale: 45.254834},
		{name: "bias, gelu", reason: "the bias is added before the activation", rows: 2, width: 130, bias: true, act: elementwise.GELU},
		{name: "silu, gated, one buffer", reason: "gate and up in one row", rows: 3, width: 132, up: true, oneBuffer: true, act: elementwise.SiLU},
		{name: "gelu, gated, odd width", reason: "rows that are not aligned to 16 bytes", rows: 3, width: 131, up: true, oneBuffer: true, act: elementwise.GELU},
		{name: "clamped swiglu, limits", reason: "numbers of gate and up that are the limits", rows: 2, width: 42, up: true, act: elementwise.ClampedSwiGLU, limits: true},
		{name: "clamped swiglu", reason: "numbers of gate and up on both sides of the limits", rows: 2, width: 300, up: true, scale: 5, upScale: 5, act: elementwise.ClampedSwiGLU},
		{name: "sigmoid, gated, strides", reason: "gates of attention in a wider row", rows: 3, width: 44, up: true, apart: true, scale: 4, act: elementwise.Sigmoid},
		{name: "strides", reason: "each buffer has a stride of its own", rows: 3, width: 41, up: true, add: true, apart: true},
		{name: "strides, whole vec4", reason: "whole vec4s at addresses that are no multiples of 16 bytes", rows: 2, width: 40, up: true, add: true, apart: true},
		{name: "softcap", reason: "the logits' softcap", rows: 2, width: 300, scale: 1, cap: 30},
		{name: "softcap, below 1", reason: "a softcap below 1", rows: 2, width: 70, scale: 1, cap: 0.25},
		{name: "softcap, saturated", reason: "arguments beyond which tanh is 1", rows: 1, width: 300, scale: 100, cap: 0.25},
		{name: "softcap, huge", reason: "arguments that overflow divided by the cap", rows: 1, width: 300, cap: 0.25, huge: true},
		{name: "softcap, small", reason: "arguments far below the cap keep their precision", rows: 1, width: 300, scale: 1e-3, cap: 30},
		{name: "all", reason: "all operations in their order", rows: 2, width: 77, bias: true, up: true, add: true, scale: 0.5, cap: 3, act: elementwise.GELU},
	}
	for _, n := range []int{1, 2, 3, 4, 31, 33, 1023, 1024, 1025} {
		rows = append(rows, elementCase{name: fmt.Sprintf("n=%d", n), reason: "a tail after whole vec4 accesses, and around a CTA", rows: 1, width: n, add: true})
	}
	var all []harness.Case
	for _, c := range rows {
		all = append(all, harness.Case{Operation: "elementwise", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkElementwise(r, c) }})
	}
	for _, act := range []elementwise.Activation{elementwise.SiLU, elementwise.GELU, elementwise.ClampedSwiGLU, elementwise.Sigmoid} {
		all = append(all, activationCase(act, "all magnitudes", "8 ulp for all magnitudes, without intermediate overflow", allMagnitudes))
		all = append(all, activationCase(act, "large powers", "powers of two around 2^64, from where on they are scaled", func(*harness.Fixture) (x []float32) {
			for i := range 32 {
				x = append(x, -41-float32(i)/5, -7-float32(i)/20)
			}
			return x
		}))
		all = append(all, activationCase(act, "near the bend", "8 ulp where the exponential matters; NaN at −Inf, as Inf/Inf gives", func(r *harness.Fixture) []float32 {
			x := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.MaxFloat32, -math.MaxFloat32}
			for range 6000 {
				x = append(x, float32(120*(2*r.Rand().Float64()-1)), float32(12*(2*r.Rand().Float64()-1)))
			}
			return x
		}))
	}
	return all
}

// allMagnitudes returns numbers of each exponent and both signs.
func allMagnitudes(r *harness.Fixture) []float32 {
	var x []float32
	for e := uint32(0); e < 255; e++ {
		for range 16 {
			x = append(x, math.Float32frombits(r.Rand().Uint32()&0x807FFFFF|e<<23))
		}
	}
	return x
}

func activationCase(act elementwise.Activation, name, reason string, inputs func(*harness.Fixture) []float32) harness.Case {
	return harness.Case{
		Operation: activationNames[act], Format: "F32", Name: name, Reason: reason,
		Run: func(r *harness.Fixture) {
			x, spec := inputs(r), elementwise.Fused()
			in, out := r.F32s("x", x), r.Output("y", 4*len(x))
			r.Launch(spec.Launch(r.Kernel(spec), elementwise.FusedArgs{X: in.Addr(), Y: out.Addr(), Rows: 1, Width: len(x), Activation: act}))
			want := make([]float64, len(x))
			for i, v := range x {
				want[i] = activationRefs[act](float64(v))
			}
			r.ULP("y", quant.F32, out.F32s(), want, 8)
		},
	}
}

func checkElementwise(r *harness.Fixture, c elementCase) {
	n := c.rows * c.width
	x, bias, up, add := r.Vector(harness.Gaussian, n), r.Vector(harness.Gaussian, c.width), r.Vector(harness.Gaussian, n), r.Vector(harness.Gaussian, n)
	for i := range up {
		up[i] *= cmp.Or(c.upScale, 1)
	}
	if c.limits {
		for i := 0; i+3 < n; i += 4 {
			x[i], up[i+1], up[i+2] = 7, 7, -7
		}
	}
	if c.huge {
		x[0], x[1] = 0x1p127, -0x1p127
	}
	a := elementwise.FusedArgs{Rows: c.rows, Width: c.width, Scale: c.scale, Cap: c.cap, Activation: c.act}
	stride := c.width
	if c.apart {
		stride = c.width + 1
		a.XStride, a.UpStride, a.YStride = stride+3, stride+6, stride
	}
	out := r.Output("y", 4*c.rows*stride)
	a.X, a.Y = r.Rows("x", x, c.width, max(a.XStride, c.width)).Addr(), out.Addr()
	if c.up {
		a.Up = r.Rows("up", up, c.width, max(a.UpStride, c.width)).Addr()
	}
	if c.oneBuffer {
		stride = 2 * c.width
		out = sideBySide(r, x, up, c.width)
		a.X, a.Up, a.Y = out.Addr(), out.At(4*c.width), out.Addr()
		a.XStride, a.UpStride, a.YStride = stride, stride, stride
	}
	if c.bias {
		a.Bias = r.F32s("bias", bias).Addr()
	}
	if c.add { // in place
		for i := range c.rows {
			out.SetF32s(4*i*stride, add[i*c.width:][:c.width])
		}
		a.Residual = out.Addr()
	}
	spec := elementwise.Fused()
	r.Launch(spec.Launch(r.Kernel(spec), a))
	for i := range c.rows {
		from := i * c.width
		got := out.FloatsAt(quant.F32, 4*i*stride, c.width)
		want, bound := make([]float64, c.width), make([]float64, c.width)
		for j := range want {
			want[j], bound[j] = c.element(x[from+j], bias[j], up[from+j], add[from+j])
		}
		r.Within(fmt.Sprintf("row %d", i), got, want, bound)
		if c.apart {
			out.Untouched(4*(i*stride+c.width), 4*(stride-c.width))
		}
		if c.oneBuffer {
			harness.Exact(r, "up", out.FloatsAt(quant.F32, 4*(i*stride+c.width), c.width), up[from:][:c.width])
		}
	}
}

// sideBySide returns a buffer of rows that hold gate, then up.
func sideBySide(r *harness.Fixture, gate, up []float32, width int) *harness.Buffer {
	m := r.Output("gate and up", 4*(len(gate)+len(up)))
	for i := 0; i < len(gate); i += width {
		m.SetF32s(4*2*i, gate[i:i+width]).SetF32s(4*(2*i+width), up[i:i+width])
	}
	return m
}

// element evaluates the kernel's formula and its error bound: one unit roundoff per
// arithmetic operation and 16 per function, propagated through the following operations.
func (c elementCase) element(x, bias, up, add float32) (y, bound float64) {
	const u = harness.UnitRoundoff
	apply := func(next, factor float64) {
		y = next
		bound = float64(bound*math.Abs(factor)) + float64(u*math.Abs(y))
	}
	y = float64(x)
	if c.bias {
		apply(y+float64(bias), 1)
	}
	if c.scale != 0 && c.scale != 1 {
		apply(y*float64(c.scale), float64(c.scale))
	}
	if c.cap != 0 {
		apply(float64(c.cap)*math.Tanh(y/float64(c.cap)), 1)
		bound += 16 * u * math.Abs(y)
	}
	if c.act != elementwise.Identity {
		apply(activationRefs[c.act](y), 1.2) // beyond the largest slope, GELU's
		bound += 16 * u * math.Abs(y)
	}
	if c.up {
		factor := float64(up)
		if c.act == elementwise.ClampedSwiGLU {
			factor = 1 + min(max(factor, -7), 7)
			bound += u * math.Abs(y*factor)
		}
		apply(y*factor, factor)
	}
	if c.add {
		apply(y+float64(add), 1)
	}
	return y, bound
}
