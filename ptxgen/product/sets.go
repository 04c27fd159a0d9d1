package product

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// setsByWGMMA reports whether sets multiply by wgmma, which needs whole warpgroups. With several sets and fewer tokens,
// mma.sync is as fast.
func (s Tile) setsByWGMMA() bool {
	return s.Sets == 1 || s.Sets > 1 && s.Warps%warpgroup == 0 && s.Tokens >= setWGMMATokens
}

// setWGMMATokens is the smallest number of tokens that several sets multiply by wgmma.
const setWGMMATokens = 24

// warpgroup is the number of warps that execute wgmma together.
const warpgroup = 4

// setActAlign is the alignment of activations for wgmma.
var setActAlign = operandLayout(maxTileTokens).Align()

// setActBytes is the size of the activations in a stage of the ring of sets.
func (s Tile) setActBytes() int {
	n := s.round().segmentBytes()
	if s.setsByWGMMA() {
		n = host.CeilDiv(n, setActAlign) * setActAlign
	}
	return n
}

// stageBytes is the size of a stage of the ring of sets.
func (s Tile) stageBytes() int { return s.weightBytes() + s.setActBytes() }

// totalsBytes is the size of the sums that sets hand on.
func (s Tile) totalsBytes() int {
	if s.Sets == 1 {
		return 0
	}
	return 4 * tileRows * s.Warps * s.Tokens
}

// takesRegisters reports whether the warps that multiply by wgmma take registers from those that copy. Up to four warps that multiply have enough.
func (s Tile) takesRegisters() bool { return s.setsByWGMMA() && s.Sets*s.Warps > producers }

// setRegisters returns the numbers of registers per thread of warps that multiply and of those that copy, if takesRegisters.
// Together they are as many as the kernel begins with.
func (s Tile) setRegisters() (multiplying, copying int) {
	const perSM, unit, fewest = 1 << 16, 8, 24
	consumers := s.Sets * s.Warps
	all := perSM / s.threads() / unit * unit * (consumers + producers)
	multiplying = (all - fewest*producers) / consumers / unit * unit
	return multiplying, (all - multiplying*consumers) / producers / unit * unit
}

// emitSets emits a Tile with Sets.
//
// A stage of the ring has a segment of the weights of all warps of a set, and of the activations. The warps that copy share
// the stages. Each stage is filled by one warp, which waits for every phase of its barriers, so that a parity
// identifies the phase. A set waits only for phases of segments that it multiplies. A parity identifies these, too: before the set
// waits for segment n, all segments up to n-Sets have been added, and Ring is at least Sets, so they include the one that was in
// the stage before.
func (s Tile) emitSets(b *ptx.Builder) {
	n := beginTile(b, s)
	b.Comment("ptxas sees that a shuffled number is the same in all lanes, and so are descriptors")
	warp := ptx.ShuffleIdx(b.Warp(), b.U32(0))
	n.set, n.warp = warp.DivN(s.Warps), warp.RemN(s.Warps)
	n.acts = b.DynamicShared(setActAlign)
	n.weights = n.acts.Plus(s.Ring * s.setActBytes())
	n.totals = n.weights.Plus(s.Ring * s.weightBytes())
	if s.setsByWGMMA() {
		n.newOperands(n.acts.Plus(s.round().sumsAt(offsetSteps(s.Format))))
	}
	n.full = b.Shared("barriers", 8*2*s.Ring, 8)
	n.empty = n.full.Plus(8 * s.Ring)
	initBarriers(b, []barriers{{n.full, b.N(s.Ring), b.N(1)}, {n.empty, b.N(s.Ring), b.N(s.Warps)}})
	b.Barrier()
	b.LaunchDependents()
	consumers := s.Sets * s.Warps
	first := b.Warp().AddN(-consumers) // stage of a warp that copies
	copies := b.Warp().GeN(consumers).And(n.lane.EqN(0))
	if s.Ring < producers {
		copies = copies.And(first.LtN(s.Ring))
	}
	ahead := b.U32(0) // number of segments: their weights are copied before the wait
	if !s.Experts {
		b.Comment("weights do not wait for the kernel that writes the activations")
		ahead = n.p.Segments.Min(b.N(s.Ring))
		_, above := n.place(b.BlockX())
		b.If(copies, func() {
			b.For(first, ahead, b.N(producers), func(seg ptx.U32) { n.copyWeights(n.p.W, above, seg, seg) }, ptx.NoUnroll)
		})
	}
	b.WaitForPrior()
	n.countTiles()
	multiplying, copying := s.setRegisters()
	b.IfElse(b.Warp().GeN(consumers), func() {
		if s.takesRegisters() {
			b.DecreaseRegisters(copying)
		}
		b.If(copies, func() { n.copySets(first, ahead) })
	}, func() {
		if s.takesRegisters() {
			b.IncreaseRegisters(multiplying)
		}
		n.consumeSet()
	})
}

