package product

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/internal/product"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/quant"
)

const (
	segment  = product.Segment
	tileRows = 16 // of a fragment of mma.m16n8k16
	steps    = segment / 16
	lanes    = 32
)

// Packing is the layout of a matrix of rows of K weights in device memory, in the order in which
// tensor cores take them.
//
// A matrix is a sequence of row tiles, of 16 rows. A row tile is a sequence of segments of 256 columns. Zeros fill
// up the last row tile and the last segment. A segment is a sequence of planes: some bits of all quants each,
// then the scales of the sub-blocks, then those of the rows. A plane of quants is a sequence of chunks of
// 16 bytes per lane, the lanes of a warp in order, so that a warp reads 512 consecutive bytes.
//
// A step is one instruction: mma.m16n8k16, or the rows of a warp in wgmma. In operand A, lane 4g+t (in PTX: groupID g,
// threadID_in_group t) has two pairs of columns of row g, and of row g+8. Columns are permuted: the columns of a pair are 32 apart,
// and all 16 steps of a lane are of columns 64t to 64t+63. So a lane decodes two sub-blocks of 32 weights of each row, or four of 16,
// and a pair of float16 scales multiplies a pair of quants.
//
// F16 and BF16 weights become float16, F32 weights two of them. A format with blocks of less than 256
// weights has a float32 per row after the row tiles: the D of package internal/product.
type Packing struct {
	Format quant.Format
	K      int // weights per row
}

// layout is how a format is packed.
type layout struct {
	format quant.Format
	// planes has the number of bits that each plane has of a quant, the lowest bits first.
	planes []int
	// levels maps the quants of quant.Block to those that are stored, for codebooks.
	levels map[int8]int
	floats bool // the stored quants are floats of a sign, two bits of exponent and one of fraction
	scales scales
}

// scales says how the scales of a segment are stored: planes of some bytes per lane with the scales of its
// sub-blocks, and one of some bytes per row with those of the row.
type scales struct {
	lane       []int
	row        int
	put        func(to scalePlanes, b *quant.Block)
	read       func(s *segmentReader)
	halfBlocks bool // sub-blocks have 16 weights: steps 0 to 7 have others than steps 8 to 15
}

var (
	d16      = scales{lane: []int{8}, read: (*segmentReader).readScales}
	power8   = scales{lane: []int{4}, read: (*segmentReader).readPowers}
	d16o16   = scales{lane: []int{16}, read: (*segmentReader).readScales}
	sixBits  = scales{lane: []int{4, 2}, row: 4, put: putSixBits, read: (*segmentReader).readSixBits}
	nibbles  = scales{lane: []int{8}, row: 4, put: putNibbles, read: (*segmentReader).readNibbles, halfBlocks: true}
	signed8  = scales{lane: []int{8}, row: 2, put: putBytes, read: (*segmentReader).readBytes, halfBlocks: true}
	sixBits8 = scales{lane: []int{2, 1}, row: 2, put: putSixBits8, read: (*segmentReader).readSixBits8}
)

var layouts = map[quant.Format]layout{
	quant.F32:    {planes: []int{16, 16}},
	quant.F16:    {planes: []int{16}},
	quant.BF16:   {planes: []int{16}},
	quant.Q4_0:   {planes: []int{4}, scales: d16},
	quant.Q4_1:   {planes: []int{4}, scales: d16o16},
	quant.Q5_0:   {planes: []int{4, 1}, scales: d16},
	quant.Q5_1:   {planes: []int{4, 1}, scales: d16o16},
	quant.Q8_0:   {planes: []int{8}, scales: d16},
	quant.Q2_K:   {planes: []int{2}, scales: nibbles},
	quant.Q3_K:   {planes: []int{2, 1}, scales: signed8},
	quant.Q4_K:   {planes: []int{4}, scales: sixBits},
	quant.Q5_K:   {planes: []int{4, 1}, scales: sixBits},
	quant.Q6_K:   {planes: []int{4, 2}, scales: signed8},
	quant.IQ4_NL: {planes: []int{4}, scales: d16, levels: levelsOf(quant.IQ4_NL)},
	quant.IQ4_XS: {planes: []int{4}, scales: sixBits8, levels: levelsOf(quant.IQ4_NL)},
	quant.MXFP4:  {planes: []int{4}, scales: power8, levels: levelsOf(quant.MXFP4), floats: true},
}

// layoutOf returns the layout of a format. It panics if no kernel reads the format.
func layoutOf(f quant.Format) layout {
	l, ok := layouts[f]
	if !ok {
		panic(fmt.Sprintf("ptxgen: no kernel reads %v", f))
	}
	l.format = f
	return l
}

// operands is the number of operands per step: two for F32.
func (l layout) operands() int {
	if l.format == quant.F32 {
		return 2
	}
	return 1
}

