package ptxgen

import "encoding/binary"

// pairOf gives the two bits of weight i = 128h + 32k + j of a block of 256 that has them,
// as Q2_K, Q3_K and Q6_K do, at bits 2k and 2k+1 of byte 32h + j.
func pairOf(packed []byte, i int) byte { return packed[32*(i/128)+i%32] >> (2 * (i % 128 / 32)) & 3 }

// packQ2_K: pairs; two bytes of a sub-block's scale and minimum; {d, dmin}.
func packQ2_K(planes [][]byte, block []byte) {
	for u := range 8 {
		var q [32]byte
		for j := range q {
			q[j] = pairOf(block[16:], 32*u+j)
		}
		pairs(planes[0][8*u:], &q)
	}
	copy(planes[1], block[:16])
	copy(planes[2], block[80:84])
}

// packQ3_K: pairs; top bits; two signed bytes of scale - 32; d.
func packQ3_K(planes [][]byte, block []byte) {
	scales := block[96:108]
	for u := range 8 {
		var low, top [32]byte
		for j := range low {
			low[j] = pairOf(block[32:], 32*u+j)
			top[j] = block[j] >> u & 1
		}
		pairs(planes[0][8*u:], &low)
		topBits(planes[1][4*u:], &top)
	}
	for s := range 16 {
		planes[2][s] = (scales[s%8]>>(4*(s/8))&15 | scales[8+s%4]>>(2*(s/4))&3<<4) - 32
	}
	copy(planes[3], block[108:110])
}

// packHead: d and dmin as they are, then three words: nibble s of the first is the
// low four bits of sub-block s's scale, of the second those of its minimum; of the
// third the upper two bits of the scale, then those of the minimum.
func packHead(dst, block []byte) {
	var low, min, high uint32
	packed := block[4:16]
	for s := range 8 {
		sc, mn := packed[s%4]&63, packed[s%4+4]&63
		if s >= 4 {
			sc, mn = packed[s+4]&15|packed[s-4]>>6<<4, packed[s+4]>>4|packed[s]>>6<<4
		}
		low |= uint32(sc&15) << (4 * s)
		min |= uint32(mn&15) << (4 * s)
		high |= uint32(sc>>4|mn>>4<<2) << (4 * s)
	}
	copy(dst[:4], block)
	binary.LittleEndian.PutUint32(dst[4:], low)
	binary.LittleEndian.PutUint32(dst[8:], min)
	binary.LittleEndian.PutUint32(dst[12:], high)
}

// fourOf gives the four bits of weight i that Q4_K and Q5_K keep in packed.
func fourOf(packed []byte, i int) byte { return packed[32*(i/64)+i%32] >> (4 * (i / 32 % 2)) & 15 }

// packQ4_K: codes, head.
func packQ4_K(planes [][]byte, block []byte) {
	for u := range 8 {
		var q [32]byte
		for j := range q {
			q[j] = fourOf(block[16:], 32*u+j)
		}
		codes(planes[0][16*u:], &q)
	}
	packHead(planes[1], block)
}

// packQ5_K: codes, top bits, head.
func packQ5_K(planes [][]byte, block []byte) {
	for u := range 8 {
		var q, top [32]byte
		for j := range q {
			q[j] = fourOf(block[48:], 32*u+j)
			top[j] = block[16+j] >> u & 1
		}
		codes(planes[0][16*u:], &q)
		topBits(planes[1][4*u:], &top)
	}
	packHead(planes[2], block)
}

// packQ6_K: codes, pairs, two signed bytes of scales, d.
func packQ6_K(planes [][]byte, block []byte) {
	for u := range 8 {
		var low, high [32]byte
		for j := range low {
			h, k := u/4, u%4
			low[j] = block[64*h+32*(k%2)+j] >> (4 * (k / 2)) & 15
			high[j] = pairOf(block[128:], 32*u+j)
		}
		codes(planes[0][16*u:], &low)
		pairs(planes[1][8*u:], &high)
	}
	copy(planes[2], block[192:208])
	copy(planes[3], block[208:210])
}

// packIQ4_XS: codes in order; {d, upper bits of the scales, lower bits}, as they are.
func packIQ4_XS(planes [][]byte, block []byte) {
	for u := range 8 {
		codesInOrder(planes[0][16*u:], nibbles(block[8+16*u:]))
	}
	copy(planes[1], block[:8])
}
