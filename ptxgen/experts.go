package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

func expertSpecs() []Spec { return []Spec{Combine{}, Group{}} }

// Combine adds what a token's experts gave, in the order in which they were chosen:
//
//	y[t,i] = w[t,0]*out[r(t,0),i] + w[t,1]*out[r(t,1),i] + ... + residual[t,i]
//
// with r(t,s) = place[t*K+s], or t*K+s itself. Each product is added by a fused
// multiply-add: L = K + 1.
type Combine struct{}

// Name implements Spec.
func (Combine) Name() string { return "combine" }

// Build implements Spec.
func (s Combine) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("y[t,i] = sum over s of w[t,s] * out[place[t*k+s],i], then residual[t,i]")
	weights, out, place := b.Global("weights", 4), b.Global("out", 4), b.Global("place", 4)
	residual, y := b.Global("residual", 4), b.Global("y", 4)
	width, k, parts := b.ParamU32("width"), b.ParamU32("k"), b.ParamU32("parts")
	token := b.BlockX().Div(parts)
	i := b.BlockX().Sub(token.Mul(parts)).MulN(elementThreads).Add(b.ThreadX())
	at := func(p ptx.Global, r ptx.U32) row {
		return rowAt(b, quant.F32, p.AtBytes(r.MulWide(width).ShlN(2)).Aligned(4), width)
	}
	dst := at(y, token)
	b.ReturnIf(i.Ge(dst.quads()))
	var sum quad
	for j := range sum {
		sum[j] = ptx.Var(b.F32(0))
	}
	b.For(b.U32(0), k, b.U32(1), func(s ptx.U32) {
		slot := token.Mul(k).Add(s)
		r := ptx.Var(slot)
		b.If(given(b, place), func() { ptx.Set(r, place.At(slot, 4).LoadU32()) })
		w := weights.At(slot, 4).LoadF32()
		for j, v := range at(out, r).load(i, 0) {
			ptx.Set(sum[j], w.FMA(v, sum[j]))
		}
	}, ptx.NoUnroll)
	b.If(given(b, residual), func() {
		for j, v := range at(residual, token).load(i, 0) {
			ptx.Set(sum[j], sum[j].Add(v))
		}
	})
	dst.store(i, sum)
	return b.Finish(ptx.MaxThreads(elementThreads))
}

// CombineArgs are a launch's arguments.
type CombineArgs struct {
	Weights  Address // f32 [Tokens, K]
	Out      Address // f32 [Tokens * K, Width]
	Place    Address // u32 [Tokens, K]: the row of Out; or 0
	Residual Address // f32 [Tokens, Width], or 0
	Y        Address // f32 [Tokens, Width], may be Residual
	Tokens   int
	K        int
	Width    int
}

// Launch makes a launch.
func (s Combine) Launch(k *ptx.Kernel, a CombineArgs) (ptx.Launch, error) {
	if err := checkBounds(k, bound{"Width", a.Width, 1, maxSize}, bound{"K", a.K, 1, routerMost}); err != nil {
		return ptx.Launch{}, err
	}
	parts := ceilDiv(a.Width, 4*elementThreads)
	if err := checkBounds(k, bound{"Tokens", a.Tokens, 1, maxSize / max(parts, routerMost)}); err != nil {
		return ptx.Launch{}, err
	}
	if err := checkPointers(k, pointer{"Weights", a.Weights}, pointer{"Out", a.Out}, pointer{"Y", a.Y}); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(a.Tokens * parts), 1, 1}, elementThreads, 0,
		ptx.Addr(a.Weights), ptx.Addr(a.Out), ptx.Addr(a.Place), ptx.Addr(a.Residual), ptx.Addr(a.Y),
		ptx.Uint(a.Width), ptx.Uint(a.K), ptx.Uint(parts))
}

// Group sorts the choices of a router by expert, for a matrix multiplication of each
// expert with its tokens. Choice i = t*K + s is the s-th of token t:
//
//	offsets[e] = the number of choices of experts below e
//	order      = the choices of expert 0 in rising order, then those of expert 1, ...
//	place[i]   = where choice i stands in order
//
// A CTA takes an expert and counts by itself; each of its warps takes a run of the
// choices. It is integers without atomics: the result depends on nothing else.
type Group struct{}

const groupWarps = 16

// Name implements Spec.
func (Group) Name() string { return "group" }

