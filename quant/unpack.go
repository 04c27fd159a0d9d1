package quant

import "encoding/binary"

// The decoders work in two steps. First the packed quants of a block become one
// signed byte each, in the order of the weights, eight at a time within a 64-bit
// word. Then the bytes are turned into numbers by a table, which is faster than
// the machine's conversion, and scaled.
//
// Which arithmetic is exact matters. A float16 has 11 significant bits; a small
// scale or a quant has at most 7 (an int8 reaches −128, but that is a power of
// two), and where both occur they have at most 13 together (Q6_K: 7 and 5, IQ4_XS:
// 5 and 7, Q5_K: 6 and 5). So d·scale·quant fits the 24 bits of a float32, far
// from the ends of its exponents, and is never rounded: the formats without a
// minimum may be computed in T, in any order. Only adding or subtracting a minimum
// rounds, and that is done in float32 as the formats define it.

// Masks that keep some bits of each of the eight bytes of a word.
const (
	low1 = 0x0101010101010101
	low2 = 0x0303030303030303
	low4 = 0x0f0f0f0f0f0f0f0f
	top1 = 0x8080808080808080
)

// int8s32 and int8s64 map a byte to the value of the int8 that it stores.
var int8s32, int8s64 = int8Table[float32](), int8Table[float64]()

func int8Table[T Float]() (t [256]T) {
	for i := range t {
		t[i] = T(int8(i))
	}
	return t
}

// int8s is the table for T.
func int8s[T Float]() *[256]T {
	if t, ok := any(&int8s64).(*[256]T); ok {
		return t
	}
	return any(&int8s32).(*[256]T)
}

func load8(b []byte) uint64     { return binary.LittleEndian.Uint64(b) }
func store8(b []byte, w uint64) { binary.LittleEndian.PutUint64(b, w) }

// minus subtracts c, at most 128, from each of eight bytes that are below 128.
// The top bits, set for the subtraction, keep borrows from crossing bytes.
func minus(w uint64, c byte) uint64 { return ((w | top1) - low1*uint64(c)) ^ top1 }

// nibbles unpacks 4-bit quants: the low halves of the bytes, then the high ones.
func nibbles(q *[32]byte, packed *[16]byte) {
	for j := 0; j < 16; j += 8 {
		w := load8(packed[j:])
		store8(q[j:], w&low4)
		store8(q[j+16:], w>>4&low4)
	}
}

// scale32 computes y[j] = d·q[j].
func scale32[T Float](y *[32]T, q *[32]byte, d T, ints *[256]T) {
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
func scale16x16[T Float](y *[256]T, q *[256]byte, d *[16]T, ints *[256]T) {
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

// affine computes y[j] = float32(d·q[j] − m) for the next len(q) weights, a
// multiple of 4.
func affine[T Float](y []T, q []byte, d, m float32) {
	for ; len(q) >= 4; q, y = q[4:], y[4:] {
		y, q := (*[4]T)(y), (*[4]byte)(q)
		y[0] = T(float32(d*int8s32[q[0]]) - m)
		y[1] = T(float32(d*int8s32[q[1]]) - m)
		y[2] = T(float32(d*int8s32[q[2]]) - m)
		y[3] = T(float32(d*int8s32[q[3]]) - m)
	}
}
