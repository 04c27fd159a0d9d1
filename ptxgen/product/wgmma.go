package product

import (
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// emitWGMMA emits a Tile with Warpgroups.
func (s Tile) emitWGMMA(b *ptx.Builder) {
	n := newWGMMATile(b, s)
	b.LaunchDependents()
	b.WaitForPrior()
	n.countTiles()
	consumers := s.warpsPerSegment()
	consuming, producing := s.registers()
	b.IfElse(b.Warp().GeN(consumers), func() {
		if s.Warpgroups == 2 {
			b.DecreaseRegisters(producing)
		}
		b.If(n.lane.EqN(0), func() { n.produce(b.Warp().AddN(-consumers)) })
	}, func() {
		if s.Warpgroups == 2 {
			b.IncreaseRegisters(consuming)
		}
		n.consume()
	})
}

// registers returns the numbers of registers per thread of two warpgroups of consumers, and of that of producers. Together they are as
// many as all have at entry.
func (s Tile) registers() (consuming, producing int) {
	if s.TwoRowTiles {
		return 240, 24
	}
	return 232, 40
}

// newWGMMATile begins a kernel with Warpgroups: it lays out shared memory and initializes the barriers.
func newWGMMATile(b *ptx.Builder, s Tile) *tile {
	n := beginTile(b, s)
	n.acts = b.DynamicShared(1024)
	n.xSums = n.acts.Plus(s.RingX * s.actBytes())
	n.weights = n.xSums.Plus(s.Ring * s.xSumBytes())
	n.xScales = n.weights.Plus(s.Ring * s.weightBytes())
	n.newOperands(n.xSums)

	stages := s.RingX * groups // of activations
	all := b.Shared("barriers", 8*2*(s.Ring+stages), 8)
	n.full, n.empty = all, all.Plus(8*s.Ring)
	n.fullX, n.emptyX = all.Plus(16*s.Ring), all.Plus(16*s.Ring+8*stages)
	beginWithBarriers(b, barriers{n.full, s.Ring, producers}, barriers{n.empty, s.Ring, lanes * s.warpsPerSegment()},
		barriers{n.fullX, stages, 1}, barriers{n.emptyX, stages, s.warpsPerSegment()})
	return n
}

// newOperands computes the descriptors of the activations and of their sums in the first stage, for wgmma.
func (n *tile) newOperands(xSums ptx.Shared) {
	n.operand = ptx.NewSharedMatrix[ptx.F16x2](n.acts, operandLayout(n.spec.Tokens))
	if offsetSteps(n.spec.Format) > 0 {
		n.xSumOperand = ptx.NewSharedMatrix[ptx.F16x2](xSums, n.spec.round().xSumsLayout(offsetSteps(n.spec.Format)))
	}
}

// produce copies a producer's share of each segment: one group of activations, and some row tiles.
func (n *tile) produce(warp ptx.U32) {
	n.eachOutputTile(func(out, begin, end ptx.U32) {
		tokenTile, rowGroup := n.coords(out)
		w := n.matrixOf(tokenTile)
		n.b.For(begin, end, n.b.U32(1), func(seg ptx.U32) { n.copySegment(warp, w, tokenTile, rowGroup, seg.Sub(begin), seg) }, ptx.NoUnroll)
	})
}

// copySegment copies a producer's share of a segment. seg counts the segments of the output tile, count those of the CTA.
func (n *tile) copySegment(warp ptx.U32, matrix ptx.Global, tokenTile, rowGroup, seg, count ptx.U32) {
	b, s := n.b, n.spec
	x := n.p.X.Aligned(16).At(tokenTile.Mul(n.p.Segments).Add(seg), s.round().segmentBytes())
	n.copyRowTiles(warp, matrix, x, rowGroup, seg, count, 0)
	stage, parity := stageOf(count, s.RingX)
	ptx.MBarrierAt(n.emptyX.At(stage, 8*groups).At(warp, 8)).Wait(parity.Xor(b.U32(1)))
	full, size := ptx.MBarrierAt(n.fullX.At(stage, 8*groups).At(warp, 8)), s.round().groupBytes()
	full.ArriveExpectTx(b.N(size))
	b.BulkLoad(n.acts.At(stage, s.actBytes()).At(warp, size), x.At(warp, size), b.N(size), full)
	for i := 1; i < s.rowTilesPerWarp(); i++ { // after the activations, which consumers need first
		n.copyRowTiles(warp, matrix, x, rowGroup, seg, count, i)
	}
}

// copyRowTiles copies a producer's share of a segment of row tile i of all consumers. Producer 0 copies E, too. Producer 1 copies the sums
// of activations.
func (n *tile) copyRowTiles(warp ptx.U32, matrix, x ptx.Global, rowGroup, seg, count ptx.U32, i int) {
	b, s := n.b, n.spec
	stage, parity := n.weightStage(count, i)
	ptx.MBarrierAt(n.empty.At(stage, 8)).Wait(parity.Xor(b.U32(1)))
	full := ptx.MBarrierAt(n.full.At(stage, 8))
	sumBytes, expBytes := s.xSumBytes(), 4*s.Tokens
	other := ptx.Select(warp.EqN(0), b.N(expBytes), b.U32(0))
	if sumBytes > 0 {
		other = ptx.Select(warp.EqN(1), b.N(sumBytes), other)
	}
	full.ArriveExpectTx(other.AddN(s.weightBytes() / producers))
	first, last := rowGroup.MulN(s.rowTilesPerOutput()).AddN(i*s.warpsPerSegment()).Add(warp), n.own.RowTiles.AddN(-1)
	size := n.l.segmentBytes()
	for j := 0; j < s.warpsPerSegment(); j += producers {
		w := matrix.At(first.AddN(j).Min(last).Mul(n.p.Segments).Add(seg), size)
		b.BulkLoad(n.weights.At(stage, s.weightBytes()).At(warp, size).Plus(j*size), w, b.N(size), full)
	}
	if sumBytes > 0 {
		b.If(warp.EqN(1), func() {
			b.BulkLoad(n.xSums.At(stage, sumBytes), x.Plus(s.round().xSumsAt(offsetSteps(s.Format))), b.N(sumBytes), full)
		})
	}
	b.If(warp.EqN(0), func() {
		b.BulkLoad(n.xScales.At(stage, expBytes), x.Plus(s.round().xScalesAt()), b.N(expBytes), full)
	})
}

// weightStage returns the stage of weights that has a segment of row tile i of all consumers, and the parity of its phase then.
func (n *tile) weightStage(seg ptx.U32, i int) (at, parity ptx.U32) {
	return stageOf(seg.MulN(n.spec.rowTilesPerWarp()).AddN(i), n.spec.Ring)
}

// consume multiplies the CTA's segments by wgmma and stores the results. While the tensor cores multiply the last operands of a
// segment of a row tile, it decodes the scales and the first operands of the next one, which may be of the next output tile.
func (n *tile) consume() {
	b, s := n.b, n.spec
	totals, acc := make([][]ptx.F32, s.rowTilesPerWarp()), n.newAccumulators()
	for i := range totals {
		totals[i] = n.newAccumulators()
	}
	last := n.lastSegment()
	first := n.reader(b.U32(0), 0)
	held, operands := first.held(), first.operands(0, s.commitSteps())
	for i, registers := range operands {
		for j, v := range registers {
			operands[i][j] = ptx.Var(v)
		}
	}
	n.waitActivations(b.U32(0), 0)
	n.eachOutputTile(func(out, begin, end ptx.U32) {
		for _, v := range slices.Concat(totals...) {
			ptx.Set(v, b.F32(0))
		}
		b.For(begin, end, b.U32(1), func(seg ptx.U32) {
			for i := range totals {
				stage, _ := n.weightStage(seg, i)
				r := held.at(n.packedSegment(stage))
				n.multiply(seg, i, r, operands, acc)
				following, nextTile := seg, i+1
				if nextTile == len(totals) {
					following, nextTile = seg.AddN(1).Min(last), 0 // the last segment once more in the end
				}
				next := n.reader(following, nextTile)
				nextOperands := next.operands(0, s.commitSteps())
				n.waitActivations(following, 0)
				e := n.compareXScales(n.xScalesOf(stage))
				b.WGMMAWait(0)
				n.release(seg, i, steps)
				n.add(e, r, acc, totals[i])
				held.set(next)
				for step, registers := range nextOperands {
					for j, v := range registers {
						ptx.Set(operands[step][j], v)
					}
				}
				b.WarpSync()
				ptx.MBarrierAt(n.empty.At(stage, 8)).Arrive()
			}
		}, ptx.NoUnroll)
		for i := range totals {
			n.newResults(out, i).store(totals[i])
		}
	})
}

// lastSegment returns the last segment of the CTA.
func (n *tile) lastSegment() ptx.U32 {
	outputTiles := n.own.OutputTiles.Sub(n.b.BlockX()).AddN(-1).Div(n.b.GridX()).AddN(1)
	return outputTiles.Mul(n.p.Segments).AddN(-1)
}

// waitActivations waits for the activations of a group of steps. The wait is a loop, across which ptxas moves no
// instructions: operands that are decoded before it are ready when the products in flight are.
func (n *tile) waitActivations(seg ptx.U32, group int) {
	stage, parity := stageOf(seg, n.spec.RingX)
	ptx.MBarrierAt(n.fullX.At(stage, 8*groups).Plus(8 * group)).Wait(parity)
}

// reader waits for a segment of row tile i of the consumers and returns the reader of the warp's.
func (n *tile) reader(seg ptx.U32, i int) *segmentReader {
	stage, parity := n.weightStage(seg, i)
	ptx.MBarrierAt(n.full.At(stage, 8)).Wait(parity)
	return newSegmentReader(n.c, n.spec.Format, n.packedSegment(stage), n.lane)
}

// release lets a producer fill a group of activations again, if the group ends before a step and row tile i is the warp's last one.
func (n *tile) release(seg ptx.U32, i, step int) {
	if step%groupSteps != 0 || i < n.spec.rowTilesPerWarp()-1 {
		return
	}
	b, group := n.b, step/groupSteps-1
	stage, _ := stageOf(seg, n.spec.RingX)
	b.If(n.lane.EqN(0), func() { ptx.MBarrierAt(n.emptyX.At(stage, 8*groups).Plus(8 * group)).Arrive() })
}

// commitSteps is the number of steps per commit group of wgmma. Their operands are decoded together, while the tensor cores multiply
// the one or two commit groups before. Operands of more steps do not fit the registers.
func (s Tile) commitSteps() int {
	if s.TwoRowTiles || s.Sets > 0 {
		return groupSteps / 2
	}
	return groupSteps
}

// multiply begins to compute the inner sums of row tile i of a segment. a has the operands of the first steps. Those of others are
// decoded while the ones before are multiplied.
func (n *tile) multiply(seg ptx.U32, i int, r *segmentReader, a [][4]ptx.F16x2, acc []ptx.F32) {
	b, size := n.b, n.spec.commitSteps()
	stage, _ := stageOf(seg, n.spec.RingX)
	operand, xSums := n.operand.At(stage, n.spec.actBytes()), n.xSumOperand
	if offsetSteps(n.spec.Format) > 0 {
		weights, _ := n.weightStage(seg, i)
		xSums = xSums.At(weights, n.spec.xSumBytes())
	}
	var offsets [][4]ptx.F16x2
	for step := 0; ; step += size {
		n.multiplyAsync(step, a, offsets, operand, xSums, acc)
		following := step + size
		if following == steps {
			break
		}
		a = r.operands(following, size)
		if following+size == steps {
			// Decoded anew: held in variables, they would have to move while other operands are in flight.
			offsets = newSegmentReader(n.c, n.spec.Format, r.shared, n.lane).offsets()
		}
		n.waitActivations(seg, following/groupSteps)
		if step > 0 {
			b.WGMMAWait(1)
			n.release(seg, i, step)
		}
	}
	b.WGMMAWait(1)
	n.release(seg, i, steps-size)
}

// multiplyAsync begins to multiply operands of some steps of a group by activations, and offsets by their sums.
func (n *tile) multiplyAsync(first int, operands, offsets [][4]ptx.F16x2, acts, xSums ptx.SharedMatrix[ptx.F16x2], acc []ptx.F32) {
	b := n.b
	b.WGMMAFence()
	acts = acts.At(b.N(first/groupSteps), n.spec.round().groupBytes())
	for i, registers := range operands {
		ptx.WGMMA(acc, registers, acts.Sub(0, 16*(first%groupSteps+i/n.l.operands())), first+i > 0)
	}
	for i, registers := range offsets {
		ptx.WGMMA(acc, registers, xSums.Sub(0, 16*i), true)
	}
	b.WGMMACommit()
}

// xScalesOf returns the address of E in a stage of weights.
func (n *tile) xScalesOf(stage ptx.U32) ptx.Shared { return n.xScales.At(stage, 4*n.spec.Tokens) }
