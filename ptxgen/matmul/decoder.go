package matmul

import (
	"cmp"
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// decoder emits the code that reads packed rows of one format; see Packing.
type decoder struct {
	layout
	// single gives weights 4j to 4j+3 of a format without scales; nil otherwise.
	single func(u unit, j int) [4]ptx.F32
	// quants gives the stored quants of one quad of a unit as the bytes of a word, of which
	// the bits of top count; clean says that there are no others.
	quants func(w quantWords, unit, quad int) (bytes ptx.U32, clean bool)
	// quantsOf is quants of a unit that is known at run time alone, for a format where it is
	// more than a shift; nil otherwise.
	quantsOf func(w quantWords, unit ptx.U32, quad int) (bytes ptx.U32, clean bool)
	// signed says that stored quants are signed numbers, to which nothing is added;
	// otherwise they count from 0.
	signed bool
	// top is the largest quant, 2^n - 1; signed quants are counted from -2^(n-1) for it.
	top uint32
	// center is what is subtracted from a quant so counted, for a format with minimums 0.
	center int
	// scales gives what the quants of a unit are multiplied by.
	scales func(u unit) scales
	// sub is how many weights share an integer scale, which together with those of its
	// block has a float16; 0 where each unit has a float16 of its own.
	sub int
}

// quantWords are, of each plane of quants, the word that has a quad's quants. A quad is
// four neighbors of the 16 weights of either half of a unit, of which the word of a piece
// has one each.
type quantWords struct {
	b     *ptx.Builder
	words []ptx.U32
}

// scales are of the sub-blocks of a unit, one or two:
// weight = scale * (quant - center) - min.
type scales struct {
	scale []ptx.F32
	min   []ptx.F32 // nil where the format has none
}

// unit is 32 consecutive weights of a row as loaded.
type unit struct {
	b     *ptx.Builder
	d     *decoder
	raw   [][]ptx.U32 // what each plane has for it
	index ptx.U32     // of the unit in its row
}

var decoders = map[quant.Format]decoder{
	quant.F32:    {single: singleF32},
	quant.F16:    {single: singleF16},
	quant.BF16:   {single: singleBF16},
	quant.Q4_0:   {quants: code, signed: true, top: 15, center: 8, scales: unit.lastHalf},
	quant.Q4_1:   {quants: code, top: 15, scales: unit.scaleAndOffset},
	quant.Q5_0:   {quants: codeWithBit, top: 31, center: 16, scales: unit.lastHalf},
	quant.Q5_1:   {quants: codeWithBit, top: 31, scales: unit.scaleAndOffset},
	quant.Q8_0:   {quants: whole, signed: true, top: 255, center: 128, scales: unit.lastHalf},
	quant.Q2_K:   {quants: pair, top: 3, scales: unit.nibbleScales, sub: 16},
	quant.Q3_K:   {quants: triple, quantsOf: tripleOf, top: 7, center: 4, scales: unit.byteScales, sub: 16},
	quant.Q4_K:   {quants: code, top: 15, scales: unit.head, sub: 32},
	quant.Q5_K:   {quants: codeWithBit, top: 31, scales: unit.head, sub: 32},
	quant.Q6_K:   {quants: codeWithPair, top: 63, center: 32, scales: unit.byteScales, sub: 16},
	quant.IQ4_NL: {quants: level, signed: true, top: 255, center: 128, scales: unit.lastHalf},
	quant.IQ4_XS: {quants: level, signed: true, top: 255, center: 128, scales: unit.sixBitScale, sub: 32},
}

// decoderOf panics on a format that no kernel reads.
func decoderOf(f quant.Format) *decoder {
	d, ok := decoders[f]
	if !ok {
		panic(fmt.Sprintf("ptxgen: no kernel reads %v", f))
	}
	d.layout = layouts[f]
	return &d
}

// quantized reports whether the format has stored quants and scales.
func (d *decoder) quantized() bool { return d.single == nil }

// packedRow is a row of a packed matrix.
type packedRow struct {
	d     *decoder
	tile  ptx.Global // that the row belongs to
	row   ptx.U32    // of the tile, where tiles have several
	units ptx.U32    // of the row, where it is one block
}

// rowOf is a row of the packed matrix at w, which has tiles of so many bytes and rows
// of so many units.
func (d *decoder) rowOf(w ptx.Global, row, tileBytes, units ptx.U32) packedRow {
	r := packedRow{d: d, units: units, row: row.RemN(d.rows())}
	r.tile = w.AtBytes(row.DivN(d.rows()).MulWide(tileBytes)).Aligned(rowAlign)
	return r
}

// load emits the loads of a unit, which is read once, through the read-only path.
func (r packedRow) load(b *ptx.Builder, index ptx.U32) unit {
	u := unit{b: b, d: r.d, index: index}
	if r.d.units == 0 {
		for i := range r.d.planes {
			at := r.tile.At(r.units.MulN(i).Add(index), 16)
			u.raw = append(u.raw, loadPiece(at, 16))
		}
		return u
	}
	block, in := r.tile.At(index.DivN(r.d.units), r.d.blockBytes()), index.RemN(r.d.units)
	for i, pl := range r.d.planes {
		piece := r.row
		if pl.units < r.d.units {
			piece = in.DivN(pl.units).MulN(r.d.rows()).Add(piece)
		}
		at := block.Plus(r.d.start(i, r.d.units)).At(piece, pl.bytes)
		bytes := pl.bytes
		if pl.own > 0 {
			bytes = pl.own
			at = at.At(in.RemN(pl.units), bytes)
		}
		u.raw = append(u.raw, loadPiece(at, bytes))
	}
	return u
}

func loadPiece(p ptx.Global, bytes int) []ptx.U32 {
	switch bytes {
	case 16:
		w := p.LoadU32x4(ptx.ReadOnly)
		return w[:]
	case 8:
		w := p.LoadU32x2(ptx.ReadOnly)
		return w[:]
	case 4:
		return []ptx.U32{p.LoadU32(ptx.ReadOnly)}
	case 2:
		return []ptx.U32{p.LoadU16(ptx.ReadOnly)}
	}
	panic(fmt.Sprintf("ptxgen: a piece of %d bytes", bytes))
}

// variables makes a unit that set may change. Of its index only the place within a
// block counts.
func (d *decoder) variables(b *ptx.Builder, index ptx.U32) unit {
	u := unit{b: b, d: d, index: index}
	for _, pl := range d.planes {
		piece := make([]ptx.U32, max(cmp.Or(pl.own, pl.bytes)/4, 1))
		for i := range piece {
			piece[i] = ptx.Undefined[ptx.U32](b)
		}
		u.raw = append(u.raw, piece)
	}
	return u
}

// set gives a unit made by variables what another holds.
func (u unit) set(v unit) {
	for i, piece := range u.raw {
		for j := range piece {
			ptx.Set(piece[j], v.raw[i][j])
		}
	}
}
