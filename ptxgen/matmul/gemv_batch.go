package matmul

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// GemvBatch multiplies a matrix of quantized weights by several vectors that Digits has
// converted to integers, with the bits that Gemv computes for each of them.
//
// Two vectors have as many bytes of digits as an mma fragment of weights is multiplied by at a
// time. A warp holds a block of a set of vectors in registers and multiplies it by that block
// of one tile of weights after the other; weights stream through its ring in shared memory.
// It has one or two parts of each row. The sums of a tile's part wait in shared memory for the
// part's next block, and then for the other parts.
type GemvBatch struct {
	Format  quant.Format
	Columns int  // vectors per set: 4, 8 or 16
	Gated   bool // with the matrix Up
}

// gemvBatchColumns are the sizes of sets that kernels of a format are made for. Quants of two
// or three bits take more registers to unpack than 16 vectors leave: two sets of eight are
// faster.
func gemvBatchColumns(f quant.Format) []int {
	if f == quant.Q2_K || f == quant.Q3_K {
		return []int{4, 8}
	}
	return []int{4, 8, 16}
}

func gemvBatchSpecs() []kernel.Spec {
	all := []kernel.Spec{Digits{}}
	for _, f := range Formats() {
		for _, c := range gemvBatchColumns(f) {
			if decoderOf(f).quantized() {
				all = append(all, GemvBatch{Format: f, Columns: c}, GemvBatch{Format: f, Columns: c, Gated: true})
			}
		}
	}
	return all
}

// gemv is the product with one vector.
func (s GemvBatch) gemv() Gemv { return Gemv{Format: s.Format, Columns: 1, Gated: s.Gated} }

// Name implements Spec.
func (s GemvBatch) Name() string {
	kind := "gemv_batch"
	if s.Gated {
		kind = "gemv_batch_gated"
	}
	return fmt.Sprintf("%s_%s_c%d", kind, host.FormatName(s.Format), s.Columns)
}

// warps is how many a CTA has: as many as have registers for their groups.
func (s GemvBatch) warps() int {
	if s.Columns > 4 {
		return 8
	}
	return 16
}

// groups is how many pairs of vectors a set has.
func (s GemvBatch) groups() int { return s.Columns / 2 }

// stages is how many blocks a warp's ring holds.
func (s GemvBatch) stages() int {
	const underWay = 56 << 10
	return min(max(underWay/s.warps()/decoderOf(s.Format).blockBytes(), 2), 4)
}

// sumsBytes is the size of the sums of a tile's part: {column, row}.
func (s GemvBatch) sumsBytes() int { return 4 * tileRows * s.Columns }

// pendingBytes is their size before the part's end, when lanes have two digits each: {two
// groups, lane} with {group, row} of four sums.
func (s GemvBatch) pendingBytes() int { return 2 * s.sumsBytes() }

// gemvBatch is a GemvBatch being built.
type gemvBatch struct {
	*gemvInteger
	s GemvBatch

	digits    ptx.Global
	room      ptx.U32 // vectors that there is room for
	matrixLog int     // log2 of how many matrices there are
	round     ptx.U32 // groups of tiles that are multiplied by what is in registers

	nextBlock ptx.U32 // variable: that is fetched
	entry     ptx.U32 // variable: the tile and matrix of the round that is fetched

	columns [][4][4]ptx.U32 // by group, the digits of pairs of units: {unit, half}
	block   ptx.Global      // that they are of, of the set's first vector
}

