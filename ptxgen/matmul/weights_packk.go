package matmul

import "encoding/binary"

// pairOf gives the two bits of weight i = 128h + 32k + j of a block of 256 that has them,
// as Q2_K, Q3_K and Q6_K do, at bits 2k and 2k+1 of byte 32h + j.
func pairOf(packed []byte, i int) byte { return packed[32*(i/128)+i%32] >> (2 * (i % 128 / 32)) & 3 }

// packQ2_K: pairs; two bytes of a sub-block's scale and minimum; {d, dmin}.
func packQ2_K(to pieces, block []byte) {
	for u := range 8 {
		var q [32]byte
		for j := range q {
			q[j] = pairOf(block[16:], 32*u+j)
		}
		pairs(to.unit(0, u), to.of(0, u), &q)
	}
	copy(to.unit(1, 0), block[:16])
	copy(to.unit(2, 0), block[80:84])
}

// packQ3_K: triples; two signed bytes of scale - 32; d.
func packQ3_K(to pieces, block []byte) {
	scales := block[96:108]
	for u := range 8 {
		var q [32]byte
		for j := range q {
			q[j] = pairOf(block[32:], 32*u+j) | block[j]>>u&1<<2
		}
		triples([3][]byte{to.unit(0, u), to.unit(1, u), to.unit(2, u)}, to.of(0, u), &q)
	}
	for s := range 16 {
		to.unit(3, 0)[s] = (scales[s%8]>>(4*(s/8))&15 | scales[8+s%4]>>(2*(s/4))&3<<4) - 32
	}
	copy(to.unit(4, 0), block[108:110])
}

// fourOf gives the four bits of weight i that Q4_K and Q5_K keep in packed.
func fourOf(packed []byte, i int) byte { return packed[32*(i/64)+i%32] >> (4 * (i / 32 % 2)) & 15 }

// packQ4_K: codes; d, dmin, scales and minimums as they are.
func packQ4_K(to pieces, block []byte) {
	for u := range 8 {
		var q [32]byte
		for j := range q {
			q[j] = fourOf(block[16:], 32*u+j)
		}
		codes(to.unit(0, u), &q)
	}
	copy(to.unit(1, 0), block[:16])
}

// packQ5_K: codes; top bits; d, dmin, scales and minimums as they are.
func packQ5_K(to pieces, block []byte) {
	for u := range 8 {
		var q, top [32]byte
		for j := range q {
			q[j] = fourOf(block[48:], 32*u+j)
			top[j] = block[16+j] >> u & 1
		}
		codes(to.unit(0, u), &q)
		topBits(to.unit(1, u), to.of(1, u), &top)
	}
	copy(to.unit(2, 0), block[:16])
}

// packQ6_K: codes, pairs, two signed bytes of scales, d.
func packQ6_K(to pieces, block []byte) {
	for u := range 8 {
		var low, high [32]byte
		for j := range low {
			h, k := u/4, u%4
			low[j] = block[64*h+32*(k%2)+j] >> (4 * (k / 2)) & 15
			high[j] = pairOf(block[128:], 32*u+j)
		}
		codes(to.unit(0, u), &low)
		pairs(to.unit(1, u), to.of(1, u), &high)
	}
	copy(to.unit(2, 0), block[192:208])
	copy(to.unit(3, 0), block[208:210])
}

// packIQ4_XS: codes in order; d; the lower four bits of scales 4 to 7, one a nibble;
// then, as Q4_K has its scales, bytes of six bits of scale 0 to 3 below the upper two
// of scale 4 to 7.
func packIQ4_XS(to pieces, block []byte) {
	for u := range 8 {
		codesInOrder(to.unit(0, u), nibbles(block[8+16*u:]))
	}
	head := to.unit(1, 0)
	copy(head, block[:2])
	high := binary.LittleEndian.Uint16(block[2:])
	for s := range 8 {
		scale := block[4+s/2]>>(4*(s%2))&15 | byte(high>>(2*s)&3)<<4
		if s < 4 {
			head[4+s] |= scale
		} else {
			head[2+(s-4)/2] |= scale & 15 << (4 * (s % 2))
			head[s] |= scale >> 4 << 6
		}
	}
}
