package matmul

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// GemvWide returns the kernel that multiplies a matrix of quantized weights by many vectors with
// wgmma (sm_90a), with the bits that Gemv computes for each of them. A wide Digits has
// converted the vectors to integers. format is Q4_K, Q5_K or Q6_K: their blocks have integer sums.
//
// A warpgroup multiplies 64 rows, four tiles, by the 64 bytes of digits of 16 vectors. Weights
// are first multiplied by the integer scale of their sub-block, so that products add up over a
// whole block; that takes two products, since a scaled weight has two bytes. The digits of a
// block are in shared memory for all warpgroups; weights stream through a ring per warp. Both
// arrive by bulk copies.
//
// The warpgroups of a CTA have a tile each, or with gated those of two matrices a pair, and go
// through the CTA's slice of the row together. Their parts are added in the order of a binary
// tree; sums that wait for a neighbor do so in shared memory, one slot per level.
func GemvWide(format quant.Format, gated bool) BatchKernel { return wideKernel{format, gated} }

// wideKernel is a kernel of GemvWide.
type wideKernel struct {
	Format quant.Format
	Gated  bool // two matrices
}

const (
	wideWarpgroups = 4 // of a CTA
	wideWarps      = 4 * wideWarpgroups
	wideRows       = ptx.WGMMARows                          // of a warpgroup
	wideStages     = 3                                      // blocks of digits in shared memory
	wideRing       = 2                                      // blocks of weights a warp
	wideLevel      = 4 * wideWarps * tileRows * wideVectors // bytes of the sums of a level
)

// wideFormats are those that kernels are made for.
var wideFormats = []quant.Format{quant.Q4_K, quant.Q5_K, quant.Q6_K}

func gemvWideSpecs() []kernel.Spec {
	all := []kernel.Spec{Digits{Wide: true}}
	for _, f := range wideFormats {
		all = append(all, wideKernel{Format: f}, wideKernel{Format: f, Gated: true})
	}
	return all
}

// Name implements Spec.
func (s wideKernel) Name() string {
	kind := "gemv_wide"
	if s.Gated {
		kind = "gemv_wide_gated"
	}
	return fmt.Sprintf("%s_%s", kind, host.FormatName(s.Format))
}

// batch is the product with so many vectors by warps.
func (s wideKernel) batch() GemvBatch {
	return GemvBatch{Format: s.Format, Columns: wideVectors, Gated: s.Gated}
}

// teams is how many tiles a CTA has at a time.
func (s wideKernel) teams() int { return wideWarpgroups / s.batch().matrices() }

// gemvWide is a GemvWide being built.
type gemvWide struct {
	*gemvBatch
	s wideKernel

	set      ptx.U32  // of vectors
	final    ptx.U32  // where the CTA's tiles end
	live     ptx.Pred // whether the warp's tile is there
	producer ptx.Pred // whether the thread fetches digits
	turn     ptx.U32  // variable: counts blocks
	phase    ptx.U32  // variable: counts them, too, up to twice the stages of digits

	blocks ptx.Shared // of digits: {stage}
	// Barriers: {stage} of digits that are there, and that all have read; {warp, stage} of
	// weights that are there.
	full, empty, arrived ptx.Shared
	firstLevel, levels   ptx.Shared // sums by level: of all lanes, and the lane's
}

// Build implements Spec.
func (s wideKernel) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	if !slices.Contains(wideFormats, s.Format) {
		b.Failf("%v: want one of %v", s.Format, wideFormats)
		return nil, b.Err()
	}
	b.Doc("y[c][r] = epilogue of the sum over k of W[r][k] * x[c][k], W packed, of %v, x of Digits", s.Format)
	n := newGemvWide(b, s)
	b.Comment("the first weights are under way before the digits, which the kernel before this one writes")
	b.LaunchDependents()
	for i := range wideRing {
		n.fetchWeights(b.N(i))
	}
	b.WaitForPrior()
	b.If(n.producer, func() { n.fetchDigits(n.origin, b.U32(0)) })
	b.While(func() ptx.Pred { return n.group.Lt(n.final) }, func() {
		n.live = n.group.Add(n.team).Lt(n.final)
		b.For(b.U32(0), n.parts, b.U32(1), n.multiplyPart, ptx.NoUnroll)
		b.Barrier()
		n.finish()
		b.Barrier()
		ptx.Set(n.group, n.group.AddN(s.teams()))
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(32*wideWarps), ptx.MinCTAs(1))
}

// wideParams are the last parameters of GemvWide.
type wideParams struct {
	Parts     ptx.U32
	Workspace ptx.Global `align:"16"`
}

func newGemvWide(b *ptx.Builder, s wideKernel) *gemvWide {
	batch, share, sets := declareBatch(b, s.batch())
	n := &gemvWide{gemvBatch: batch, s: s}
	var p wideParams
	ptx.Declare(b, &p)
	n.parts, n.workspace = p.Parts, p.Workspace
	n.place()
	n.set, n.start = b.BlockX().Rem(sets), b.BlockX().Div(sets).Mul(share)
	n.groups = n.count.CeilDivN(wideRows)
	n.final = n.start.Add(share).Min(n.groups)
	n.locate()
	return n
}

