// Package portable implements elementary functions in float64 that return the same bits
// on every machine, which golden logits need.
//
// math.Exp is assembly on some architectures, and Go may fuse x*y + z on others, so its
// last bit depends on the machine. Here every product is rounded by a conversion, which
// forbids fusing, and only IEEE operations are used. Errors are at most 2 ulp (Tanh: 6).
package portable

import "math"

const (
	ln2Hi   = 6.93147180369123816490e-01 // ln 2 with 33 significant bits
	ln2Lo   = 1.90821492927058770002e-10 // ln 2 - ln2Hi
	expMax  = 709.782712893384           // e^x overflows above
	expMin  = -745.1332191019412         // e^x underflows below
	halfLn2 = math.Ln2 / 2
)

// Exp returns e^x.
func Exp(x float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x > expMax:
		return math.Inf(1)
	case x < expMin:
		return 0
	}
	// e^x = 2^k · e^r with |r| ≤ ln2/2.
	k := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(k*ln2Hi) - float64(k*ln2Lo)
	return math.Ldexp(1+expm1(r), int(k))
}

// expm1 returns e^r − 1 for |r| ≤ ln2/2, by the Taylor series up to r¹⁴.
func expm1(r float64) float64 {
	s := 0.0
	for n := 14; n >= 2; n-- {
		s = float64((s+1)*r) / float64(n)
	}
	return float64((s + 1) * r)
}

// Log returns the natural logarithm of a finite x > 0.
func Log(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	// ln m = 2·artanh(f), f = (m−1)/(m+1), |f| < 0.172.
	f := (m - 1) / (m + 1)
	f2 := float64(f * f)
	s := 0.0
	for n := 23; n >= 3; n -= 2 {
		s = float64((s + 1/float64(n)) * f2)
	}
	k := float64(e)
	return float64(k*ln2Hi) + (float64(2*f) + (float64(2*f*s) + float64(k*ln2Lo)))
}

// Pow returns base^y for base > 0.
func Pow(base, y float64) float64 { return Exp(float64(y * Log(base))) }

// Tanh returns the hyperbolic tangent of x.
func Tanh(x float64) float64 {
	a := math.Abs(x)
	var t float64
	switch {
	case a > 22: // rounds to 1; NaN takes the default case
		t = 1
	case 2*a <= halfLn2: // avoids cancellation near 0
		e := expm1(2 * a)
		t = e / (e + 2)
	default:
		t = 1 - 2/(Exp(2*a)+1)
	}
	return math.Copysign(t, x)
}

// π/2 in three parts of 33 bits and a tail: k·part is exact for k < 2²⁰ (Cody–Waite).
const (
	pio2a = 1.57079632673412561417e+00
	pio2b = 6.07710050630396597660e-11
	pio2c = 2.02226624871116645580e-21
	pio2t = 8.47842766036889956997e-32
)

// MaxAngle is the largest |x| for SinCos, in radians.
const MaxAngle = (1 << 20) * math.Pi / 2

// SinCos returns the sine and cosine of x radians, for |x| ≤ MaxAngle.
func SinCos(x float64) (sin, cos float64) {
	k := math.Floor(float64(x*(2/math.Pi)) + 0.5)
	r := x - float64(k*pio2a)
	r -= float64(k * pio2b)
	r -= float64(k * pio2c)
	r -= float64(k * pio2t)
	s, c := sinTaylor(r), cosTaylor(r)
	switch int64(k) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	default:
		return -c, s
	}
}

// sinTaylor returns sin r for |r| ≤ π/4, by the Taylor series up to r¹⁹.
func sinTaylor(r float64) float64 {
	r2 := float64(r * r)
	s := 0.0
	for n := 18; n >= 2; n -= 2 {
		s = float64((1-s)*r2) / float64(n*(n+1))
	}
	return r - float64(r*s)
}

// cosTaylor returns cos r for |r| ≤ π/4, by the Taylor series up to r²⁰.
func cosTaylor(r float64) float64 {
	r2 := float64(r * r)
	s := 0.0
	for n := 19; n >= 1; n -= 2 {
		s = float64((1-s)*r2) / float64(n*(n+1))
	}
	return 1 - s
}

// Dot returns Σ w[i]·x[i] over the len(w) elements of w. It keeps four interleaved sums, so
// that an addition does not wait for the previous one, and adds them as
// (s0 + s2) + (s1 + s3).
func Dot(w, x []float64) float64 {
	var s0, s1, s2, s3 float64
	for len(w) >= 4 && len(x) >= 4 {
		s0 += float64(w[0] * x[0])
		s1 += float64(w[1] * x[1])
		s2 += float64(w[2] * x[2])
		s3 += float64(w[3] * x[3])
		w, x = w[4:], x[4:]
	}
	for i, v := range w {
		s0 += float64(v * x[i])
	}
	return (s0 + s2) + (s1 + s3)
}
