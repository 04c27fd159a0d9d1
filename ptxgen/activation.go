package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Activation is an element-wise non-linearity, chosen at launch.
type Activation uint32

const (
	Identity Activation = iota // x
	SiLU                       // x / (1 + e^-x)
	GELU                       // x/2 * (1 + tanh(sqrt(2/pi)*(x + 0.044715*x^3)))
)

// The formulas below are rearranged so that nothing cancels and nothing overflows
// before its result does. Each is within 8 units in the last place of the exact
// function for every x, given ex2.approx within 2.

// activate is the Activation kind of x; kind is the same in all lanes.
func activate(b *ptx.Builder, kind ptx.U32, x ptx.F32) ptx.F32 {
	y := ptx.Var(x)
	b.If(kind.EqN(int(SiLU)), func() { ptx.Set(y, silu(b, x)) })
	b.If(kind.EqN(int(GELU)), func() { ptx.Set(y, geluTanh(b, x)) })
	return y
}

// silu is x / (1 + e^-x). At -Inf it is NaN, as Inf/Inf is.
func silu(b *ptx.Builder, x ptx.F32) ptx.F32 {
	minus := x.Neg().Min(b.F32(140)).Max(b.F32(-140))
	return overOnePlus(b, x, timesLog2e(b, minus))
}

// geluTanh is the tanh approximation of GELU, x/2 * (1 + tanh(z)), as the equal
// x / (1 + e^-2z), which does not cancel for negative x. The exponent reaches 150
// there, so it is computed to twice the precision:
//
//	2z/ln 2 = x * (A + B*x^2),  A = 2*sqrt(2/pi)/ln 2,  B = 0.044715*A
//
// At -Inf it is NaN, as Inf*0 is.
func geluTanh(b *ptx.Builder, x ptx.F32) ptx.F32 {
	const a = 2.302208198144324889
	aHigh, aLow := splitF32(a)
	bHigh, bLow := splitF32(0.044715 * a)
	v := x.Min(b.F32(16)).Max(b.F32(-16))

	square := v.Mul(v)
	squareLow := v.FMA(v, square.Neg())
	m := square.MulN(bHigh)
	mLow := square.FMA(b.F32(bHigh), m.Neg()).Add(squareLow.FMA(b.F32(bHigh), square.MulN(bLow)))

	// The sum A + m and what its rounding loses (Knuth's TwoSum).
	p := m.AddN(aHigh)
	part := p.AddN(-aHigh)
	lost := b.F32(aHigh).Sub(p.Sub(part)).Add(m.Sub(part))
	pLow := lost.Add(mLow.AddN(aLow))

	t := v.Mul(p)
	tLow := v.FMA(pLow, v.FMA(p, t.Neg()))
	return overOnePlus(b, x, exponent{t.Neg(), tLow.Neg()})
}

// tanh is within 4 units in the last place: below 9/16 an odd polynomial, a
// Chebyshev interpolation of (tanh z - z)/z^3 in z^2; above it 1 - 2/(1 + e^2|z|).
func tanh(b *ptx.Builder, z ptx.F32) ptx.F32 {
	const border = 0.5625
	w := z.Mul(z)
	small := b.F32(-0.006525572169)
	for _, c := range []float32{0.0212633534472, -0.0539017531646, 0.133330738135, -0.333333316953} {
		small = small.FMA(w, b.F32(c))
	}
	small = small.FMA(w.Mul(z), z)

	size := z.Abs()
	e := size.Min(b.F32(44)).MulN(2 * math.Log2E).Ex2Approx()
	large := e.AddN(1).RcpApprox().FMA(b.F32(-2), b.F32(1))
	y := ptx.Select(size.Ge(b.F32(border)), large, small) // NaN takes the polynomial
	return y.Bits().Or(z.Bits().AndN(1 << 31)).AsF32()
}

// softcap squashes s into (-cap, cap): cap * tanh(s/cap). A cap of 0 is not its
// business: the caller leaves the call out.
func softcap(b *ptx.Builder, s, cap ptx.F32) ptx.F32 { return tanh(b, quotient(b, s, cap)).Mul(cap) }

// expApprox is e^x, relatively within 10 * 2^-24 where the result is normal.
func expApprox(b *ptx.Builder, x ptx.F32) ptx.F32 {
	// Beyond these the result is 0 or Inf already, and at the infinities the split
	// of the product would be Inf - Inf. NaN fails both comparisons and stays.
	x = ptx.Select(x.Lt(b.F32(-120)), b.F32(-120), x)
	x = ptx.Select(x.Gt(b.F32(120)), b.F32(120), x)
	t := timesLog2e(b, x)
	return t.scale(b, t.high.Ex2Approx())
}

// exponent is a power of two, high + low, low being below the last place of high.
type exponent struct{ high, low ptx.F32 }

// timesLog2e is the power of two that e^x is. One rounding of x*log2(e) alone would
// cost |x| * 2^-24 of the result.
func timesLog2e(b *ptx.Builder, x ptx.F32) exponent {
	high, low := splitF32(math.Log2E)
	t := x.MulN(high)
	return exponent{t, x.FMA(b.F32(low), x.FMA(b.F32(high), t.Neg()))}
}

// scale is e * 2^low, e being 2^high.
func (t exponent) scale(b *ptx.Builder, e ptx.F32) ptx.F32 {
	return e.Mul(t.low.FMA(b.F32(math.Ln2), b.F32(1)))
}

// overOnePlus is x / (1 + 2^t). The power may be above what a float32 holds while
// the quotient is not, so that both sides are divided by 2^64 where t is large.
func overOnePlus(b *ptx.Builder, x ptx.F32, t exponent) ptx.F32 {
	far := t.high.Gt(b.F32(64))
	one := ptx.Select(far, b.F32(0x1p-64), b.F32(1))
	e := t.scale(b, ptx.Select(far, t.high.AddN(-64), t.high).Ex2Approx())
	return quotient(b, x.Mul(one), one.Add(e))
}

// splitF32 is c as a float32 and the rest as another.
func splitF32(c float64) (high, low float32) {
	high = float32(c)
	return high, float32(c - float64(high))
}

// quotient is x/y, rounded once, and where the kernel has products of warpgroups for y of
// 2^-126 at least. There it is no Div, which is a function that is called where a driver links
// what it compiles, and around calls the assembler has such products wait. A float64 has more
// than twice the bits of a float32: to be rounded to it first changes nothing.
func quotient(b *ptx.Builder, x, y ptx.F32) ptx.F32 {
	if !b.UsesWGMMA() {
		return x.Div(y)
	}
	rough := y.RcpApprox()
	wide, minus, inverse := x.F64(), y.Neg().F64(), rough.F64()
	for range 2 {
		inverse = inverse.FMA(minus.FMA(inverse, b.F64(1)), inverse)
	}
	q := wide.Mul(inverse)
	exact := minus.FMA(q, wide).FMA(inverse, q).F32()
	// A zero keeps its sign, and of infinite operands the estimate is the quotient.
	usual := exact.Eq(exact).And(x.Ne(b.F32(0)))
	return ptx.Select(usual, exact, x.Mul(rough))
}
