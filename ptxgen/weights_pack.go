package ptxgen

import "encoding/binary"

// The packers below spread one block over the planes of its row. Each one's
// comment says where the parts of quant's decoder of the same name go.
//
// Quants lie so that a few masks and shifts give four of them as the bytes of a
// word, in the order of the weights: weight 4j+b of a unit is byte b of word j.

// codes puts 4-bit quants: byte b of word w holds weight 8w+b in its low nibble and
// weight 8w+4+b in the high one.
func codes(dst []byte, q *[32]byte) {
	for w := range 4 {
		for b := range 4 {
			dst[4*w+b] = q[8*w+b]&15 | q[8*w+4+b]<<4
		}
	}
}

// codesInOrder puts 4-bit quants so that nibble i of word w holds weight 8w+i:
// the order in which they select from a table.
func codesInOrder(dst []byte, q *[32]byte) {
	for i := range 16 {
		dst[i] = q[2*i]&15 | q[2*i+1]<<4
	}
}

// pairs puts two bits of each quant: byte b of word w holds those of weight
// 16w+4j+b in bits 2j and 2j+1.
func pairs(dst []byte, q *[32]byte) {
	for i := range 8 {
		w, b := i/4, i%4
		dst[i] = q[16*w+b]&3 | q[16*w+4+b]&3<<2 | q[16*w+8+b]&3<<4 | q[16*w+12+b]&3<<6
	}
}

// topBits puts one bit of each quant: byte b holds that of weight 4j+b in bit j.
func topBits(dst []byte, q *[32]byte) {
	clear(dst[:4])
	for i, v := range q {
		dst[i%4] |= v & 1 << (i / 4)
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
func packSingle(planes [][]byte, block []byte) {
	for i := 0; len(block) > 0; i++ {
		n := copy(planes[i][:16], block)
		block = block[n:]
	}
}

// packQ4_0: codes, d.
func packQ4_0(planes [][]byte, block []byte) {
	codes(planes[0], nibbles(block[2:]))
	copy(planes[1], block[:2])
}

// packQ4_1: codes, {d, m}.
func packQ4_1(planes [][]byte, block []byte) {
	codes(planes[0], nibbles(block[4:]))
	copy(planes[1], block[:4])
}

// fives unpacks 5-bit quants of 32 weights: bit j of high for weight j.
func fives(high, low []byte) *[32]byte {
	q, h := nibbles(low), binary.LittleEndian.Uint32(high)
	for j := range q {
		q[j] |= byte(h>>j) & 1 << 4
	}
	return q
}

// packQ5_0: codes, top bits, d.
func packQ5_0(planes [][]byte, block []byte) {
	q := fives(block[2:], block[6:])
	codes(planes[0], q)
	topBits(planes[1], shifted(q, 4))
	copy(planes[2], block[:2])
}

// packQ5_1: codes, top bits, {d, m}.
func packQ5_1(planes [][]byte, block []byte) {
	q := fives(block[4:], block[8:])
	codes(planes[0], q)
	topBits(planes[1], shifted(q, 4))
	copy(planes[2], block[:4])
}

// packQ8_0: the first 16 quants plus 128, the last 16 plus 128, d.
func packQ8_0(planes [][]byte, block []byte) {
	for j := range 16 {
		planes[0][j], planes[1][j] = block[2+j]^0x80, block[18+j]^0x80
	}
	copy(planes[2], block[:2])
}

// packIQ4_NL: codes in order, d.
func packIQ4_NL(planes [][]byte, block []byte) {
	codesInOrder(planes[0], nibbles(block[2:]))
	copy(planes[1], block[:2])
}
