package quant

import "encoding/binary"

// iq4 is the codebook of the IQ4 formats, indexed by the 4-bit quant (kvalues_iq4nl in
// ggml-common.h).
var iq4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// iq4Levels looks up 32 quants in the codebook: the low nibbles, then the high nibbles.
func iq4Levels(q *[32]byte, packed *[16]byte) {
	for j, v := range packed {
		q[j], q[j+16] = byte(iq4[v&15]), byte(iq4[v>>4])
	}
}

// decodeIQ4_NL decodes {d f16, q [16]byte}: weight = d·iq4[q]. A block has 32 weights.
// Nibbles are as in Q4_0.
func decodeIQ4_NL[T float](dst []T, src []byte) {
	var q [32]byte
	ints := int8s[T]()
	for ; len(src) >= 18; src, dst = src[18:], dst[32:] {
		iq4Levels(&q, (*[16]byte)(src[2:]))
		scale32((*[32]T)(dst), &q, T(f16At(src)), ints)
	}
}

// decodeIQ4_XS decodes {d f16, high uint16, low [4]byte, q [128]byte}: weight =
// (d·(scale − 32))·iq4[q]. A block has eight sub-blocks of 32 weights, with nibbles
// as in IQ4_NL. The 6-bit scale of sub-block s has its low four bits in nibble s%2 of
// low[s/2], and its upper two bits in bits 2s and 2s+1 of high.
func decodeIQ4_XS[T float](dst []T, src []byte) {
	var q [32]byte
	ints := int8s[T]()
	for ; len(src) >= 136; src, dst = src[136:], dst[256:] {
		d, high := T(f16At(src)), binary.LittleEndian.Uint16(src[2:])
		for s := range 8 {
			scale := src[4+s/2]>>(4*(s%2))&15 | byte(high>>(2*s))&3<<4
			iq4Levels(&q, (*[16]byte)(src[8+16*s:]))
			scale32((*[32]T)(dst[32*s:]), &q, d*ints[scale-32], ints)
		}
	}
}
