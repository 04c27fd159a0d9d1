package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// gemvFloat multiplies weights that are numbers by themselves, in float32. A row is
// taken in groups of 1024 weights, a unit of 32 a lane. Order of additions: within half
// a unit in order, then the halves, a lane's units in order (each warp of a row takes
// every split-th group), the lanes by a butterfly, the warps in order.
//
// The vectors lie in shared memory as the lanes read them, as many groups of them as
// there is room for. Of more vectors than the kernel's columns, CTAs take some each.
type gemvFloat struct {
	*gemv
	groups                 ptx.U32 // of a row
	part, team             ptx.U32 // part: which of the split warps of a row; team: which rows
	split, tileRows, tiles ptx.U32

	tile, step ptx.U32     // variables: what is computed next
	index      ptx.U32     // variable: of the unit being fetched
	pointers   []packedRow // variables: the rows being fetched
	units      []unit      // variables: fetched, not yet used
	sums       []ptx.F32   // variables: [stream][column]

	parts ptx.Shared // [2][warp][lane]: sums of the warps that share rows
}

const (
	floatThreads = 256 // of a CTA
	floatWarps   = floatThreads / 32
	groupLen     = 32 * unitLen
	groupQuads   = groupLen / 4
	stagedGroup  = 4 * groupLen // of a staged group of one vector: quad j of the unit of lane l at (32j + l) quads
)

// streams is how many rows of weights a warp reads at a time, rows how many of the
// result it computes from them.
func (s Gemv) streams() int {
	if !s.Gated && (s.columns() > 8 || s.Format.BlockBytes() == 4) {
		return 1
	}
	return 2
}

func (s Gemv) rows() int {
	if s.Gated {
		return s.streams() / 2
	}
	return s.streams()
}

// splitOf is how many warps share a row of so many groups.
func splitOf(groups int) int {
	switch {
	case groups >= 8:
		return 4
	case groups >= 2:
		return 2
	}
	return 1
}

func (s Gemv) floatDepth(k int) int {
	groups := host.CeilDiv(k, groupLen)
	split := splitOf(groups)
	return unitLen/2 + 5 + host.CeilDiv(groups, split) + 5 + split
}

func (g *gemv) buildFloat() (*ptx.Kernel, error) {
	f := newGemvFloat(g)
	b := g.b
	b.Comment("the weights of the first step are under way while x is staged")
	b.LaunchDependents()
	f.point(f.tile)
	for i := range f.units {
		f.fetch(i)
	}
	b.WaitForPrior()
	g.moments()
	b.While(func() ptx.Pred { return f.tile.Lt(f.tiles) }, func() {
		for i := range f.sums {
			ptx.Set(f.sums[i], b.F32(0))
		}
		f.row()
		f.finish()
		ptx.Set(f.tile, f.tile.Add(b.GridX()))
		ptx.Set(f.step, f.part)
	}, ptx.NoUnroll)
	resident := 2 // CTAs an SM, which leaves a thread 128 registers
	if g.columns() > 1 || g.Gated && g.Format.BlockBytes() == 4 {
		resident = 1
	}
	return b.Finish(ptx.MaxThreads(floatThreads), ptx.MinCTAs(resident))
}

// row goes through a tile's rows, and stages what is not yet.
func (f *gemvFloat) row() {
	b := f.b
	first := ptx.Var(b.U32(0))
	b.While(func() ptx.Pred { return first.Lt(f.groups) }, func() {
		fresh := f.chunk.Lt(f.groups).Or(f.tile.Eq(b.BlockX()))
		b.If(fresh, func() {
			b.Barrier()
			f.stage(first)
			b.Barrier()
		})
		end := first.Add(f.chunk).Min(f.groups)
		b.While(func() ptx.Pred { return f.step.Lt(end) }, func() { f.accumulate(first) }, ptx.NoUnroll)
		ptx.Set(first, end)
	}, ptx.NoUnroll)
}

func newGemvFloat(g *gemv) *gemvFloat {
	b, one := g.b, g.b.U32(1)
	// The CTA's vectors, where there are more than the kernel takes at a time.
	first := b.BlockZ().MulN(g.columns())
	g.xRow, g.slot, g.columnCount = g.xRow.Add(first), g.slot.Add(first), g.columnCount.Sub(first).Min(b.N(g.columns()))
	f := &gemvFloat{gemv: g, groups: g.span.CeilDivN(32), split: one.Shl(g.splitLog)}
	f.part, f.team = g.warp.And(f.split.Sub(one)), g.warp.Shr(g.splitLog)
	f.tileRows = b.U32(floatWarps).Shr(g.splitLog).MulN(g.rows())
	f.tiles = g.count.Add(f.tileRows).Sub(one).Div(f.tileRows)
	f.tile, f.step, f.index = ptx.Var(b.BlockX()), ptx.Var(f.part), ptx.Var(f.indexIn(f.part))
	for i := range g.streams() {
		first := packedRow{d: g.d, units: g.span, tile: ptx.VarGlobal(g.matrices[i/g.rows()])}
		f.pointers = append(f.pointers, first)
		f.units = append(f.units, g.d.variables(b, g.lane))
	}
	for range g.streams() * g.columns() {
		f.sums = append(f.sums, ptx.Undefined[ptx.F32](b))
	}
	f.parts = b.Shared("parts", 2*floatWarps*32*4, 4)
	return f
}

// point moves the pointers to the warp's rows of a tile; rows past the end are the
// last one, read again and not stored.
func (f *gemvFloat) point(tile ptx.U32) {
	first := tile.Mul(f.tileRows).Add(f.team.MulN(f.rows()))
	last := f.count.AddN(-1)
	for i, p := range f.pointers {
		row := first.AddN(i % f.rows()).Min(last)
		ptx.SetGlobal(p.tile, f.matrices[i/f.rows()].AtBytes(row.MulWide(f.tileBytes)).Aligned(rowAlign))
	}
}

// indexIn is the lane's unit of a group. Beyond the row's end it is the last one, which
// accumulate leaves out.
func (f *gemvFloat) indexIn(group ptx.U32) ptx.U32 {
	return group.MulN(32).Add(f.lane).Min(f.span.AddN(-1))
}

// fetch loads the unit of one stream that index and its pointer name.
func (f *gemvFloat) fetch(stream int) {
	f.units[stream].set(f.pointers[stream].load(f.b, f.index))
}