// Build implements Spec.
func (s Group) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("order = the choices sorted by expert, stably; offsets[e] = where those of expert e begin")
	chosen, offsets, order, place := b.Global("chosen", 4), b.Global("offsets", 4), b.Global("order", 4), b.Global("place", 4)
	n, run, experts := b.ParamU32("n"), b.ParamU32("run"), b.ParamU32("experts")
	expert, lane := b.BlockX(), b.Lane()
	from := b.Warp().Mul(run).Min(n)
	to := from.Add(run).Min(n)
	each := func(body func(i, e ptx.U32)) {
		b.For(from, to, b.U32(32), func(base ptx.U32) {
			i, e := base.Add(lane), ptx.Var(b.U32(NoIndex))
			b.If(i.Lt(to), func() { ptx.Set(e, chosen.At(i, 4).LoadU32()) })
			body(i, e)
		})
	}
	below, equal := ptx.Var(b.U32(0)), ptx.Var(b.U32(0))
	each(func(_, e ptx.U32) {
		ptx.Set(below, below.Add(ptx.Select(e.Lt(expert), b.U32(1), b.U32(0))))
		ptx.Set(equal, equal.Add(ptx.Select(e.Eq(expert), b.U32(1), b.U32(0))))
	})
	start, first, end := s.starts(b, below, equal)
	b.If(b.ThreadX().EqN(0), func() {
		offsets.At(expert, 4).StoreU32(start)
		b.If(expert.AddN(1).Eq(experts), func() { offsets.At(experts, 4).StoreU32(end) })
	})
	next := ptx.Var(first)
	before := b.U32(1).Shl(lane).AddN(-1)
	each(func(i, e ptx.U32) {
		mine := e.Eq(expert)
		lanes := mine.Ballot()
		b.If(mine, func() {
			at := next.Add(lanes.And(before).Popc())
			order.At(at, 4).StoreU32(i)
			b.If(given(b, place), func() { place.At(i, 4).StoreU32(at) })
		})
		ptx.Set(next, next.Add(lanes.Popc()))
	})
	return b.Finish(ptx.MaxThreads(32 * groupWarps))
}

// starts gives, from the counts of each thread, where the expert's choices begin in
// order, where those of this warp's run do, and where the expert's end.
func (Group) starts(b *ptx.Builder, below, equal ptx.U32) (start, first, end ptx.U32) {
	slots, lane := b.Shared("counts", 8*32, 8), b.Lane()
	sums := [2]ptx.U32{below.WarpReduce("add"), equal.WarpReduce("add")}
	b.If(lane.EqN(0), func() { slots.At(b.Warp(), 8).StoreU32x2(sums) })
	b.Barrier()
	parts := [2]ptx.U32{ptx.Var(b.U32(0)), ptx.Var(b.U32(0))}
	b.If(lane.LtN(groupWarps), func() {
		for i, v := range slots.At(lane, 8).LoadU32x2() {
			ptx.Set(parts[i], v)
		}
	})
	start = parts[0].WarpReduce("add")
	upTo := prefixSum(b, parts[1])
	first = start.Add(ptx.ShuffleIdx(upTo.Sub(parts[1]), b.Warp()))
	return start, first, start.Add(ptx.ShuffleIdx(upTo, b.U32(31)))
}

// GroupArgs are a launch's arguments.
type GroupArgs struct {
	Chosen  Address // u32 [Tokens, K], each below Experts
	Offsets Address // u32 [Experts + 1]
	Order   Address // u32 [Tokens * K]
	Place   Address // u32 [Tokens, K], or 0
	Tokens  int
	K       int
	Experts int
}

// Launch makes a launch.
func (s Group) Launch(k *ptx.Kernel, a GroupArgs) (ptx.Launch, error) {
	if err := checkBounds(k, bound{"K", a.K, 1, routerMost}, bound{"Tokens", a.Tokens, 1, maxSize / routerMost}, bound{"Experts", a.Experts, 1, maxSize - 1}); err != nil {
		return ptx.Launch{}, err
	}
	if err := checkPointers(k, pointer{"Chosen", a.Chosen}, pointer{"Offsets", a.Offsets}, pointer{"Order", a.Order}); err != nil {
		return ptx.Launch{}, err
	}
	n := a.Tokens * a.K
	run := ceilDiv(n, 32*groupWarps) * 32 // of a warp
	return k.Launch([3]uint32{uint32(a.Experts), 1, 1}, 32*groupWarps, 0,
		ptx.Addr(a.Chosen), ptx.Addr(a.Offsets), ptx.Addr(a.Order), ptx.Addr(a.Place), ptx.Uint(n), ptx.Uint(run), ptx.Uint(a.Experts))
}
