package matmul

import "encoding/binary"

// The packers below spread one block over the planes of its tile. Each one's
// comment says where the parts of quant's decoder of the same name go.
//
// In a piece of quants, word t is for lane t of the four that share a row of a fragment
// of mma.m16n8k32: weights 4t to 4t+3 of a unit and 16+4t to 16+4t+3, its two quads.
// Byte b of the word belongs to weight b of either quad.

// position is where a weight of a unit lies: byte at of a piece, quad h of that word.
func position(weight int) (at, h int) { return weight % 16, weight / 16 }

// codes puts 4-bit quants: the second quad in the high nibbles. Files do the same.
func codes(dst []byte, q *[32]byte) {
	for i := range 16 {
		dst[i] = q[i]&15 | q[16+i]<<4
	}
}

// codesInOrder puts 4-bit quants so that nibbles 0 to 3 of a word are the first quad,
// 4 to 7 the second: the order in which they select from a table.
func codesInOrder(dst []byte, q *[32]byte) {
	for i := range 32 {
		at, h := position(i)
		t, b := at/4, at%4
		dst[4*t+2*h+b/2] |= q[i] & 15 << (4 * (b % 2))
	}
}

// pairs puts two bits of each quant of the first or second unit of a piece: those of
// quad h in bits 2h and 2h+1 of its half of the byte.
func pairs(dst []byte, unit int, q *[32]byte) {
	for i, v := range q {
		at, h := position(i)
		dst[at] |= v & 3 << (4*unit + 2*h)
	}
}

// topBits puts one bit of each quant of one of four units of a piece: that of quad h
// in bit 2*unit + h.
func topBits(dst []byte, unit int, q *[32]byte) {
	for i, v := range q {
		at, h := position(i)
		dst[at] |= v & 1 << (2*unit + h)
	}
}

// triples puts 3-bit quants of one of four units of a piece, of which three planes have a
// byte for eight quants. Units 0 and 1 have the first quad in bits 0 and 3 of the first
// plane, units 2 and 3 of the second. The second quad of units 0 and 2 is in bits 2 and 5 of
// the third plane; of units 1 and 3 the upper two bits are in bit 6 of the first and second
// plane, the lowest in bits 0 and 1 of the third. So most are multiplied where they lie.
func triples(planes [3][]byte, unit int, q *[32]byte) {
	pair, odd := unit/2, unit%2
	for i, v := range q {
		at, h := position(i)
		own, third := &planes[pair][at], &planes[2][at]
		switch {
		case h == 0:
			*own |= v << (3 * odd)
		case odd == 0:
			*third |= v << (2 + 3*pair)
		default:
			*own |= v >> 1 << 6
			*third |= v & 1 << pair
		}
	}
}

// shifted is q with each quant shifted right by n.
func shifted(q *[32]byte, n int) *[32]byte {
	var s [32]byte
	for i, v := range q {
		s[i] = v >> n
	}
	return &s
}

// nibbles unpacks 4-bit quants: the low halves of the bytes, then the high ones.
func nibbles(packed []byte) *[32]byte {
	var q [32]byte
	for j, v := range packed[:16] {
		q[j], q[j+16] = v&15, v>>4
	}
	return &q
}

// packSingle cuts 32 weights, fewer at a row's end, into pieces of 16 bytes.
func packSingle(to pieces, block []byte) {
	for i := 0; len(block) > 0; i++ {
		n := copy(to.unit(i, 0)[:16], block)
		block = block[n:]
	}
}

// packQ4_0: codes, of which each is q - 8 in two's complement; d.
func packQ4_0(to pieces, block []byte) {
	q := nibbles(block[2:])
	for i := range q {
		q[i] ^= 8
	}
	codes(to.unit(0, 0), q)
	copy(to.unit(1, 0), block[:2])
}

// packQ4_1: codes, {d, m}.
func packQ4_1(to pieces, block []byte) {
	codes(to.unit(0, 0), nibbles(block[4:]))
	copy(to.unit(1, 0), block[:4])
}

// fives unpacks 5-bit quants of 32 weights: bit j of high for weight j.
func fives(high, low []byte) *[32]byte {
	q, h := nibbles(low), binary.LittleEndian.Uint32(high)
	for j := range q {
		q[j] |= byte(h>>j) & 1 << 4
	}
	return q
}

// packFives: codes, top bits.
func packFives(to pieces, q *[32]byte) {
	codes(to.unit(0, 0), q)
	topBits(to.unit(1, 0), to.of(1, 0), shifted(q, 4))
}

// packQ5_0: codes, top bits, d.
func packQ5_0(to pieces, block []byte) {
	packFives(to, fives(block[2:], block[6:]))
	copy(to.unit(2, 0), block[:2])
}

// packQ5_1: codes, top bits, {d, m}.
func packQ5_1(to pieces, block []byte) {
	packFives(to, fives(block[4:], block[8:]))
	copy(to.unit(2, 0), block[:4])
}

// packQ8_0: the first 16 quants, the last 16, d.
func packQ8_0(to pieces, block []byte) {
	copy(to.unit(0, 0)[:16], block[2:])
	copy(to.unit(1, 0)[:16], block[18:])
	copy(to.unit(2, 0), block[:2])
}

// packIQ4_NL: codes in order, d.
func packIQ4_NL(to pieces, block []byte) {
	codesInOrder(to.unit(0, 0), nibbles(block[2:]))
	copy(to.unit(1, 0), block[:2])
}
