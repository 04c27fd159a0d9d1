package product

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// The inner sums of a segment of a tile of Stream are in shared memory, in strips of eight cells of four float32. Cell r has two
// numbers of row r, then two of row r+8.
//
// For one or two tokens, there is a strip per token. The numbers are the inner sum and D·E. For more tokens, there is a strip per
// two tokens. The numbers are the inner sums of both. In formats with a D per segment, the D of rows 0, 8, 1, 9 and so on come
// after the strips.

// stripBytes is the size of a strip.
const stripBytes = 16 * tileRows / 2

// stripTokens is the number of tokens of a strip.
func (s Stream) stripTokens() int {
	if s.Tokens <= 2 {
		return 1
	}
	return 2
}

// strips is the number of strips of a segment.
func (s Stream) strips() int { return s.Tokens / s.stripTokens() }

// storesD reports whether D comes after the strips.
func (s Stream) storesD() bool { return s.stripTokens() == 2 && s.Format.BlockLen() == segment }

// sumBytes is the size of the inner sums of a segment of a tile.
func (s Stream) sumBytes() int {
	size := stripBytes * s.strips()
	if s.storesD() {
		size += 4 * tileRows
	}
	return size
}

// storeSums stores the inner sums of a segment at an address. A lane has those of two rows and two tokens.
func (n *stream) storeSums(r *segmentReader, acc [4]ptx.F32, seg ptx.U32, to ptx.Shared) {
	b, s := n.b, n.spec
	row, pair := n.lane.ShrN(2), n.lane.AndN(3)
	if s.stripTokens() == 1 {
		for token := range s.Tokens {
			e := n.exps.At(seg, 4*s.Tokens).Plus(4 * token).LoadF32()
			cell := to.Plus(stripBytes*token).At(row, 16)
			four := [4]ptx.F32{acc[token], r.timesD(0, e), acc[2+token], r.timesD(1, e)}
			b.When(pair.EqN(0), func() { cell.StoreF32x4(four) })
		}
		return
	}
	cell := to.At(pair, stripBytes).At(row, 16)
	b.When(pair.LtN(s.strips()), func() { cell.StoreF32x4(acc) })
	if s.storesD() {
		rows := to.Plus(stripBytes*s.strips()).At(row, 8)
		b.When(pair.EqN(0), func() { rows.StoreF32x2(r.d) })
	}
}

// scaledSum is an inner sum, and D·E.
type scaledSum struct{ sum, scale ptx.F32 }

// loadSums loads the inner sums that storeSums stored at an address: for each token of a strip, those of row r of the tile, or with
// Gated of rows r and r+8. E of the segment is at exps.
func (n *stream) loadSums(sums, exps ptx.Shared, strip, r ptx.U32) (list [2][]scaledSum) {
	s := n.spec
	cells := sums.At(strip, stripBytes)
	var rows [][2]ptx.F32 // the two numbers of each row
	if s.Epilogue.Gated {
		four := cells.At(r, 16).LoadF32x4()
		rows = [][2]ptx.F32{{four[0], four[1]}, {four[2], four[3]}}
	} else {
		rows = [][2]ptx.F32{cells.At(r.AndN(7), 16).At(r.ShrN(3), 8).LoadF32x2()}
	}
	if s.stripTokens() == 1 {
		for _, numbers := range rows {
			list[0] = append(list[0], scaledSum{numbers[0], numbers[1]})
		}
		return list
	}
	d := n.loadD(sums.Plus(stripBytes*s.strips()), r)
	for t, e := range exps.At(strip, 8).LoadF32x2() {
		for j, numbers := range rows {
			scale := e
			if s.storesD() {
				scale = d[j].Mul(e)
			}
			list[t] = append(list[t], scaledSum{numbers[t], scale})
		}
	}
	return list
}

// loadD loads the D of row r, or with Gated of rows r and r+8, if storeSums has stored it at an address.
func (n *stream) loadD(at ptx.Shared, r ptx.U32) (d [2]ptx.F32) {
	switch {
	case !n.spec.storesD():
	case n.spec.Epilogue.Gated:
		return at.At(r, 8).LoadF32x2()
	default:
		d[0] = at.At(r.AndN(7), 8).At(r.ShrN(3), 4).LoadF32()
	}
	return d
}
