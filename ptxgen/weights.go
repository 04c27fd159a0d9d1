package ptxgen

import (
	"fmt"

	"github.com/lockstep-go/lockstep/quant"
)

// UnitLen is how many consecutive weights of a row make a unit, what one lane
// loads and decodes at a time.
const UnitLen = 32

// rowAlign is what the start of every packed row is a multiple of, in bytes.
const rowAlign = 16

// Packing describes a matrix of K weights a row as the kernels read it. In a file
// the blocks are 18, 34 or 210 bytes long, which no wide load can read in place;
// packed, the parts of the blocks of one row lie apart in planes: all low quants,
// then all high bits, then all scales. Piece i of a plane belongs to unit i, or to
// units 8i to 8i+7 where a scale is shared by a block of 256, so that consecutive
// lanes read consecutive pieces. Rows of single weights (F32, F16, BF16) are padded
// with zeros to whole units; a unit of theirs is spread over planes of 16 bytes.
//
// Nothing else changes: the bytes are as many as before, up to rounding each row
// to 16 bytes (Q3_K: four bytes more per 256 weights, its scales being unpacked).
type Packing struct {
	Format quant.Format
	K      int // weights a row
}

// plane is one part of a packed row.
type plane struct {
	bytes int // of a piece
	units int // that share a piece
}

// layout is how the rows of a format are packed.
type layout struct {
	planes []plane
	// pack distributes one block, or for single weights one unit, over the planes,
	// which are cut to begin with its pieces.
	pack func(planes [][]byte, block []byte)
}

var (
	codePlane   = plane{16, 1} // 4-bit quants
	pairPlane   = plane{8, 1}  // 2-bit quants, or the upper two bits of larger ones
	bitPlane    = plane{4, 1}  // the top bit of each quant
	bytePlane   = plane{16, 1} // half the 8-bit quants
	halfPlane   = plane{2, 1}  // a float16, or two scales of a byte
	doublePlane = plane{4, 1}  // two float16
	headPlane   = plane{16, 8} // d, dmin, eight scales and minimums of six bits
)

var layouts = map[quant.Format]layout{
	quant.F32:    {[]plane{{16, 1}, {16, 1}, {16, 1}, {16, 1}, {16, 1}, {16, 1}, {16, 1}, {16, 1}}, packSingle},
	quant.F16:    {[]plane{{16, 1}, {16, 1}, {16, 1}, {16, 1}}, packSingle},
	quant.BF16:   {[]plane{{16, 1}, {16, 1}, {16, 1}, {16, 1}}, packSingle},
	quant.Q4_0:   {[]plane{codePlane, halfPlane}, packQ4_0},
	quant.Q4_1:   {[]plane{codePlane, doublePlane}, packQ4_1},
	quant.Q5_0:   {[]plane{codePlane, bitPlane, halfPlane}, packQ5_0},
	quant.Q5_1:   {[]plane{codePlane, bitPlane, doublePlane}, packQ5_1},
	quant.Q8_0:   {[]plane{bytePlane, bytePlane, halfPlane}, packQ8_0},
	quant.Q2_K:   {[]plane{pairPlane, halfPlane, {4, 8}}, packQ2_K},
	quant.Q3_K:   {[]plane{pairPlane, bitPlane, halfPlane, {2, 8}}, packQ3_K},
	quant.Q4_K:   {[]plane{codePlane, headPlane}, packQ4_K},
	quant.Q5_K:   {[]plane{codePlane, bitPlane, headPlane}, packQ5_K},
	quant.Q6_K:   {[]plane{codePlane, pairPlane, halfPlane, {2, 8}}, packQ6_K},
	quant.IQ4_NL: {[]plane{codePlane, halfPlane}, packIQ4_NL},
	quant.IQ4_XS: {[]plane{codePlane, {8, 8}}, packIQ4_XS},
}

// layout panics on a format that no kernel reads, or a K that fills no whole blocks.
func (p Packing) layout() layout {
	l, ok := layouts[p.Format]
	if !ok || p.K < 1 || p.K%p.Format.BlockLen() != 0 {
		panic(fmt.Sprintf("ptxgen: rows of %d weights of %v cannot be packed", p.K, p.Format))
	}
	return l
}

// Units is the number of units of a row.
func (p Packing) Units() int { return (p.K + UnitLen - 1) / UnitLen }

// RowBytes is the size of a packed row: row r begins at r·RowBytes.
func (p Packing) RowBytes() int {
	n := 0
	for _, pl := range p.layout().planes {
		n += p.Units() / pl.units * pl.bytes
	}
	return (n + rowAlign - 1) / rowAlign * rowAlign
}

// Pack packs rows rows of src, blocks of Format as a file holds them, into dst. It
// panics unless src and dst have exactly the lengths that rows rows take.
func (p Packing) Pack(dst, src []byte, rows int) {
	l := p.layout()
	from, err := p.Format.RowBytes(p.K)
	if err != nil || len(src) != rows*from || len(dst) != rows*p.RowBytes() {
		panic(fmt.Sprintf("ptxgen: %d bytes of %v into %d, for %d rows of %d weights", len(src), p.Format, len(dst), rows, p.K))
	}
	for ; len(src) > 0; src, dst = src[from:], dst[p.RowBytes():] {
		p.packRow(l, dst[:p.RowBytes()], src[:from])
	}
}

func (p Packing) packRow(l layout, dst, src []byte) {
	clear(dst)
	// A block of single weights is taken to be a unit.
	blockLen := max(p.Format.BlockLen(), UnitLen)
	blockBytes := p.Format.BlockBytes() * (blockLen / p.Format.BlockLen())
	planes := make([][]byte, len(l.planes))
	for first := 0; len(src) > 0; first += blockLen / UnitLen {
		at := 0
		for i, pl := range l.planes {
			planes[i] = dst[at+first/pl.units*pl.bytes:]
			at += p.Units() / pl.units * pl.bytes
		}
		n := min(blockBytes, len(src))
		l.pack(planes, src[:n])
		src = src[n:]
	}
}
