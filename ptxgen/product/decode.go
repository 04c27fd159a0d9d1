package product

import (
	"slices"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/internal/product"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// segmentReader emits the code that turns a packed segment into operands. It reads the planes of the
// warp's tile from memory and computes, as package internal/product defines,
//
//	ŵ = f16(scale·q + f16(−c·scale))
//
// in pairs of float16. All lanes of a warp execute the code together.
type segmentReader struct {
	l layout
	b *ptx.Builder
	c *constants

	shared ptx.Shared            // the segment, unless global has it
	global ptx.Global            // the segment in global memory, or unset
	lane   ptx.U32               // of the warp
	chunks map[[2]int][4]ptx.U32 // by plane and number: what has been loaded

	d [2]ptx.F32 // D of the lane's two rows; unset in formats with a D per row
	// Of the lane's two rows, a pair of sub-blocks, or with halfBlocks two pairs: the scale over the unit of
	// quants, −c·scale, and in formats with minimums the offset o. The low half belongs to the first 32 of
	// the lane's columns.
	scale, center, offset [2][]ptx.F16x2
}

// hasD reports whether the segment has a D of its own for each row.
func (s *segmentReader) hasD() bool { return s.d[0] != (ptx.F32{}) }

// timesD returns E times the D of the segment for the lane's first or second row, or E in formats with a D per row.
func (s *segmentReader) timesD(row int, e ptx.F32) ptx.F32 {
	if !s.hasD() {
		return e
	}
	return s.d[row].Mul(e)
}

// constants holds the numbers that decoding needs, each in both halves of a register. Instructions on pairs
// of float16 take no immediates. They are loaded before all branches, so that every segment can use them.
type constants struct {
	b    *ptx.Builder
	have map[float64]ptx.F16x2
}

// integerScale is the value of 1 in the integer scales of blocks of 256. D grows by as much.
const integerScale = 0x1p-16

// offsetScale is by how much offsets are larger than in units of D: the sums of activations are smaller.
const offsetScale = 32

func newConstants(b *ptx.Builder, l layout) *constants {
	c := &constants{b, map[float64]ptx.F16x2{}}
	center := float64(product.Center(l.format))
	list := []float64{1024, 1024 + 32, 1024 + 128, 1 << 14}
	for r := range 2 {
		list = append(list, integerScale/l.unit(r), -center*l.unit(r), center*offsetScale*l.unit(r))
	}
	for _, x := range list {
		if _, ok := c.have[x]; !ok {
			c.have[x] = ptx.Var(b.U32(uint32(float16.ToF16(float32(x))) * 0x10001).AsF16x2())
		}
	}
	return c
}

// number returns the pair {x, x}.
func (c *constants) number(x float64) ptx.F16x2 {
	v, ok := c.have[x]
	if !ok {
		c.b.Failf("%v is not among the constants", x)
	}
	return v
}

// newSegmentReader returns the reader of the segment of format f at block, and emits the loads of its scales.
func newSegmentReader(c *constants, f quant.Format, block ptx.Shared, lane ptx.U32) *segmentReader {
	return (&segmentReader{l: layoutOf(f), c: c, shared: block, lane: lane}).begin()
}

// newGlobalReader is newSegmentReader for a segment in global memory.
func newGlobalReader(c *constants, f quant.Format, block ptx.Global, lane ptx.U32) *segmentReader {
	return (&segmentReader{l: layoutOf(f), c: c, global: block, lane: lane}).begin()
}

// begin emits the loads of the scales.
func (s *segmentReader) begin() *segmentReader {
	s.b, s.chunks = s.c.b, map[[2]int][4]ptx.U32{}
	if s.l.scales.read != nil {
		s.l.scales.read(s)
	}
	return s
}

// address returns the address i*stride bytes after an offset in the segment.
func (s *segmentReader) address(offset int, i ptx.U32, stride int) ptx.Pointer {
	if s.global != (ptx.Global{}) {
		return s.global.Plus(offset).At(i, stride).Pointer
	}
	return s.shared.Plus(offset).At(i, stride).Pointer
}

// held returns a reader with variables for the scales, and without offsets.
func (s *segmentReader) held() *segmentReader {
	h := *s
	for r := range 2 {
		if s.d[r] != (ptx.F32{}) {
			h.d[r] = ptx.Var(s.d[r])
		}
		h.offset[r] = nil
		for _, list := range []*[]ptx.F16x2{&h.scale[r], &h.center[r]} {
			*list = slices.Clone(*list)
			for i, v := range *list {
				(*list)[i] = ptx.Var(v)
			}
		}
	}
	return &h
}

// set sets the scales, which are variables, to those of another reader.
func (s *segmentReader) set(from *segmentReader) {
	for r := range 2 {
		if s.d[r] != (ptx.F32{}) {
			ptx.Set(s.d[r], from.d[r])
		}
		for i := range s.scale[r] {
			ptx.Set(s.scale[r][i], from.scale[r][i])
		}
		for i := range s.center[r] {
			ptx.Set(s.center[r][i], from.center[r][i])
		}
	}
}

// at returns a reader with the same scales for the segment at block.
func (s *segmentReader) at(block ptx.Shared) *segmentReader {
	r := *s
	r.shared, r.chunks = block, map[[2]int][4]ptx.U32{}
	return &r
}

// group emits the operands of a group of steps.
func (s *segmentReader) group(g int) [][4]ptx.F16x2 { return s.operands(groupSteps*g, groupSteps) }

// operands emits the operands of some steps.
func (s *segmentReader) operands(first, count int) (a [][4]ptx.F16x2) {
	for step := first; step < first+count; step++ {
		for plane := range s.l.operands() {
			a = append(a, s.operand(step, plane))
		}
	}
	return a
}

// offsets emits the operands of the offset steps.
func (s *segmentReader) offsets() (a [][4]ptx.F16x2) {
	for i := range offsetSteps(s.l.format) {
		a = append(a, s.operand(steps+i, 0))
	}
	return a
}

// laneScales returns the lane's part of a plane of scales.
func (s *segmentReader) laneScales(plane int) ptx.Pointer {
	return s.address(s.l.scalesAt(plane), s.lane, s.l.scales.lane[plane])
}

// rowScales returns the scales of the lane's two rows.
func (s *segmentReader) rowScales() ptx.Pointer {
	return s.address(s.l.rowsAt(), s.lane.ShrN(2), 2*s.l.scales.row)
}

// magic has the bits of the float16 1024. With an integer of ten bits in its fraction, it is 1024 more than that.
const magic = 0x6400

// each repeats a byte four times.
func each(b uint32) uint32 { return b * 0x01010101 }

// pairOf turns bytes i and j of a word into a pair of float16, less a constant.
func (s *segmentReader) pairOf(word ptx.U32, i, j, less int) ptx.F16x2 {
	selector := uint32(0x4040 | i | j<<8)
	return s.minus(word.Prmt(s.b.U32(each(magic>>8)), selector), 1024+less)
}

// alternate returns the pairs of bytes 0 and 2, and of 1 and 3: the sub-blocks of 16 weights in the first
// and the second half of a group's steps.
func (s *segmentReader) alternate(word ptx.U32, less int) [2]ptx.F16x2 {
	return [2]ptx.F16x2{s.pairOf(word, 0, 2, less), s.pairOf(word, 1, 3, less)}
}

// integers turns what a mask selects of the low ten bits of each half of a word into a pair of float16, less a constant.
func (s *segmentReader) integers(word ptx.U32, mask uint32, less int) ptx.F16x2 {
	return s.minus(s.masked(word, mask, magic), 1024+less)
}

// masked keeps the bits of each half of a word that a mask selects, and sets those of base, a float16 whose fraction is 0.
func (s *segmentReader) masked(word ptx.U32, mask, base uint32) ptx.U32 {
	return word.Lop3(s.b.U32(mask*0x10001), s.b.U32(base*0x10001), ptx.LopX&ptx.LopY|ptx.LopZ)
}

// minus subtracts n from both halves. It is one of the numbers that newConstants has.
func (s *segmentReader) minus(pair ptx.U32, n int) ptx.F16x2 {
	return pair.AsF16x2().Sub(s.c.number(float64(n)))
}

// readScales reads a float16 scale for each 32 columns, divided by the unit of quants, and with minimums an
// offset for each.
func (s *segmentReader) readScales() {
	at := s.laneScales(0)
	if offsetSteps(s.l.format) == 0 {
		for r, w := range at.LoadU32x2() {
			s.addScale(r, w.AsF16x2())
		}
		return
	}
	w := at.LoadU32x4()
	for r := range 2 {
		s.addScale(r, w[r].AsF16x2())
		s.offset[r] = []ptx.F16x2{w[2+r].AsF16x2()}
	}
}

// readPowers reads the upper byte of a float16 scale for each 32 columns, divided by the unit of quants.
func (s *segmentReader) readPowers() {
	w, zero := s.laneScales(0).LoadU32(), s.b.U32(0)
	for r := range 2 {
		s.addScale(r, w.Prmt(zero, 0x1404+0x2020*uint32(r)).AsF16x2())
	}
}

// merge returns x with the bits that a mask selects of y.
func (s *segmentReader) merge(x, y ptx.U32, mask uint32) ptx.U32 {
	return y.Lop3(s.b.U32(mask), x, ptx.LopX&ptx.LopY|ptx.LopZ)
}

// readSixBits reads what putSixBits stored.
func (s *segmentReader) readSixBits() {
	heads := s.rowScales().LoadU32x2()
	word, bytes := s.laneScales(0).LoadU32(), s.laneScales(1).LoadU16()
	s.ratioOf(0, heads[0]).add(s, 0, s.sixBitScales(s.masked(word, 63<<4, sixBitMagic)), s.integers(word.ShrN(10), 63, 0))
	pair := bytes.Prmt(s.b.U32(each(sixBitMagic>>8)), 0x4140) // of row g+8, in each half: 0x74, two bits of the minimum, the scale
	minimums := s.merge(s.masked(word, 15, magic), pair.ShrN(2), (3<<4)*0x10001)
	s.ratioOf(1, heads[1]).add(s, 1, s.sixBitScales(pair.AndN(0xff3fff3f)), s.minus(minimums, 1024))
}

// sixBitMagic has the bits of the float16 2^14. With a scale n in the lowest bits, it is 2^14 + 16n, and with n four bits higher
// 2^14 + 256n. Over the unit of quants, a scale is 16n in row g+8, and 256n in row g.
const sixBitMagic = 0x7400

// sixBitScales subtracts 2^14 from both halves, which leaves scales over the unit of quants.
func (s *segmentReader) sixBitScales(pair ptx.U32) ptx.F16x2 { return s.minus(pair, 1<<14) }

// readNibbles reads what putNibbles stored.
func (s *segmentReader) readNibbles() {
	heads := s.rowScales().LoadU32x2()
	low := s.b.U32(each(15))
	for r, w := range s.laneScales(0).LoadU32x2() {
		m := s.ratioOf(r, heads[r])
		scale, minimum := s.alternate(w.And(low), 0), s.alternate(w.ShrN(4).And(low), 0)
		for j := range scale {
			m.add(s, r, s.inUnits(r, scale[j]), minimum[j])
		}
	}
}

// readBytes reads what putBytes stored.
func (s *segmentReader) readBytes() {
	s.readRowD()
	for r, w := range s.laneScales(0).LoadU32x2() {
		pairs := s.alternate(w.Xor(s.b.U32(each(0x80))), 128)
		s.addIntegers(r, pairs[0])
		s.addIntegers(r, pairs[1])
	}
}

// readSixBits8 reads what putSixBits8 stored.
func (s *segmentReader) readSixBits8() {
	s.readRowD()
	first := s.laneScales(0).LoadU16()
	quarters := s.address(s.l.scalesAt(1), s.lane.ShrN(2), 4).LoadU32()
	rest := quarters.Shr(s.lane.AndN(3).ShlN(3)).AndN(0xff)
	for r, w := range []ptx.U32{first, s.merge(rest, first.ShrN(4), 0xf00)} {
		s.addIntegers(r, s.integers(s.merge(w, w.ShlN(10), 63<<16), 63, 32))
	}
}

// readRowD reads the float16 d of two rows.
func (s *segmentReader) readRowD() {
	low, high := s.rowScales().LoadU32().AsF16x2().F32()
	s.d = [2]ptx.F32{low.MulN(1 / integerScale), high.MulN(1 / integerScale)}
}

// ratio is −dmin/d of a row's segment as the sum of two numbers, in both halves of pairs, times what offsets
// are in units of D.
type ratio struct{ high, low ptx.F16x2 }

// ratioOf computes the ratio from {d, dmin}, rounded to float32 as an exact division rounds it: the inverse is
// approximate, and the remainder of the first quotient corrects it. Quotients of float16 are too far from
// the middle of two float32 for the rest of the error to show.
func (s *segmentReader) ratioOf(r int, head ptx.U32) ratio {
	d, dmin := head.AsF16x2().F32()
	s.d[r] = d.MulN(1 / integerScale)
	inverse := s.d[r].RcpApproxFTZ() // no float16 times 2^16 is subnormal, nor its inverse
	dmin = dmin.MulN(-offsetScale)
	quotient := dmin.Mul(inverse)
	quotient = quotient.Neg().FMA(s.d[r], dmin).FMA(inverse, quotient)
	high := quotient.F16()
	return ratio{high: high.Dup(), low: quotient.Sub(high.F32()).F16().Dup()}
}

// add appends a pair of scales over the unit of quants, and its offsets: c·scale − dmin/d·minimum.
func (m ratio) add(s *segmentReader, r int, scale, minimum ptx.F16x2) {
	s.addScale(r, scale)
	centered := scale.Mul(s.c.number(float64(product.Center(s.l.format)) * offsetScale * s.l.unit(r)))
	s.offset[r] = append(s.offset[r], minimum.FMA(m.low, minimum.FMA(m.high, centered)))
}

// addIntegers appends a pair of scales that are integers.
func (s *segmentReader) addIntegers(r int, scale ptx.F16x2) { s.addScale(r, s.inUnits(r, scale)) }

// inUnits divides integer scales by the unit of quants.
func (s *segmentReader) inUnits(r int, scale ptx.F16x2) ptx.F16x2 {
	return scale.Mul(s.c.number(integerScale / s.l.unit(r)))
}

// addScale appends a pair of scales over the unit of quants, and −c·scale unless c is 0.
func (s *segmentReader) addScale(r int, scale ptx.F16x2) {
	s.scale[r] = append(s.scale[r], scale)
	if c := product.Center(s.l.format); c != 0 {
		s.center[r] = append(s.center[r], scale.Mul(s.c.number(-float64(c)*s.l.unit(r))))
	}
}

// operand emits the registers of operand A of one step, 0 to 15, of plane i of F32 or 0. The steps from 16
// on have the offsets, for both parts of the sums of activations.
func (s *segmentReader) operand(step, plane int) (a [4]ptx.F16x2) {
	if i := step - steps; i >= 0 {
		return [4]ptx.F16x2{s.offset[0][i], s.offset[1][i], s.offset[0][i], s.offset[1][i]}
	}
	if s.l.planes[0] == 16 {
		for j, w := range s.chunk(plane, step) {
			a[j] = w.AsF16x2()
		}
		return a
	}
	pair := 0
	if s.l.scales.halfBlocks {
		pair = step / 8
	}
	for j, q := range s.numbers(step) {
		if scale, center := s.scale[j%2][pair], s.center[j%2]; len(center) > 0 {
			a[j] = q.FMA(scale, center[pair])
		} else {
			a[j] = q.Mul(scale)
		}
	}
	return a
}

// numbers emits q of package internal/product for the quants of a step, in their units.
func (s *segmentReader) numbers(step int) (q [4]ptx.F16x2) {
	switch {
	case s.l.floats:
		return s.floats(step)
	case s.l.levels != nil:
		return s.codebook(step)
	}
	for j := range q {
		var v ptx.U32
		to := 0
		if s.l.planes[0] < 8 {
			to = 4 * (j % 2)
		}
		for i, bits := range s.l.planes {
			at := place{step: step, register: j}
			chunk, word, bit := at.in(bits)
			w := s.chunk(i, chunk)[word]
			if bits == 8 {
				v = s.widen(w, bit/8)
				break
			}
			w = moved(w, bit, to)
			mask := uint32(1<<bits-1) << to * 0x10001
			if i > 0 {
				v = s.merge(v, w, mask)
			} else {
				v = w.AndN(mask)
			}
			to += bits
		}
		q[j] = v.AsF16x2()
	}
	return q
}

// widen puts bytes i and i+1 of a word into the halves of another.
func (s *segmentReader) widen(w ptx.U32, i int) ptx.U32 {
	return w.Prmt(s.b.U32(0), uint32(0x4040|i|(i+1)<<8))
}

// moved shifts so that bit from comes to bit to.
func moved(x ptx.U32, from, to int) ptx.U32 {
	if from > to {
		return x.ShrN(from - to)
	}
	return x.ShlN(to - from)
}

// floats turns the 4-bit floats of a step into float16. Their sign, exponent and fraction become bits 15 and 9 to 11:
// the upper byte.
func (s *segmentReader) floats(step int) (q [4]ptx.F16x2) {
	chunk, word, _ := place{step: step}.in(4)
	w := s.chunk(0, chunk)[word]
	for r, high := range []ptx.U32{w.ShlN(4), w} { // the nibbles of the row are the upper halves of bytes
		v := s.merge(high.AndN(each(0x80)), high.ShrN(3), each(0x0e))
		q[r] = v.Prmt(s.b.U32(0), 0x2404).AsF16x2()
		q[2+r] = v.AndN(0xff00ff00).AsF16x2()
	}
	return q
}

// codebook looks up the levels of a step, plus their center.
func (s *segmentReader) codebook(step int) (q [4]ptx.F16x2) {
	chunk, word, _ := place{step: step}.in(4)
	w := s.chunk(0, chunk)[word]
	table := codebookWords(s.l.levels)
	look := func(four ptx.U32) ptx.U32 { // the bytes of the levels of four numbers
		index := four.AndN(0x7777)
		low := s.b.U32(table[0]).Permute(s.b.U32(table[1]), index)
		high := s.b.U32(table[2]).Permute(s.b.U32(table[3]), index)
		upper := s.b.U32(0xff00).Permute(s.b.U32(0), four.ShrN(3).AndN(0x1111))
		return upper.Lop3(high, low, ptx.LopX&ptx.LopY|^ptx.LopX&ptx.LopZ)
	}
	first, second := look(w), look(w.ShrN(16))
	for i := range 2 {
		pairs := first.Prmt(second, 0x5140+0x2222*uint32(i)) // {first, second} of registers 2i and 2i+1
		for j := range 2 {
			q[2*i+j] = s.widen(pairs, 2*j).AsF16x2()
		}
	}
	return q
}

// codebookWords has the levels in order, plus 128, one per byte.
func codebookWords(levels map[int8]int) (words [4]uint32) {
	for level, i := range levels {
		words[i/4] |= uint32(uint8(level)^0x80) << (i % 4 * 8)
	}
	return words
}

// chunk loads the lane's part of a chunk of a plane, once.
func (s *segmentReader) chunk(plane, i int) [4]ptx.U32 {
	key := [2]int{plane, i}
	if _, ok := s.chunks[key]; !ok {
		s.chunks[key] = s.address(s.l.start(plane)+i*lanes*16, s.lane, 16).LoadU32x4()
	}
	return s.chunks[key]
}
