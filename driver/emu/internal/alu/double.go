package alu

import "math"

// double is the unevaluated sum hi + lo, with |lo| at most half an ulp of hi: about 104 bits. The
// operations are those of Dekker and Knuth, with relative errors of a few 2⁻¹⁰⁴.
type double struct{ hi, lo float64 }

func (a double) add(b double) double {
	sum, rest := twoSum(a.hi, b.hi)
	low, restLow := twoSum(a.lo, b.lo)
	s := newDouble(sum, rest+low)
	return newDouble(s.hi, s.lo+restLow)
}

func (a double) mul(b double) double {
	product, rest := twoProduct(a.hi, b.hi)
	return newDouble(product, rest+(float64(a.hi*b.lo)+float64(a.lo*b.hi)))
}

func (a double) div(b double) double {
	q := a.hi / b.hi
	rest := a.add(b.mul(double{-q, 0}))
	q2 := rest.hi / b.hi
	rest = rest.add(b.mul(double{-q2, 0}))
	return newDouble(q, q2).add(double{rest.hi / b.hi, 0})
}

// scale is a·2^k, if that is a normal number.
func (a double) scale(k int) double {
	return double{math.Ldexp(a.hi, k), math.Ldexp(a.lo, k)}
}

// newDouble returns hi + lo.
func newDouble(hi, lo float64) double {
	sum, rest := twoSum(hi, lo)
	return double{sum, rest}
}

// twoProduct returns a·b rounded, and the rounding error exactly (Dekker), without math.FMA, so
// that no fused operation is needed anywhere in this package.
func twoProduct(a, b float64) (product, rest float64) {
	product = float64(a * b)
	aHi, aLo := split(a)
	bHi, bLo := split(b)
	rest = float64(aHi*bHi) - product
	rest += float64(aHi * bLo)
	rest += float64(aLo * bHi)
	return product, rest + float64(aLo*bLo)
}

// split returns a as a sum of two numbers of 26 bits (Veltkamp).
func split(a float64) (hi, lo float64) {
	c := float64(a * (1<<27 + 1))
	hi = c - (c - a)
	return hi, a - hi
}
