package ptxgen

import (
	"encoding/binary"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// The methods of this file gather stored quants from the planes that weights_pack.go
// fills; those that read a second plane know which it is.

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
func (u unit) orMasked(x, y ptx.U32, mask uint32) ptx.U32 {
	return y.Lop3(u.b.U32(mask), x, ptx.LopX&ptx.LopY|ptx.LopZ)
}

// code: 4 bits.
func (u unit) code(j int) (ptx.U32, bool) {
	return u.raw[0][j/2].ShrN(4 * (j % 2)), j%2 == 1
}

// codeWithBit: 4 bits, and the fifth from the second plane.
func (u unit) codeWithBit(j int) (ptx.U32, bool) {
	low, _ := u.code(j)
	return u.orMasked(low.AndN(each(15)), moved(u.raw[1][0], j, 4), each(1<<4)), true
}

// codeWithPair: 4 bits, and the upper two from the second plane.
func (u unit) codeWithPair(j int) (ptx.U32, bool) {
	low, _ := u.code(j)
	return u.orMasked(low.AndN(each(15)), moved(u.raw[1][j/4], 2*(j%4), 4), each(3<<4)), true
}

// pair: 2 bits.
func (u unit) pair(j int) (ptx.U32, bool) {
	return u.raw[0][j/4].ShrN(2 * (j % 4)), j%4 == 3
}

// pairWithBit: 2 bits, and the third from the second plane.
func (u unit) pairWithBit(j int) (ptx.U32, bool) {
	low, _ := u.pair(j)
	return u.orMasked(low.AndN(each(3)), moved(u.raw[1][0], j, 2), each(1<<2)), true
}

// whole: 8 bits, of which the first plane holds half and the second the rest.
func (u unit) whole(j int) (ptx.U32, bool) { return u.raw[j/4][j%4], true }

// iq4Levels is the codebook of the IQ4 formats plus 128, four levels a word.
var iq4Levels = func() (words [4]uint32) {
	block := []byte{0x00, 0x3C} // d = 1
	for i := range byte(16) {
		block = append(block, i)
	}
	var w [32]float32
	quant.Decode(quant.IQ4_NL, w[:], block)
	var levels [16]byte
	for i := range levels {
		levels[i] = byte(int(w[i]) + 128)
	}
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(levels[4*i:])
	}
	return words
}()

// level: 4 bits that select from the codebook, eight levels of each half at a time
// by their lower three; then the fourth chooses between the two.
func (u unit) level(j int) (ptx.U32, bool) {
	w := u.raw[0][j/2]
	lower := w.AndN(0x77777777).ShrN(16 * (j % 2))
	fourth := u.orMasked(u.b.U32(0x32103210), w.ShrN(1), 0x44444444).ShrN(16 * (j % 2))
	t := iq4Levels
	negative := u.b.U32(t[0]).Permute(u.b.U32(t[1]), lower)
	positive := u.b.U32(t[2]).Permute(u.b.U32(t[3]), lower)
	return negative.Permute(positive, fourth), true
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
