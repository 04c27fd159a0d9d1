package quant

import "encoding/binary"

// Blocks of 32 weights with one scale d. The comment of each function gives the bytes of
// a block in order.

// unpackQ4_0 unpacks {d f16, q [16]byte}: weight = d·(q − 8). The low nibbles are the
// quants of weights 0–15, the high nibbles those of weights 16–31.
func (b *Block) unpackQ4_0(src *[18]byte) {
	b.nibbles(0, (*[16]byte)(src[2:]))
	b.center(8)
	b.single(f16At(src[:]))
}

// unpackQ4_1 unpacks {d, m f16, q [16]byte}: weight = d·q + m. Nibbles are as in Q4_0.
func (b *Block) unpackQ4_1(src *[20]byte) {
	b.nibbles(0, (*[16]byte)(src[4:]))
	b.singleMin(f16At(src[:]), f16At(src[2:]))
}

// fifthBits adds the fifth bits of 32 5-bit quants. Bit j belongs to weight j.
func (b *Block) fifthBits(high uint32) {
	for j := 0; j < 32; j += 8 {
		// Byte i keeps bit i only. Adding 127 sets the top bit unless the byte is 0.
		own := uint64(high>>j&255) * low1 & 0x8040201008040201
		fifth := (own + 127*low1) & top1 >> 3
		store8(b.Quants[j:], load8(b.Quants[j:])|fifth)
	}
}

// unpackQ5_0 unpacks {d f16, high uint32, low [16]byte}: weight = d·(q − 16). The lower
// four bits of q are the nibbles of low, as in Q4_0; bit j of high is the fifth bit.
func (b *Block) unpackQ5_0(src *[22]byte) {
	b.nibbles(0, (*[16]byte)(src[6:]))
	b.fifthBits(binary.LittleEndian.Uint32(src[2:]))
	b.center(16)
	b.single(f16At(src[:]))
}

// unpackQ5_1 unpacks {d, m f16, high uint32, low [16]byte}: weight = d·q + m. Quants are
// as in Q5_0.
func (b *Block) unpackQ5_1(src *[24]byte) {
	b.nibbles(0, (*[16]byte)(src[8:]))
	b.fifthBits(binary.LittleEndian.Uint32(src[4:]))
	b.singleMin(f16At(src[:]), f16At(src[2:]))
}

// unpackQ8_0 unpacks {d f16, q [32]int8}: weight = d·q.
func (b *Block) unpackQ8_0(src *[34]byte) {
	copy(b.Quants[:32], src[2:])
	b.single(f16At(src[:]))
}
