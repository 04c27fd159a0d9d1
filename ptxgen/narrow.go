package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Narrow rounds rows of float32 to halves or bfloat16 for a matrix multiplication on
// tensor cores, which reads rows of whole units of 32:
//
//	y[r,i] = round(x[r,i] / scale[r]) for i < Width, 0 for Width <= i < Padded
//
// To F16, scale[r] is the power of two that brings the row's largest finite number
// to 2^14 or above, below 2^15: nothing overflows, the division is exact, and only
// what is 2^28 times smaller than the largest loses digits to subnormal halves. An
// infinity or a NaN stays one. A row without a finite number other than 0 has scale
// 1. To BF16 there is no scale: its range is that of a float32.
type Narrow struct{ To quant.Format }

func narrowSpecs() []Spec { return []Spec{Narrow{quant.F16}, Narrow{quant.BF16}} }

// Name implements Spec.
func (s Narrow) Name() string { return "narrow" + formatSuffix(s.To) }

// Build implements Spec.
func (s Narrow) Build() (*ptx.Kernel, error) {
	b := begin(s)
	if s.To != quant.F16 && s.To != quant.BF16 {
		b.Failf("narrow to %v, which is neither F16 nor BF16", s.To)
	}
	b.Doc("y[r,i] = round(x[r,i] / scale[r]), zeros up to a multiple of 32")
	x, y, scale := b.Global("x", 4), b.Global("y", 8), b.Global("scale", 4)
	width, stride := b.ParamU32("width"), b.ParamU32("stride")
	padded := width.CeilDivN(32).MulN(32)
	r, t := b.BlockX(), team{b: b, cta: true} // without slots, to BF16
	in := rowAt(b, quant.F32, x.AtBytes(r.MulWide(stride).ShlN(2)).Aligned(4), width)
	out := rowAt(b, s.To, y.AtBytes(r.MulWide(padded).ShlN(1)).Aligned(8), padded)

	inverse := b.F32(1)
	if s.To == quant.F16 {
		t = ctaTeam(b)
		exponent := s.exponent(t, in)
		inverse = b.U32(127 + 127 + 14).Sub(exponent).ShlN(23).AsF32()
		b.If(b.ThreadX().EqN(0), func() { scale.At(r, 4).StoreF32(exponent.AddN(-14).ShlN(23).AsF32()) })
	}
	b.For(t.rank(), out.quads(), t.size(), func(i ptx.U32) {
		v := in.load(i, 0) // all zeros beyond the row
		for j := range v {
			v[j] = v[j].Mul(inverse)
		}
		out.store(i, v)
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(1024))
}

// exponent is the biased exponent of the row's largest finite magnitude: at least 15,
// where both scale and 1/scale are normal, and that of 2^14 for a row of zeros.
func (Narrow) exponent(t team, in row) ptx.U32 {
	b := t.b
	top := ptx.Var(b.F32(0))
	b.For(t.rank(), in.quads(), t.size(), func(i ptx.U32) {
		for _, v := range in.load(i, 0) {
			size := v.Abs()
			finite := size.Lt(b.F32(float32(math.Inf(1)))) // false for NaN
			ptx.Set(top, top.Max(ptx.Select(finite, size, b.F32(0))))
		}
	}, ptx.NoUnroll)
	largest := t.max(top)
	return ptx.Select(largest.Gt(b.F32(0)), largest.Bits().ShrN(23).Max(b.U32(15)), b.U32(127+14))
}

// NarrowArgs are a launch's arguments.
type NarrowArgs struct {
	X      Address // f32 [Rows, Width]
	Y      Address // To [Rows, Padded(Width)]
	Scale  Address // f32 [Rows]; not used by BF16
	Rows   int
	Width  int
	Stride int // elements between the rows of X; 0 means Width
}

// Padded is the length of a row of Y.
func (Narrow) Padded(width int) int { return ceilDiv(width, 32) * 32 }

// Launch makes a launch.
func (s Narrow) Launch(k *ptx.Kernel, a NarrowArgs) (ptx.Launch, error) {
	a.Stride = orElse(a.Stride, a.Width)
	if err := checkBounds(k, bound{"Rows", a.Rows, 1, maxSize}, bound{"Width", a.Width, 1, maxSize - 32}, bound{"Stride", a.Stride, a.Width, maxSize}); err != nil {
		return ptx.Launch{}, err
	}
	need := []pointer{{"X", a.X}, {"Y", a.Y}}
	if s.To == quant.F16 {
		need = append(need, pointer{"Scale", a.Scale})
	}
	if err := checkPointers(k, need...); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Rows), 1, 1}, rowThreads(a.Width), 0,
		ptx.Addr(a.X), ptx.Addr(a.Y), ptx.Addr(a.Scale), ptx.Uint(a.Width), ptx.Uint(a.Stride))
}