// offsetSteps is the number of steps per segment that multiply offsets: each takes two sub-blocks per lane.
func offsetSteps(f quant.Format) int {
	if n := product.SubBlock(f); n > 0 {
		return 32 / n
	}
	return 0
}

// Formats returns the formats that kernels read, in order of their ids.
func Formats() []quant.Format { return slices.Sorted(maps.Keys(layouts)) }

// levelsOf maps the levels of a codebook of 4 bits to their numbers, and a level with two numbers to the first.
// The format's blocks end in 16 bytes of quants.
func levelsOf(f quant.Format) map[int8]int {
	levels := map[int8]int{}
	var b quant.Block
	for i := 15; i >= 0; i-- {
		src := make([]byte, f.BlockBytes())
		src[len(src)-16] = byte(i)
		b.Unpack(f, src)
		levels[int8(b.Quants[0])] = i
	}
	return levels
}

// unit is the value of one quantization level in the float16 from which an operand is computed, for row 0 (g) or 1 (g+8) of a
// lane. Masked bits are a subnormal float16. Those of row 1 lie four bits higher, unless they fill bytes.
func (l layout) unit(row int) float64 {
	switch {
	case l.floats:
		return 0x1p-15
	case row == 1 && l.planes[0] < 8 && l.levels == nil:
		return 0x1p-20
	}
	return 0x1p-24
}

// start is where a plane of quants begins in a segment. The plane after the last holds scales.
func (l layout) start(plane int) (at int) {
	for _, bits := range l.planes[:plane] {
		at += tileRows * segment * bits / 8
	}
	return at
}

// scalesAt is where a plane of scales begins. The last one has those of rows.
func (l layout) scalesAt(plane int) int {
	at := l.start(len(l.planes))
	for _, bytes := range l.scales.lane[:plane] {
		at += lanes * bytes
	}
	return at
}

// rowsAt is where the plane with the scales of rows begins.
func (l layout) rowsAt() int { return l.scalesAt(len(l.scales.lane)) }

// segmentBytes is the size of a segment of a row tile.
func (l layout) segmentBytes() int { return l.rowsAt() + tileRows*l.scales.row }

// scalePlanes are the planes of scales of a segment, for one row of the row tile.
type scalePlanes struct {
	lanes [2][]byte // of each plane, the part of the four lanes that decode the row
	row   []byte    // what the last plane has for the row
	r     int
}

// scalesOf returns the planes of scales of a segment for row r. Of the last plane, rows g and g+8 are neighbors.
func (l *layout) scalesOf(seg []byte, r int) (p scalePlanes) {
	p.r, seg = r, seg[l.start(len(l.planes)):]
	for plane, bytes := range l.scales.lane {
		p.lanes[plane], seg = seg[r%8*4*bytes:][:4*bytes], seg[lanes*bytes:]
	}
	p.row = seg[(r%8*2+r/8)*l.scales.row:][:l.scales.row]
	return p
}

// lane returns what a plane has for the lane that decodes columns 64*quarter to 64*quarter+63 of the row.
func (p scalePlanes) lane(plane, quarter int) []byte {
	bytes := len(p.lanes[plane]) / 4
	return p.lanes[plane][quarter*bytes:][:bytes]
}

// hasRowScale reports whether rows of a format have a float32 after the row tiles: D.
func hasRowScale(f quant.Format) bool { return f.BlockLen() < segment }

func (p Packing) layout() layout {
	if p.K < 1 || p.K%p.Format.BlockLen() != 0 {
		panic(fmt.Sprintf("ptxgen: rows of %d weights of %v cannot be packed", p.K, p.Format))
	}
	return layoutOf(p.Format)
}

// segments is the number of segments of a row.
func (p Packing) segments() int { return host.CeilDiv(p.K, segment) }

// tileBytes is the size of a row tile.
func (p Packing) tileBytes() int { return p.segments() * p.layout().segmentBytes() }

// scales returns the address of the scales of rows of a matrix at w, or 0 if there are none.
func (p Packing) scales(w uint64, rows int) uint64 {
	if !hasRowScale(p.Format) {
		return 0
	}
	return w + uint64(p.TileBytes(rows))
}

// rowTiles is the number of row tiles of some rows.
func rowTiles(rows int) int { return host.CeilDiv(rows, tileRows) }

// TileBytes returns the size of the row tiles of some rows: where the scales of rows begin in a matrix.
func (p Packing) TileBytes(rows int) int { return rowTiles(rows) * p.tileBytes() }

// Bytes returns the size of a packed matrix of some rows.
func (p Packing) Bytes(rows int) int {
	n := p.TileBytes(rows)
	if hasRowScale(p.Format) {
		n += 4 * tileRows * rowTiles(rows)
	}
	return n
}

