package ptxgen

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// decoder emits the code that reads packed rows of one format; see Packing.
//
// Quants become floats without a conversion: an integer below 2^24 in the bits of a
// float32 is that integer times 2^-149, a subnormal number or one of the first
// binade, and multiplication takes it at full speed. So one mask turns a quant into
// a factor, and the power of two is put into what it is multiplied by.
type decoder struct {
	planes []plane
	// single gives weights 4j to 4j+3 of a format without scales; nil otherwise.
	single func(u unit, j int) [4]ptx.F32
	// word gives stored quants 4j to 4j+3 as the bytes of a word, of which only the
	// bits of top count. clean says that the last byte has no others.
	word func(u unit, j int) (w ptx.U32, clean bool)
	// top is the largest stored quant, 2^n - 1.
	top uint32
	// centre is what is subtracted from a stored quant, for a format with minimums 0.
	centre int
	// scales gives what the quants are multiplied by.
	scales func(u unit) scales
}

// scales are of the sub-blocks of a unit, one or two:
// weight = scale * (stored - centre) - min.
type scales struct {
	scale []ptx.F32
	min   []ptx.F32 // nil where the format has none
}

// unit is 32 consecutive weights of a row as loaded.
type unit struct {
	b     *ptx.Builder
	d     *decoder
	raw   [][]ptx.U32 // a piece of each plane
	index ptx.U32     // of the unit in its row
}

var decoders = map[quant.Format]decoder{
	quant.F32:    {single: singleF32},
	quant.F16:    {single: singleF16},
	quant.BF16:   {single: singleBF16},
	quant.Q4_0:   {word: unit.code, top: 15, centre: 8, scales: unit.lastHalf},
	quant.Q4_1:   {word: unit.code, top: 15, scales: unit.scaleAndOffset},
	quant.Q5_0:   {word: unit.codeWithBit, top: 31, centre: 16, scales: unit.lastHalf},
	quant.Q5_1:   {word: unit.codeWithBit, top: 31, scales: unit.scaleAndOffset},
	quant.Q8_0:   {word: unit.whole, top: 255, centre: 128, scales: unit.lastHalf},
	quant.Q2_K:   {word: unit.pair, top: 3, scales: unit.nibbleScales},
	quant.Q3_K:   {word: unit.pairWithBit, top: 7, centre: 4, scales: unit.byteScales},
	quant.Q4_K:   {word: unit.code, top: 15, scales: unit.head},
	quant.Q5_K:   {word: unit.codeWithBit, top: 31, scales: unit.head},
	quant.Q6_K:   {word: unit.codeWithPair, top: 63, centre: 32, scales: unit.byteScales},
	quant.IQ4_NL: {word: unit.level, top: 255, centre: 128, scales: unit.lastHalf},
	quant.IQ4_XS: {word: unit.level, top: 255, centre: 128, scales: unit.sixBitScale},
}

// decoderOf panics on a format that no kernel reads.
func decoderOf(f quant.Format) *decoder {
	d, ok := decoders[f]
	if !ok {
		panic(fmt.Sprintf("ptxgen: no kernel reads %v", f))
	}
	d.planes = layouts[f].planes
	return &d
}

// load emits the loads of a unit, of a row of so many units that begins at row. The
// row must be aligned to 16 bytes, and is read once, through the read-only path.
func (d *decoder) load(b *ptx.Builder, row ptx.Global, index, units ptx.U32) unit {
	u := unit{b: b, d: d, index: index}
	before := b.U32(0)
	for _, pl := range d.planes {
		offset := before.Add(index.DivN(pl.units).MulN(pl.bytes))
		u.raw = append(u.raw, loadPiece(row.At(offset, 1).Aligned(min(pl.bytes, rowAlign)), pl.bytes))
		before = before.Add(units.DivN(pl.units).MulN(pl.bytes))
	}
	return u
}

