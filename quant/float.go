package quant

import (
	"encoding/binary"
	"math"

	"github.com/lockstep-go/lockstep/internal/float16"
)

// f32At, f16At and bf16At read the number at the start of b.
func f32At(b []byte) float32  { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
func f16At(b []byte) float32  { return float16.FromF16(binary.LittleEndian.Uint16(b)) }
func bf16At(b []byte) float32 { return float16.FromBF16(binary.LittleEndian.Uint16(b)) }

// The decoders below are unrolled by four, which saves bounds checks.

func decodeF32[T float](dst []T, src []byte) {
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

func decodeF16[T float](dst []T, src []byte) {
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

func decodeBF16[T float](dst []T, src []byte) {
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
		binary.LittleEndian.PutUint16(dst[2*i:], float16.ToF16(x))
	}
}

func encodeBF16(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], float16.ToBF16(x))
	}
}
