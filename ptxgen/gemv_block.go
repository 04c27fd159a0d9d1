package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// integerBlock is a block being multiplied: 16 rows of weights in the ring with the
// vectors' part of it.
type integerBlock struct {
	*gemvInteger
	weights, vectors ptx.Shared
	words            [][2]quantWords // by unit, of the lane's two rows
	digits           [][4]ptx.U32    // by column group: of the units being multiplied
	below            [4]ptx.S32      // see less
}

// multiply adds the products of a block to the sums.
func (n *gemvInteger) multiply(weights, vectors ptx.Shared) {
	k := newIntegerBlock(n, weights)
	k.vectors, k.digits = vectors, make([][4]ptx.U32, n.columnGroups())
	if n.d.super() {
		k.multiplySuper(n.sums)
	} else {
		k.multiplyUnits(n.sums)
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

// product is that of a unit's quants with a column group's digits.
func (k *integerBlock) product(a [][4]ptx.U32, unit, group int) (c [4]ptx.S32) {
	if k.halvesApart() {
		first, second := k.halfDigits(unit)
		c = ptx.MMAU8Half([2]ptx.U32(a[0][:2]), first)
		return ptx.MMAU8Half([2]ptx.U32(a[0][2:]), second, c[:]...)
	}
	digits := k.columns(unit, group)
	for i, f := range a {
		if i == 0 {
			c = ptx.MMAS8(f, digits)
		} else {
			c = ptx.MMAS8(f, digits, c[:]...)
		}
	}
	return c
}

// power is what a column group's digits in this lane are multiples of: the power of two
// that the vector's part was divided by, or 2^16 times as much.
func (k *integerBlock) power(group int) ptx.F32 {
	at, next := k.ofVector(k.powersAt(), 4)
	return at.Plus(group * next).LoadF32().Mul(k.digit)
}

// joined is the number of which a lane has two digits, in a row's sums.
func (k *integerBlock) joined(upper, lower ptx.S32) ptx.F32 {
	return upper.F32().FMA(k.b.F32(256), lower.F32())
}

// groupsAtOnce is how many column groups' integer sums there are registers for.
func (s Gemv) groupsAtOnce() int {
	if s.inParts() {
		return 2
	}
	return 4
}

// multiplySuper adds up integers over the whole block, of a few column groups at a time.
func (k *integerBlock) multiplySuper(sums [][2]ptx.F32) {
	for from := 0; from < len(sums); from += k.groupsAtOnce() {
		if from > 0 {
			k.b.WarpSync() // keeps the registers of these loads free until now
		}
		scales, to := k.superScales(), min(from+k.groupsAtOnce(), len(sums))
		for i, total := range k.superTotals(scales, from, to) {
			group := from + i
			power := k.power(group)
			for r := range 2 {
				v := k.joined(total[2*r], total[2*r+1]).Mul(scales.d[r])
				k.add(sums[group][r], k.less(scales, group, r, v), power)
			}
		}
	}
}

// superTotals is the integer sums of column groups from to to-1.
func (k *integerBlock) superTotals(s superScales, from, to int) [][4]ptx.S32 {
	totals := make([][4]ptx.S32, to-from)
	var high [4]ptx.S32 // see inPlace
	for u := range k.d.units {
		if few := len(k.sums) <= k.groupsAtOnce(); few && u == 4 || !few && u > 0 && u%2 == 0 {
			k.b.WarpSync() // keeps the registers of the following loads free
		}
		a := k.fragments(u)
		scale := [2]ptx.S32{s.scale(u, 0), s.scale(u, 1)}
		for g := range totals {
			total, first := &totals[g], u == 0
			if k.inPlace() && !k.lowInPlace(u) {
				total, first = &high, u == 1
			}
			for i, v := range k.product(a, u, from+g) {
				if first {
					total[i] = v.Mul(scale[i/2])
				} else {
					total[i] = v.Mad(scale[i/2], total[i])
				}
			}
		}
	}
	if k.inPlace() {
		totals[0] = k.levelled(totals[0], high)
	}
	return totals
}

// less subtracts from a column group's sum of a row what belongs to minimums or the
// centre.
func (k *integerBlock) less(s superScales, group, r int, sum ptx.F32) ptx.F32 {
	if !k.d.offset() {
		return sum
	}
	if r == 0 {
		k.below = ptx.MMAS8Half(s.subtract, k.subSums(group))
	}
	return k.joinedBelow(k.below, r).FMA(s.factor[r], sum)
}

// joinedBelow is joined for products with means, of bytes and at most 16 of them.
func (k *integerBlock) joinedBelow(below [4]ptx.S32, r int) ptx.F32 {
	return below[2*r].Mad(k.b.S32(256), below[2*r+1]).F32()
}

// multiplyUnits scales the sum of each unit, of a few column groups at a time.
func (k *integerBlock) multiplyUnits(sums [][2]ptx.F32) {
	for from := 0; from < len(sums); from += k.groupsAtOnce() {
		if from > 0 {
			k.b.WarpSync() // keeps the registers of these loads free until now
		}
		to := min(from+k.groupsAtOnce(), len(sums))
		for i, total := range k.unitTotals(from, to) {
			power := k.power(from + i)
			for r, v := range total {
				k.add(sums[from+i][r], v, power)
			}
		}
	}
}

// unitTotals is the sums of column groups from to to-1.
func (k *integerBlock) unitTotals(from, to int) [][2]ptx.F32 {
	var scales []rowScales // of this unit and some after it
	var below [][4]ptx.F32
	totals := make([][2]ptx.F32, to-from)
	for u := range k.d.units {
		if len(scales) == 0 {
			scales = k.unitScales(u)
		}
		if u%4 == 0 {
			below = k.belowUnits(u, from, to)
		}
		s, a := scales[0], k.fragments(u)
		scales = scales[1:]
		for g := range totals {
			c := k.product(a, u, from+g)
			for r := range 2 {
				var less ptx.F32
				if below != nil {
					less = below[g][u%4]
				}
				k.addUnit(&totals[g][r], u == 0, c[2*r].Mad(k.b.S32(256), c[2*r+1]).F32(), less, s, r)
			}
		}
	}
	return totals
}

// addUnit adds the sum v of a unit of a row, scaled, to the total, of which it may be the
// first. below is the sum of the unit's x, of which formats with an offset take a part off.
func (k *integerBlock) addUnit(total *ptx.F32, first bool, v, below ptx.F32, s rowScales, r int) {
	if k.d.offset() && k.d.centre > 0 {
		v = below.FMA(k.b.F32(-float32(k.d.centre)), v)
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

// belowUnits is the sums of x, by column group, over four units, for formats with an
// offset.
func (k *integerBlock) belowUnits(unit, from, to int) (below [][4]ptx.F32) {
	if !k.d.offset() {
		return nil
	}
	at, next := k.ofVector(k.sumsAt(), k.sumBytes())
	at = at.At(k.quad.AndN(1), 32).Plus(4 * unit)
	for g := from; g < to; g++ {
		below = append(below, at.Plus(g*next).LoadF32x4())
	}
	return below
}

// add adds a block's sum to that of the part.
func (k *integerBlock) add(sum, v, power ptx.F32) {
	ptx.Set(sum, v.Mul(k.shrink).FMA(power, sum))
}
