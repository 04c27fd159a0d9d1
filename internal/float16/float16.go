// Package float16 converts between float32 and two 16-bit formats: F16, which is IEEE
// 754 binary16, and BF16, which is bfloat16. All host code uses it. The emulator has
// conversions of its own, so that an error in one of them shows.
package float16

import "math"

// FromF16 returns the value of the bits h, exactly. NaN keeps its sign and payload.
func FromF16(h uint16) float32 {
	// Put the sign into bit 31, and exponent and fraction below bit 28. As a float32
	// this is too small by the difference of the exponent biases, 2^(127-15). The
	// multiplication is exact, for subnormal numbers too.
	bits := uint32(int32(int16(h))<<13) & 0x8fffffff
	if h&0x7c00 == 0x7c00 { // infinity or NaN
		return math.Float32frombits(bits | 0x7f800000)
	}
	return math.Float32frombits(bits) * 0x1p112
}

// ToF16 rounds f to the nearest F16, ties to even, and returns its bits. Magnitudes of
// at least 65520 become infinity. NaN keeps its sign and the upper bits of its payload,
// and becomes quiet.
func ToF16(f float32) uint16 {
	if h, ok := ToNormalF16(f); ok {
		return h
	}
	bits := math.Float32bits(f)
	sign, mag := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case mag > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(mag>>13)&0x3ff
	case mag >= infiniteF16:
		return sign | 0x7c00
	default: // a subnormal F16 or zero
		// The spacing of float32 in [0.5, 1) is 2⁻²⁴, that of subnormal F16. The
		// addition rounds to this spacing and leaves the result in the low bits.
		return sign | uint16(math.Float32bits(math.Float32frombits(mag)+0.5)-0x3f000000)
	}
}

// The float32 magnitudes that become normal F16 begin at normalF16 and end before infiniteF16.
const (
	normalF16   = 0x38800000 // 2⁻¹⁴
	infiniteF16 = 0x477ff000 // 65520, halfway between the largest F16 and 65536
)

// ToNormalF16 is ToF16 for results that are normal numbers; ok is false for others. It is short enough to be
// inlined.
func ToNormalF16(f float32) (h uint16, ok bool) {
	const rebias = (127 - 15) << 23
	bits := math.Float32bits(f)
	mag := bits &^ (1 << 31)
	// Half of the last place is added, ties to even.
	return uint16(bits>>16)&0x8000 | uint16((mag-rebias+0xfff+mag>>13&1)>>13), mag-normalF16 < infiniteF16-normalF16
}

// RoundF16 rounds f to the nearest F16.
func RoundF16(f float32) float32 { return FromF16(ToF16(f)) }

// FromBF16 returns the value of the bits b, which are the upper half of a float32.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 rounds f to the nearest BF16, ties to even, and returns its bits. Values beyond
// the largest BF16 by half of its last place become infinity. NaN keeps its sign and the
// upper bits of its payload, and becomes quiet.
func ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// RoundBF16 rounds f to the nearest BF16.
func RoundBF16(f float32) float32 { return FromBF16(ToBF16(f)) }
