package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// integerBlock is a block being multiplied: 16 rows of weights in the ring with the
// vector's part of it.
type integerBlock struct {
	*gemvInteger
	weights, x ptx.Shared
	words      [][2]quantWords // by unit, of the lane's two rows
	digits     [4]ptx.U32      // of the units being multiplied
}

// multiply adds the products of a block to the sums.
func (n *gemvInteger) multiply(weights, x ptx.Shared) {
	k := newIntegerBlock(n, weights)
	k.x = x
	if n.d.super() {
		k.multiplySuper()
	} else {
		k.multiplyUnits()
	}
}

func newIntegerBlock(n *gemvInteger, weights ptx.Shared) *integerBlock {
	k := &integerBlock{gemvInteger: n, weights: weights, words: make([][2]quantWords, n.d.units)}
	for i := range k.words {
		for r := range k.words[i] {
			k.words[i][r] = quantWords{k.b, make([]ptx.U32, len(k.d.planes))}
		}
	}
	return k
}

// product is that of a unit's quants with the digits.
func (k *integerBlock) product(a [][4]ptx.U32, unit int) (c [4]ptx.S32) {
	if k.d.halves() {
		first, second := k.halfDigits(unit)
		return ptx.MMAU8(a[0], [2]ptx.U32{first, second})
	}
	digits := k.unitDigits(unit)
	for i, f := range a {
		if i == 0 {
			c = ptx.MMAS8(f, digits)
		} else {
			c = ptx.MMAS8(f, digits, c[:]...)
		}
	}
	return c
}

// unitDigits is the digits of a unit. They are loaded for two units at a time, which are
// asked for in order.
func (k *integerBlock) unitDigits(unit int) [2]ptx.U32 {
	if unit%2 == 0 {
		k.digits = k.x.AtBytes(k.digitsAt).Aligned(16).Plus(unit / 2 * 256).LoadU32x4()
	}
	return [2]ptx.U32(k.digits[unit%2*2:])
}

