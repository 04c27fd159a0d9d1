package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

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
	k := &integerBlock{gemvInteger: n, weights: weights, vectors: vectors, digits: make([][4]ptx.U32, n.columnGroups())}
	k.words = make([][2]quantWords, k.d.units)
	for i := range k.words {
		for r := range k.words[i] {
			k.words[i][r] = quantWords{k.b, make([]ptx.U32, len(k.d.planes))}
		}
	}
	if n.d.super() {
		k.multiplySuper(n.sums)
	} else {
		k.multiplyUnits(n.sums)
	}
}

// loadQuants loads the quants of a unit and of those that come with it: a lane receives
// the words of row lane/4 and of the row 8 further on, of the pieces of one unit or of
// those that share them.
func (k *integerBlock) loadQuants(unit int) {
	for i, pl := range k.d.planes {
		if !pl.quants() {
			break
		}
		const atOnce = 2 // pieces
		if unit%(atOnce*pl.units) != 0 {
			continue
		}
		pieces := min(atOnce, k.d.units/pl.units)
		at := k.weights.At(k.lane, 16).Plus(k.d.start(i, k.d.units) + 256*unit/pl.units)
		for j, w := range ptx.LoadMatrices[ptx.F16x2](at, 2*pieces, false) {
			for u := range pl.units {
				k.words[unit+j/2*pl.units+u][j%2].words[i] = w.Bits()
			}
		}
	}
}

// fragments are the rows' quants of a unit as signed bytes; of two fragments they are
// the sum.
func (k *integerBlock) fragments(unit int) [][4]ptx.U32 {
	k.loadQuants(unit)
	if k.inParts() {
		var a [2][4]ptx.U32
		for i := range a[0] {
			a[0][i], a[1][i] = levelParts(k.words[unit][i%2], i/2)
		}
		return a[:]
	}
	return [][4]ptx.U32{k.fragment(unit)}
}

// inParts reports whether quants are multiplied as sums of two: those that a table gives,
// unless there are so many columns that a second product costs more than it saves.
func (s Gemv) inParts() bool {
	return (s.Format == quant.IQ4_NL || s.Format == quant.IQ4_XS) && s.columns() < 16
}

func (k *integerBlock) fragment(unit int) (a [4]ptx.U32) {
	for i := range a {
		quad, row := i/2, i%2
		bytes, clean := k.d.quants(k.words[unit][row], unit, quad)
		if !clean {
			bytes = bytes.AndN(each(k.d.top))
		}
		a[i] = bytes
	}
	return a
}

// product is that of a unit's quants with a column group's digits.
func (k *integerBlock) product(a [][4]ptx.U32, unit, group int) (c [4]ptx.S32) {
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
	digit := ptx.Select(k.quad.AndN(1).EqN(0), k.b.F32(1<<16), k.b.F32(1))
	return at.Plus(group * next).LoadF32().Mul(digit)
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
	for u := range k.d.units {
		if few := len(k.sums) <= k.groupsAtOnce(); few && u == 4 || !few && u > 0 && u%2 == 0 {
			k.b.WarpSync() // keeps the registers of the following loads free
		}
		a := k.fragments(u)
		scale := [2]ptx.S32{s.scale(u, 0), s.scale(u, 1)}
		for g := range totals {
			for i, v := range k.product(a, u, from+g) {
				if u == 0 {
					totals[g][i] = v.Mul(scale[i/2])
				} else {
					totals[g][i] = v.Mad(scale[i/2], totals[g][i])
				}
			}
		}
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
		zero := ptx.Var(k.b.U32(0))
		k.below = ptx.MMAS8([4]ptx.U32{s.subtract[0], s.subtract[1], zero, zero}, [2]ptx.U32{k.subSums(group), zero})
	}
	return k.joined(k.below[2*r], k.below[2*r+1]).FMA(s.factor[r], sum)
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
	s, below := k.unitScales(), k.belowUnits(from, to)
	totals := make([][2]ptx.F32, to-from)
	for u := range k.d.units {
		a := k.fragments(u)
		for g := range totals {
			c := k.product(a, u, from+g)
			for r := range 2 {
				v := c[2*r].Mad(k.b.S32(256), c[2*r+1]).F32()
				if k.d.offset() && k.d.centre > 0 {
					v = below[g][u].FMA(k.b.F32(-float32(k.d.centre)), v)
				}
				if u == 0 {
					v = v.Mul(s[u].scale[r])
				} else {
					v = v.FMA(s[u].scale[r], totals[g][r])
				}
				if s[u].offset != nil {
					v = below[g][u].FMA(s[u].offset[r], v)
				}
				totals[g][r] = v
			}
		}
	}
	return totals
}

// belowUnits is the sums of x, by column group and unit, for formats with an offset.
func (k *integerBlock) belowUnits(from, to int) (below [][4]ptx.F32) {
	if !k.d.offset() {
		return nil
	}
	at, next := k.ofVector(k.sumsAt(), k.sumBytes())
	at = at.At(k.quad.AndN(1), 16)
	for g := from; g < to; g++ {
		below = append(below, at.Plus(g*next).LoadF32x4())
	}
	return below
}

// add adds a block's sum to that of the part.
func (k *integerBlock) add(sum, v, power ptx.F32) {
	ptx.Set(sum, v.MulN(powerOfTwo(-powerLog)).FMA(power, sum))
}
