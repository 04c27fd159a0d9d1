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

// totalsBytes is the size of the totals that sets hand on.
func (s Tile) totalsBytes() int {
	if s.Sets == 1 {
		return 0
	}
	return 4 * tileRows * s.Warps * s.Tokens
}

// movesRegisters reports whether consumers that multiply by wgmma take registers from producers, by setmaxnreg. Up to four
// consumers have enough.
func (s Tile) movesRegisters() bool { return s.setsByWGMMA() && s.Sets*s.Warps > producers }

// setRegisters returns the numbers of registers per thread of consumers and of producers, if movesRegisters. Together they are as
// many as the kernel begins with.
func (s Tile) setRegisters() (multiplying, copying int) {
	const perSM, unit, fewest = 1 << 16, 8, 24
	consumers := s.Sets * s.Warps
	all := perSM / s.threads() / unit * unit * (consumers + producers)
	multiplying = (all - fewest*producers) / consumers / unit * unit
	return multiplying, (all - multiplying*consumers) / producers / unit * unit
}

// emitSets emits a Tile with Sets.
//
// A stage of the ring has a segment of the row tiles of a set, and of the activations. Each stage has one producer, which waits for
// every phase of its barriers, so that a parity tells phases apart. A set skips the phases of other sets. A parity suffices still: before
// a set waits for segment n, all segments up to n-Sets have been added. Ring is at least Sets, so these include the segment that was
// in the stage before.
func (s Tile) emitSets(b *ptx.Builder) {
	n := beginTile(b, s)
	b.Comment("ptxas sees that a shuffled number is the same in all lanes, and so are descriptors")
	warp := ptx.ShuffleIdx(b.Warp(), b.U32(0))
	n.set, n.warp = warp.DivN(s.Warps), warp.RemN(s.Warps)
	n.acts = b.DynamicShared(setActAlign)
	n.weights = n.acts.Plus(s.Ring * s.setActBytes())
	n.totals = n.weights.Plus(s.Ring * s.weightBytes())
	if s.setsByWGMMA() {
		n.newOperands(n.acts.Plus(s.round().xSumsAt(offsetSteps(s.Format))))
	}
	n.full = b.Shared("barriers", 8*2*s.Ring, 8)
	n.empty = n.full.Plus(8 * s.Ring)
	beginWithBarriers(b, barriers{n.full, s.Ring, 1}, barriers{n.empty, s.Ring, s.Warps})
	b.LaunchDependents()
	consumers := s.Sets * s.Warps
	first := b.Warp().AddN(-consumers) // stage of a producer
	copies := b.Warp().GeN(consumers).And(n.lane.EqN(0))
	if s.Ring < producers {
		copies = copies.And(first.LtN(s.Ring))
	}
	early := b.U32(0) // segments: their weights are copied before the wait for prior kernels
	if !s.Experts {
		b.Comment("the first weights do not wait for the kernel that writes the activations")
		early = n.p.Segments.Min(b.N(min(s.Ring, earlySetSegments)))
		_, rowGroup := n.coords(b.BlockX())
		b.If(copies, func() {
			b.For(first, early, b.N(producers), func(seg ptx.U32) { n.copyWeights(n.p.W, rowGroup, seg, seg) }, ptx.NoUnroll)
		})
	}
	b.WaitForPrior()
	n.countTiles()
	multiplying, copying := s.setRegisters()
	b.IfElse(b.Warp().GeN(consumers), func() {
		if s.movesRegisters() {
			b.DecreaseRegisters(copying)
		}
		b.If(copies, func() { n.copySets(first, early) })
	}, func() {
		if s.movesRegisters() {
			b.IncreaseRegisters(multiplying)
		}
		n.consumeSet()
	})
}

// earlySetSegments is the most segments whose weights a CTA copies before the wait for prior kernels. Without any, and with the whole ring,
// steps of 16 sequences are slower: see ADR 0061.
const earlySetSegments = 3

