package alu

import "math"

// nan32 is the canonical NaN of f32.
var nan32 = math.Float32frombits(0x7FFFFFFF)

// canonical returns f, or nan32 if f is NaN.
func canonical(f float32) float32 {
	if f != f {
		return nan32
	}
	return f
}

// FMA32 is fma.rn.f32.
//
// The product of two f32 is exact in float64. The sum is rounded to odd, which keeps its order
// relative to every f32 and every midpoint of two f32, because 53 ≥ 24 + 2 (Boldo, Melquiond 2008).
func FMA32(a, b, c float32) float32 {
	product := float64(float64(a) * float64(b))
	return canonical(float32(addOdd(product, float64(c))))
}

// Sub32 is sub.rn.f32.
func Sub32(a, b float32) float32 { return canonical(a - b) }

// DivRN is div.rn.f32.
func DivRN(a, b float32) float32 { return canonical(a / b) }

// RcpRN is rcp.rn.f32.
func RcpRN(x float32) float32 { return canonical(1 / x) }

// SqrtRN is sqrt.rn.f32. Rounding twice is exact here because 53 ≥ 2·24 + 2 (Figueroa 1995).
func SqrtRN(x float32) float32 { return canonical(float32(math.Sqrt(float64(x)))) }

// addOdd is a + b rounded to odd: truncated, with the last bit set if the sum is inexact.
// Infinities and NaN are those of a + b.
func addOdd(a, b float64) float64 {
	sum, rest := twoSum(a, b)
	if sum-sum != 0 {
		return sum
	}
	return odd(sum, rest)
}

// odd rounds sum + rest to odd. sum is finite and |rest| is less than an ulp of it.
func odd(sum, rest float64) float64 {
	bits := math.Float64bits(sum)
	if rest == 0 || bits&1 != 0 {
		return sum
	}
	// The neighbors of an even significand are odd. The result is the one on the side of rest.
	if (rest > 0) == (sum > 0) {
		return math.Float64frombits(bits + 1)
	}
	return math.Float64frombits(bits - 1)
}

// twoSum returns a + b rounded, and the rounding error exactly (Knuth).
func twoSum(a, b float64) (sum, rest float64) {
	sum = a + b
	partOfB := sum - a
	return sum, (a - (sum - partOfB)) + (b - partOfB)
}
