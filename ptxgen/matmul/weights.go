package matmul

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/quant"
)

// unitLen is how many consecutive weights of a row make a unit, what a scale is for
// in most formats.
const unitLen = 32

// rowAlign is what the start of every packed tile is a multiple of, in bytes.
const rowAlign = 16

// Formats returns the formats of weights that the kernels read, in order of their ids.
func Formats() []quant.Format { return slices.Sorted(maps.Keys(layouts)) }

// Packing is the layout of a matrix in device memory, with rows of K weights. In a file, blocks
// of 18, 34 or 210 bytes cannot be read with aligned vector loads, and a warp that reads
// several rows reads from distant addresses.
//
// A quantized matrix is packed as a sequence of tiles of 16 rows. A tile is a sequence of
// blocks of 256 weights by 16 rows. A block is a structure of arrays: one array, or plane, of
// the low bits of all quants, then one of the high bits, then one of the scales. A plane is
// cut into chunks of at most 16 bytes, ordered by weights, then by rows; the four words of a
// chunk of quants go to the four lanes that hold a row of an mma fragment. Rows are padded
// with zeros to a multiple of 256 weights, the last tile with rows of zeros.
//
// Rows of F32, F16 and BF16 follow one another, padded to a multiple of 32 weights. Each group
// of 32 weights is spread over planes of 16 bytes, so that consecutive lanes read consecutive
// chunks.
//
// Apart from padding, the packed size is that of the file, plus 2 (Q6_K) or 6 (Q3_K) bytes per
// 256 weights.
type Packing struct {
	Format quant.Format
	K      int // weights per row
}

// tileRows is how many rows of a quantized matrix make a tile.
const tileRows = 16

// plane is one part of a block.
type plane struct {
	bytes int // of a piece
	units int // that share a piece
	own   int // bytes of a piece that belong to each unit alone; 0 if they share all
}

// quants reports whether the plane is of quants: the four words of a piece go to four lanes.
func (p plane) quants() bool { return p.bytes == 16 && p.own == 0 && p.units < 8 }

// layout is how a format is packed.
type layout struct {
	units  int // of a block; 0 where a row is one block, and a tile is one row
	planes []plane
	// pack distributes one block of a file, or for single weights one unit, over the
	// pieces of the planes.
	pack func(to pieces, block []byte)
}

var (
	codePlane  = plane{16, 1, 0} // 4-bit quants
	pairPlane  = plane{16, 2, 0} // 2-bit quants, or the upper two bits of larger ones
	bitPlane   = plane{16, 4, 0} // the top bit of each quant
	thirdPlane = plane{16, 4, 0} // a third of the bits of 3-bit quants
	bytePlane  = plane{16, 1, 0} // half the 8-bit quants
	scalePlane = plane{16, 8, 2} // float16 scales
	linear     = plane{16, 4, 4} // {float16 scale, float16 offset}
	subPlane   = plane{16, 8, 2} // two bytes of sub-blocks' scales
	superPlane = plane{4, 8, 0}  // {d, dmin} or {d, 0}
	headPlane  = plane{16, 8, 0} // d, dmin, eight scales and minimums of six bits
)

var layouts = map[quant.Format]layout{
	quant.F32:    {0, singlePlanes(8), packSingle},
	quant.F16:    {0, singlePlanes(4), packSingle},
	quant.BF16:   {0, singlePlanes(4), packSingle},
	quant.Q4_0:   {8, []plane{codePlane, scalePlane}, packQ4_0},
	quant.Q4_1:   {8, []plane{codePlane, linear}, packQ4_1},
	quant.Q5_0:   {8, []plane{codePlane, bitPlane, scalePlane}, packQ5_0},
	quant.Q5_1:   {8, []plane{codePlane, bitPlane, linear}, packQ5_1},
	quant.Q8_0:   {8, []plane{bytePlane, bytePlane, scalePlane}, packQ8_0},
	quant.Q2_K:   {8, []plane{pairPlane, subPlane, superPlane}, packQ2_K},
	quant.Q3_K:   {8, []plane{thirdPlane, thirdPlane, thirdPlane, subPlane, superPlane}, packQ3_K},
	quant.Q4_K:   {8, []plane{codePlane, headPlane}, packQ4_K},
	quant.Q5_K:   {8, []plane{codePlane, bitPlane, headPlane}, packQ5_K},
	quant.Q6_K:   {8, []plane{codePlane, pairPlane, subPlane, superPlane}, packQ6_K},
	quant.IQ4_NL: {8, []plane{codePlane, scalePlane}, packIQ4_NL},
	quant.IQ4_XS: {8, []plane{codePlane, {8, 8, 0}}, packIQ4_XS},
}

