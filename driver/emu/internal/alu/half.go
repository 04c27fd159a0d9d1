package alu

import "math"

// nan16 is the canonical NaN of f16 and bf16.
const nan16 = 0x7FFF

// format16 is a 16-bit floating-point format.
type format16 struct {
	fraction int     // bits of the fraction
	minExp   int     // exponent of the smallest normal number
	inf      uint16  // code of +Inf; larger magnitudes are NaN
	rebias   float64 // 2 to the power of float64's exponent bias minus that of the format
}

var (
	binary16 = format16{fraction: 10, minExp: -14, inf: 0x7C00, rebias: 0x1p1008}
	bfloat16 = format16{fraction: 7, minExp: -126, inf: 0x7F80, rebias: 0x1p896}
)

// round rounds f to nearest, ties to even. Beyond the largest number it returns infinity.
func (n format16) round(f float64) uint16 {
	const fraction64 = 52
	bits := math.Float64bits(f)
	sign := uint16(bits>>48) & 0x8000
	exp := int(bits>>fraction64&0x7FF) - 1023
	switch {
	case f != f:
		return nan16
	case exp > 127: // and infinity
		return sign | n.inf
	case exp < n.minExp-n.fraction-1: // less than half of the smallest subnormal number
		return sign
	}
	significand := bits&(1<<fraction64-1) | 1<<fraction64
	drop := fraction64 - n.fraction
	biased := exp - n.minExp // minus the 1 that the leading bit of the significand adds below
	if biased < 0 {
		drop, biased = drop-biased, 0
	}
	code := significand >> drop
	rest, half := significand&(1<<drop-1), uint64(1)<<(drop-1)
	if rest > half || rest == half && code&1 != 0 {
		code++ // a carry out of the fraction increments the exponent
	}
	return sign | uint16(min(uint64(biased)<<n.fraction+code, uint64(n.inf)))
}

// F16ToF32 is cvt.f32.f16. It is exact.
func F16ToF32(h uint16) float32 {
	magnitude := uint32(h & 0x7FFF)
	if magnitude > uint32(binary16.inf) {
		return nan32
	}
	sign := uint32(h&0x8000) << 16
	if magnitude == uint32(binary16.inf) {
		return math.Float32frombits(sign | 0x7F800000)
	}
	// Shifted into place, the exponent is too small by the difference of the biases. Multiplying
	// corrects it, also for subnormal numbers.
	f := math.Float32frombits(magnitude<<13) * 0x1p112
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// BF16ToF32 is cvt.f32.bf16. It moves bits, so that a NaN keeps its sign and payload.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToF16 is cvt.rn.f16.f32.
func F32ToF16(f float32) uint16 { return binary16.round(float64(f)) }

// F32ToBF16 is cvt.rn.bf16.f32.
func F32ToBF16(f float32) uint16 { return bfloat16.round(float64(f)) }

// FMAF16 is fma.rn.f16.
func FMAF16(a, b, c uint16) uint16 {
	product := float64(float64(F16ToF32(a)) * float64(F16ToF32(b)))
	return binary16.round(addOdd(product, float64(F16ToF32(c))))
}

// FMABF16 is fma.rn.bf16.
func FMABF16(a, b, c uint16) uint16 {
	product := float64(float64(BF16ToF32(a)) * float64(BF16ToF32(b)))
	return bfloat16.round(addOdd(product, float64(BF16ToF32(c))))
}

// AddF16 is add.rn.f16. The sum, as the product, of two f16 is exact in float64 and rounded once.
func AddF16(a, b uint16) uint16 {
	return binary16.round(float64(F16ToF32(a)) + float64(F16ToF32(b)))
}

// SubF16 is sub.rn.f16.
func SubF16(a, b uint16) uint16 {
	return binary16.round(float64(F16ToF32(a)) - float64(F16ToF32(b)))
}

// MulF16 is mul.rn.f16.
func MulF16(a, b uint16) uint16 {
	return binary16.round(float64(float64(F16ToF32(a)) * float64(F16ToF32(b))))
}

// F16x2 applies op to the low halves and to the high halves of a, b and c.
func F16x2(op func(a, b, c uint16) uint16, a, b, c uint32) uint32 {
	low := op(uint16(a), uint16(b), uint16(c))
	high := op(uint16(a>>16), uint16(b>>16), uint16(c>>16))
	return uint32(high)<<16 | uint32(low)
}
