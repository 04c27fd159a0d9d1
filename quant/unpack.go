package quant

import "encoding/binary"

// The decoders first unpack the quants of a block to one signed byte each, in the order of
// the weights, eight at a time in a 64-bit word. Then they convert the bytes to floats by a
// table, which is faster than the CPU's conversion, and multiply by the scales.
//
// Products are exact. A float16 has 11 significant bits, a sub-block scale or a quant at
// most 7 (−128 is a power of two), and a scale and a quant together at most 13 (Q6_K: 7
// and 5, IQ4_XS: 5 and 7, Q5_K: 6 and 5). So d·scale·quant fits the 24 bits of a float32,
// far from overflow and underflow. So a format without a minimum gives the same weights in
// float32 and float64, and in any order of the products. Adding or subtracting a minimum
// rounds. It is done in float32, as the formats define it.

// Masks of some bits of each byte in a word.
const (
	low1 = 0x0101010101010101
	low2 = 0x0303030303030303
	low4 = 0x0f0f0f0f0f0f0f0f
	top1 = 0x8080808080808080
)

// int8s32 and int8s64 convert a byte, as an int8, to a float.
var int8s32, int8s64 = int8Table[float32](), int8Table[float64]()

func int8Table[T float]() (t [256]T) {
	for i := range t {
		t[i] = T(int8(i))
	}
	return t
}

// int8s returns the table for T.
func int8s[T float]() *[256]T {
	if t, ok := any(&int8s64).(*[256]T); ok {
		return t
	}
	return any(&int8s32).(*[256]T)
}

func load8(b []byte) uint64     { return binary.LittleEndian.Uint64(b) }
func store8(b []byte, w uint64) { binary.LittleEndian.PutUint64(b, w) }

// minus subtracts c ≤ 128 from each of the eight bytes of w, which are below 128. It sets
// the top bits during the subtraction, so that no borrow crosses a byte.
func minus(w uint64, c byte) uint64 { return ((w | top1) - low1*uint64(c)) ^ top1 }

// nibbles unpacks 4-bit quants: the low nibbles, then the high nibbles.
func nibbles(q *[32]byte, packed *[16]byte) {
	for j := 0; j < 16; j += 8 {
		w := load8(packed[j:])
		store8(q[j:], w&low4)
		store8(q[j+16:], w>>4&low4)
	}
}

// scale32 computes y[j] = d·q[j].
func scale32[T float](y *[32]T, q *[32]byte, d T, ints *[256]T) {
	for j := 0; j < 32; j += 8 {
		y, q := (*[8]T)(y[j:]), (*[8]byte)(q[j:])
		y[0] = d * ints[q[0]]
		y[1] = d * ints[q[1]]
		y[2] = d * ints[q[2]]
		y[3] = d * ints[q[3]]
		y[4] = d * ints[q[4]]
		y[5] = d * ints[q[5]]
		y[6] = d * ints[q[6]]
		y[7] = d * ints[q[7]]
	}
}

// scale16x16 computes y[j] = d[j/16]·q[j].
func scale16x16[T float](y *[256]T, q *[256]byte, d *[16]T, ints *[256]T) {
	for j := 0; j < 256; j += 8 {
		d, y, q := d[j/16], (*[8]T)(y[j:]), (*[8]byte)(q[j:])
		y[0] = d * ints[q[0]]
		y[1] = d * ints[q[1]]
		y[2] = d * ints[q[2]]
		y[3] = d * ints[q[3]]
		y[4] = d * ints[q[4]]
		y[5] = d * ints[q[5]]
		y[6] = d * ints[q[6]]
		y[7] = d * ints[q[7]]
	}
}

// affine computes y[j] = float32(d·q[j] − m) for j < len(q), a multiple of 4.
func affine[T float](y []T, q []byte, d, m float32) {
	for ; len(q) >= 4; q, y = q[4:], y[4:] {
		y, q := (*[4]T)(y), (*[4]byte)(q)
		y[0] = T(float32(d*int8s32[q[0]]) - m)
		y[1] = T(float32(d*int8s32[q[1]]) - m)
		y[2] = T(float32(d*int8s32[q[2]]) - m)
		y[3] = T(float32(d*int8s32[q[3]]) - m)
	}
}