// Build implements Spec.
func (s GemvBatch) Build() (*ptx.Kernel, error) {
	b := ptx.New(s.Name())
	if !decoderOf(s.Format).quantized() || !slices.Contains(gemvBatchColumns(s.Format), s.Columns) {
		b.Failf("%d columns of %v: want one of %v, of a quantized format", s.Columns, s.Format, gemvBatchColumns(s.Format))
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
	b.While(func() ptx.Pred { return n.word(stateGroup).Lt(n.word(stateFinal)) }, func() {
		n.multiplyRound()
		b.Barrier()
		n.finish()
		b.Barrier()
		n.beginRound(n.word(stateGroup).Add(n.round))
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(32*s.warps()), ptx.MinCTAs(1))
}

// batchInputs are the first parameters of GemvBatch and GemvWide.
type batchInputs struct {
	Digits, W ptx.Global `align:"16"`
}

// batchParams are the further parameters of GemvBatch and GemvWide.
type batchParams struct {
	Y, Bias, Residual            ptx.Global
	Rows, Span, Columns, YStride ptx.U32
	Activation                   ptx.U32
	Softcap                      ptx.F32
	PartsLog2, Share, Sets       ptx.U32
}

// roundParams is the last parameter of GemvBatch.
type roundParams struct{ Round ptx.U32 }

func newGemvBatch(b *ptx.Builder, s GemvBatch) *gemvBatch {
	n, share, sets := declareBatch(b, s)
	var p roundParams
	ptx.Declare(b, &p)
	n.round = p.Round
	n.place()
	n.locate(b.BlockX().Rem(sets), b.BlockX().Div(sets).Mul(share), share)
	return n
}

// declareBatch declares the parameters that GemvWide has, too.
func declareBatch(b *ptx.Builder, s GemvBatch) (n *gemvBatch, share, sets ptx.U32) {
	g := &gemv{Gemv: s.gemv(), b: b, d: decoderOf(s.Format), lane: b.Lane(), warp: b.Warp(), slot: b.U32(0)}
	n = &gemvBatch{gemvInteger: &gemvInteger{gemv: g}, s: s}
	var in batchInputs
	ptx.Declare(b, &in)
	n.digits = in.Digits
	g.matrices = append(g.matrices, in.W)
	if s.Gated {
		var up upMatrix
		ptx.Declare(b, &up)
		g.matrices = append(g.matrices, up.Up)
		n.matrixLog = 1
	}
	var p batchParams
	ptx.Declare(b, &p)
	g.y, g.bias, g.residual = p.Y, p.Bias, p.Residual
	g.count, g.span, g.columnCount, g.yStride = p.Rows, p.Span, p.Columns, p.YStride
	g.activation, g.cap = p.Activation, p.Softcap
	n.partsLog = p.PartsLog2
	return n, p.Share, p.Sets
}

// place finds what is the lane's.
func (n *gemvBatch) place() {
	n.lane = ptx.ShuffleIdx(n.lane, n.lane) // see newGemvInteger
	n.row, n.quad = n.lane.ShrN(2), n.lane.AndN(3)
	n.room = n.columnCount.CeilDivN(digitVectors).MulN(digitVectors)
	n.digit = n.lowerDigit()
	n.shrink = n.b.F32(powerOfTwo(-powerLog - n.d.quantLog()))
	n.placeBytes()
}

// fetch starts to copy the next block of weights: of the round's next tile, then of the
// warp's next block, then of the next round. It returns how many entries the round that is
// multiplied has, which is read with the rest rather than kept.
func (n *gemvBatch) fetch() (entries ptx.U32) {
	b := n.b
	matrix := n.matrices[0]
	if n.Gated {
		matrix = ptx.GlobalAt(ptx.Select(n.entry.AndN(1).EqN(0), matrix.Address(), n.matrices[1].Address()), rowAlign)
	}
	w := n.state.Plus(stateTeam).LoadU32x4()
	team, teamsLog, own, entries := w[0], w[1], w[2], w[3]
	tile := n.nextGroup.Add(n.entry.ShrN(n.matrixLog)).Shl(teamsLog).Add(team)
	from := matrix.At(tile.Mul(n.span).Add(n.nextBlock), n.d.blockBytes()).At(n.lane.AddN(reach/16), 16)
	n.copyBlock(from, ptx.Select(n.nextGroup.Lt(own), n.lane, b.U32(32)))
	n.nextStage(n.s.stages())
	n.goOn(own)
	return entries
}

// goOn names what is fetched next.
func (n *gemvBatch) goOn(own ptx.U32) {
	b := n.b
	ptx.Set(n.entry, n.entry.AddN(1))
	b.If(n.entry.Ge(n.entries(n.nextGroup, own)), func() {
		ptx.Set(n.entry, b.U32(0))
		ptx.Set(n.nextBlock, n.nextBlock.AddN(1))
		b.If(n.nextBlock.Ge(n.word(stateLimit)), func() {
			ptx.Set(n.nextBlock, n.word(stateOrigin))
			ptx.Set(n.nextGroup, n.nextGroup.Add(n.round))
		})
	})
}
