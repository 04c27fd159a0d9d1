package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

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
	if unit%4 == 0 {
		k.digits[group] = at.LoadU32x4()
	}
	word := k.digits[group][unit%4]
	return [2]ptx.U32{ptx.Select(first, word, zero), ptx.Select(first, zero, word)}
}

// halfDigits is the digits of a unit's first half, and those of its second: a lane loads those
// of its column's half, and leaves the others as they are, zero.
func (k *integerBlock) halfDigits(unit int) (first, second ptx.U32) {
	n := k.gemvInteger
	if unit%4 == 0 {
		load := func(half int) func() {
			at := k.vectors.AtBytes(n.halvesAt[half]).Aligned(16).Plus(unit / 4 * 512)
			return func() {
				for i, w := range at.LoadU32x4() {
					ptx.Set(n.apart[half][i], w)
				}
			}
		}
		mine := k.row.LtN(4)
		n.b.When(mine, load(0))
		n.b.Unless(mine, load(1))
	}
	return n.apart[0][unit%4], n.apart[1][unit%4]
}

// halvesApart reports whether the halves' digits have registers each, and a product for
// each half. That saves choosing between them, where there is but one vector.
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
	if n.d.halves() {
		return k.vectors.AtBytes(n.subsAt).Aligned(4).Plus(n.sumsAt() + group*n.sumBytes()).LoadU32()
	}
	at := k.vectors.Plus(n.sumsAt()).At(n.row.AndN(3), 16).At(n.quad, 4)
	if n.Gemv.columns() > 1 {
		at = at.At(n.row.ShrN(2), n.sumBytes())
	}
	return at.Plus(2 * group * n.sumBytes()).LoadU32()
}
