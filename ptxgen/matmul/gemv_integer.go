package matmul

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// gemvInteger multiplies quantized weights as the integers that they are, on tensor
// cores: mma.m16n8k32 takes 16 rows by a unit of them, as signed bytes, and 8 columns.
//
// A column is a digit of x. Each block's part of x is scaled by a power of two and rounded
// to an integer of 31 bits, which is four digits to the base of 256, from -128 to 127; so x
// is exact to 2^-30 of the largest of its block, and fills four of the columns. Products
// and their sums are exact. Sub-blocks of 16 weights need their own sums (halves): there
// either half is multiplied by itself, the first by four columns and the second by the
// others.
//
// Where the scales of a block's units are integers (super), its sum stays one: the only
// roundings of a block are those that make it a float32 and multiply it with the scales
// of the weights and of x. Minimums, and the center that quants are counted from, are one
// more product, of minimums or scales with the digits of the means of x by sub-block,
// which are rounded to integers as x is. Otherwise each unit's sum is scaled in float32.
//
// Order of additions: a row's blocks are cut into parts, as many as the row's length
// says; a part's blocks are added in order, the parts by a binary tree. A warp takes a
// part of 16 rows at a time, its weights streaming through a ring in shared memory. Of a
// long row CTAs take slices, some parts each, which meet in the order of the tree.
type gemvInteger struct {
	*gemv
	row, quad ptx.U32 // of a fragment: lane/4 and lane%4
	lanePlace

	parts       ptx.U32 // of a slice, on as many warps
	part        ptx.U32 // the warp's first
	team, teams ptx.U32 // which warps share a tile, and how many tiles there are at a time
	slice       ptx.U32
	slices      ptx.U32
	origin      ptx.U32 // the slice's first block
	limit       ptx.U32 // and where it ends
	partsLog    ptx.U32 // log2 of the parts of all slices
	teamsLog    ptx.U32
	tiles       ptx.U32  // of the matrix
	groups      ptx.U32  // of as many tiles as there are teams
	start       ptx.U32  // the CTA's first group
	last        *ptx.U32 // where its groups end, while x is staged; then in state
	workspace   ptx.Global

	group      ptx.U32 // variable: the round's first
	ring       ptx.Shared
	ringAt     ptx.U32    // variable: offset of the ring's stage that is multiplied
	next       ptx.U64    // variable: where the lane's copies of the next block begin
	left       ptx.U32    // variable: how many blocks of its part are to be fetched
	copier     ptx.U32    // variable: the lane, or 32 where there is nothing to copy
	nextGroup  ptx.U32    // variable
	nextPart   ptx.U32    // variable
	nextMatrix ptx.U32    // variable: 0 or 1
	sums       [2]ptx.F32 // variables: of the lane's two rows

	results    ptx.Shared // see finish
	vector     ptx.Shared // see stagedBytes
	stagedSize int        // of a block there
	// put stages a lane's quads of a block, which are variables.
	put     func(values []device.Vec4, block ptx.Shared)
	block0  ptx.Shared    // where the row's first block would be staged
	squares ptx.Shared    // of each block
	apart   [2][4]ptx.U32 // variables: see halfDigits
	state   ptx.Shared    // last, which would take a register in vain
	gains   []device.Vec4 // variables: the norm's weight for the block that is staged next
}

// maxParts is how many parts a row is cut into at most.
const maxParts = 16

// warps is how many a CTA has.
func (s Gemv) warps() int {
	if s.Small {
		return 8
	}
	return 16
}

// super reports whether a block's scales are integers by sub-block.
func (d *decoder) super() bool { return d.sub > 0 }

// halves reports whether scales are for 16 weights.
func (d *decoder) halves() bool { return d.sub == unitLen/2 }

// offset reports whether something is subtracted from quants, a center or a minimum.
func (d *decoder) offset() bool { return !d.signed }

// matrixCount is 1, or 2 with a gate.
func (s Gemv) matrixCount() int {
	if s.Gated {
		return 2
	}
	return 1
}

// partsOf is how many parts a row of so many blocks is cut into: a power of two.
func partsOf(blocks int) int {
	n := 1
	for n < maxParts && 2*n <= blocks {
		n *= 2
	}
	return n
}

func (s Gemv) integerDepth(k int) int {
	blocks := Packing{s.Format, k}.blocks()
	inBlock := 4
	if !decoderOf(s.Format).super() {
		inBlock += 2 * decoderOf(s.Format).units
	}
	return inBlock + host.CeilDiv(blocks, partsOf(blocks)) + 6
}

