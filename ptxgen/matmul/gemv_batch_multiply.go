package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// multiply adds the products of the block in registers with an entry's to its sums, and
// leaves them where the part's next block, or what comes after the part, finds them.
func (n *gemvBatch) multiply(entry, block ptx.U32) {
	w := n.state.Plus(stateOrigin).LoadU32x4()
	origin, middle, limit, next := w[0], w[1], w[2], block.AddN(1)
	n.block = ptx.GlobalAt(n.state.Plus(stateBlock).LoadU64(), 16)
	k := newIntegerBlock(n.gemvInteger, n.ring.At(n.ringAt, 16))
	add := n.addUnits
	if n.d.super() {
		add = n.addSuper
	}
	pending := n.pendingAt(entry)
	sums := add(k, pending, block.Eq(origin).Or(block.Eq(middle)))
	n.b.IfElse(next.Eq(middle).Or(next.Eq(limit)),
		func() { n.end(n.join(sums), entry, block.Ge(middle)) },
		func() { n.keep(sums, pending) })
}

// addUnits adds the products of a block with a scale per unit to its sums.
func (n *gemvBatch) addUnits(k *integerBlock, pending ptx.Shared, first ptx.Pred) [][2]ptx.F32 {
	totals := n.unitTotals(k)
	return n.addBlock(pending, first, func(sum ptx.F32, g, r int, power ptx.F32) { k.add(sum, totals[g][r], power.Mul(n.digit)) })
}

// addSuper adds the products of a block with integer sums.
func (n *gemvBatch) addSuper(k *integerBlock, pending ptx.Shared, first ptx.Pred) [][2]ptx.F32 {
	n.offset = n.b.F32(-16 * float32(max(n.d.center, 1))) // the means are 16 times smaller than sums
	scales, totals := n.superTotals(k)
	// Powers of two, which change no rounding: here they are factors of few numbers.
	larger := n.digit.Mul(n.shrink)
	for r := range 2 {
		scales.d[r] = scales.d[r].Mul(larger)
		if n.d.offset() {
			scales.factor[r] = scales.factor[r].Mul(larger)
		}
	}
	var below [4]ptx.S32
	return n.addBlock(pending, first, func(sum ptx.F32, g, r int, power ptx.F32) {
		if r == 0 && n.d.offset() {
			below = n.below(scales, g)
		}
		v := k.joined(totals[g][2*r], totals[g][2*r+1]).Mul(scales.d[r])
		if n.d.offset() {
			v = k.joinedBelow(below[2*r], below[2*r+1]).FMA(scales.factor[r], v)
		}
		ptx.Set(sum, v.FMA(power, sum))
	})
}

// addBlock adds a block to the sums, of which there are none before the part's first block.
func (n *gemvBatch) addBlock(pending ptx.Shared, first ptx.Pred, add func(sum ptx.F32, group, row int, power ptx.F32)) [][2]ptx.F32 {
	n.b.WarpSync() // all lanes have read the weights
	var sums [][2]ptx.F32
	for g := range n.s.groups() {
		n.hold(g)
		if g%2 == 0 {
			sums = append(sums, n.before(pending, first, g)...)
		}
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
	atOnce := 2
	if n.d.halves() {
		atOnce = 1
	}
	if i > 0 && i%atOnce == 0 {
		n.b.WarpSync()
	}
}

// superTotals adds up integers over the whole block. Halves come one after the other, and
// the rows' scales last, since there are no registers for all at a time.
func (n *gemvBatch) superTotals(k *integerBlock) (scales superScales, totals [][4]ptx.S32) {
	totals = make([][4]ptx.S32, n.s.groups())
	if !n.d.halves() {
		scales = k.superScales()
		n.addTotals(totals, k, &scales, 0)
		return scales, totals
	}
	for half := range 2 {
		scales = superScales{}
		n.subBlocks = n.b.U32(firstHalves + 0x1111*uint32(half))
		scales.signed(n.b)
		n.addTotals(totals, k, &scales, half)
		n.b.WarpSync()
	}
	k.subHeads(&scales)
	return scales, totals
}

// addTotals adds up integers over a half of each unit or all of it.
func (n *gemvBatch) addTotals(totals [][4]ptx.S32, k *integerBlock, scales *superScales, half int) {
	for u := range n.d.units {
		n.hold(u)
		if n.d.halves() && u%4 == 0 {
			for r := range scales.words {
				w := k.subAt(r).Plus(2 * u).LoadU32x2()
				scales.words[r] = append(scales.words[r], k.subWord(w[0], w[1]))
			}
		}
		scale := [2]ptx.S32{scales.scale(u, 0), scales.scale(u, 1)}
		a := n.fragment(k, u, half)
		for g := range totals {
			for i, v := range n.product(a, u, half, g) {
				if u == 0 && half == 0 {
					totals[g][i] = v.Mul(scale[i/2])
				} else {
					totals[g][i] = v.Mad(scale[i/2], totals[g][i])
				}
			}
		}
	}
}

// halvesOfUnit is how many parts of a unit have scales of their own.
func (n *gemvBatch) halvesOfUnit() int {
	if n.d.halves() {
		return 2
	}
	return 1
}

// fragment is a unit's quants, or in two registers those of a half.
func (n *gemvBatch) fragment(k *integerBlock, unit, half int) (a [4]ptx.U32) {
	k.loadQuants(unit)
	for i := range 4 / n.halvesOfUnit() {
		a[i] = k.register(unit, 2*half+i)
	}
	return a
}

// product is that of a fragment with a group's digits.
func (n *gemvBatch) product(a [4]ptx.U32, unit, half, group int) [4]ptx.S32 {
	digits := n.digitsOf(unit, group)
	if n.d.halves() {
		return ptx.MMAS8K16([2]ptx.U32(a[:2]), digits[half])
	}
	return ptx.MMAS8(a, digits)
}

// below is the products of minimums, or of scales, with a group's means.
func (n *gemvBatch) below(s superScales, group int) [4]ptx.S32 {
	means := digitsOfMeans
	if n.d.halves() {
		means = digitsOfMeans16
	}
	at := n.block.At(n.lane.ShrN(4), digitBlock).At(n.row.AndN(3), 16).At(n.quad, 4)
	return ptx.MMAS8K16(s.subtract, at.Plus(2*group*digitBlock+means).LoadU32())
}

// unitTotals scales the sum of each unit.
func (n *gemvBatch) unitTotals(k *integerBlock) [][2]ptx.F32 {
	var scales []rowScales // of this unit and some after it
	below := make([][2]ptx.F32, n.s.groups())
	totals := make([][2]ptx.F32, n.s.groups())
	for u := range n.d.units {
		n.hold(u)
		if len(scales) == 0 {
			scales = k.unitScales(u)
		}
		s, a := scales[0], n.fragment(k, u, 0)
		scales = scales[1:]
		for g := range totals {
			if u%2 == 0 && n.d.offset() {
				below[g] = n.ofResults(g).At(n.quad.AndN(1), 32).Plus(digitsSums + 4*u).LoadF32x2()
			}
			c := ptx.MMAS8(a, n.digitsOf(u, g))
			for r := range 2 {
				k.addUnit(&totals[g][r], u == 0, c[2*r].Mad(k.b.S32(256), c[2*r+1]).F32(), below[g][u%2], s, r)
			}
		}
	}
	return totals
}