// segmentCursor is at the next of the segments that a warp takes by turns with others.
type segmentCursor struct {
	seg ptx.U32 // variable: the next segment of the CTA that the warp takes
	at  ringPosition
}

func newSegmentCursor(b *ptx.Builder, first ptx.U32, ring int) *segmentCursor {
	return &segmentCursor{ptx.Var(first), newRingPosition(b, first, ring)}
}

// next moves to the segment that is step later.
func (t *segmentCursor) next(b *ptx.Builder, step int) {
	ptx.Set(t.seg, t.seg.AddN(step))
	t.at.advance(b, step)
}

// nextStage moves to the next segment whose stage the warp fills: first, first + producers and so on.
func (t *segmentCursor) nextStage(b *ptx.Builder, first ptx.U32) {
	at := t.at
	next := at.stage.AddN(producers)
	wrapped := next.GeN(at.stages)
	next = ptx.Select(wrapped, first, next)
	ptx.Set(t.seg, t.seg.Add(next.Sub(at.stage)).Add(ptx.Select(wrapped, b.N(at.stages), b.U32(0))))
	ptx.Set(at.parity, at.parity.Xor(ptx.Select(wrapped, b.U32(1), b.U32(0))))
	ptx.Set(at.stage, next)
}

// copySets copies the segments of a warp whose first stage is first. The weights of those before ahead have been copied.
func (n *tile) copySets(first, ahead ptx.U32) {
	b, s := n.b, n.spec
	t := newSegmentCursor(b, first, s.Ring)
	n.eachTile(func(tile, begin, end ptx.U32) {
		block, above := n.place(tile)
		w := n.matrixOf(block)
		b.While(func() ptx.Pred { return t.seg.Lt(end) }, func() {
			b.If(t.seg.Ge(ahead), func() {
				ptx.MBarrierAt(n.empty.At(t.at.stage, 8)).Wait(t.at.parity.Xor(b.U32(1)))
				n.copyWeights(w, above, t.seg.Sub(begin), t.at.stage)
			})
			size := s.round().segmentBytes()
			x := n.p.X.Aligned(16).At(block.Mul(n.p.Segments).Add(t.seg.Sub(begin)), size)
			b.BulkLoad(n.acts.At(t.at.stage, s.setActBytes()), x, b.N(size), ptx.MBarrierAt(n.full.At(t.at.stage, 8)))
			t.nextStage(b, first)
		}, ptx.NoUnroll)
	})
}

// copyWeights copies the weights of a segment of a tile, and tells the stage to wait for the activations as well.
func (n *tile) copyWeights(matrix ptx.Global, above, seg, stage ptx.U32) {
	b, s, size := n.b, n.spec, n.l.segmentBytes()
	full, to := ptx.MBarrierAt(n.full.At(stage, 8)), n.weights.At(stage, s.weightBytes())
	full.ArriveExpectTx(b.N(s.weightBytes() + s.round().segmentBytes()))
	first, last := above.MulN(s.Warps), n.own.WeightTiles.AddN(-1)
	for i := range s.Warps {
		from := matrix.At(first.AddN(i).Min(last).Mul(n.p.Segments).Add(seg), size)
		b.BulkLoad(to.Plus(i*size), from, b.N(size), full)
	}
}

// consumeSet multiplies the segments of a set.
func (n *tile) consumeSet() {
	b, s := n.b, n.spec
	sums, part := n.newSums(), n.newSums()
	t := newSegmentCursor(b, n.set, s.Ring)
	n.eachTile(func(tile, begin, end ptx.U32) {
		if s.Sets == 1 {
			for _, v := range sums {
				ptx.Set(v, b.F32(0))
			}
		}
		b.While(func() ptx.Pred { return t.seg.Lt(end) }, func() {
			ptx.MBarrierAt(n.full.At(t.at.stage, 8)).Wait(t.at.parity)
			acts := n.acts.At(t.at.stage, s.setActBytes())
			r := newSegmentReader(n.c, s.Format, n.block(t.at.stage), n.lane)
			if s.setsByWGMMA() {
				n.multiplySet(r, t.at.stage, part)
			} else {
				n.multiplyMMA(r, acts, part)
			}
			exps := acts.Plus(s.round().expsAt())
			if s.Sets == 1 {
				n.add(n.compareExps(exps), r, part, sums)
				n.freeStage(t.at.stage)
			} else {
				var scales []ptx.F32
				n.eachScale(exps, r, func(_ int, scale ptx.F32) { scales = append(scales, scale) })
				n.freeStage(t.at.stage)
				n.addInTurn(tile, t.seg, begin, end, part, scales, sums)
			}
			t.next(b, s.Sets)
		}, ptx.NoUnroll)
		if s.Sets == 1 {
			n.newResults(tile, 0).store(sums)
		}
	})
}

