package matmul

import (
	"encoding/binary"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// The functions of this file gather a quad's stored quants from the words that
// weights_pack.go fills; those that read a second plane know which it is.

// moved shifts so that bit from comes to bit to.
func moved(x ptx.U32, from, to int) ptx.U32 {
	if from > to {
		return x.ShrN(from - to)
	}
	return x.ShlN(to - from)
}

// each repeats a byte four times.
func each(b uint32) uint32 { return b * 0x01010101 }

// orMasked is x | y&mask.
func (w quantWords) orMasked(x, y ptx.U32, mask uint32) ptx.U32 {
	return y.Lop3(w.b.U32(mask), x, ptx.LopX&ptx.LopY|ptx.LopZ)
}

// code: 4 bits.
func code(w quantWords, _, quad int) (ptx.U32, bool) {
	return w.words[0].ShrN(4 * quad), false
}

// codeWithBit: 4 bits, and the fifth from the second plane.
func codeWithBit(w quantWords, unit, quad int) (ptx.U32, bool) {
	low, _ := code(w, unit, quad)
	return w.orMasked(low.AndN(each(15)), moved(w.words[1], 2*(unit%4)+quad, 4), each(1<<4)), true
}

// codeWithPair: 4 bits, and the upper two from the second plane.
func codeWithPair(w quantWords, unit, quad int) (ptx.U32, bool) {
	low, _ := code(w, unit, quad)
	return w.orMasked(low.AndN(each(15)), moved(w.words[1], 4*(unit%2)+2*quad, 4), each(3<<4)), true
}

// pair: 2 bits.
func pair(w quantWords, unit, quad int) (ptx.U32, bool) {
	return w.words[0].ShrN(4*(unit%2) + 2*quad), false
}

// triple: 3 bits, as triples puts them.
func triple(w quantWords, unit, quad int) (ptx.U32, bool) {
	pair, odd := unit%4/2, unit%2
	own, third := w.words[pair], w.words[2]
	switch {
	case quad == 0:
		return own.ShrN(3 * odd), false
	case odd == 0:
		return third.ShrN(2 + 3*pair), false
	}
	return w.orMasked(own.ShrN(5).AndN(each(6)), third.ShrN(pair), each(1)), true
}

// tripleOf is triple of a unit known at run time.
func tripleOf(w quantWords, unit ptx.U32, quad int) (ptx.U32, bool) {
	pair, odd := unit.ShrN(1).AndN(1), unit.AndN(1)
	own, third := ptx.Select(pair.EqN(0), w.words[0], w.words[1]), w.words[2]
	if quad == 0 {
		return own.Shr(odd.MulN(3)), false
	}
	split := w.orMasked(own.ShrN(5).AndN(each(6)), third.Shr(pair), each(1))
	return ptx.Select(odd.EqN(0), third.Shr(pair.MulN(3).AddN(2)), split), false
}

// whole: 8 bits, of which the first plane holds one quad and the second the other.
func whole(w quantWords, _, quad int) (ptx.U32, bool) { return w.words[quad], true }

// iq4Levels is the codebook of the IQ4 formats, four levels a word.
var iq4Levels = func() (words [4]uint32) {
	block := []byte{0x00, 0x3C} // d = 1
	for i := range byte(16) {
		block = append(block, i)
	}
	var w [32]float32
	quant.Decode(quant.IQ4_NL, w[:], block)
	var levels [16]byte
	for i := range levels {
		levels[i] = byte(int8(w[i]))
	}
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(levels[4*i:])
	}
	return words
}()

// level: 4 bits that select from the codebook, eight levels of each half at a time
// by their lower three; then the fourth chooses between the two.
func level(q quantWords, _, quad int) (ptx.U32, bool) {
	w := q.words[0]
	lower := w.AndN(0x77777777).ShrN(16 * quad)
	fourth := q.orMasked(q.b.U32(0x32103210), w.ShrN(1), 0x44444444).ShrN(16 * quad)
	t := iq4Levels
	negative := q.b.U32(t[0]).Permute(q.b.U32(t[1]), lower)
	positive := q.b.U32(t[2]).Permute(q.b.U32(t[3]), lower)
	return negative.Permute(positive, fourth), true
}

// levelParts: two signed bytes that add up to the level. If the fourth bit of a selector is set,
// prmt gives the sign of the selected byte eight times: -1 from a table of negative numbers, 0 from
// one of positive numbers. So one part is the level or -1, the other 0 or the level plus 1. That
// saves the choice between two levels.
func levelParts(q quantWords, quad int) (negative, positive ptx.U32) {
	w, t := q.words[0], iq4Levels
	other := w.Xor(q.b.U32(each(0x88))).ShrN(16 * quad)
	negative = q.b.U32(t[0]).Permute(q.b.U32(t[1]), w.ShrN(16*quad))
	positive = q.b.U32(t[2]+each(1)).Permute(q.b.U32(t[3]+each(1)), other)
	return negative, positive
}

func singleF32(u unit, j int) [4]ptx.F32 {
	var w [4]ptx.F32
	for i, bits := range u.raw[j] {
		w[i] = bits.AsF32()
	}
	return w
}

func singleF16(u unit, j int) [4]ptx.F32 {
	pair := u.raw[j/2][j%2*2:]
	a, b := pair[0].AsF16x2().F32()
	c, d := pair[1].AsF16x2().F32()
	return [4]ptx.F32{a, b, c, d}
}

func singleBF16(u unit, j int) [4]ptx.F32 {
	pair := u.raw[j/2][j%2*2:]
	a, b := pair[0].AsBF16x2().F32()
	c, d := pair[1].AsBF16x2().F32()
	return [4]ptx.F32{a, b, c, d}
}