func loadPiece(p ptx.Global, bytes int) []ptx.U32 {
	switch bytes {
	case 16:
		w := p.LoadU32x4(ptx.Streamed)
		return w[:]
	case 8:
		w := p.LoadU32x2(ptx.Streamed)
		return w[:]
	case 4:
		return []ptx.U32{p.LoadU32(ptx.Streamed)}
	case 2:
		return []ptx.U32{p.LoadU16(ptx.Streamed)}
	}
	panic(fmt.Sprintf("ptxgen: a piece of %d bytes", bytes))
}

// quantised reports whether the format has stored quants and scales.
func (d *decoder) quantised() bool { return d.single == nil }

// fieldShift is the bit at which field b of four begins, and flipped says that it
// holds top - stored instead of stored. A shift costs as much as a mask, so three of
// the four stay where they are, below bit 24. Why two are flipped: see gemv.go.
var (
	fieldShift = [4]int{0, 8, 16, 0}
	flipped    = [4]bool{false, true, true, false}
)

// fields gives stored quants 4j to 4j+3 as numbers: field b is (stored or, flipped,
// top - stored) * 2^(fieldShift[b]-149).
func (u unit) fields(j int) [4]ptx.F32 {
	w, clean := u.d.word(u, j)
	const notXAndY = ^ptx.LopX & ptx.LopY
	mask := func(b int) ptx.U32 { return u.b.U32(u.d.top << fieldShift[b]) }
	last := w.ShrN(24)
	if !clean {
		last = last.And(mask(3))
	}
	return [4]ptx.F32{
		w.And(mask(0)).AsF32(),
		w.Lop3(mask(1), u.b.U32(0), notXAndY).AsF32(),
		w.Lop3(mask(2), u.b.U32(0), notXAndY).AsF32(),
		last.AsF32(),
	}
}

// weights gives the 32 weights, equal to quant.Decode's in every bit (a NaN may have
// another payload).
func (u unit) weights() []ptx.F32 {
	var w []ptx.F32
	quad := u.quads()
	for j := range UnitLen / 4 {
		four := quad(j)
		w = append(w, four[:]...)
	}
	return w
}

// quads gives what emits weights 4j to 4j+3.
func (u unit) quads() func(j int) [4]ptx.F32 {
	if !u.d.quantised() {
		return func(j int) [4]ptx.F32 { return u.d.single(u, j) }
	}
	s := u.d.scales(u)
	var scaled [2][4]ptx.F32 // by sub-block and field: the scale over the field's unit
	for i, scale := range s.scale {
		for b, shift := range fieldShift {
			scaled[i][b] = scale.MulN(powerOfTwo(49 - shift))
		}
	}
	return func(j int) (w [4]ptx.F32) {
		part := j * 4 * len(s.scale) / UnitLen
		for b, f := range u.fields(j) {
			// stored - centre, times 2^(shift-49): exact, and so is its product with the
			// scale, which has at most 17 bits to the quant's 7.
			v := f.FMA(u.b.F32(sign(b)*0x1p100), u.b.F32(u.d.zero(b)*powerOfTwo(fieldShift[b]-49)))
			if s.min == nil {
				w[b] = v.Mul(scaled[part][b])
			} else {
				w[b] = v.FMA(scaled[part][b], s.min[part].Neg())
			}
		}
		return w
	}
}

// sign is -1 for a flipped field.
func sign(b int) float32 {
	if flipped[b] {
		return -1
	}
	return 1
}

// zero is what to add to sign(b) times the number in field b to get stored - centre.
func (d *decoder) zero(b int) float32 {
	if flipped[b] {
		return float32(int(d.top) - d.centre)
	}
	return float32(-d.centre)
}

// variables makes a unit that set may change. Of its index only the place within a
// block of 256 counts.
func (d *decoder) variables(b *ptx.Builder, index ptx.U32) unit {
	u := unit{b: b, d: d, index: index}
	for _, pl := range d.planes {
		piece := make([]ptx.U32, max(pl.bytes/4, 1))
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