func (g *gemv) buildInteger() (*ptx.Kernel, error) {
	n, b := newGemvInteger(g), g.b
	b.Comment("the first weights are under way before x, which a kernel before this one may still write")
	b.LaunchDependents()
	n.beginPart()
	n.fetch()
	b.WaitForPrior()
	n.copyVector()
	b.If(b.ThreadX().EqN(0), func() { n.state.StoreU32(*n.last) })
	n.place()
	n.stage(n.stages() - 1)
	n.last = nil
	b.While(func() ptx.Pred { return n.group.Lt(n.finalGroup()) }, func() {
		b.For(b.U32(0), n.roundGroups(), b.U32(1), func(i ptx.U32) {
			n.eachPart(func(part ptx.U32) {
				for m := range n.matrices {
					part := n.turned(part, n.group.Add(i))
					n.multiplyPart(n.tile(n.group.Add(i)), part)
					n.storePart(i, part, m)
				}
			})
		}, ptx.NoUnroll)
		n.finish()
		ptx.Set(n.group, n.group.AddN(groupsARound))
	}, ptx.NoUnroll)
	return b.Finish(ptx.MaxThreads(32*n.warps()), ptx.MinCTAs(1))
}

// finalGroup is where the CTA's groups end.
func (n *gemvInteger) finalGroup() ptx.U32 {
	if n.last != nil {
		return *n.last
	}
	return n.state.LoadU32()
}

// tile is the warp's of a group.
func (n *gemvInteger) tile(group ptx.U32) ptx.U32 { return group.Mul(n.teams).Add(n.team) }

// onePart reports whether a warp has one part of a tile.
func (s Gemv) onePart() bool { return s.warps() >= maxParts }

// eachPart goes through the warp's parts of a tile: one, or every so many as there are
// warps.
func (n *gemvInteger) eachPart(body func(part ptx.U32)) {
	if n.onePart() {
		body(n.part)
		return
	}
	n.b.For(n.part, n.parts, n.b.N(n.warps()), body, ptx.NoUnroll)
}

// turned is which part a warp takes of a group: one after the other, since parts may differ
// by a block.
func (n *gemvInteger) turned(part, group ptx.U32) ptx.U32 {
	if !n.onePart() {
		return part
	}
	return part.Add(group).And(n.parts.AddN(-1))
}

// bound is where a part of the slice begins; the one after the last, where that ends.
func (n *gemvInteger) bound(part ptx.U32) ptx.U32 {
	return n.slice.Mul(n.parts).Add(part).Mul(n.span).Shr(n.partsLog)
}

// multiplyPart multiplies a part of a tile of a matrix. A tile beyond the last has no
// blocks.
func (n *gemvInteger) multiplyPart(tile, part ptx.U32) {
	b := n.b
	for _, sum := range n.sums {
		ptx.Set(sum, b.F32(0))
	}
	b.If(tile.Lt(n.tiles), func() { b.For(n.bound(part), n.bound(part.AddN(1)), b.U32(1), n.step, ptx.NoUnroll) })
}

func newGemvInteger(g *gemv) *gemvInteger {
	b := g.b
	// A value that ptxas cannot compute anew wherever it is used, since reading %tid is
	// slow.
	g.lane = ptx.ShuffleIdx(g.lane, g.lane)
	n := &gemvInteger{gemv: g, row: g.lane.ShrN(2), quad: g.lane.AndN(3)}
	var p integerParams
	ptx.Declare(b, &p)
	n.partsLog, n.workspace = p.PartsLog2, p.Workspace
	share := p.Share
	one := b.U32(1)
	n.parts = one.Shl(g.splitLog)
	n.part, n.team = g.warp.And(n.parts.Sub(one)), g.warp.Shr(g.splitLog)
	warpsLog := b.N(bits.TrailingZeros(uint(n.warps())))
	n.teamsLog = warpsLog.Sub(g.splitLog.Min(warpsLog))
	n.teams = one.Shl(n.teamsLog)
	n.slice, n.slices = b.BlockZ(), b.GridZ()
	n.origin, n.limit = n.bound(b.U32(0)), n.bound(n.parts)
	n.tiles = g.count.CeilDivN(tileRows)
	n.groups = n.tiles.Add(n.teams).Sub(one).Shr(n.teamsLog)
	n.start = b.BlockX().Mul(share)
	last := n.start.Add(share).Min(n.groups)
	n.group, n.last = ptx.Var(n.start), &last
	n.nextGroup, n.nextPart, n.nextMatrix = ptx.Var(n.group), ptx.Var(n.turned(n.part, n.group)), ptx.Var(b.U32(0))
	n.next, n.left, n.copier = ptx.Undefined[ptx.U64](b), ptx.Undefined[ptx.U32](b), ptx.Undefined[ptx.U32](b)
	n.ringAt = ptx.Var(b.U32(0))
	n.sums = [2]ptx.F32{ptx.Undefined[ptx.F32](b), ptx.Undefined[ptx.F32](b)}
	n.ring = g.staged.At(g.warp, g.ringBytes())
	n.results = g.staged.Plus(g.warps() * g.ringBytes())
	n.vector = n.results.Plus(resultBuffers * g.roundBytes())
	n.stagedSize, n.put = g.stagedBytes(), n.stageQuads
	n.squares = n.vector.At(n.chunk, n.stagedSize)
	n.block0 = n.vector.AtBytes(b.U32(0).Sub(n.origin.MulN(g.stagedBytes()))).Aligned(16)
	n.state = b.Shared("state", 4, 4)
	if n.d.halves() {
		for i := range n.apart {
			for j := range n.apart[i] {
				n.apart[i][j] = ptx.Var(b.U32(0))
			}
		}
	}
	return n
}
