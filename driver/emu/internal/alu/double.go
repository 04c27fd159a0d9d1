package alu

import "math"

// double is the unevaluated sum hi + lo with |lo| at most half of the last place of
// hi: about 104 bits. The operations are Dekker's and Knuth's, good to a few times
// 2⁻¹⁰⁴.
type double struct{ hi, lo float64 }

func (a double) add(b double) double {
	sum, lost := twoSum(a.hi, b.hi)
	low, lostLow := twoSum(a.lo, b.lo)
	s := normal(sum, lost+low)
	return normal(s.hi, s.lo+lostLow)
}

func (a double) mul(b double) double {
	product, lost := twoProduct(a.hi, b.hi)
	return normal(product, lost+(float64(a.hi*b.lo)+float64(a.lo*b.hi)))
}

func (a double) div(b double) double {
	q := a.hi / b.hi
	rest := a.add(b.mul(double{-q, 0}))
	q2 := rest.hi / b.hi
	rest = rest.add(b.mul(double{-q2, 0}))
	return normal(q, q2).add(double{rest.hi / b.hi, 0})
}

// scale is a·2^k, which must stay within the normal numbers.
func (a double) scale(k int) double {
	return double{math.Ldexp(a.hi, k), math.Ldexp(a.lo, k)}
}

// normal is hi + lo as a double.
func normal(hi, lo float64) double {
	sum, lost := twoSum(hi, lo)
	return double{sum, lost}
}

// twoProduct is a·b rounded, and what the rounding lost, exactly (Dekker). It needs
// no fused multiplication, so that none can be told from one that slipped in.
func twoProduct(a, b float64) (product, lost float64) {
	product = float64(a * b)
	aHi, aLo := split(a)
	bHi, bLo := split(b)
	lost = float64(aHi*bHi) - product
	lost += float64(aHi * bLo)
	lost += float64(aLo * bHi)
	return product, lost + float64(aLo*bLo)
}

// split is a in two parts of 26 bits (Veltkamp).
func split(a float64) (hi, lo float64) {
	c := float64(a * (1<<27 + 1))
	hi = c - (c - a)
	return hi, a - hi
}
