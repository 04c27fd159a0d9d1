package product

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// The inner sums of a segment of a row tile of Stream are in shared memory, in strips of float32 [8][4]. Line r of a strip has
//
//	{inner sum of row r, its D·E, inner sum of row r+8, its D·E}    of one token, if Stream has one or two
//	{inner sums of row r, inner sums of row r+8}                    of two tokens each, if it has more
//
// In the second case, formats with a D per segment have float32 [8][2] after the strips: D of rows r and r+8.

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

// sumBytes is the size of the inner sums of a segment of a row tile.
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
			e := n.xScales.At(seg, 4*s.Tokens).Plus(4 * token).LoadF32()
			line := to.Plus(stripBytes*token).At(row, 16)
			four := [4]ptx.F32{acc[token], r.timesD(0, e), acc[2+token], r.timesD(1, e)}
			b.When(pair.EqN(0), func() { line.StoreF32x4(four) })
		}
		return
	}
	line := to.At(pair, stripBytes).At(row, 16)
	b.When(pair.LtN(s.strips()), func() { line.StoreF32x4(acc) })
	if s.storesD() {
		rows := to.Plus(stripBytes*s.strips()).At(row, 8)
		b.When(pair.EqN(0), func() { rows.StoreF32x2(r.d) })
	}
}

// scaledSum is an inner sum, and D·E.
type scaledSum struct{ sum, scale ptx.F32 }

// loadSums loads the inner sums that storeSums stored at an address: for each token of a strip, those of row r of the tile, or with
// Gated of rows r and r+8. E of the segment is at xScales.
func (n *stream) loadSums(sums, xScales ptx.Shared, strip, r ptx.U32) (list [2][]scaledSum) {
	s := n.spec
	lines := sums.At(strip, stripBytes)
	var rows [][2]ptx.F32 // the two numbers of each row
	if s.Epilogue.Gated {
		four := lines.At(r, 16).LoadF32x4()
		rows = [][2]ptx.F32{{four[0], four[1]}, {four[2], four[3]}}
	} else {
		rows = [][2]ptx.F32{lines.At(r.AndN(7), 16).At(r.ShrN(3), 8).LoadF32x2()}
	}
	if s.stripTokens() == 1 {
		for _, numbers := range rows {
			list[0] = append(list[0], scaledSum{numbers[0], numbers[1]})
		}
		return list
	}
	d := n.loadD(sums.Plus(stripBytes*s.strips()), r)
	for t, e := range xScales.At(strip, 8).LoadF32x2() {
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
