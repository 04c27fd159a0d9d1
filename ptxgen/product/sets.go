package product

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// emitSets emits a Tile with Sets.
//
// A stage of the ring has a segment of the weights of all warps of a set, and of the activations. The warps that copy take
// the segments by turns, too. Ring is a multiple of their number, so that the same warp always fills a stage: the parity of
// a barrier distinguishes consecutive uses of a stage only.
func (s Tile) emitSets(b *ptx.Builder) {
	n := beginTile(b, s)
	n.set, n.warp = b.Warp().DivN(s.Warps), b.Warp().RemN(s.Warps)
	n.weights = b.DynamicShared(16)
	n.acts = n.weights.Plus(s.Ring * s.weightBytes())
	n.totals = n.acts.Plus(s.Ring * s.round().segmentBytes())
	n.full = b.Shared("barriers", 8*2*s.Ring, 8)
	n.empty = n.full.Plus(8 * s.Ring)
	initBarriers(b, []barriers{{n.full, b.N(s.Ring), b.N(1)}, {n.empty, b.N(s.Ring), b.N(s.Warps)}})
	b.Barrier()
	b.LaunchDependents()
	consumers := s.Sets * s.Warps
	copies := b.Warp().GeN(consumers).And(n.lane.EqN(0))
	first := b.Warp().AddN(-consumers) // segment of a warp that copies
	ahead := b.U32(0)                  // number of segments: their weights are copied before the wait
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
	b.IfElse(b.Warp().GeN(consumers), func() {
		b.If(copies, func() { n.copySets(first, ahead) })
	}, n.consumeSet)
}

// turns counts the segments that a warp takes by turns with others.
type turns struct {
	seg ptx.U32 // variable: the next segment of the CTA that the warp takes
	at  ringPosition
}

func newTurns(b *ptx.Builder, first ptx.U32, ring int) *turns {
	return &turns{ptx.Var(first), newRingPosition(b, first, ring)}
}

// next moves to the segment that is step later.
func (t *turns) next(b *ptx.Builder, step int) {
	ptx.Set(t.seg, t.seg.AddN(step))
	t.at.advance(b, step)
}

// copySets copies the segments of a warp from first on. The weights of those before ahead have been copied.
func (n *tile) copySets(first, ahead ptx.U32) {
	b, s := n.b, n.spec
	t := newTurns(b, first, s.Ring)
	n.eachTile(func(tile, begin, end ptx.U32) {
		block, above := n.place(tile)
		w := n.matrixOf(block)
		b.While(func() ptx.Pred { return t.seg.Lt(end) }, func() {
			b.If(t.seg.Ge(ahead), func() {
				ptx.MBarrierAt(n.empty.At(t.at.slot, 8)).Wait(t.at.parity.Xor(b.U32(1)))
				n.copyWeights(w, above, t.seg.Sub(begin), t.at.slot)
			})
			size := s.round().segmentBytes()
			x := n.p.X.Aligned(16).At(block.Mul(n.p.Segments).Add(t.seg.Sub(begin)), size)
			b.BulkLoad(n.acts.At(t.at.slot, size), x, b.N(size), ptx.MBarrierAt(n.full.At(t.at.slot, 8)))
			t.next(b, producers)
		}, ptx.NoUnroll)
	})
}

// copyWeights copies the weights of a segment of a tile, and tells the stage to wait for the activations as well.
func (n *tile) copyWeights(matrix ptx.Global, above, seg, slot ptx.U32) {
	b, s, size := n.b, n.spec, n.l.segmentBytes()
	full, to := ptx.MBarrierAt(n.full.At(slot, 8)), n.weights.At(slot, s.weightBytes())
	full.ArriveExpectTx(b.N(s.weightBytes() + s.round().segmentBytes()))
	first, last := above.MulN(s.Warps), n.own.WeightTiles.AddN(-1)
	for i := range s.Warps {
		from := matrix.At(first.AddN(i).Min(last).Mul(n.p.Segments).Add(seg), size)
		b.BulkLoad(to.Plus(i*size), from, b.N(size), full)
	}
}

// consumeSet multiplies the segments of a set.
func (n *tile) consumeSet() {
	b, s, round := n.b, n.spec, n.spec.round()
	sums, part := n.newSums(), n.newSums()
	last := n.lastSegment()
	t := newTurns(b, n.set, s.Ring)
	n.eachTile(func(tile, begin, end ptx.U32) {
		b.While(func() ptx.Pred { return t.seg.Lt(end) }, func() {
			ptx.MBarrierAt(n.full.At(t.at.slot, 8)).Wait(t.at.parity)
			acts := n.acts.At(t.at.slot, round.segmentBytes())
			r := newSegmentReader(n.c, s.Format, n.block(t.at.slot), n.lane)
			n.multiplyMMA(r, acts, part)
			products := make([]ptx.F32, len(part))
			n.scale(acts.Plus(round.expsAt()), r, part, func(i int, v ptx.F32) { products[i] = v })
			b.WarpSync()
			b.If(n.lane.EqN(0), func() { ptx.MBarrierAt(n.empty.At(t.at.slot, 8)).Arrive() })
			n.handOn(t.seg, begin, end, last, products, sums)
			b.If(t.seg.AddN(1).Eq(end), func() { n.store(tile, sums) })
			t.next(b, s.Sets)
		}, ptx.NoUnroll)
	})
}

// handOn adds the products of a segment to the sums of the set that had the segment before, and hands the sums on to
// the next set. After the last segment of a tile, it hands on the turn without sums.
func (n *tile) handOn(seg, begin, end, last ptx.U32, products, sums []ptx.F32) {
	b := n.b
	totals := n.totals.At(n.warp.MulN(lanes).Add(n.lane), 16)
	row := 16 * lanes * n.spec.consumers()
	both := 2 * lanes * n.spec.consumers() // threads
	// turn returns the barrier at which a set waits for its turn.
	turn := func(set ptx.U32) ptx.NamedBarrier { return b.NamedBarrier(set.AddN(1), both) }
	b.If(seg.Ne(b.U32(0)), func() { turn(n.set).Sync() })
	for _, v := range sums {
		ptx.Set(v, b.F32(0))
	}
	b.If(seg.Ne(begin), func() {
		for i := 0; i < len(sums); i += 4 {
			for j, v := range totals.Plus(i / 4 * row).LoadF32x4() {
				ptx.Set(sums[i+j], v)
			}
		}
	})
	for i, v := range products {
		ptx.Set(sums[i], v.Add(sums[i]))
	}
	b.If(seg.AddN(1).Ne(end), func() {
		for i := 0; i < len(sums); i += 4 {
			totals.Plus(i / 4 * row).StoreF32x4([4]ptx.F32(sums[i:]))
		}
	})
	b.If(seg.Ne(last), func() { turn(n.set.AddN(1).RemN(n.spec.Sets)).Arrive() })
}
