package quant

import "encoding/binary"

// A block is unpacked to one signed byte per quant, in the order of the weights, eight at a
// time in a 64-bit word. The bytes become floats by a table, which is faster than the CPU's
// conversion.
//
// Products are exact. A float16 has 11 significant bits, a sub-block scale or a quant at
// most 7 (−128 is a power of two), and a scale and a quant together at most 13 (Q6_K: 7
// and 5, IQ4_XS: 5 and 7, Q5_K: 6 and 5). So D·scale·quant fits the 24 bits of a float32,
// far from overflow and underflow. Subtracting a minimum rounds. It is done in float32, as
// the formats define it.

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

func load8(b []byte) uint64     { return binary.LittleEndian.Uint64(b) }
func store8(b []byte, w uint64) { binary.LittleEndian.PutUint64(b, w) }

// minus subtracts c ≤ 128 from each of the eight bytes of w, which are below 128. It sets
// the top bits during the subtraction, so that no borrow crosses a byte.
func minus(w uint64, c byte) uint64 { return ((w | top1) - low1*uint64(c)) ^ top1 }
