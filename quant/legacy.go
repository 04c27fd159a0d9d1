package quant

import "encoding/binary"

// The formats of 32 weights with a scale d of their own: each decoder's comment
// gives the block's bytes in order, f16 being a float16.

// decodeQ4_0 decodes {d f16, q [16]byte}: weight = d·(q − 8). The low nibbles
// are weights 0–15, the high ones 16–31.
func decodeQ4_0[T Float](dst []T, src []byte) {
	var q [32]byte
	ints := int8s[T]()
	for ; len(src) >= 18; src, dst = src[18:], dst[32:] {
		nibbles(&q, (*[16]byte)(src[2:]))
		for j := 0; j < 32; j += 8 {
			store8(q[j:], minus(load8(q[j:]), 8))
		}
		scale32((*[32]T)(dst), &q, T(f16At(src)), ints)
	}
}

// decodeQ4_1 decodes {d, m f16, q [16]byte}: weight = d·q + m, nibbles as in Q4_0.
func decodeQ4_1[T Float](dst []T, src []byte) {
	var q [32]byte
	for ; len(src) >= 20; src, dst = src[20:], dst[32:] {
		nibbles(&q, (*[16]byte)(src[4:]))
		affine(dst, q[:], f16At(src), -f16At(src[2:]))
	}
}

// fifthBits adds the high bits of 5-bit quants, bit j for weight j.
func fifthBits(q *[32]byte, high uint32) {
	for j := range q {
		q[j] |= byte(high>>j) & 1 << 4
	}
}

// decodeQ5_0 decodes {d f16, high uint32, low [16]byte}: weight = d·(q − 16),
// where q has its lower four bits in the nibbles of low, ordered as in Q4_0.
func decodeQ5_0[T Float](dst []T, src []byte) {
	var q [32]byte
	ints := int8s[T]()
	for ; len(src) >= 22; src, dst = src[22:], dst[32:] {
		nibbles(&q, (*[16]byte)(src[6:]))
		fifthBits(&q, binary.LittleEndian.Uint32(src[2:]))
		for j := 0; j < 32; j += 8 {
			store8(q[j:], minus(load8(q[j:]), 16))
		}
		scale32((*[32]T)(dst), &q, T(f16At(src)), ints)
	}
}

// decodeQ5_1 decodes {d, m f16, high uint32, low [16]byte}: weight = d·q + m,
// quants as in Q5_0.
func decodeQ5_1[T Float](dst []T, src []byte) {
	var q [32]byte
	for ; len(src) >= 24; src, dst = src[24:], dst[32:] {
		nibbles(&q, (*[16]byte)(src[8:]))
		fifthBits(&q, binary.LittleEndian.Uint32(src[4:]))
		affine(dst, q[:], f16At(src), -f16At(src[2:]))
	}
}

// decodeQ8_0 decodes {d f16, q [32]int8}: weight = d·q.
func decodeQ8_0[T Float](dst []T, src []byte) {
	ints := int8s[T]()
	for ; len(src) >= 34; src, dst = src[34:], dst[32:] {
		scale32((*[32]T)(dst), (*[32]byte)(src[2:]), T(f16At(src)), ints)
	}
}