// locate finds what is the slice's and the warp's.
func (n *gemvWide) locate() {
	b := n.b
	n.slice, n.slices = b.BlockZ(), b.GridZ()
	n.origin, n.limit = n.gemvInteger.bound(b.U32(0)), n.gemvInteger.bound(n.parts)
	n.tiles, n.teams = n.count.CeilDivN(tileRows), b.N(wideRows/tileRows)
	n.team = n.warp.DivN(4 * n.matrixCount())
	n.producer = n.warp.EqN(0).And(n.lane.EqN(0))
	n.turn, n.phase = ptx.Var(b.U32(0)), ptx.Var(b.U32(0))
	n.group, n.nextGroup = ptx.Var(n.start), ptx.Var(n.start)
	n.nextBlock = ptx.Var(n.origin)

	n.blocks = b.DynamicShared(16)
	rings := n.blocks.Plus(wideStages * n.s.digitsBytes())
	n.ring, n.firstLevel = rings.At(n.warp, n.s.ringBytes()), rings.Plus(wideWarps*n.s.ringBytes())
	n.levels = n.firstLevel.At(n.warp, wideLevel/wideWarps).At(n.lane, 16)
	n.barriers()
}

// barriers makes them.
func (n *gemvWide) barriers() {
	b, stages := n.b, wideRing
	all := b.Shared("barriers", 8*(2*wideStages+wideWarps*stages), 8)
	n.full, n.empty, n.arrived = all, all.Plus(8*wideStages), all.Plus(16*wideStages).At(n.warp, 8*stages)
	b.If(b.ThreadX().EqN(0), func() {
		for i := range 2 * wideStages {
			arrivals := 1
			if i >= wideStages {
				arrivals = 32 * wideWarps
			}
			b.NewMBarrier(all.Plus(8*i), b.N(arrivals))
		}
		b.For(b.U32(0), b.N(wideWarps*stages), b.U32(1), func(i ptx.U32) {
			b.NewMBarrier(all.Plus(16*wideStages).At(i, 8), b.N(1))
		}, ptx.NoUnroll)
		b.FenceMBarrierInit()
	})
	b.Barrier()
}

// fetchWeights lets the copy engine bring the next block of the warp's tile: of the slice,
// then of the round's after.
func (n *gemvWide) fetchWeights(stage ptx.U32) {
	b := n.b
	b.If(n.lane.EqN(0).And(n.nextGroup.Add(n.team).Lt(n.final)), func() {
		// A warp beyond the last tile, of a warpgroup that is not, multiplies that again.
		tile := n.nextGroup.Add(n.team).MulN(wideRows / tileRows).Add(n.warp.AndN(3)).Min(n.tiles.AddN(-1))
		from := n.matrix().At(tile.Mul(n.span).Add(n.nextBlock), n.d.blockBytes())
		there, bytes := ptx.MBarrierAt(n.arrived.At(stage, 8)), b.N(n.d.blockBytes())
		there.ArriveExpectTx(bytes)
		b.BulkLoad(n.ring.At(stage, n.d.blockBytes()), from, bytes, there)
	})
	ptx.Set(n.nextBlock, n.nextBlock.AddN(1))
	b.If(n.nextBlock.Ge(n.limit), func() {
		ptx.Set(n.nextBlock, n.origin)
		ptx.Set(n.nextGroup, n.nextGroup.AddN(n.s.teams()))
	})
}

// matrix is the warp's.
func (n *gemvWide) matrix() ptx.Global {
	if !n.Gated {
		return n.matrices[0]
	}
	gate := n.warp.DivN(4).RemN(2).EqN(0)
	return ptx.GlobalAt(ptx.Select(gate, n.matrices[0].Address(), n.matrices[1].Address()), rowAlign)
}

// stage is where the digits of a phase are, and the parity of the barriers' phase then.
func (n *gemvWide) stage(phase ptx.U32) (stage, parity ptx.U32) {
	second := phase.GeN(wideStages)
	return ptx.Select(second, phase.AddN(-wideStages), phase), ptx.Select(second, n.b.U32(1), n.b.U32(0))
}

// nextPhase is the phase after.
func (n *gemvWide) nextPhase() ptx.U32 {
	next := n.phase.AddN(1)
	return ptx.Select(next.EqN(2*wideStages), n.b.U32(0), next)
}

// fetchDigits lets it bring a block of digits, when all warps have read what was in its
// place.
func (n *gemvWide) fetchDigits(block, phase ptx.U32) {
	b := n.b
	stage, parity := n.stage(phase)
	ptx.MBarrierAt(n.empty.At(stage, 8)).Wait(parity.Xor(b.U32(1)))
	there, bytes := ptx.MBarrierAt(n.full.At(stage, 8)), b.N(n.s.digitsBytes())
	there.ArriveExpectTx(bytes)
	from := n.digits.At(block.Mul(n.room).Add(n.set.MulN(wideVectors)), digitBlock)
	b.BulkLoad(n.blocks.At(stage, n.s.digitsBytes()), from.Plus(n.s.digitsAt()), bytes, there)
}

// fetchNextDigits is fetchDigits for the block after, of this round or the next.
func (n *gemvWide) fetchNextDigits(block ptx.U32) {
	b, next := n.b, block.AddN(1)
	last := next.Ge(n.limit)
	more := last.Not().Or(n.group.AddN(n.s.teams()).Lt(n.final))
	b.If(n.producer.And(more), func() { n.fetchDigits(ptx.Select(last, n.origin, next), n.nextPhase()) })
}
