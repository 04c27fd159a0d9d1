package ptxgen

import (
	"fmt"
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// GemvBatch multiplies a matrix of quantised weights by several vectors, of which Digits
// made integers: as Gemv does for one, and with the same bits.
//
// A warp keeps a block of a set of vectors in registers, and multiplies by it that block
// of one tile of weights after the other, which stream through its ring in shared memory.
// It has one or two parts of a row; a tile's sums of the part wait in shared memory for
// the part's next block, and then for the other parts.
type GemvBatch struct {
	Format  quant.Format
	Columns int  // vectors of a set: 4, 8 or 16
	Gated   bool // two matrices
}

// gemvBatchColumns are the sizes of sets that kernels are made for.
var gemvBatchColumns = []int{4, 8, 16}

func gemvBatchSpecs() []Spec {
	all := []Spec{Digits{}}
	for _, f := range quant.Formats() {
		for _, c := range gemvBatchColumns {
			if decoderOf(f).quantised() {
				all = append(all, GemvBatch{f, c, false}, GemvBatch{f, c, true})
			}
		}
	}
	return all
}

func (s GemvBatch) gemv() Gemv { return Gemv{Format: s.Format, Columns: s.Columns, Gated: s.Gated} }

// Name implements Spec.
func (s GemvBatch) Name() string {
	kind := "gemv_batch"
	if s.Gated {
		kind = "gemv_batch_gated"
	}
	return fmt.Sprintf("%s_%s_c%d", kind, formatName(s.Format), s.Columns)
}

// warps is how many a CTA has: as many as have registers for their vectors.
func (s GemvBatch) warps() int {
	if s.Columns > 4 {
		return 8
	}
	return 16
}

// groups is how many products a fragment of weights takes part in: two vectors fill the
// columns of each.
func (s GemvBatch) groups() int { return s.Columns / 2 }

// stages is how many blocks a warp's ring holds.
func (s GemvBatch) stages() int {
	const underWay = 56 << 10
	return min(max(underWay/s.warps()/decoderOf(s.Format).blockBytes(), 2), 4)
}

// Of a tile's part in shared memory: sums, and what still has the digits apart.
func (s GemvBatch) sumsBytes() int  { return 4 * tileRows * s.Columns }
func (s GemvBatch) apartBytes() int { return 2 * s.halves() * s.sumsBytes() }

// halves is how many parts of a unit have scales of their own.
func (s GemvBatch) halves() int {
	if decoderOf(s.Format).halves() {
		return 2
	}
	return 1
}

// gemvBatch is a GemvBatch being built.
type gemvBatch struct {
	*gemvInteger
	s GemvBatch

	digits   ptx.Global // of the CTA's set of vectors
	inverses ptx.Global // what the set's results are multiplied by
	set      ptx.U32
	vectors  ptx.U32 // of which there are digits
	matrix   int     // log2 of how many there are
	final    ptx.U32 // where the CTA's groups of tiles end
	round    ptx.U32 // groups that are multiplied by what is in registers
	slot     ptx.U32 // of the tile's warps
	slots    ptx.U32
	per      ptx.U32 // parts of a warp, one after the other

	nextBlock ptx.U32 // variable: that is fetched
	entry     ptx.U32 // variable: of which tile and matrix of a round

	results, apart ptx.Shared      // {entry, warp}: sums of parts; before a part's end
	columns        [][4][4]ptx.U32 // digits, of a group: {two units}[unit, half]
	block          ptx.Global      // of the set's first vector
}

// Build implements Spec.
func (s GemvBatch) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	if d, ok := decoders[s.Format]; !ok || !d.quantised() || s.Columns < 4 || s.Columns > 16 || s.Columns&(s.Columns-1) != 0 {
		b.Failf("%d columns of %v: want 4, 8 or 16, of a quantised format", s.Columns, s.Format)
		return nil, b.Err()
	}
	b.Doc("y[c][r] = epilogue of the sum over k of W[r][k] * x[c][k], W packed, of %v, x of Digits", s.Format)
	n := newGemvBatch(b, s)
	b.Comment("the first weights are under way before the digits, which the kernel before this one writes")
	b.LaunchDependents()
	for range s.stages() {
		n.fetch()
	}
	b.WaitForPrior()
	b.While(func() ptx.Pred { return n.group.Lt(n.final) }, func() {
		b.For(b.U32(0), n.per, b.U32(1), n.multiplyPart, ptx.NoUnroll)
		b.Barrier()
		n.finish()
		b.Barrier()
		ptx.Set(n.group, n.group.Add(n.round))
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(32*s.warps()), ptx.MinCTAs(1))
}

// newGemvBatch declares the parameters in the order in which Launch packs them.
func newGemvBatch(b *ptx.Builder, s GemvBatch) *gemvBatch {
	g := &gemv{Gemv: s.gemv(), b: b, d: decoderOf(s.Format), lane: b.Lane(), warp: b.Warp(), slot: b.U32(0)}
	n := &gemvBatch{gemvInteger: &gemvInteger{gemv: g}, s: s}
	n.digits = b.Global("digits", 16)
	g.matrices = append(g.matrices, b.Global("w", rowAlign))
	if s.Gated {
		g.matrices = append(g.matrices, b.Global("up", rowAlign))
		n.matrix = 1
	}
	g.y, g.bias, g.residual = b.Global("y", 4), b.Global("bias", 4), b.Global("residual", 4)
	g.count, g.span, g.columnCount, g.yStride = b.ParamU32("rows"), b.ParamU32("span"), b.ParamU32("columns"), b.ParamU32("y_stride")
	g.activation, g.cap = b.ParamU32("activation"), b.ParamF32("softcap")
	n.partsLog = b.ParamU32("parts_log2")
	share, sets := b.ParamU32("share"), b.ParamU32("sets")
	n.round = b.ParamU32("round")
	n.set = b.BlockX().Rem(sets)
	n.start = b.BlockX().Div(sets).Mul(share)
	n.locate(share)
	return n
}

// locate finds what is the CTA's, the warp's and the lane's.
func (n *gemvBatch) locate(share ptx.U32) {
	b, one := n.b, n.b.U32(1)
	n.lane = ptx.ShuffleIdx(n.lane, n.lane) // see newGemvInteger
	n.row, n.quad = n.lane.ShrN(2), n.lane.AndN(3)
	n.placeBatch()
	n.vectors = n.columnCount.CeilDivN(digitVectors).MulN(digitVectors)
	n.inverses = n.digits.At(n.span.Mul(n.vectors), digitBlock).At(n.set, 4*n.s.Columns)
	n.digits = n.digits.At(n.set, n.s.Columns*digitBlock)

	warpsLog := b.N(bits.TrailingZeros(uint(n.s.warps())))
	slotsLog := n.partsLog.Min(warpsLog)
	n.slots, n.per = one.Shl(slotsLog), one.Shl(n.partsLog.Sub(slotsLog))
	n.gemv.slot, n.slot = b.U32(0), n.warp.And(n.slots.AddN(-1))
	n.team, n.teamsLog = n.warp.Shr(slotsLog), warpsLog.Sub(slotsLog)
	n.teams = one.Shl(n.teamsLog)
	n.tiles = n.count.CeilDivN(tileRows)
	n.groups = n.tiles.Add(n.teams).Sub(one).Shr(n.teamsLog)
	n.final = n.start.Add(share).Min(n.groups)
	n.group, n.nextGroup, n.entry = ptx.Var(n.start), ptx.Var(n.start), ptx.Var(b.U32(0))
	n.nextPart = ptx.Var(n.slot.Mul(n.per))
	n.nextBlock = ptx.Var(n.bound(n.nextPart))

	staged := b.DynamicShared(16)
	ring := n.s.stages() * n.d.blockBytes()
	n.ring, n.ringAt = staged.At(n.warp, ring), ptx.Var(b.U32(0))
	n.results = staged.Plus(n.s.warps() * ring)
	n.apart = n.results.At(n.round, n.s.warps()*n.s.sumsBytes()<<n.matrix).At(n.warp, n.s.apartBytes()).At(n.lane, 16)
}

// placeBatch is place for what products with several vectors take of it.
func (n *gemvBatch) placeBatch() {
	b := n.b
	n.digit = ptx.Select(n.quad.AndN(1).EqN(0), b.F32(1<<16), b.F32(1))
	n.shrink = b.F32(powerOfTwo(-powerLog - n.quantLogs()[0]))
	if n.Format == quant.Q8_0 {
		n.bytesAt = n.lane.AndN(15).MulN(16).Add(n.lane.ShrN(4).MulN(n.d.start(1, n.d.units)))
	}
}

// bound is the first block of a part.
func (n *gemvBatch) bound(part ptx.U32) ptx.U32 { return part.Mul(n.span).Shr(n.partsLog) }

// entries is how many tiles, of either matrix, the round from a group on has of a warp.
func (n *gemvBatch) entries(group ptx.U32) ptx.U32 {
	return n.final.Sub(group).Min(n.round).ShlN(n.matrix)
}

// tileOf is the warp's tile of an entry of a round.
func (n *gemvBatch) tileOf(group, entry ptx.U32) ptx.U32 {
	return group.Add(entry.ShrN(n.matrix)).Mul(n.teams).Add(n.team)
}

// fetch starts to copy the next block of weights: of the round's next tile, then of the
// next block of the part, of the next part, of the next round.
func (n *gemvBatch) fetch() {
	b := n.b
	matrix := n.matrices[0]
	if n.matrix > 0 {
		matrix = ptx.GlobalAt(ptx.Select(n.entry.AndN(1).EqN(0), matrix.Address(), n.matrices[1].Address()), rowAlign)
	}
	tile := n.tileOf(n.nextGroup, n.entry)
	n.copyBlock(matrix.At(tile.Mul(n.span).Add(n.nextBlock), n.d.blockBytes()), n.nextGroup.Lt(n.final).And(tile.Lt(n.tiles)))
	ptx.Set(n.entry, n.entry.AddN(1))
	b.If(n.entry.Ge(n.entries(n.nextGroup)), func() {
		ptx.Set(n.entry, b.U32(0))
		ptx.Set(n.nextBlock, n.nextBlock.AddN(1))
		b.If(n.nextBlock.Ge(n.bound(n.nextPart.AddN(1))), func() {
			ptx.Set(n.nextPart, n.nextPart.AddN(1))
			first := n.slot.Mul(n.per)
			b.If(n.nextPart.Ge(first.Add(n.per)), func() {
				ptx.Set(n.nextPart, first)
				ptx.Set(n.nextGroup, n.nextGroup.Add(n.round))
			})
			ptx.Set(n.nextBlock, n.bound(n.nextPart))
		})
	})
}

// copyBlock starts to copy a block, if it is live, to the stage at ringAt, and names the
// next stage.
func (n *gemvBatch) copyBlock(block ptx.Global, live ptx.Pred) {
	b, size := n.b, n.d.blockBytes()
	from := block.At(n.lane.AddN(reach/16), 16).Plus(-reach)
	to := n.ring.At(n.ringAt, 16).At(n.lane, 16)
	const round = 32 * 16 // bytes that a warp copies at a time
	rest := size % round
	if rest > 0 {
		b.When(live.And(n.lane.LtN(rest/16)), func() { b.CopyAsync(to, from) })
	}
	b.When(live, func() {
		for at := rest; at < size; at += round {
			b.CopyAsync(to.Plus(at), from.Plus(at))
		}
	})
	b.CopyCommit()
	stage := n.ringAt.AddN(size / 16)
	ptx.Set(n.ringAt, ptx.Select(stage.EqN(n.s.stages()*size/16), b.U32(0), stage))
}
