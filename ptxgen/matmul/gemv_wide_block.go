package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// laneSums are a lane's sums of its two rows, as products leave them: of four vectors, of
// which the lane has one, by their upper digits, then by their lower, then of the next four.
type laneSums [2 * wideVectors / 4][2]ptx.F32

// multiplyPart multiplies the warpgroup's tile by the slice's i-th part.
func (n *gemvWide) multiplyPart(i ptx.U32) {
	b := n.b
	var sums laneSums
	for g := range sums {
		sums[g] = [2]ptx.F32{ptx.Var(b.F32(0)), ptx.Var(b.F32(0))}
	}
	b.For(n.gemvInteger.bound(i), n.gemvInteger.bound(i.AddN(1)), b.U32(1), func(block ptx.U32) {
		n.fetchNextDigits(block)
		stage, parity := n.stage(n.phase)
		ptx.MBarrierAt(n.full.At(stage, 8)).Wait(parity)
		slot := n.turn.RemN(wideRing)
		b.If(n.live, func() {
			ptx.MBarrierAt(n.arrived.At(slot, 8)).Wait(n.turn.DivN(wideRing).AndN(1))
			n.multiply(n.ring.At(slot, n.d.blockBytes()), n.blocks.At(stage, n.s.digitsBytes()), &sums)
		})
		b.WarpSync() // all lanes have read
		ptx.MBarrierAt(n.empty.At(stage, 8)).Arrive()
		n.fetchWeights(slot)
		ptx.Set(n.turn, n.turn.AddN(1))
		ptx.Set(n.phase, n.nextPhase())
	}, ptx.NoUnroll)
	b.If(n.live, func() { n.pile(&sums, i) })
}

// pile adds a part's sums to those of the parts before that make a pair with it, and leaves
// them on the level that this comes to; the last part's, which are then the slice's, on the
// first.
func (n *gemvWide) pile(sums *laneSums, part ptx.U32) {
	const halves, half = 2, wideLevel / wideWarps / 2
	b := n.b
	var values [halves][4]ptx.F32
	for i := range sums {
		if i%2 == 0 {
			for r := range sums[i] {
				values[i/4][i%4+r] = ptx.Var(sums[i][r].Add(sums[i+1][r]))
			}
		}
	}
	level, pairs := ptx.Var(b.U32(0)), ptx.Var(part)
	at := func() ptx.Shared { return n.levels.AtBytes(level).Aligned(16) }
	b.While(func() ptx.Pred { return pairs.AndN(1).Ne(b.U32(0)) }, func() {
		for h := range values {
			for i, before := range at().Plus(h * half).LoadF32x4() {
				ptx.Set(values[h][i], before.Add(values[h][i]))
			}
		}
		ptx.Set(level, level.AddN(wideLevel))
		ptx.Set(pairs, pairs.ShrN(1))
	}, ptx.NoUnroll)
	b.If(part.AddN(1).Eq(n.parts), func() { ptx.Set(level, b.U32(0)) })
	for h := range values {
		at().Plus(h * half).StoreF32x4(values[h])
	}
}

// multiply adds the products of a block to the sums.
func (n *gemvWide) multiply(weights, digits ptx.Shared, sums *laneSums) {
	b, k := n.b, newIntegerBlock(n.gemvInteger, weights)
	// Products of the upper and of the lower bytes of scaled weights.
	upper, lower := make([]ptx.S32, ptx.WGMMAAccumulators), make([]ptx.S32, ptx.WGMMAAccumulators)
	for i := range upper {
		upper[i], lower[i] = ptx.Undefined[ptx.S32](b), ptx.Undefined[ptx.S32](b)
	}
	scale := n.wideScales(k)
	matrix := digits.Plus(wideDigits-n.s.digitsAt()).MatrixDescriptor(wideHalf, wideCore)
	for u := range n.d.units {
		if u >= 2 {
			b.WGMMAWait(1) // the registers of the unit before the last are free
		}
		var high, low [4]ptx.U32
		k.loadQuants(u)
		for i := range high {
			high[i], low[i] = n.scaled(k.register(u, i), scale(u, i/2, i%2))
		}
		unit := matrix.Add(b.U64(uint64(2 * wideHalf / 16 * u)))
		b.WGMMAFence()
		if n.signedScales() {
			b.WGMMAS8(upper, high, unit, u > 0)
		} else {
			b.WGMMAU8(upper, high, unit, u > 0)
		}
		b.WGMMAU8(lower, low, unit, u > 0)
		b.WGMMACommit()
	}
	b.WGMMAWait(0)
	n.addWide(k, digits, sums, func(i int) ptx.S32 { return upper[i].Mad(b.S32(1<<n.splitLog()), lower[i]) })
}