// singlePlanes are those of n pieces a unit.
func singlePlanes(n int) []plane {
	planes := make([]plane, n)
	for i := range planes {
		planes[i] = plane{16, 1, 0}
	}
	return planes
}

// rows is how many rows a tile has.
func (l layout) rows() int {
	if l.units == 0 {
		return 1
	}
	return tileRows
}

// start is where a plane begins in a block of so many units.
func (l layout) start(plane, units int) int {
	n := 0
	for _, pl := range l.planes[:plane] {
		n += units / pl.units * pl.bytes * l.rows()
	}
	return n
}

// blockBytes is the size of a block of a quantized format.
func (l layout) blockBytes() int { return l.start(len(l.planes), l.units) }

// layout panics on a format that no kernel reads, or a K that fills no whole blocks.
func (p Packing) layout() layout {
	l, ok := layouts[p.Format]
	if !ok || p.K < 1 || p.K%p.Format.BlockLen() != 0 {
		panic(fmt.Sprintf("ptxgen: rows of %d weights of %v cannot be packed", p.K, p.Format))
	}
	return l
}

// units is the number of units of a row.
func (p Packing) units() int { return host.CeilDiv(p.K, unitLen) }

// blocks is the number of blocks of a row.
func (p Packing) blocks() int {
	if l := p.layout(); l.units > 0 {
		return host.CeilDiv(p.units(), l.units)
	}
	return 1
}

// tileBytes is the size of a tile.
func (p Packing) tileBytes() int {
	if l := p.layout(); l.units == 0 {
		return l.start(len(l.planes), p.units())
	}
	return p.blocks() * p.layout().blockBytes()
}

// Bytes returns the size of a packed matrix of rows rows.
func (p Packing) Bytes(rows int) int { return host.CeilDiv(rows, p.layout().rows()) * p.tileBytes() }

// Pack packs rows rows of src, blocks of Format as in a GGUF file, into dst. It panics unless
// the lengths of src and dst are exactly those of rows rows.
func (p Packing) Pack(dst, src []byte, rows int) {
	l := p.layout()
	from, err := p.Format.RowBytes(p.K)
	if err != nil || len(src) != rows*from || len(dst) != p.Bytes(rows) {
		panic(fmt.Sprintf("ptxgen: %d bytes of %v into %d, for %d rows of %d weights", len(src), p.Format, len(dst), rows, p.K))
	}
	clear(dst)
	for r := range rows {
		tile := dst[r/l.rows()*p.tileBytes():][:p.tileBytes()]
		p.packRow(l, tile, r%l.rows(), src[r*from:(r+1)*from])
	}
}

func (p Packing) packRow(l layout, tile []byte, row int, src []byte) {
	// A block of single weights is taken to be a unit.
	fileLen := max(p.Format.BlockLen(), unitLen)
	fileBytes := p.Format.BlockBytes() * (fileLen / p.Format.BlockLen())
	to := pieces{layout: l, tile: tile, row: row, units: l.units}
	if l.units == 0 {
		to.units = p.units()
	}
	for len(src) > 0 {
		n := min(fileBytes, len(src))
		l.pack(to, src[:n])
		src, to.first = src[n:], to.first+fileLen/unitLen
	}
}

// pieces are where a block of a file goes.
type pieces struct {
	layout
	tile  []byte
	units int // of a block
	row   int // of the tile
	first int // unit of the row
}

// unit is what a plane has for unit u of the file's block: the rest of the tile from
// the piece that it shares with others, or from its own part of it.
func (p pieces) unit(plane, u int) []byte {
	u += p.first
	pl := p.planes[plane]
	at := u/p.units*p.start(len(p.planes), p.units) + p.start(plane, p.units)
	in := u % p.units
	at += (in/pl.units*p.rows() + p.row) * pl.bytes
	return p.tile[at+in%pl.units*pl.own:]
}

// of gives the place of unit u among those that share a piece.
func (p pieces) of(plane, u int) int { return (p.first + u) % p.planes[plane].units }
