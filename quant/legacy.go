package quant

import "encoding/binary"

// Blocks of 32 weights with one scale d. The comment of each decoder gives the bytes of a
// block in order.

// decodeQ4_0 decodes {d f16, q [16]byte}: weight = d·(q − 8). The low nibbles are the
// quants of weights 0–15, the high nibbles those of weights 16–31.
func decodeQ4_0[T float](dst []T, src []byte) {
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

// decodeQ4_1 decodes {d, m f16, q [16]byte}: weight = d·q + m. Nibbles are as in Q4_0.
func decodeQ4_1[T float](dst []T, src []byte) {
	var q [32]byte
	for ; len(src) >= 20; src, dst = src[20:], dst[32:] {
		nibbles(&q, (*[16]byte)(src[4:]))
		affine(dst, q[:], f16At(src), -f16At(src[2:]))
	}
}

// fifthBits adds the fifth bits of 5-bit quants. Bit j belongs to weight j.
func fifthBits(q *[32]byte, high uint32) {
	for j := range q {
		q[j] |= byte(high>>j) & 1 << 4
	}
}

// decodeQ5_0 decodes {d f16, high uint32, low [16]byte}: weight = d·(q − 16). The lower
// four bits of q are the nibbles of low, as in Q4_0; bit j of high is the fifth bit.
func decodeQ5_0[T float](dst []T, src []byte) {
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

// decodeQ5_1 decodes {d, m f16, high uint32, low [16]byte}: weight = d·q + m. Quants are
// as in Q5_0.
func decodeQ5_1[T float](dst []T, src []byte) {
	var q [32]byte
	for ; len(src) >= 24; src, dst = src[24:], dst[32:] {
		nibbles(&q, (*[16]byte)(src[8:]))
		fifthBits(&q, binary.LittleEndian.Uint32(src[4:]))
		affine(dst, q[:], f16At(src), -f16At(src[2:]))
	}
}

// decodeQ8_0 decodes {d f16, q [32]int8}: weight = d·q.
func decodeQ8_0[T float](dst []T, src []byte) {
	ints := int8s[T]()
	for ; len(src) >= 34; src, dst = src[34:], dst[32:] {
		scale32((*[32]T)(dst), (*[32]byte)(src[2:]), T(f16At(src)), ints)
	}
}
