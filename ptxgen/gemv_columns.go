package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// lanePlace is what the lane's place in a fragment decides, which is worth its registers.
type lanePlace struct {
	digitsAt ptx.U32 // where the digits of its column begin among those of a column group
	bytesAt  ptx.U32 // see loadBytes
	digit    ptx.F32 // what the lower of the two digits of its results counts: 2^16 or 1
}

func (n *gemvInteger) place() (p lanePlace) {
	b, low, high := n.b, n.lane.AndN(15).MulN(16), n.lane.ShrN(4)
	p.digitsAt = low
	switch {
	case n.d.halves():
		p.digitsAt = low.Add(high.MulN(256))
	case n.Gemv.columns() > 1:
		p.digitsAt = low.Add(high.MulN(n.digitBytes()))
	}
	p.bytesAt = low.Add(high.MulN(n.d.start(1, n.d.units)))
	p.digit = ptx.Select(n.quad.AndN(1).EqN(0), b.F32(1<<16), b.F32(1))
	return p
}

// columns is the digits of a unit for a column group. They are loaded for a few units at
// a time, which are asked for in order.
func (k *integerBlock) columns(unit, group int) [2]ptx.U32 {
	n := k.gemvInteger
	if n.d.halves() {
		return k.halfColumns(unit, group)
	}
	if unit%2 == 0 {
		at := k.vectors.AtBytes(n.digitsAt).Aligned(16)
		k.digits[group] = at.Plus(2*group*n.digitBytes() + unit/2*256).LoadU32x4()
	}
	two := k.digits[group][unit%2*2:]
	return [2]ptx.U32{two[0], two[1]}
}

// halfColumns is columns for halves: the digits of either half, and zeros for the other.
func (k *integerBlock) halfColumns(unit, group int) [2]ptx.U32 {
	n, first, zero := k.gemvInteger, k.row.LtN(4), k.b.U32(0)
	at := k.vectors.AtBytes(n.digitsAt).Aligned(16).Plus(group*n.digitBytes() + unit/4*512)
	if n.halvesApart() {
		if unit%4 == 0 {
			load := func(half int) func() {
				return func() {
					for i, w := range at.LoadU32x4() {
						ptx.Set(n.apart[half][i], w)
					}
				}
			}
			n.b.When(first, load(0))
			n.b.Unless(first, load(1))
		}
		return [2]ptx.U32{n.apart[0][unit%4], n.apart[1][unit%4]}
	}
	if unit%4 == 0 {
		k.digits[group] = at.LoadU32x4()
	}
	word := k.digits[group][unit%4]
	return [2]ptx.U32{ptx.Select(first, word, zero), ptx.Select(first, zero, word)}
}

// halvesApart reports whether the halves' digits have registers each, of which a lane loads
// those of its column's half and leaves the others as they are, zero. That saves choosing
// between them, where there is but one vector.
func (s Gemv) halvesApart() bool { return decoderOf(s.Format).halves() && s.columns() == 1 }

// ofVector is where the first vector of the lane's results begins in an array that has
// so many bytes for each vector, and how far the next column group's is from there.
func (k *integerBlock) ofVector(start, bytes int) (at ptx.Shared, next int) {
	at = k.vectors.Plus(start)
	switch {
	case k.d.halves():
		return at, bytes
	case k.Gemv.columns() > 1:
		at = at.At(k.quad.ShrN(1), bytes)
	}
	return at, 2 * bytes
}

// subSums is the digits of the means of sub-blocks for a column group.
func (k *integerBlock) subSums(group int) ptx.U32 {
	n := k.gemvInteger
	at := k.vectors.Plus(n.sumsAt()).At(n.row.AndN(3), 16).At(n.quad, 4)
	if n.d.halves() {
		return at.At(n.row.ShrN(2), 64).Plus(group * n.sumBytes()).LoadU32()
	}
	if n.Gemv.columns() > 1 {
		at = at.At(n.row.ShrN(2), n.sumBytes())
	}
	return at.Plus(2 * group * n.sumBytes()).LoadU32()
}