// signedScales reports whether scales of sub-blocks may be negative.
func (n *gemvWide) signedScales() bool { return n.d.halves() && !n.packedScales() }

// wideScales gives what gives the scale of half a unit of a row.
func (n *gemvWide) wideScales(k *integerBlock) func(unit, half, r int) ptx.S32 {
	if !n.d.halves() {
		s := k.superScales()
		return func(unit, _, r int) ptx.S32 { return s.scale(unit, r) }
	}
	var words [2][2]ptx.U32 // of four units
	return func(unit, half, r int) ptx.S32 {
		if unit%4 == 0 && half == 0 {
			words[r] = k.subAt(r).Plus(2 * unit).LoadU32x2()
		}
		return words[r][unit%4/2].Prmt(n.b.U32(0), 0x8880+0x1111*uint32(unit%2*2+half)).S32()
	}
}

// splitLog is log2 of what the upper bytes of scaled weights count. Where quants times three
// bits of a scale fit a byte, so that four are multiplied at a time, it is the scale that is
// split, otherwise the product.
func (n *gemvWide) splitLog() int {
	if n.signedScales() {
		return 8
	}
	return 3
}

// scaled multiplies quants with their scale: the upper and the lower bytes.
func (n *gemvWide) scaled(quants ptx.U32, scale ptx.S32) (high, low ptx.U32) {
	b, nothing := n.b, n.b.U32(0)
	if !n.signedScales() {
		return quants.Mul(scale.U32().ShrN(3)), quants.Mul(scale.U32().AndN(7))
	}
	bias := b.U32(0x80008000) // so that what is negative takes nothing of its neighbor
	even, odd := quants.Prmt(nothing, 0x4240).Mad(scale.U32(), bias), quants.Prmt(nothing, 0x4341).Mad(scale.U32(), bias)
	return even.Prmt(odd, 0x7351).Xor(b.U32(each(0x80))), even.Prmt(odd, 0x6240)
}

// addWide adds a block's totals, of which total gives the one that products leave as their
// i-th, to the sums.
func (n *gemvWide) addWide(k *integerBlock, digits ptx.Shared, sums *laneSums, total func(i int) ptx.S32) {
	n.offset = n.b.F32(-16 * float32(max(n.d.center, 1))) // the means are 16 times smaller than sums
	var s superScales
	if n.d.halves() {
		k.subHeads(&s)
	} else {
		s = k.superScales()
	}
	for r := range 2 {
		s.d[r], s.factor[r] = s.d[r].Mul(n.shrink), s.factor[r].Mul(n.shrink)
	}
	means := digits.Plus(n.s.meansAt()).At(n.row.DivN(2), meansBytes).At(n.row.RemN(2), 16).At(n.quad, 4)
	powers := digits.Plus(widePowers-n.s.digitsAt()).At(n.quad, powerBytes)
	var power ptx.F32
	for g := range sums {
		four, lower := g/2, g%2
		if lower == 0 {
			power = powers.Plus(4 * four * powerBytes).LoadF32()
		}
		below := ptx.MMAS8K16(s.subtract, means.Plus(4*four*meansBytes+2*16*lower).LoadU32())
		for r := range 2 {
			v := k.joined(total(4*g+2*r), total(4*g+2*r+1)).Mul(s.d[r])
			v = k.joinedBelow(below[2*r], below[2*r+1]).FMA(s.factor[r], v)
			counts := power
			if lower == 0 {
				counts = power.MulN(1 << 16)
			}
			ptx.Set(sums[g][r], v.FMA(counts, sums[g][r]))
		}
	}
}
