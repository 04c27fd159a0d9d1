package ptxgen

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// gemvInteger multiplies quantised weights as the integers that they are, on tensor
// cores: mma.m16n8k32 takes 16 rows by a unit of them, as signed bytes, and 8 columns.
//
// A column is a digit of a vector. Each block's part of x is scaled by a power of two
// and rounded to an integer of 31 bits, which is four digits to the base of 256, from
// -128 to 127; so x is exact to 2^-30 of the largest of its block, and two vectors fill
// the columns. Products and their sums are exact. Sub-blocks of 16 weights need their own
// sums: there the columns are the digits of one vector for the first 16 weights, with
// zeros for the others, and the reverse (halves).
//
// Where the scales of a block's units are integers (super), its sum stays one: the only
// roundings of a block are those that make it a float32 and multiply it with the scales
// of the weights and of x. Minimums, and the centre that quants are counted from, are one
// more product, of minimums or scales with the digits of the sums of x by sub-block.
// Otherwise each unit's sum is scaled in float32.
//
// Order of additions: a row's blocks are cut into parts, as many as the row's length
// says; a part's blocks are added in order, the parts by a binary tree. A warp takes
// one part of 16 rows, its weights streaming through a ring in shared memory. Where
// the vectors do not fit there, CTAs take slices of a row, some parts each; the last one
// to finish adds the slices up, in the order of the tree.
type gemvInteger struct {
	*gemv
	row, quad ptx.U32 // of a fragment: lane/4 and lane%4

	parts       ptx.U32 // of a slice, on as many warps
	part        ptx.U32 // the warp's
	team, teams ptx.U32 // which warps share a tile, and how many tiles there are at a time
	slice       ptx.U32
	slices      ptx.U32
	origin      ptx.U32  // the slice's first block
	limit       ptx.U32  // and where it ends
	begin, end  ptx.U32  // the part's blocks
	tiles       ptx.U32  // of the matrix
	groups      ptx.U32  // of as many tiles as there are teams
	start       ptx.U32  // the CTA's first group
	last        *ptx.U32 // where its groups end, while x is staged; then in state
	workspace   ptx.Global

	group           ptx.U32 // variable: the round's first
	ring            ptx.Shared
	ringAt          ptx.U32      // variable: offset of the ring's stage that is multiplied
	nextGroup, next ptx.U32      // variables: the block that is fetched
	nextMatrix      ptx.U32      // variable: 0 or 1
	sums            [][2]ptx.F32 // variables: by column group, of two rows

	results ptx.Shared // see finish
	vectors ptx.Shared // see stagedBytes
	block0  ptx.Shared // where the row's first block would be staged
	squares ptx.Shared // of each block: {column, block}
	state   ptx.Shared // {last, ticket}: what would take registers in vain
}

// maxParts is how many parts a row is cut into at most.
const maxParts = 16

// warps is how many a CTA has. Eight have all the registers that many columns need.
func (s Gemv) warps() int {
	if s.columns() > 2 {
		return 8
	}
	return 16
}

// super reports whether a block's scales are integers by sub-block.
func (d *decoder) super() bool { return d.units == 8 }

// halves reports whether scales are for 16 weights.
func (d *decoder) halves() bool {
	for _, pl := range d.planes {
		if pl == subPlane {
			return true
		}
	}
	return false
}

// offset reports whether something is subtracted from quants, a centre or a minimum.
func (d *decoder) offset() bool { return !d.signed }

// columnGroups is how many products a fragment of weights takes part in.
func (s Gemv) columnGroups() int {
	if decoderOf(s.Format).halves() {
		return s.columns()
	}
	return ceilDiv(s.columns(), 2)
}

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
	return inBlock + ceilDiv(blocks, partsOf(blocks)) + 6
}

func (g *gemv) buildInteger() (*ptx.Kernel, error) {
	n, b := newGemvInteger(g), g.b
	b.Comment("the first weights are under way while x is staged")
	for range n.stages() {
		n.fetch()
	}
	b.If(b.ThreadX().EqN(0), func() { n.state.StoreU32(*n.last) })
	n.stage()
	n.last = nil
	b.While(func() ptx.Pred { return n.group.Lt(n.finalGroup()) }, func() {
		n.beginRound()
		b.For(b.U32(0), n.roundGroups(), b.U32(1), func(i ptx.U32) {
			for m := range n.matrices {
				n.multiplyPart(n.tile(n.group.Add(i)))
				n.storePart(i, m)
			}
		}, ptx.NoUnroll)
		n.finish()
		ptx.Set(n.group, n.group.AddN(n.groupsARound()))
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

// multiplyPart multiplies the warp's part of a tile of a matrix. A tile beyond the last
// has no blocks.
func (n *gemvInteger) multiplyPart(tile ptx.U32) {
	b := n.b
	for _, s := range n.sums {
		ptx.Set(s[0], b.F32(0))
		ptx.Set(s[1], b.F32(0))
	}
	b.If(tile.Lt(n.tiles), func() { b.For(n.begin, n.end, b.U32(1), n.step, ptx.NoUnroll) })
}

func newGemvInteger(g *gemv) *gemvInteger {
	b := g.b
	// A value that ptxas cannot compute anew wherever it is used, since reading %tid is
	// slow.
	g.lane = ptx.ShuffleIdx(g.lane, g.lane)
	n := &gemvInteger{gemv: g, row: g.lane.ShrN(2), quad: g.lane.AndN(3)}
	partsLog, share := b.ParamU32("parts_log2"), b.ParamU32("share")
	n.workspace = b.Global("workspace", 16)
	one := b.U32(1)
	n.parts = one.Shl(g.splitLog)
	n.part, n.team = g.warp.And(n.parts.Sub(one)), g.warp.Shr(g.splitLog)
	n.teams = b.N(n.warps()).Shr(g.splitLog)
	n.slice, n.slices = b.BlockZ(), b.GridZ()
	bound := func(part ptx.U32) ptx.U32 { return part.Mul(g.span).Shr(partsLog) }
	first := n.slice.Mul(n.parts)
	n.origin, n.limit = bound(first), bound(first.Add(n.parts))
	n.begin, n.end = bound(first.Add(n.part)), bound(first.Add(n.part).AddN(1))
	n.tiles = g.count.CeilDivN(tileRows)
	n.groups = n.tiles.Add(n.teams).Sub(one).Shr(b.N(bits.TrailingZeros(uint(n.warps()))).Sub(g.splitLog))
	n.start = b.BlockX().Mul(share)
	last := n.start.Add(share).Min(n.groups)
	n.group, n.last = ptx.Var(n.start), &last
	n.nextGroup, n.next, n.nextMatrix = ptx.Var(n.group), ptx.Var(n.begin), ptx.Var(b.U32(0))
	n.ringAt = ptx.Var(b.U32(0))
	for range g.columnGroups() {
		n.sums = append(n.sums, [2]ptx.F32{ptx.Undefined[ptx.F32](b), ptx.Undefined[ptx.F32](b)})
	}
	n.ring = g.staged.At(g.warp, g.ringBytes())
	n.results = g.staged.Plus(g.warps() * g.ringBytes())
	n.vectors = n.results.Plus(g.resultBuffers() * g.roundBytes())
	n.squares = n.vectors.At(n.chunk, g.stagedBytes())
	n.block0 = n.vectors.AtBytes(b.U32(0).Sub(n.origin.MulN(g.stagedBytes()))).Aligned(16)
	n.state = b.Shared("state", 8, 8)
	return n
}
