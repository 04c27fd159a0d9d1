package quant

import (
	"encoding/binary"
	"math"
)

// F16ToF32 widens an IEEE 754 binary16 number. The result is exact; NaN keeps
// its sign and payload.
func F16ToF32(h uint16) float32 {
	// The sign into bit 31, exponent and fraction right below bit 28: read as a
	// float32 they are off by the difference of the exponent biases, 127−15. The
	// multiplication that mends this is exact, for subnormals too.
	bits := uint32(int32(int16(h))<<13) & 0x8fffffff
	if h&0x7c00 == 0x7c00 { // infinity or NaN
		return math.Float32frombits(bits | 0x7f800000)
	}
	return math.Float32frombits(bits) * 0x1p112
}

// F32ToF16 rounds to the nearest IEEE 754 binary16 number, ties to even: what
// lies at or beyond ±65520 becomes an infinity. NaN keeps its sign and the top of
// its payload and becomes quiet.
func F32ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, mag := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case mag > 0x7f800000: // NaN
		return sign | 0x7e00 | uint16(mag>>13)&0x3ff
	case mag >= 0x477ff000: // 65520 is halfway between 65504 and 65536, and ties there go up
		return sign | 0x7c00
	case mag < 0x38800000: // below 2⁻¹⁴: a subnormal half, or zero
		// Steps of subnormal halves are 2⁻²⁴, those of a float32 in [½, 1) too:
		// the addition rounds, and leaves the count of steps in the low bits.
		return sign | uint16(math.Float32bits(math.Float32frombits(mag)+0.5)-0x3f000000)
	}
	mag += 0xfff + mag>>13&1 // half a step, a little less when the last bit kept is even
	return sign | uint16((mag-(127-15)<<23)>>13)
}

// BF16ToF32 widens a bfloat16 number: the upper half of a float32.
func BF16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// F32ToBF16 rounds to the nearest bfloat16 number, ties to even; what lies beyond
// the largest by half a step or more becomes an infinity. NaN keeps its sign and
// the top of its payload and becomes quiet.
func F32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// The numbers at the start of b.
func f32At(b []byte) float32  { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
func f16At(b []byte) float32  { return F16ToF32(binary.LittleEndian.Uint16(b)) }
func bf16At(b []byte) float32 { return BF16ToF32(binary.LittleEndian.Uint16(b)) }

// The decoders of single weights take four at a time, to share the loop and the checks of
// bounds, and then what is left of the row.

func decodeF32[T Float](dst []T, src []byte) {
	for ; len(dst) >= 4 && len(src) >= 16; dst, src = dst[4:], src[16:] {
		y, b := (*[4]T)(dst), (*[16]byte)(src)
		y[0] = T(f32At(b[0:]))
		y[1] = T(f32At(b[4:]))
		y[2] = T(f32At(b[8:]))
		y[3] = T(f32At(b[12:]))
	}
	for i := range dst {
		dst[i] = T(f32At(src[4*i:]))
	}
}

func decodeF16[T Float](dst []T, src []byte) {
	for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] {
		y, b := (*[4]T)(dst), (*[8]byte)(src)
		y[0] = T(f16At(b[0:]))
		y[1] = T(f16At(b[2:]))
		y[2] = T(f16At(b[4:]))
		y[3] = T(f16At(b[6:]))
	}
	for i := range dst {
		dst[i] = T(f16At(src[2*i:]))
	}
}

func decodeBF16[T Float](dst []T, src []byte) {
	for ; len(dst) >= 4 && len(src) >= 8; dst, src = dst[4:], src[8:] {
		y, b := (*[4]T)(dst), (*[8]byte)(src)
		y[0] = T(bf16At(b[0:]))
		y[1] = T(bf16At(b[2:]))
		y[2] = T(bf16At(b[4:]))
		y[3] = T(bf16At(b[6:]))
	}
	for i := range dst {
		dst[i] = T(bf16At(src[2*i:]))
	}
}

func encodeF32(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

func encodeF16(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(x))
	}
}

func encodeBF16(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(x))
	}
}
