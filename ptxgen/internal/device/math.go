package device

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The functions below use forms in which nothing cancels and no intermediate result overflows
// unless the result does. Their error bounds hold for every x, and rely on the bound of 2 ulp
// of ex2.approx in the PTX ISA.

// The activations. Package elementwise exports the same numbers.
const (
	Identity = iota
	SiLU
	GELU
	ClampedSwiGLU
	Logistic
)

// Activate returns the activation act, one of the constants above, of x. act must be the same
// in all lanes of a warp. The error is at most 8 ulp, or 12 * 2^-24 of the result for Logistic.
func Activate(b *ptx.Builder, act ptx.U32, x ptx.F32) ptx.F32 {
	y := ptx.Var(x)
	for _, a := range []int{SiLU, GELU, ClampedSwiGLU, Logistic} {
		b.If(act.EqN(a), func() { ptx.Set(y, ActivateN(b, a, x)) })
	}
	return y
}

// ActivateN returns the same for an activation that is known when the kernel is built.
func ActivateN(b *ptx.Builder, act int, x ptx.F32) ptx.F32 {
	switch act {
	case SiLU:
		return silu(b, x)
	case GELU:
		return gelu(b, x)
	case ClampedSwiGLU:
		return clampedSiLU(b, x)
	case Logistic:
		return Sigmoid(b, x)
	}
	return x
}

// swigluLimit is the largest magnitude of the inputs of ClampedSwiGLU, of gate only above 0.
const swigluLimit = 7

// clampedSiLU returns the factor of ClampedSwiGLU that depends on gate: x / (1 + e^(-1.702*x)) with x = min(gate, swigluLimit).
func clampedSiLU(b *ptx.Builder, gate ptx.F32) ptx.F32 {
	x := ptx.Select(gate.Gt(b.F32(swigluLimit)), b.F32(swigluLimit), gate) // NaN stays NaN
	return overOnePlus(b, x, timesConstant(b, x.Neg().Min(b.F32(140)), 1.702*math.Log2E))
}

// UpFactor returns the factor of the activation of gate: for ClampedSwiGLU, 1 + x with x limited to ±swigluLimit,
// else x.
func UpFactor(b *ptx.Builder, act int, x ptx.F32) ptx.F32 {
	if act != ClampedSwiGLU {
		return x
	}
	x = ptx.Select(x.Gt(b.F32(swigluLimit)), b.F32(swigluLimit), x)
	return ptx.Select(x.Lt(b.F32(-swigluLimit)), b.F32(-swigluLimit), x).AddN(1)
}

// silu returns x / (1 + e^-x) within 8 ulp. At -Inf it is NaN, as Inf/Inf is.
func silu(b *ptx.Builder, x ptx.F32) ptx.F32 {
	minus := x.Neg().Min(b.F32(140)).Max(b.F32(-140))
	return overOnePlus(b, x, timesLog2e(b, minus))
}

// Sigmoid returns 1 / (1 + e^-x) with a relative error of at most 12 * 2^-24 where the result is
// normal.
func Sigmoid(b *ptx.Builder, x ptx.F32) ptx.F32 {
	minus := x.Neg().Min(b.F32(140)).Max(b.F32(-140))
	return ptx.Select(x.IsNaN(), x, overOnePlus(b, b.F32(1), timesLog2e(b, minus)))
}

// gelu returns the tanh approximation of GELU, x/2 * (1 + tanh(z)), within 8 ulp. It computes
// the equal x / (1 + e^-2z), which does not cancel for negative x. Where the result is normal, the exponent reaches 150,
// so it is computed in twice the precision:
//
//	2z/ln 2 = x * (A + B*x^2),  A = 2*sqrt(2/pi)/ln 2,  B = 0.044715*A
//
// At -Inf it is NaN, as Inf*0 is.
func gelu(b *ptx.Builder, x ptx.F32) ptx.F32 {
	const a = 2.302208198144324889
	aHigh, aLow := splitF32(a)
	bHigh, bLow := splitF32(0.044715 * a)
	v := x.Min(b.F32(16)).Max(b.F32(-16))

	square := v.Mul(v)
	squareLow := v.FMA(v, square.Neg())
	m := square.MulN(bHigh)
	mLow := square.FMA(b.F32(bHigh), m.Neg()).Add(squareLow.FMA(b.F32(bHigh), square.MulN(bLow)))

	// A + m and its rounding error (Knuth's TwoSum).
	p := m.AddN(aHigh)
	part := p.AddN(-aHigh)
	lost := b.F32(aHigh).Sub(p.Sub(part)).Add(m.Sub(part))
	pLow := lost.Add(mLow.AddN(aLow))

	t := v.Mul(p)
	tLow := v.FMA(pLow, v.FMA(p, t.Neg()))
	return overOnePlus(b, x, exponent{t.Neg(), tLow.Neg()})
}

