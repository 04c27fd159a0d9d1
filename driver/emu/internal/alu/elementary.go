package alu

import "math"

// exp2, log2 and tanh are fast, with a relative error below elementaryError. The functions named
// Pair are slow, with an error below 2⁻⁹⁰. They decide a rounding if the fast result is too close to
// a midpoint of two f32. An error of 2⁻⁹⁰ is enough: among 2³² results, the closest one to a midpoint
// is expected at a distance of about 2⁻⁵⁷.

// Constants as sums of two float64.
const (
	ln2Hi   = 0x1.62e42fefa39efp-1
	ln2Lo   = math.Ln2 - ln2Hi
	log2eHi = 0x1.71547652b82fep+0
	log2eLo = math.Log2E - log2eHi
)

var (
	one       = double{1, 0}
	ln2Pair   = double{ln2Hi, ln2Lo}
	log2ePair = double{log2eHi, log2eLo}
)

// exp2Steps is the number of entries of exp2Table per octave.
const exp2Steps = 64

// exp2Table has 2^(i/exp2Steps).
var exp2Table = func() (t [exp2Steps]float64) {
	for i := range t {
		t[i] = exp2Pair(float64(i) / exp2Steps).hi
	}
	return t
}()

// exp2 is 2^x for |x| < 1000.
func exp2(x float64) float64 {
	// 2^x = 2^octave · 2^(i/64) · e^t with |t| ≤ ln2/128. The Taylor series of e^t − 1 ends at t⁵.
	// The next term is below 2⁻⁵⁴.
	k := math.Floor(float64(x*exp2Steps) + 0.5)
	t := float64((x - float64(k/exp2Steps)) * ln2Hi)
	s := float64(t*(1.0/120)) + 1.0/24
	s = float64(s*t) + 1.0/6
	s = float64(s*t) + 0.5
	s = float64(float64(s*t)*t) + t
	n := int(k)
	base := exp2Table[n&(exp2Steps-1)]
	octave := math.Float64frombits(uint64(1023+n>>6) << 52)
	return float64((base + float64(base*s)) * octave)
}

// exp2Pair is 2^x for |x| < 500. x has at most 50 significant bits.
func exp2Pair(x float64) double {
	k := math.Floor(x + 0.5)
	return one.add(expm1Pair(ln2Pair.mul(double{x - k, 0}))).scale(int(k))
}

// expm1Pair is e^t − 1 for |t| ≤ 0.36, by the Taylor series up to t²⁶.
func expm1Pair(t double) double {
	var s double
	for n := 26; n >= 2; n-- {
		s = s.add(one).mul(t).div(double{float64(n), 0})
	}
	return s.add(one).mul(t)
}

// artanhTerms is the number of terms of the series of artanh f in log2, for |f| < 0.172. The first
// term left out is below 2⁻⁵⁸ of the first one.
const artanhTerms = 11

// log2 is log₂ x for positive and finite x.
func log2(x float64) float64 {
	m, k := mantissa(x)
	f := (m - 1) / (m + 1) // ln m = 2·artanh f
	f2 := float64(f * f)
	s := 0.0
	for n := 2*artanhTerms - 1; n >= 3; n -= 2 {
		s = float64((s + oddInverse[n/2]) * f2)
	}
	return k + float64(float64(2*log2eHi)*(f+float64(f*s)))
}

// oddInverse has 1/(2i+1).
var oddInverse = func() (t [artanhTerms]float64) {
	for i := range t {
		t[i] = 1 / float64(2*i+1)
	}
	return t
}()

// log2Pair is log₂ x for positive and finite x, by the series of artanh up to f⁴¹.
func log2Pair(x float64) double {
	m, k := mantissa(x)
	f := double{m - 1, 0}.div(newDouble(m, 1))
	f2 := f.mul(f)
	var s double
	for n := 41; n >= 3; n -= 2 {
		s = s.add(one.div(double{float64(n), 0})).mul(f2)
	}
	ln := f.add(f.mul(s)).scale(1)
	return double{k, 0}.add(ln.mul(log2ePair))
}

// mantissa returns m in [√½, √2) and k with x = m·2^k.
func mantissa(x float64) (m, k float64) {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	return m, float64(e)
}

// tanhOne replaces larger operands of tanh to avoid overflow. From here on tanh rounds to 1 in f32.
const tanhOne = 20

func tanh(x float64) float64 {
	a := math.Abs(x)
	if a < 0.35 {
		return tanhSmall(x)
	}
	e := exp2(float64(min(a, tanhOne) * (2 * log2eHi)))
	return math.Copysign(1-2/(e+1), x)
}

// tanhSmall is tanh x for |x| < 0.36, as (e^2x − 1)/(e^2x + 1) with the Taylor series of e^2x − 1.
func tanhSmall(x float64) float64 {
	t := 2 * x
	s := 0.0
	for n := len(inverse) - 1; n >= 2; n-- {
		s = float64(float64((s+1)*t) * inverse[n])
	}
	e := float64((s + 1) * t)
	return e / (e + 2)
}

// inverse has 1/i.
var inverse = func() (t [19]float64) {
	for i := 1; i < len(t); i++ {
		t[i] = 1 / float64(i)
	}
	return t
}()

// tanhPair is tanh x.
func tanhPair(x float64) double {
	a := min(math.Abs(x), tanhOne)
	t := double{2 * a, 0}
	k := math.Floor(float64(t.hi*log2eHi) + 0.5)
	e := expm1Pair(t.add(ln2Pair.mul(double{-k, 0})))
	if k != 0 {
		e = e.add(one).scale(int(k)).add(double{-1, 0})
	}
	r := e.div(e.add(double{2, 0}))
	if x < 0 {
		return double{-r.hi, -r.lo}
	}
	return r
}

// rsqrtPair is 1/√x for positive x, by one Newton iteration.
func rsqrtPair(x float64) double {
	y := 1 / math.Sqrt(x)
	square, lost := twoProduct(y, y)
	rest := one.add(double{square, lost}.mul(double{-x, 0}))
	return newDouble(y, float64(float64(y*0.5)*rest.hi))
}
