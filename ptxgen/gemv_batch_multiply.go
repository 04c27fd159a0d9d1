package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// multiply adds the products of the block in registers with an entry's to its sums. Where
// the halves of units have scales of their own, the sums of each are apart to the end, as
// Gemv has them in lanes of their own.
func (n *gemvBatch) multiply(entry ptx.U32, first, last ptx.Pred, part ptx.U32) {
	k := newIntegerBlock(n.gemvInteger, n.ring.At(n.ringAt, 16))
	if !n.d.super() {
		n.settle(n.addUnits(k, entry, first), entry, last, part)
		return
	}
	n.firstHalf = nil
	if n.s.halves() > 1 {
		for range n.s.groups() {
			n.firstHalf = append(n.firstHalf, ptx.Var(n.b.F32(0)))
		}
		sums := n.addSuper(k, 0, entry, first)
		n.b.IfElse(last, func() {
			for g, total := range n.join(sums, 0) {
				ptx.Set(n.firstHalf[g], total)
			}
		}, func() { n.keep(sums, entry, 0) })
	}
	n.settle(n.addSuper(k, n.s.halves()-1, entry, first), entry, last, part)
}

// settle leaves the sums of the last half where the part's next block, or what comes after
// the part, finds them.
func (n *gemvBatch) settle(sums [][2]ptx.F32, entry ptx.U32, last ptx.Pred, part ptx.U32) {
	half := n.s.halves() - 1
	n.b.IfElse(last, func() { n.end(n.join(sums, half), entry, part) }, func() { n.keep(sums, entry, half) })
}

// addUnits adds the products of a block whose units have a scale each to its sums.
func (n *gemvBatch) addUnits(k *integerBlock, entry ptx.U32, first ptx.Pred) [][2]ptx.F32 {
	totals := n.unitTotals(k)
	return n.addBlock(entry, 0, first, func(sum ptx.F32, g, r int, power ptx.F32) { k.add(sum, totals[g][r], power.Mul(n.digit)) })
}

// addSuper adds the products of a half of each unit, or of all of it.
func (n *gemvBatch) addSuper(k *integerBlock, half int, entry ptx.U32, first ptx.Pred) [][2]ptx.F32 {
	n.halfScales = n.b.U32(0x6420 + 0x1111*uint32(half))
	n.offset = n.b.F32(-16 * float32(max(n.d.centre, 1))) // the means are 16 times smaller than sums
	scales := k.superScales()
	totals := n.superTotals(k, scales, half)
	// Powers of two, which change no rounding: here they are factors of few numbers.
	larger := n.digit.Mul(n.shrink)
	for r := range 2 {
		scales.d[r] = scales.d[r].Mul(larger)
		if n.d.offset() {
			scales.factor[r] = scales.factor[r].Mul(larger)
		}
	}
	var below [4]ptx.S32
	return n.addBlock(entry, half, first, func(sum ptx.F32, g, r int, power ptx.F32) {
		if r == 0 && n.d.offset() {
			below = n.below(scales, g, half)
		}
		v := k.joined(totals[g][2*r], totals[g][2*r+1]).Mul(scales.d[r])
		if n.d.offset() {
			v = k.joinedBelow(below, r).FMA(scales.factor[r], v)
		}
		ptx.Set(sum, v.FMA(power, sum))
	})
}

// addBlock adds a block to the sums of a half, of which there are none before the part's
// first block.
func (n *gemvBatch) addBlock(entry ptx.U32, half int, first ptx.Pred, add func(sum ptx.F32, group, row int, power ptx.F32)) [][2]ptx.F32 {
	n.b.WarpSync()
	sums := n.before(entry, half, first)
	for g := range sums {
		n.hold(g)
		power := n.ofResults(g).Plus(digitsPower).LoadF32()
		for r := range sums[g] {
			add(sums[g][r], g, r, power)
		}
	}
	return sums
}

// ofResults is the block of the vector of the lane's results of a group.
func (n *gemvBatch) ofResults(group int) ptx.Global {
	return n.block.At(n.quad.ShrN(1), digitBlock).Plus(2 * group * digitBlock)
}

// digitsOf are those of a unit for a group, of its halves.
func (n *gemvBatch) digitsOf(unit, group int) [2]ptx.U32 {
	return [2]ptx.U32(n.columns[group][unit/2][unit%2*2:])
}

// hold keeps the registers of loads for later units, or groups, free until now.
func (n *gemvBatch) hold(i int) {
	if i > 0 && i%2 == 0 {
		n.b.WarpSync()
	}
}

// superTotals adds up integers over a half of each unit or all of it.
func (n *gemvBatch) superTotals(k *integerBlock, scales superScales, half int) [][4]ptx.S32 {
	totals := make([][4]ptx.S32, n.s.groups())
	for u := range n.d.units {
		n.hold(u)
		scale := [2]ptx.S32{scales.scale(u, 0), scales.scale(u, 1)}
		a := n.fragment(k, u, half)
		for g := range totals {
			for i, v := range n.product(a, u, half, g) {
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

// fragment is a unit's quants, or in two registers those of a half.
func (n *gemvBatch) fragment(k *integerBlock, unit, half int) (a [4]ptx.U32) {
	k.loadQuants(unit)
	for i := range 4 / n.s.halves() {
		a[i] = k.register(unit, 2*half+i)
	}
	return a
}

// product is that of a fragment with a group's digits.
func (n *gemvBatch) product(a [4]ptx.U32, unit, half, group int) [4]ptx.S32 {
	digits := n.digitsOf(unit, group)
	if n.d.halves() {
		return ptx.MMAS8Half([2]ptx.U32(a[:2]), digits[half])
	}
	return ptx.MMAS8(a, digits)
}

// below is the products of minimums, or of scales, with a group's means. With those of the
// first half go sub-blocks 0 to 7.
func (n *gemvBatch) below(s superScales, group, half int) [4]ptx.S32 {
	means := digitsOfMeans
	if n.d.halves() {
		means = digitsOfMeans16
	}
	at := n.block.At(n.lane.ShrN(4), digitBlock).At(n.row.AndN(3), 16).At(n.quad, 4)
	word := at.Plus(2*group*digitBlock + means).LoadU32()
	if n.d.halves() {
		word = ptx.Select(n.quad.ShrN(1).EqN(half), word, n.b.U32(0))
	}
	return ptx.MMAS8Half(s.subtract, word)
}

// unitTotals scales the sum of each unit.
func (n *gemvBatch) unitTotals(k *integerBlock) [][2]ptx.F32 {
	var scales []rowScales // of this unit and some after it
	below := make([][4]ptx.F32, n.s.groups())
	totals := make([][2]ptx.F32, n.s.groups())
	for u := range n.d.units {
		n.hold(u)
		if len(scales) == 0 {
			scales = k.unitScales(u)
		}
		s, a := scales[0], n.fragment(k, u, 0)
		scales = scales[1:]
		for g := range totals {
			if u%4 == 0 && n.d.offset() {
				below[g] = n.ofResults(g).At(n.quad.AndN(1), 32).Plus(digitsSums + 4*u).LoadF32x4()
			}
			c := ptx.MMAS8(a, n.digitsOf(u, g))
			for r := range 2 {
				k.addUnit(&totals[g][r], u == 0, c[2*r].Mad(k.b.S32(256), c[2*r+1]).F32(), below[g][u%4], s, r)
			}
		}
	}
	return totals
}