// Tanh returns tanh(z) within 4 ulp. Below 9/16 it is an odd polynomial, a Chebyshev
// interpolation of (tanh z - z)/z^3 in z^2; above, 1 - 2/(1 + e^2|z|).
func Tanh(b *ptx.Builder, z ptx.F32) ptx.F32 {
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

// Softcap returns cap * tanh(s/cap), which is within (-cap, cap). cap must not be 0.
func Softcap(b *ptx.Builder, s, cap ptx.F32) ptx.F32 { return Tanh(b, quotient(b, s, cap)).Mul(cap) }

// Exp returns e^x with a relative error of at most 10 * 2^-24 where the result is normal.
func Exp(b *ptx.Builder, x ptx.F32) ptx.F32 {
	// At ±120 the result is already 0 or Inf. Without the clamp, an infinite x would give
	// Inf - Inf in timesLog2e. A NaN fails both comparisons and stays NaN.
	x = ptx.Select(x.Lt(b.F32(-120)), b.F32(-120), x)
	x = ptx.Select(x.Gt(b.F32(120)), b.F32(120), x)
	return ExpWithin(b, x)
}

// ExpWithin returns Exp(x) of an x within ±120.
func ExpWithin(b *ptx.Builder, x ptx.F32) ptx.F32 {
	t := timesLog2e(b, x)
	return t.scale(b, t.high.Ex2Approx())
}

// exponent is an exponent of 2, high + low, where low is less than an ulp of high.
type exponent struct{ high, low ptx.F32 }

// timesLog2e returns x*log2(e), so that e^x = 2^(high+low). If it were rounded to a single
// float32, e^x would have a relative error of |x| * 2^-24.
func timesLog2e(b *ptx.Builder, x ptx.F32) exponent { return timesConstant(b, x, math.Log2E) }

// timesConstant returns x*c in about twice the precision of a float32.
func timesConstant(b *ptx.Builder, x ptx.F32, c float64) exponent {
	high, low := splitF32(c)
	t := x.MulN(high)
	return exponent{t, x.FMA(b.F32(low), x.FMA(b.F32(high), t.Neg()))}
}

// scale returns e * 2^low, for e = 2^high.
func (t exponent) scale(b *ptx.Builder, e ptx.F32) ptx.F32 {
	return e.Mul(t.low.FMA(b.F32(math.Ln2), b.F32(1)))
}

// overOnePlus returns x / (1 + 2^t). If t is large, it divides numerator and denominator by
// 2^64, because 2^t may overflow although the quotient does not underflow.
func overOnePlus(b *ptx.Builder, x ptx.F32, t exponent) ptx.F32 {
	far := t.high.Gt(b.F32(64))
	one := ptx.Select(far, b.F32(0x1p-64), b.F32(1))
	e := t.scale(b, ptx.Select(far, t.high.AddN(-64), t.high).Ex2ApproxFTZ()) // a subnormal number would not change the sum
	return quotient(b, x.Mul(one), one.Add(e))
}

// splitF32 returns c rounded to a float32, and the rounding error as another float32.
func splitF32(c float64) (high, low float32) {
	high = float32(c)
	return high, float32(c - float64(high))
}

// quotient returns x/y within 2 ulp where the result is normal, for |y| of at least 2^-126. It does not use div.rn, which may
// compile to a function call: around one, ptxas serializes wgmma.
func quotient(b *ptx.Builder, x, y ptx.F32) ptx.F32 {
	estimate := y.RcpApprox()
	q := x.Mul(estimate)
	corrected := q.Neg().FMA(y, x).FMA(estimate, q)
	// corrected is NaN if q overflows or an operand is not finite. If x is 0, only q has the right sign.
	return ptx.Select(corrected.Abs().Gt(b.F32(0)), corrected, q)
}
