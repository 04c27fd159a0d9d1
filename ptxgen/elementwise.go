package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Elementwise computes on rows of Width numbers
//
//	y[r,i] = act(cap((x[r,i] + bias[i]) * scale)) * up[r,i] + residual[r,i]
//
// of which a launch leaves out what it does not need: it is the addition of a bias or
// a residual, a multiplication, a scaling, a softcap, an activation or a gated one.
// Every operation is rounded by itself.
type Elementwise struct{}

const elementThreads = 256 // each takes a quad

func elementwiseSpecs() []Spec { return []Spec{Elementwise{}} }

// Name implements Spec.
func (Elementwise) Name() string { return "elementwise" }

// Build implements Spec.
func (s Elementwise) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("y = act(cap((x + bias) * scale)) * up + residual")
	x, bias, up, residual, y := b.Global("x", 4), b.Global("bias", 4), b.Global("up", 4), b.Global("residual", 4), b.Global("y", 4)
	width, parts := b.ParamU32("width"), b.ParamU32("parts")
	xStride, upStride, yStride := b.ParamU32("x_stride"), b.ParamU32("up_stride"), b.ParamU32("y_stride")
	scale, cap, act := b.ParamF32("scale"), b.ParamF32("cap"), b.ParamU32("act")

	r := b.BlockX().Div(parts)
	i := b.BlockX().Sub(r.Mul(parts)).MulN(elementThreads).Add(b.ThreadX())
	at := func(p ptx.Global, stride ptx.U32) row {
		return rowAt(b, quant.F32, p.AtBytes(r.MulWide(stride).ShlN(2)).Aligned(4), width)
	}
	in := at(x, xStride)
	b.ReturnIf(i.Ge(in.quads()))
	v := in.load(i, 0)
	with := func(p ptx.Global, stride ptx.U32, combine func(a, c ptx.F32) ptx.F32) {
		b.If(given(b, p), func() {
			for j, c := range at(p, stride).load(i, 0) {
				ptx.Set(v[j], combine(v[j], c))
			}
		})
	}
	with(bias, b.U32(0), ptx.F32.Add)
	for j := range v {
		ptx.Set(v[j], v[j].Mul(scale))
	}
	b.If(cap.Gt(b.F32(0)), func() {
		for j := range v {
			ptx.Set(v[j], softcap(b, v[j], cap))
		}
	})
	for j := range v {
		v[j] = activate(b, act, v[j])
	}
	with(up, upStride, ptx.F32.Mul)
	with(residual, yStride, ptx.F32.Add)
	at(y, yStride).store(i, v)
	return b.Finish(ptx.MaxThreads(elementThreads))
}

// ElementwiseArgs are a launch's arguments. A stride of 0 means Width.
type ElementwiseArgs struct {
	X          Address // f32 [Rows, Width]
	Bias       Address // f32 [Width], or 0
	Up         Address // f32 [Rows, Width], or 0; may lie in the rows of X
	Residual   Address // f32, laid out as Y, or 0
	Y          Address // f32 [Rows, Width]; may be X, Up or Residual
	Rows       int
	Width      int
	XStride    int
	UpStride   int
	YStride    int
	Scale      float32 // 0 means 1
	Cap        float32 // 0 means none
	Activation Activation
}

// Launch makes a launch.
func (s Elementwise) Launch(k *ptx.Kernel, a ElementwiseArgs) (ptx.Launch, error) {
	a.XStride, a.UpStride, a.YStride = orElse(a.XStride, a.Width), orElse(a.UpStride, a.Width), orElse(a.YStride, a.Width)
	if a.Scale == 0 {
		a.Scale = 1
	}
	if err := checkBounds(k, bound{"Rows", a.Rows, 1, maxSize}, bound{"Width", a.Width, 1, maxSize},
		bound{"XStride", a.XStride, a.Width, maxSize}, bound{"UpStride", a.UpStride, a.Width, maxSize}, bound{"YStride", a.YStride, a.Width, maxSize},
		bound{"Activation", int(a.Activation), int(Identity), int(GELU)}); err != nil {
		return ptx.Launch{}, err
	}
	if err := checkPointers(k, pointer{"X", a.X}, pointer{"Y", a.Y}); err != nil {
		return ptx.Launch{}, err
	}
	if err := checkNumbers(k, number{"Cap", a.Cap}); err != nil {
		return ptx.Launch{}, err
	}
	flat := a.XStride == a.Width && a.UpStride == a.Width && a.YStride == a.Width && a.Bias == 0
	if flat && a.Rows <= maxSize/a.Width { // one long row fills its CTAs better
		a.Width *= a.Rows
		a.Rows = 1
	}
	const perCTA = 4 * elementThreads
	parts := ceilDiv(a.Width, perCTA)
	if err := checkBounds(k, bound{"Rows", a.Rows, 1, maxSize / parts}); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Rows * parts), 1, 1}, elementThreads, 0,
		ptx.Addr(a.X), ptx.Addr(a.Bias), ptx.Addr(a.Up), ptx.Addr(a.Residual), ptx.Addr(a.Y), ptx.Uint(a.Width), ptx.Uint(parts),
		ptx.Uint(a.XStride), ptx.Uint(a.UpStride), ptx.Uint(a.YStride), ptx.Float(a.Scale), ptx.Float(a.Cap), ptx.Uint(uint32(a.Activation)))
}