// halfDigits is the digits of a unit's first half, and those of its second: a lane loads those
// of its column's half, and leaves the others as they are, zero.
func (k *integerBlock) halfDigits(unit int) (first, second ptx.U32) {
	n := k.gemvInteger
	if unit%4 == 0 {
		load := func(half int) func() {
			at := k.x.AtBytes(n.halvesAt[half]).Aligned(16).Plus(unit / 4 * 512)
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

// means is the digits of the means of sub-blocks.
func (k *integerBlock) means() ptx.U32 {
	return k.x.Plus(k.sumsAt()).At(k.row.AndN(3), 16).At(k.quad, 4).LoadU32()
}

// power is what the digits in this lane are multiples of: the power of two that the
// vector's part was divided by, or 2^16 times as much.
func (k *integerBlock) power() ptx.F32 { return k.x.Plus(k.powerAt()).LoadF32().Mul(k.digit) }

// joined is the number of which a lane has two digits, in a row's sums.
func (k *integerBlock) joined(upper, lower ptx.S32) ptx.F32 {
	return upper.F32().FMA(k.b.F32(256), lower.F32())
}

// joinedBelow is joined for products with means, of bytes and at most 16 of them.
func (k *integerBlock) joinedBelow(upper, lower ptx.S32) ptx.F32 {
	return upper.Mad(k.b.S32(256), lower).F32()
}

// multiplySuper adds up integers over the whole block. What belongs to minimums or the
// center is subtracted from their sum.
func (k *integerBlock) multiplySuper() {
	scales := k.superScales()
	total := k.superTotal(scales)
	var below [4]ptx.S32
	if k.d.offset() {
		below = ptx.MMAS8K16(scales.subtract, k.means())
	}
	power, rows := k.power(), k.sums[:]
	if k.joinsHalves {
		total, below, rows = k.joinHalves(total), k.ownRow(below), k.sums[:1]
	}
	for r, sum := range rows {
		v := k.joined(total[2*r], total[2*r+1]).Mul(scales.d[r])
		if k.d.offset() {
			v = k.joinedBelow(below[2*r], below[2*r+1]).FMA(scales.factor[r], v)
		}
		k.add(sum, v, power)
	}
}

// joinHalves adds up the halves' sums: lanes of the first half go on with the upper row, which
// is first in what it gives, those of the second with the row 8 further on.
func (k *integerBlock) joinHalves(total [4]ptx.S32) (sum [4]ptx.S32) {
	own, others := k.ownRow(total), k.ownRow([4]ptx.S32{total[2], total[3], total[0], total[1]})
	logs := k.quantLogs()
	for i := range 2 {
		other := ptx.ShuffleXor(others[i], 2)
		if logs[0] == logs[1] {
			sum[i] = own[i].Add(other)
			continue
		}
		sum[i] = own[i].Mad(k.level[0].S32(), other.Mul(k.level[1].S32()))
	}
	return sum
}

// ownRow is what a lane with halves has of the row that it goes on with.
func (k *integerBlock) ownRow(x [4]ptx.S32) (own [4]ptx.S32) {
	first := k.second.EqN(0)
	for i := range 2 {
		own[i] = ptx.Select(first, x[i], x[2+i])
	}
	return own
}

// superTotal is the integer sums.
func (k *integerBlock) superTotal(s superScales) (total [4]ptx.S32) {
	var high [4]ptx.S32 // see inPlace
	for u := range k.d.units {
		if u == 4 {
			k.b.WarpSync() // keeps the registers of the following loads free
		}
		a := k.fragments(u)
		scale := [2]ptx.S32{s.scale(u, 0), s.scale(u, 1)}
		to, first := &total, u == 0
		if k.inPlace() && !k.lowInPlace(u) {
			to, first = &high, u == 1
		}
		for i, v := range k.product(a, u) {
			if first {
				to[i] = v.Mul(scale[i/2])
			} else {
				to[i] = v.Mad(scale[i/2], to[i])
			}
		}
	}
	if k.inPlace() {
		return k.levelled(total, high)
	}
	return total
}

// multiplyUnits scales the sum of each unit.
func (k *integerBlock) multiplyUnits() {
	var scales []rowScales // of this unit and some after it
	var below [4]ptx.F32   // sums of x, of four units
	var total [2]ptx.F32
	for u := range k.d.units {
		if len(scales) == 0 {
			scales = k.unitScales(u)
		}
		if u%4 == 0 && k.d.offset() {
			below = k.x.Plus(k.sumsAt()).At(k.quad.AndN(1), 32).Plus(4 * u).LoadF32x4()
		}
		s, a := scales[0], k.fragments(u)
		scales = scales[1:]
		c := k.product(a, u)
		for r := range total {
			k.addUnit(&total[r], u == 0, c[2*r].Mad(k.b.S32(256), c[2*r+1]).F32(), below[u%4], s, r)
		}
	}
	power := k.power()
	for r, sum := range k.sums {
		k.add(sum, total[r], power)
	}
}

// addUnit adds the sum v of a unit of a row, scaled, to the total, of which it may be the
// first. below is the sum of the unit's x, of which formats with an offset take a part off.
func (k *integerBlock) addUnit(total *ptx.F32, first bool, v, below ptx.F32, s rowScales, r int) {
	if k.d.offset() && k.d.center > 0 {
		v = below.FMA(k.b.F32(-float32(k.d.center)), v)
	}
	if first {
		v = v.Mul(s.scale[r])
	} else {
		v = v.FMA(s.scale[r], *total)
	}
	if s.offset != nil {
		v = below.FMA(s.offset[r], v)
	}
	*total = v
}

// add adds a block's sum to that of the part.
func (k *integerBlock) add(sum, v, power ptx.F32) {
	ptx.Set(sum, v.Mul(k.shrink).FMA(power, sum))
}
