package alu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

var inf32 = float32(math.Inf(1))

// same compares bits: NaN equals itself, and -0 differs from +0.
func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

func finite(fs ...float32) bool {
	for _, f := range fs {
		if f-f != 0 {
			return false
		}
	}
	return true
}

// sumBits is enough for the exact sum of any two products of f32: 2⁻²⁹⁸ to 2²⁵⁷.
const sumBits = 600

func bigOf(f float64) *big.Float { return new(big.Float).SetPrec(sumBits).SetFloat64(f) }

// bigFMA is the exact a·b + c.
func bigFMA(a, b, c float64) *big.Float {
	p := new(big.Float).SetPrec(sumBits).Mul(bigOf(a), bigOf(b))
	return p.Add(p, bigOf(c))
}

// anyFloat32 is a random bit pattern with an exponent field in [lo, hi].
func anyFloat32(rng *rand.Rand, lo, hi uint32) float32 {
	bits := rng.Uint32()
	return math.Float32frombits(bits&0x807FFFFF | (lo+rng.Uint32N(hi-lo+1))<<23)
}

// cases is the number of random cases of a test: n, or fewer with -short.
func cases(n int) int {
	if testing.Short() {
		return n / 20
	}
	return n
}

// nearest returns the code of format n nearest to a value, ties to even. compare compares the
// magnitude of the value with its argument.
func nearest(n format16, negative bool, compare func(float64) int) uint16 {
	lo, hi := 0, int(n.inf) // value(lo) ≤ x < value(hi); infinity counts as the next power of two
	if compare(value(n, n.inf)) >= 0 {
		lo = hi
	}
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if compare(value(n, uint16(mid))) >= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	code := uint16(lo)
	if lo < int(n.inf) {
		switch c := compare((value(n, code) + value(n, code+1)) / 2); {
		case c > 0, c == 0 && lo&1 != 0:
			code++
		}
	}
	if negative {
		code |= 0x8000
	}
	return code
}

// value is the magnitude of a code, by the definition of the format.
func value(n format16, code uint16) float64 {
	exp := int(code&0x7FFF) >> n.fraction
	fraction := float64(int(code) & (1<<n.fraction - 1))
	if exp == 0 {
		return math.Ldexp(fraction, n.minExp-n.fraction)
	}
	return math.Ldexp(fraction+math.Ldexp(1, n.fraction), n.minExp+exp-1-n.fraction)
}

// nearestBig is nearest for an exact value.
func nearestBig(n format16, x *big.Float) uint16 {
	magnitude := new(big.Float).Abs(x)
	return nearest(n, x.Signbit(), func(f float64) int { return magnitude.Cmp(bigOf(f)) })
}
