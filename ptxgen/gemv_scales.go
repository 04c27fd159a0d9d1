package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// rowScales are of a unit of the lane's two rows.
type rowScales struct {
	scale  [2]ptx.F32
	offset []ptx.F32 // nil where the format has none
}

// rowAt is the piece of row lane/4, or that of the row 8 further on, in a plane of
// scales.
func (k *integerBlock) rowAt(plane, r int) ptx.Shared {
	bytes := k.d.planes[plane].bytes
	return k.weights.Plus(k.d.start(plane, k.d.units)).At(k.row, bytes).Plus(8 * r * bytes)
}

// unitScales are the scales of formats that have a float16 a unit, of the units that share
// a piece with that one and come after it.
func (k *integerBlock) unitScales(unit int) []rowScales {
	last := len(k.d.planes) - 1
	pl := k.d.planes[last]
	list := make([]rowScales, pl.units)
	for r := range 2 {
		at := k.rowAt(last, r).Plus(unit / pl.units * pl.bytes * tileRows)
		for i, w := range at.LoadU32x4() {
			first, second := w.AsF16x2().F32()
			if pl == linear {
				list[i].scale[r], list[i].offset = first, append(list[i].offset, second)
			} else {
				list[2*i].scale[r], list[2*i+1].scale[r] = first, second
			}
		}
	}
	return list
}

// superScales are the scales of a block of 256.
type superScales struct {
	d     [2]ptx.F32                // of the rows
	scale func(unit, r int) ptx.S32 // of the lane's sub-block
	words [2][]ptx.U32              // a byte a sub-block
	// What is subtracted: the product of subtract, bytes of k = 4*lane%4 and on, with the
	// sums of x, times factor.
	subtract [2]ptx.U32
	factor   [2]ptx.F32
}

// superScales loads and unpacks the scales.
func (k *integerBlock) superScales() superScales {
	var s superScales
	switch k.Format {
	case quant.Q4_K, quant.Q5_K:
		k.headScales(&s)
	case quant.IQ4_XS:
		k.sixBitScales(&s)
	default:
		k.subScales(&s)
	}
	return s
}

// upperEnds is y, of which each byte has four bits, with the upper two bits of w's bytes
// above them.
func upperEnds(y quantWords, w ptx.U32) ptx.U32 {
	return y.orMasked(y.words[0], w.ShrN(2), each(0x30))
}

// headScales: six bits each, of which the first four sub-blocks have theirs in the low
// bits of a word, the others four bits of a third word and the upper two of the first.
func (k *integerBlock) headScales(s *superScales) {
	b := k.b
	plane := len(k.d.planes) - 1
	for r := range 2 {
		h := k.rowAt(plane, r).LoadU32x4()
		d, dmin := h[0].AsF16x2().F32()
		s.d[r], s.factor[r] = d, dmin.MulN(-32) // the staged sums are 32 times smaller
		upper := func(low, w ptx.U32) ptx.U32 {
			return upperEnds(quantWords{b, []ptx.U32{low.AndN(each(15))}}, w)
		}
		s.words[r] = []ptx.U32{h[1].AndN(each(63)), upper(h[3], h[1])}
		mins := [2]ptx.U32{h[2].AndN(each(63)), upper(h[3].ShrN(4), h[2])}
		s.subtract[r] = ptx.Select(k.quad.AndN(1).EqN(0), mins[0], mins[1])
	}
	s.scale = func(unit, r int) ptx.S32 {
		return s.words[r][unit/4].Prmt(b.U32(0), 0x4440+uint32(unit%4)).S32()
	}
}

// sixBitScales: as headScales, the four bits of the others being nibbles in order; a
// scale is 32 less.
func (k *integerBlock) sixBitScales(s *superScales) {
	b := k.b
	plane := len(k.d.planes) - 1
	for r := range 2 {
		h := k.rowAt(plane, r).LoadU32x2()
		s.d[r] = h[0].LowF16().F32()
		twice := h[0].Prmt(b.U32(0), 0x3322)
		low := quantWords{b: b}.orMasked(twice.AndN(0x000F000F), twice.ShrN(4), 0x0F000F00)
		for _, w := range []ptx.U32{h[1].AndN(each(63)), upperEnds(quantWords{b, []ptx.U32{low}}, h[1])} {
			// w + 0x60 carries into no neighbour; with the top bit turned it is w - 32.
			s.words[r] = append(s.words[r], w.AddN(0x60606060).Xor(b.U32(each(0x80))))
		}
	}
	s.scale = func(unit, r int) ptx.S32 {
		return s.words[r][unit/4].Prmt(b.U32(0), signedByte(unit%4)).S32()
	}
}

// signedByte selects a byte of the first word and repeats its sign.
func signedByte(i int) uint32 { return 0x8880 + 0x1111*uint32(i) }

// subScales: a byte for each sub-block of 16 weights. Lanes whose results are of the
// second half of a unit take the second of its two.
func (k *integerBlock) subScales(s *superScales) {
	b := k.b
	plane := len(k.d.planes) - 2
	packed := k.Format == quant.Q2_K // scales in the low halves of the bytes, minimums in the high ones
	at := k.weights.Plus(k.d.start(plane, k.d.units)).At(k.lane, 16)
	for r, w := range ptx.LoadMatrices[ptx.F16x2](at, 2, false) {
		s.subtract[r] = w.Bits()
		words := k.rowAt(plane, r).LoadU32x4()
		for i := range 2 {
			s.words[r] = append(s.words[r], words[2*i].Permute(words[2*i+1], k.halfScales))
		}
		d, dmin := k.rowAt(plane+1, r).LoadU32().AsF16x2().F32()
		s.d[r], s.factor[r] = d, d.Mul(k.offset)
		if packed {
			s.subtract[r] = s.subtract[r].ShrN(4).AndN(each(15))
			s.factor[r] = dmin.Mul(k.offset)
			for i, w := range s.words[r] {
				s.words[r][i] = w.AndN(each(15))
			}
		}
	}
	s.scale = func(unit, r int) ptx.S32 {
		return s.words[r][unit/4].Prmt(b.U32(0), signedByte(unit%4)).S32()
	}
}
