package matmul

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
	scale func(unit, r int) ptx.S32 // of the unit, or of its half that subBlocks says
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
		k.subHeads(&s)
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
			// w + 0x60 carries into no neighbor; with the top bit turned it is w - 32.
			s.words[r] = append(s.words[r], w.AddN(0x60606060).Xor(b.U32(each(0x80))))
		}
	}
	s.signed(b)
}

// signed takes the words as signed bytes.
func (s *superScales) signed(b *ptx.Builder) {
	s.scale = func(unit, r int) ptx.S32 {
		return s.words[r][unit/4].Prmt(b.U32(0), 0x8880+0x1111*uint32(unit%4)).S32()
	}
}

// packedScales reports whether scales are in the low halves of their bytes, minimums in the
// high ones.
func (s Gemv) packedScales() bool { return s.Format == quant.Q2_K }

// subScales: a byte for each sub-block of 16 weights.
func (k *integerBlock) subScales(s *superScales) {
	for r := range s.words {
		words := k.subAt(r).LoadU32x4()
		s.words[r] = append(s.words[r], k.subWord(words[0], words[1]), k.subWord(words[2], words[3]))
	}
	s.signed(k.b)
}

// subAt is where a row's are.
func (k *integerBlock) subAt(r int) ptx.Shared { return k.rowAt(len(k.d.planes)-2, r) }

// subWord is the scales of four units' halves.
func (k *integerBlock) subWord(first, second ptx.U32) ptx.U32 {
	w := first.Permute(second, k.subBlocks)
	if k.packedScales() {
		w = w.AndN(each(15))
	}
	return w
}

// subHeads is the rest of what formats with such bytes have.
func (k *integerBlock) subHeads(s *superScales) {
	plane := len(k.d.planes) - 2
	at := k.weights.Plus(k.d.start(plane, k.d.units)).At(k.lane, 16)
	for r, w := range ptx.LoadMatrices[ptx.F16x2](at, 2, false) {
		s.subtract[r] = w.Bits()
		if k.packedScales() {
			s.subtract[r] = s.subtract[r].ShrN(4).AndN(each(15))
		}
	}
	for r, at := range k.headsAt(plane + 1) {
		d, dmin := at.LoadU32().AsF16x2().F32()
		if !k.packedScales() {
			dmin = d
		}
		s.d[r], s.factor[r] = d, dmin.Mul(k.offset)
	}
}

// headsAt is where those of the rows are, in a plane of words, that the lane goes on with.
func (k *integerBlock) headsAt(plane int) []ptx.Shared {
	if k.joinsHalves {
		return []ptx.Shared{k.rowAt(plane, 0).At(k.second, 8*k.d.planes[plane].bytes)}
	}
	return []ptx.Shared{k.rowAt(plane, 0), k.rowAt(plane, 1)}
}