// stored is the number that planes hold for a quant of quant.Block.
func (l layout) stored(q int8) int {
	switch {
	case l.levels != nil:
		return l.levels[q]
	case product.SubBlock(l.format) > 0:
		return int(q)
	}
	return int(q) + product.Center(l.format)
}

// place is where a weight of a segment is in the operands of its 16 steps. Registers 0 and 1 have the even
// columns of rows g and g+8, registers 2 and 3 the odd ones. A half is one of the two columns of a pair.
type place struct {
	step, lane     int
	register, half int
}

// in returns where a plane with this number of bits per quant has the weight: the chunk, the word in the lane's
// 16 bytes, and the lowest bit.
func (p place) in(bits int) (chunk, word, bit int) {
	perChunk := 16 / bits // steps
	chunk, e := p.step/perChunk, p.step%perChunk
	switch bits {
	case 16:
		return chunk, p.register, 16 * p.half
	case 8:
		return chunk, 2*e + p.register/2, 16*(p.register%2) + 8*p.half
	}
	// Each 16-bit half has two bytes. Each byte has row g in bits 0 to 3 and row g+8 in bits 4 to 7.
	perWord := 4 / bits // steps
	i := e%perWord*2 + p.register/2
	bit = i/perWord*8 + p.register%2*4 + i%perWord*bits
	return chunk, e / perWord, bit + 16*p.half
}

// putRatio stores what the ratio of dmin and d is computed from for the row. It returns false if the scales
// do not count.
func putRatio(to scalePlanes, b *quant.Block) bool {
	d, ratio := product.Ratio(b.D, b.DMin)
	switch {
	case d == 0:
		putHalves(to.row, 1, 0)
	case ratio == 0:
		putHalves(to.row, d, 0)
	default:
		putHalves(to.row, d, b.DMin)
	}
	return d == b.D && d != 0
}

// putSixBits stores d and dmin for the row, and its scales and minimums. A lane has two of each for row g and for row g+8: a word in
// plane 0, and two bytes in plane 1. Half i of the word and byte i are of the lane's sub-block i of both rows:
//
//	half, bits 0 to 3    low bits of the minimum of row g+8
//	half, bits 4 to 9    scale of row g
//	half, bits 10 to 15  minimum of row g
//	byte, bits 0 to 5    scale of row g+8
//	byte, bits 6 and 7   high bits of the minimum of row g+8
func putSixBits(to scalePlanes, b *quant.Block) {
	counts := putRatio(to, b)
	for quarter := range 4 {
		word, bytes := to.lane(0, quarter), to.lane(1, quarter)
		for i := range 2 {
			scale, minimum := uint32(0), uint32(b.Mins[2*quarter+i])
			if counts {
				scale = uint32(b.Scales[2*quarter+i])
			}
			if to.r < 8 {
				setBits(word, (scale<<4|minimum<<10)<<(16*i))
			} else {
				setBits(word, (minimum&15)<<(16*i))
				bytes[i] = byte(scale | minimum>>4<<6)
			}
		}
	}
}

// setBits sets bits of a word.
func setBits(word []byte, bits uint32) {
	binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)|bits)
}

// putNibbles stores d and dmin for the row, and a byte for each sub-block, with the scale in the low half
// and the minimum in the high one.
func putNibbles(to scalePlanes, b *quant.Block) {
	counts := putRatio(to, b)
	for s := range 16 {
		own := &to.lane(0, s/4)[4*(to.r/8)+s%4]
		*own = byte(b.Mins[s]) << 4
		if counts {
			*own |= byte(b.Scales[s])
		}
	}
}

// putBytes stores d for the row, and a signed byte for each sub-block.
func putBytes(to scalePlanes, b *quant.Block) {
	putHalves(to.row, b.D)
	for s := range 16 {
		to.lane(0, s/4)[4*(to.r/8)+s%4] = byte(b.Scales[s])
	}
}

// putSixBits8 stores d for the row. Scales count from -32. A lane has two of each of two rows, and 24 bits
// for them: the low 12 of 16 bits are of row g, the high four and eight others of row g+8.
func putSixBits8(to scalePlanes, b *quant.Block) {
	putHalves(to.row, b.D)
	for quarter := range 4 {
		pair := uint16(b.Scales[2*quarter]+32) | uint16(b.Scales[2*quarter+1]+32)<<6
		word, rest := to.lane(0, quarter), to.lane(1, quarter)
		if to.r >= 8 {
			rest[0], pair = byte(pair), pair>>8<<12
		}
		binary.LittleEndian.PutUint16(word, binary.LittleEndian.Uint16(word)|pair)
	}
}

// putHalves stores float16 numbers.
func putHalves(dst []byte, values ...float32) {
	for i, v := range values {
		binary.LittleEndian.PutUint16(dst[2*i:], float16.ToF16(v))
	}
}