// segmentCursor is at the next of the segments that a warp takes in turn with others.
type segmentCursor struct {
	seg ptx.U32 // variable: the next segment of the CTA that the warp takes
	at  ringPosition
}

func newSegmentCursor(b *ptx.Builder, first ptx.U32, ring int) *segmentCursor {
	return &segmentCursor{ptx.Var(first), newRingPosition(b, first, ring)}
}

// next moves on by some segments.
func (t *segmentCursor) next(b *ptx.Builder, by int) {
	ptx.Set(t.seg, t.seg.AddN(by))
	t.at.advance(b, by)
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

// copySets copies the segments of a producer: those whose stages are first, first+producers and so on. Copies of the weights of segments 0 to
// early-1 have begun before, so it copies only their activations.
func (n *tile) copySets(first, early ptx.U32) {
	b, s := n.b, n.spec
	t := newSegmentCursor(b, first, s.Ring)
	n.eachOutputTile(func(out, begin, end ptx.U32) {
		tokenTile, rowGroup := n.coords(out)
		w := n.matrixOf(tokenTile)
		b.While(func() ptx.Pred { return t.seg.Lt(end) }, func() {
			b.If(t.seg.Ge(early), func() {
				ptx.MBarrierAt(n.empty.At(t.at.stage, 8)).Wait(t.at.parity.Xor(b.U32(1)))
				n.copyWeights(w, rowGroup, t.seg.Sub(begin), t.at.stage)
			})
			size := s.round().segmentBytes()
			x := n.p.X.Aligned(16).At(tokenTile.Mul(n.p.Segments).Add(t.seg.Sub(begin)), size)
			b.BulkLoad(n.acts.At(t.at.stage, s.setActBytes()), x, b.N(size), ptx.MBarrierAt(n.full.At(t.at.stage, 8)))
			t.nextStage(b, first)
		}, ptx.NoUnroll)
	})
}

// copyWeights copies the weights of a segment of a row group, and tells the stage to wait for the activations as well.
func (n *tile) copyWeights(matrix ptx.Global, rowGroup, seg, stage ptx.U32) {
	b, s, size := n.b, n.spec, n.l.segmentBytes()
	full, to := ptx.MBarrierAt(n.full.At(stage, 8)), n.weights.At(stage, s.weightBytes())
	full.ArriveExpectTx(b.N(s.weightBytes() + s.round().segmentBytes()))
	first, last := rowGroup.MulN(s.Warps), n.own.RowTiles.AddN(-1)
	for i := range s.Warps {
		from := matrix.At(first.AddN(i).Min(last).Mul(n.p.Segments).Add(seg), size)
		b.BulkLoad(to.Plus(i*size), from, b.N(size), full)
	}
}

// consumeSet multiplies the segments of a set.
func (n *tile) consumeSet() {
	b, s := n.b, n.spec
	totals, acc := n.newAccumulators(), n.newAccumulators()
	t := newSegmentCursor(b, n.set, s.Ring)
	n.eachOutputTile(func(out, begin, end ptx.U32) {
		if s.Sets == 1 {
			for _, v := range totals {
				ptx.Set(v, b.F32(0))
			}
		}
		b.While(func() ptx.Pred { return t.seg.Lt(end) }, func() {
			ptx.MBarrierAt(n.full.At(t.at.stage, 8)).Wait(t.at.parity)
			acts := n.acts.At(t.at.stage, s.setActBytes())
			r := newSegmentReader(n.c, s.Format, n.packedSegment(t.at.stage), n.lane)
			if s.setsByWGMMA() {
				n.multiplySet(r, t.at.stage, acc)
			} else {
				n.multiplyMMA(r, acts, acc)
			}
			xScales := acts.Plus(s.round().xScalesAt())
			if s.Sets == 1 {
				n.add(n.compareXScales(xScales), r, acc, totals)
				n.freeStage(t.at.stage)
			} else {
				var scales []ptx.F32
				n.eachScale(xScales, r, func(_ int, scale ptx.F32) { scales = append(scales, scale) })
				n.freeStage(t.at.stage)
				n.addInTurn(out, t.seg, begin, end, acc, scales, totals)
			}
			t.next(b, s.Sets)
		}, ptx.NoUnroll)
		if s.Sets == 1 {
			n.newResults(out, 0).store(totals)
		}
	})
}

// freeStage lets the producer fill a stage again.
func (n *tile) freeStage(stage ptx.U32) {
	arriveAsWarp(n.b, n.lane, ptx.MBarrierAt(n.empty.At(stage, 8)))
}

// multiplySet computes the inner sums of a segment by wgmma. It decodes operands while those before are multiplied.
func (n *tile) multiplySet(r *segmentReader, stage ptx.U32, acc []ptx.F32) {
	b, size, together := n.b, n.spec.setActBytes(), n.spec.commitSteps()
	acts, xSums := n.operand.At(stage, size), n.xSumOperand
	if offsetSteps(n.spec.Format) > 0 {
		xSums = xSums.At(stage, size)
	}
	for step := 0; step < steps; step += together {
		operands := r.operands(step, together)
		var offsets [][4]ptx.F16x2
		if step+together == steps {
			offsets = r.offsets()
		}
		n.multiplyAsync(step, operands, offsets, acts, xSums, acc)
		b.WGMMAWait(1)
	}
	b.WGMMAWait(0)
}

// addInTurn waits until the set before has left the totals in shared memory, adds the inner sums of a segment, times scales, and leaves
// the totals for the next set. After the last segment of an output tile, it stores the results instead. It loads what these need before
// it waits.
func (n *tile) addInTurn(out, seg, begin, end ptx.U32, acc, scales, totals []ptx.F32) {
	b := n.b
	b.IfElse(seg.AddN(1).Eq(end), func() {
		r := n.newResults(out, 0)
		r.loadAll()
		n.takeTurn(seg, begin, acc, scales, totals)
		b.Comment("after the last output tile of the CTA, no set waits")
		b.If(out.Add(b.GridX()).Lt(n.own.OutputTiles), n.passTurn)
		r.store(totals)
	}, func() {
		n.takeTurn(seg, begin, acc, scales, totals)
		n.eachTotals(func(i int, at ptx.Shared) { at.StoreF32x4([4]ptx.F32(totals[i:])) })
		n.passTurn()
	})
}

// takeTurn waits for the turn of a set and adds the inner sums of its segment, times scales, to the totals of the set that had the
// segment before.
func (n *tile) takeTurn(seg, begin ptx.U32, acc, scales, totals []ptx.F32) {
	b := n.b
	b.If(seg.Ne(b.U32(0)), func() { n.turnBarrier(n.set).Sync() })
	for _, v := range totals {
		ptx.Set(v, b.F32(0))
	}
	b.If(seg.Ne(begin), func() {
		n.eachTotals(func(i int, at ptx.Shared) {
			for j, v := range at.LoadF32x4() {
				ptx.Set(totals[i+j], v)
			}
		})
	})
	for i, scale := range scales {
		ptx.Set(totals[i], acc[i].FMA(scale, totals[i]))
	}
}

// passTurn passes the turn to the next set.
func (n *tile) passTurn() { n.turnBarrier(n.set.AddN(1).RemN(n.spec.Sets)).Arrive() }

// turnBarrier returns the barrier at which a set waits for its turn.
func (n *tile) turnBarrier(set ptx.U32) ptx.NamedBarrier {
	return n.b.NamedBarrier(set.AddN(1), 2*lanes*n.spec.warpsPerSegment())
}

// eachTotals calls do with i and the address of the lane's totals i to i+3 that sets hand on.
func (n *tile) eachTotals(do func(i int, at ptx.Shared)) {
	at := n.totals.At(n.warp.MulN(lanes).Add(n.lane), 16)
	for i := 0; i < n.spec.Tokens/2; i += 4 {
		do(i, at.Plus(i/4*16*lanes*n.spec.warpsPerSegment()))
	}
}
