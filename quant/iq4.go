package quant

import "encoding/binary"

// iq4 is the codebook of the IQ4 formats, indexed by the 4-bit quant (kvalues_iq4nl in
// ggml-common.h).
var iq4 = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// unpackIQ4_NL unpacks {d f16, q [16]byte}: weight = d·iq4[q]. A block has 32 weights.
// Nibbles are as in Q4_0.
func (b *Block) unpackIQ4_NL(src *[18]byte) {
	b.levels(0, (*[16]byte)(src[2:]), &iq4)
	b.single(f16At(src[:]))
}

// unpackIQ4_XS unpacks {d f16, high uint16, low [4]byte, q [128]byte}: weight =
// (d·(scale − 32))·iq4[q]. A block has eight sub-blocks of 32 weights, with nibbles
// as in IQ4_NL. The 6-bit scale of sub-block s has its low four bits in nibble s%2 of
// low[s/2], and its upper two bits in bits 2s and 2s+1 of high.
func (b *Block) unpackIQ4_XS(src *[136]byte) {
	high := binary.LittleEndian.Uint16(src[2:])
	for s := range 8 {
		b.Scales[s] = int8(src[4+s/2]>>(4*(s%2))&15|byte(high>>(2*s))&3<<4) - 32
		b.levels(32*s, (*[16]byte)(src[8+16*s:]), &iq4)
	}
	b.D = f16At(src[:])
}
