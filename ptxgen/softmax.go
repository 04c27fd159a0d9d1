package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Softmax replaces rows of scores by probabilities, a CTA a row:
//
//	z[i] = scale * x[i], or cap * tanh(scale * x[i] / cap)
//	y[i] = e^(z[i] - max z) / sum of e^(z[j] - max z)
//
// The sum is kept to twice the precision of a float32 in an order that the width
// fixes. A row with a NaN, with +Inf or with nothing but -Inf becomes NaN. Its
// readable twin is softmax in package ref.
type Softmax struct{}

func softmaxSpecs() []Spec { return []Spec{Softmax{}} }

// Name implements Spec.
func (Softmax) Name() string { return "softmax" }

// Build implements Spec.
func (s Softmax) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("y = e^(z - max z) / sum of e^(z - max z), z = cap(scale * x)")
	x, y := b.Global("x", 4), b.Global("y", 4)
	width, xStride, yStride := b.ParamU32("width"), b.ParamU32("x_stride"), b.ParamU32("y_stride")
	scale, cap := b.ParamF32("scale"), b.ParamF32("cap")
	r, t := b.BlockX(), ctaTeam(b)
	in := rowAt(b, quant.F32, x.AtBytes(r.MulWide(xStride).ShlN(2)).Aligned(4), width)
	out := rowAt(b, quant.F32, y.AtBytes(r.MulWide(yStride).ShlN(2)).Aligned(4), width)
	each := func(from row, body func(i ptx.U32, v quad)) {
		b.For(t.rank(), in.quads(), t.size(), func(i ptx.U32) { body(i, from.load(i, float32(math.Inf(-1)))) }, ptx.NoUnroll)
	}
	z, after := s.scores(b, scale, cap)

	top := ptx.Var(b.F32(float32(math.Inf(-1))))
	each(in, func(_ ptx.U32, v quad) {
		for j := range v {
			ptx.Set(top, top.Max(z(v[j])))
		}
	})
	most := t.max(top)
	b.Comment("powers, which the same thread reads again, and their sum")
	sum := zeroTotal(b)
	each(in, func(i ptx.U32, v quad) {
		for j := range v {
			v[j] = expApprox(b, z(v[j]).Sub(most).Mul(after))
			// What fills the last quad has no part in the sum, be most what it may.
			sum.add(ptx.Select(i.MulN(4).AddN(j).Lt(width), v[j], b.F32(0)))
		}
		out.store(i, v)
	})
	all := t.sum(sum).value(b)
	each(out, func(i ptx.U32, v quad) {
		for j := range v {
			v[j] = v[j].Div(all)
		}
		out.store(i, v)
	})
	return b.Finish(ptx.MaxThreads(1024))
}

// scores gives z of x, but for a factor that is left for after the maximum is taken
// off. Without a cap that is scale: rounding scale*x first would cost |z| and not
// |z - max z|.
func (Softmax) scores(b *ptx.Builder, scale, cap ptx.F32) (z func(x ptx.F32) ptx.F32, after ptx.F32) {
	capped := cap.Gt(b.F32(0))
	return func(x ptx.F32) ptx.F32 {
		x = ptx.Var(x)
		b.If(capped, func() { ptx.Set(x, softcap(b, x.Mul(scale), cap)) })
		return x
	}, ptx.Select(capped, b.F32(1), scale)
}

// SoftmaxArgs are a launch's arguments. A stride of 0 means Width.
type SoftmaxArgs struct {
	X       Address // f32 [Rows, Width]
	Y       Address // f32 [Rows, Width], may be X
	Rows    int
	Width   int
	XStride int
	YStride int
	Scale   float32 // positive; 0 means 1
	Cap     float32 // 0 means none
}

// Launch makes a launch.
func (s Softmax) Launch(k *ptx.Kernel, a SoftmaxArgs) (ptx.Launch, error) {
	a.XStride, a.YStride = orElse(a.XStride, a.Width), orElse(a.YStride, a.Width)
	if a.Scale == 0 {
		a.Scale = 1
	}
	if err := checkBounds(k, bound{"Rows", a.Rows, 1, maxSize}, bound{"Width", a.Width, 1, maxSize},
		bound{"XStride", a.XStride, a.Width, maxSize}, bound{"YStride", a.YStride, a.Width, maxSize}); err != nil {
		return ptx.Launch{}, err
	}
	if err := checkPointers(k, pointer{"X", a.X}, pointer{"Y", a.Y}); err != nil {
		return ptx.Launch{}, err
	}
	if err := checkNumbers(k, number{"Scale", a.Scale}, number{"Cap", a.Cap}); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Rows), 1, 1}, rowThreads(a.Width), 0,
		ptx.Addr(a.X), ptx.Addr(a.Y), ptx.Uint(a.Width), ptx.Uint(a.XStride), ptx.Uint(a.YStride), ptx.Float(a.Scale), ptx.Float(a.Cap))
}