// freeStage lets the warp that copies fill a stage again.
func (n *tile) freeStage(stage ptx.U32) {
	arriveAsWarp(n.b, n.lane, ptx.MBarrierAt(n.empty.At(stage, 8)))
}

// setBatch is the number of steps whose operands are decoded together. Each warp has registers for two batches.
const setBatch = 2

// multiplySet computes the sums of a segment by wgmma. It decodes operands while those before are multiplied.
func (n *tile) multiplySet(r *segmentReader, stage ptx.U32, part []ptx.F32) {
	b, size := n.b, n.spec.setActBytes()
	acts, sums := n.operand.At(stage, size), n.sumOperand
	if offsetSteps(n.spec.Format) > 0 {
		sums = sums.At(stage, size)
	}
	for step := 0; step < steps; step += setBatch {
		operands := r.operands(step, setBatch)
		var offsets [][4]ptx.F16x2
		if step+setBatch == steps {
			offsets = r.offsets()
		}
		n.multiplyAsync(step, operands, offsets, acts, sums, part)
		b.WGMMAWait(1)
	}
	b.WGMMAWait(0)
}

// addInTurn waits until the set before has left its sums in shared memory, adds the inner sums of a segment, times scales, and leaves
// the sums for the next set. After the last segment of a tile, it stores the results instead. It loads what these need before it
// waits.
func (n *tile) addInTurn(tile, seg, begin, end ptx.U32, part, scales, sums []ptx.F32) {
	b := n.b
	b.IfElse(seg.AddN(1).Eq(end), func() {
		r := n.newResults(tile, 0)
		r.loadAll()
		n.takeTurn(seg, begin, part, scales, sums)
		b.Comment("after the last tile of the CTA, no set waits")
		b.If(tile.Add(b.GridX()).Lt(n.own.Tiles), n.passTurn)
		r.store(sums)
	}, func() {
		n.takeTurn(seg, begin, part, scales, sums)
		n.eachTotals(func(i int, totals ptx.Shared) { totals.StoreF32x4([4]ptx.F32(sums[i:])) })
		n.passTurn()
	})
}

// takeTurn waits for the turn of a set and adds the inner sums of its segment, times scales, to the sums of the set that had the
// segment before.
func (n *tile) takeTurn(seg, begin ptx.U32, part, scales, sums []ptx.F32) {
	b := n.b
	b.If(seg.Ne(b.U32(0)), func() { n.turnBarrier(n.set).Sync() })
	for _, v := range sums {
		ptx.Set(v, b.F32(0))
	}
	b.If(seg.Ne(begin), func() {
		n.eachTotals(func(i int, totals ptx.Shared) {
			for j, v := range totals.LoadF32x4() {
				ptx.Set(sums[i+j], v)
			}
		})
	})
	for i, scale := range scales {
		ptx.Set(sums[i], part[i].FMA(scale, sums[i]))
	}
}

// passTurn passes the turn to the next set.
func (n *tile) passTurn() { n.turnBarrier(n.set.AddN(1).RemN(n.spec.Sets)).Arrive() }

// turnBarrier returns the barrier at which a set waits for its turn.
func (n *tile) turnBarrier(set ptx.U32) ptx.NamedBarrier {
	return n.b.NamedBarrier(set.AddN(1), 2*lanes*n.spec.consumers())
}

// eachTotals calls do with i and the address of the lane's sums i to i+3 that sets hand on.
func (n *tile) eachTotals(do func(i int, totals ptx.Shared)) {
	totals := n.totals.At(n.warp.MulN(lanes).Add(n.lane), 16)
	for i := 0; i < n.spec.Tokens/2; i += 4 {
		do(i, totals.Plus(i/4*16*lanes*n.spec.consumers()))
	}
}
