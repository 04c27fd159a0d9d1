package elementwise

import (
	"cmp"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// castAlign is the number of weights in a sub-block. Cast pads rows to a multiple of it, because
// tensor cores multiply whole sub-blocks.
const castAlign = 32

// PaddedWidth returns the width of the rows that Cast writes: width rounded up to a multiple
// of 32.
func PaddedWidth(width int) int { return host.CeilDiv(width, castAlign) * castAlign }

// Cast rounds rows of float32 to F16 or BF16, to nearest even. The result is the left operand
// of a matrix product on tensor cores:
//
//	y[r,i] = round(x[r,i] / scale[r]) for i < Width, 0 for Width <= i < PaddedWidth(Width)
//
// For F16, scale[r] is the power of two that brings the row's largest finite magnitude to at
// least 2^14 and below 2^15. So nothing overflows, the division is exact, and only elements
// 2^28 times smaller than the largest are subnormal. Infinities and NaNs stay. A row without
// a finite number other than 0 has scale 1. For BF16, which has the range of float32, there
// is no scale. One CTA has one row.
func Cast(to quant.Format) kernel.Typed[CastArgs] {
	return kernel.New("cast_"+host.FormatName(to),
		func(b *ptx.Builder) (*ptx.Kernel, error) { return buildCast(b, to) },
		func(k *ptx.Kernel, a CastArgs) (ptx.Launch, error) { return launchCast(k, a, to) })
}

type castParams struct {
	X             ptx.Global
	Y             ptx.Global `align:"8"`
	Scale         ptx.Global
	Width, Stride ptx.U32
}

func buildCast(b *ptx.Builder, to quant.Format) (*ptx.Kernel, error) {
	device.Overlap(b)
	if to != quant.F16 && to != quant.BF16 {
		b.Failf("cast to %v: want F16 or BF16", to)
	}
	b.Doc("y[r,i] = round(x[r,i] / scale[r]), zeros up to a multiple of 32")
	var p castParams
	ptx.Declare(b, &p)
	padded := p.Width.CeilDivN(castAlign).MulN(castAlign)
	r := b.BlockX()
	in := device.RowAt(b, quant.F32, p.X.AtBytes(r.MulWide(p.Stride).ShlN(2)).Aligned(4), p.Width)
	out := device.RowAt(b, to, p.Y.AtBytes(r.MulWide(padded).ShlN(1)).Aligned(8), padded)

	inverse := b.F32(1)
	if to == quant.F16 {
		exponent := largestExponent(b, in)
		inverse = b.U32(127 + 127 + 14).Sub(exponent).ShlN(23).AsF32()
		b.If(b.ThreadX().EqN(0), func() { p.Scale.At(r, 4).StoreF32(exponent.AddN(-14).ShlN(23).AsF32()) })
	}
	b.For(b.ThreadX(), out.Vec4s(), b.ThreadsX(), func(i ptx.U32) {
		v := in.Load(i, 0) // all zeros beyond the row
		for j := range v {
			v[j] = v[j].Mul(inverse)
		}
		out.Store(i, v)
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(1024))
}

// largestExponent returns the biased exponent of the row's largest finite magnitude. It is at
// least 15, so that scale and 1/scale are normal, and that of 2^14 if the row is all zeros.
func largestExponent(b *ptx.Builder, in device.Row) ptx.U32 {
	cta := device.CTA(b)
	top := ptx.Var(b.F32(0))
	b.For(cta.Rank(), in.Vec4s(), cta.Size(), func(i ptx.U32) {
		for _, v := range in.Load(i, 0) {
			size := v.Abs()
			finite := size.Lt(b.F32(float32(math.Inf(1)))) // false for NaN
			ptx.Set(top, top.Max(ptx.Select(finite, size, b.F32(0))))
		}
	}, ptx.NoUnroll)
	largest := cta.Max(top)
	return ptx.Select(largest.Gt(b.F32(0)), largest.Bits().ShrN(23).Max(b.U32(15)), b.U32(127+14))
}

// CastArgs are the arguments of a launch of Cast.
type CastArgs struct {
	X      ptx.Address // f32 [Rows, Width]
	Y      ptx.Address // [Rows, PaddedWidth(Width)]
	Scale  ptx.Address // f32 [Rows]; not used for BF16
	Rows   int
	Width  int
	Stride int // elements from row to row of X; 0: Width
}

func launchCast(k *ptx.Kernel, a CastArgs, to quant.Format) (ptx.Launch, error) {
	a.Stride = cmp.Or(a.Stride, a.Width)
	checks := []host.Check{
		host.Bound("Rows", a.Rows, 1, host.MaxSize), host.Bound("Width", a.Width, 1, host.MaxSize-castAlign),
		host.Bound("Stride", a.Stride, a.Width, host.MaxSize), host.NonNil("X", a.X), host.NonNil("Y", a.Y),
	}
	if to == quant.F16 {
		checks = append(checks, host.NonNil("Scale", a.Scale))
	}
	if err := host.Valid(k, checks...); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Rows), 1, 1}, device.RowThreads(a.Width), 0, &castParams{
		X: ptx.Addr(a.X), Y: ptx.Addr(a.Y), Scale: ptx.Addr(a.Scale), Width: ptx.Uint(a.Width), Stride: ptx.Uint(a.Stride),
	})
}
