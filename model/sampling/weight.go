package sampling

import "math"

// c1 to c7 are the coefficients of a polynomial that interpolates 2^f for |f| <= 1/2 at the zeros
// of a Chebyshev polynomial, and exactly at 0.
const (
	c1 = 0x1.62e42fefa39efp-1
	c2 = 0x1.ebfbe045f4d3cp-3
	c3 = 0x1.c6b08d883dca1p-5
	c4 = 0x1.3b2a1b7152befp-7
	c5 = 0x1.5d879ead06a82p-10
	c6 = 0x1.443fffc90db59p-13
	c7 = 0x1.00a581594758ep-16
)

// difference returns x - most in float64, or 0 if they are equal.
func difference(x, most float32) float64 {
	if x == most {
		return 0
	}
	return float64(x) - float64(most)
}

// weigh sets weights to those of keys, and returns their sum. best is the largest key.
func weigh(weights []uint64, keys []uint32, best uint32, scale float64) (total uint64) {
	const rounder = 0x1.8p52 // y + rounder is rounded to an integer, which is in its low bits
	most := float64(logitOf(best))
	weights = weights[:len(keys)]
	for i, key := range keys {
		weight := uint64(0)
		if y := float64((float64(logitOf(key)) - most) * scale); y > -46 { // else the weight is below 1
			sum := y + rounder
			k := int32(math.Float64bits(sum))
			f := y - (sum - rounder)
			f2 := float64(f * f)
			f4 := float64(f2 * f2)
			low := (1 + float64(c1*f)) + float64((c2+float64(c3*f))*f2)
			high := (c4 + float64(c5*f)) + float64((c6+float64(c7*f))*f2)
			p := math.Float64bits(low + float64(high*f4))
			// p is 1.m * 2^(e-1023) with e = 1022 or 1023.
			weight = (p&(1<<52-1) | 1<<52) >> ((8 + 1023 - int32(p>>52) - k) & 63)
		} else if key == best { // +Inf
			weight = one
		}
		weights[i] = weight
		total += weight
	}
	return total
}

// one is the weight of the largest logit.
const one = 1 << 44

// key maps a logit to an integer, so that candidates are ordered by key: -0 and 0 have the same key.
// The key of NaN and -Inf, which cannot be chosen, is 0.
func key(x float32) uint32 {
	b := math.Float32bits(x + 0) // -0 + 0 is 0
	b ^= uint32(int32(b)>>31) | 1<<31
	if b-lowest > highest-lowest {
		return 0
	}
	return b
}

// The keys of the smallest finite float32 and of +Inf.
const lowest, highest = 0x00800000, 0xFF800000

// logitOf returns the logit of a key; of key 0, NaN.
func logitOf(key uint32) float32 {
	return math.Float32frombits(key ^ (uint32(int32(^key)>>31) | 1<<31))
}
