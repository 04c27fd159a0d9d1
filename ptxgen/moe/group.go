package moe

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const groupWarps = 16 // per CTA

// Group sorts the choices of Route by expert, stably, so that one matrix product takes all
// tokens of an expert. Choice i = t*K + s is the s-th expert of token t:
//
//	offsets[e] = number of choices of experts below e
//	order      = the choices of expert 0 in rising order, then those of expert 1, …
//	place[i]   = position of choice i in order
//
// One CTA writes the choices of one expert. Each of its warps scans a run of consecutive choices. There are
// only integers and no atomics, so the result does not depend on scheduling.
func Group() kernel.Typed[GroupArgs] { return kernel.New("moe_group", buildGroup, launchGroup) }

type groupParams struct {
	Chosen, Offsets, Order, Place ptx.Global
	N                             ptx.U32 // choices
	Run                           ptx.U32 // choices per warp
	Experts                       ptx.U32
}

func buildGroup(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("order = the choices sorted by expert, stably; offsets[e] = where those of expert e begin")
	var p groupParams
	ptx.Declare(b, &p)
	expert, lane := b.BlockX(), b.Lane()
	from := b.Warp().Mul(p.Run).Min(p.N)
	to := from.Add(p.Run).Min(p.N)
	each := func(body func(i, e ptx.U32)) {
		b.For(from, to, b.U32(32), func(base ptx.U32) {
			i, e := base.Add(lane), ptx.Var(b.U32(math.MaxUint32))
			b.If(i.Lt(to), func() { ptx.Set(e, p.Chosen.At(i, 4).LoadU32()) })
			body(i, e)
		})
	}
	below, equal := ptx.Var(b.U32(0)), ptx.Var(b.U32(0))
	each(func(_, e ptx.U32) {
		ptx.Set(below, below.Add(ptx.Select(e.Lt(expert), b.U32(1), b.U32(0))))
		ptx.Set(equal, equal.Add(ptx.Select(e.Eq(expert), b.U32(1), b.U32(0))))
	})
	start, first, end := groupStarts(b, below, equal)
	b.If(b.ThreadX().EqN(0), func() {
		p.Offsets.At(expert, 4).StoreU32(start)
		b.If(expert.AddN(1).Eq(p.Experts), func() { p.Offsets.At(p.Experts, 4).StoreU32(end) })
	})
	next := ptx.Var(first)
	lower := b.U32(1).Shl(lane).AddN(-1)
	each(func(i, e ptx.U32) {
		mine := e.Eq(expert)
		lanes := mine.Ballot()
		b.If(mine, func() {
			at := next.Add(lanes.And(lower).Popc())
			p.Order.At(at, 4).StoreU32(i)
			b.If(device.NonNil(b, p.Place), func() { p.Place.At(i, 4).StoreU32(at) })
		})
		ptx.Set(next, next.Add(lanes.Popc()))
	})
	return b.Finish(ptx.MaxThreads(32 * groupWarps))
}

// groupStarts adds the counts of all threads: below counts choices of lower experts, equal
// those of this CTA's expert. It returns three positions in order: the start of the expert's
// choices, the first of this warp's run, and the end of the expert's choices.
func groupStarts(b *ptx.Builder, below, equal ptx.U32) (start, first, end ptx.U32) {
	perWarp, lane := b.Shared("counts", 8*32, 8), b.Lane()
	sums := [2]ptx.U32{below.WarpReduce("add"), equal.WarpReduce("add")}
	b.If(lane.EqN(0), func() { perWarp.At(b.Warp(), 8).StoreU32x2(sums) })
	b.Barrier()
	parts := [2]ptx.U32{ptx.Var(b.U32(0)), ptx.Var(b.U32(0))}
	b.If(lane.LtN(groupWarps), func() {
		for i, v := range perWarp.At(lane, 8).LoadU32x2() {
			ptx.Set(parts[i], v)
		}
	})
	start = parts[0].WarpReduce("add")
	upTo := device.PrefixSum(b, parts[1])
	first = start.Add(ptx.ShuffleIdx(upTo.Sub(parts[1]), b.Warp()))
	return start, first, start.Add(ptx.ShuffleIdx(upTo, b.U32(31)))
}

// GroupArgs are the arguments of a launch of Group.
type GroupArgs struct {
	Chosen  ptx.Address // u32 [Tokens, K], each below Experts
	Offsets ptx.Address // u32 [Experts+1], written
	Order   ptx.Address // u32 [Tokens*K], written
	Place   ptx.Address // u32 [Tokens, K], written; 0: none
	Tokens  int
	K       int // experts per token
	Experts int
}

func launchGroup(k *ptx.Kernel, a GroupArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("K", a.K, 1, maxChosen), host.Bound("Tokens", a.Tokens, 1, host.MaxSize/maxChosen),
		host.Bound("Experts", a.Experts, 1, host.MaxSize-1),
		host.NonNil("Chosen", a.Chosen), host.NonNil("Offsets", a.Offsets), host.NonNil("Order", a.Order)); err != nil {
		return ptx.Launch{}, err
	}
	n := a.Tokens * a.K
	run := host.CeilDiv(n, 32*groupWarps) * 32
	return k.Launch([3]uint32{uint32(a.Experts), 1, 1}, 32*groupWarps, 0, &groupParams{
		Chosen: ptx.Addr(a.Chosen), Offsets: ptx.Addr(a.Offsets), Order: ptx.Addr(a.Order), Place: ptx.Addr(a.Place),
		N: ptx.Uint(n), Run: ptx.Uint(run), Experts: ptx.Uint(a.Experts),
	})
}
