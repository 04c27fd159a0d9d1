// Package moe holds the kernels of a mixture of experts, except for its matrix products: they
// choose the experts of each token, group the tokens by expert, and combine the results.
package moe

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/internal/host"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const (
	routeWarps  = 4   // per CTA
	laneExperts = 16  // maximum number of experts per lane
	fewExperts  = 8   // experts per lane that are handled without a branch; most models have no more
	maxExperts  = 512 // 32 * laneExperts
	maxChosen   = 32  // experts chosen per token
)

// Route chooses the experts of each token, one warp per token:
//
//	p       = softmax(logits)            over all experts
//	chosen  = the K largest of p, the largest first, the lowest index first among equals
//	weights = p / sum of the chosen p    with Normalize; else p
//
// It compares logits instead of p, because their order is the same. NaN comes last, so
// every chosen index is below Experts. If a token has a NaN, its weights are NaN. The sum of
// p is compensated. A butterfly over the lanes adds the chosen p. The same operation of package ref is
// mixture.
func Route() kernel.Typed[RouteArgs] { return kernel.New("moe_route", buildRoute, launchRoute) }

type routeParams struct {
	Logits, Weights, Chosen       ptx.Global
	Tokens, Experts, K, Normalize ptx.U32
}

func buildRoute(b *ptx.Builder) (*ptx.Kernel, error) {
	device.Overlap(b)
	b.Doc("chosen = the k largest of softmax(logits), weights = their probabilities, of sum 1 if normalize is 1")
	var p routeParams
	ptx.Declare(b, &p)
	token, lane := b.BlockX().MulN(routeWarps).Add(b.Warp()), b.Lane()
	b.ReturnIf(token.Ge(p.Tokens)) // whole warps

	c := newCandidates(b, p.Logits.AtBytes(token.MulWide(p.Experts).ShlN(2)).Aligned(4), p.Experts)
	b.Comment("lane i keeps the i-th choice")
	weight, expert := ptx.Var(b.F32(0)), ptx.Var(b.U32(0))
	b.For(b.U32(0), p.K, b.U32(1), func(i ptx.U32) {
		index, power := c.take()
		ptx.Set(weight, ptx.Select(lane.Eq(i), power.Div(c.sum), weight))
		ptx.Set(expert, ptx.Select(lane.Eq(i), index, expert))
	}, ptx.NoUnroll)
	chosen := ptx.WarpSum(weight)
	weight = ptx.Select(p.Normalize.Ne(b.U32(0)), weight.Div(chosen), weight)
	b.If(lane.Lt(p.K), func() {
		at := token.Mul(p.K).Add(lane)
		p.Weights.At(at, 4).StoreF32(weight)
		p.Chosen.At(at, 4).StoreU32(expert)
	})
	return b.Finish(ptx.MaxThreads(32 * routeWarps))
}

// candidates are the experts of a token that are not chosen yet. Element j of a lane is
// expert 32*j + lane.
type candidates struct {
	b      *ptx.Builder
	keys   [laneExperts]ptx.U32 // OrderedBits of the logits; 1, less than the key of -Inf: NaN; 0: chosen, or no expert
	powers [laneExperts]ptx.F32 // e^(x - max x)
	sum    ptx.F32              // of the powers of all experts
	many   ptx.Pred             // lanes have more than fewExperts experts
}

// each calls do for each element of a lane. It emits the elements from fewExperts on under a
// branch, so do must store its results in variables.
func (c *candidates) each(do func(j int)) {
	for j := range fewExperts {
		do(j)
	}
	c.b.If(c.many, func() {
		for j := fewExperts; j < laneExperts; j++ {
			do(j)
		}
	})
}

// newCandidates loads the logits of n experts.
func newCandidates(b *ptx.Builder, logits ptx.Global, n ptx.U32) *candidates {
	c := &candidates{b: b, many: n.Gt(b.N(32 * fewExperts))}
	for j := range c.keys {
		c.powers[j], c.keys[j] = ptx.Var(b.F32(float32(math.Inf(-1)))), ptx.Var(b.U32(0))
	}
	most := ptx.Var(b.F32(float32(math.Inf(-1))))
	c.each(func(j int) {
		e := b.Lane().AddN(32 * j)
		b.If(e.Lt(n), func() {
			x := logits.At(e, 4).LoadF32()
			ptx.Set(c.powers[j], x)
			ptx.Set(c.keys[j], ptx.Select(x.IsNaN(), b.U32(1), device.OrderedBits(b, x)))
		})
		ptx.Set(most, most.Max(c.powers[j]))
	})
	most = ptx.WarpMax(most)
	sum := device.NewSum2(b)
	c.each(func(j int) {
		ptx.Set(c.powers[j], device.Exp(b, c.powers[j].Sub(most)))
		sum.Add(ptx.Select(b.Lane().AddN(32*j).Lt(n), c.powers[j], b.F32(0)))
	})
	c.sum = sum.OverWarp().Value(b)
	return c
}

// take removes the best candidate and returns its index and power to all lanes.
func (c *candidates) take() (index ptx.U32, power ptx.F32) {
	b := c.b
	mine := device.NewBest(b)
	c.each(func(j int) {
		better := c.keys[j].Gt(mine.Value)
		ptx.Set(mine.Value, ptx.Select(better, c.keys[j], mine.Value))
		ptx.Set(mine.Index, ptx.Select(better, b.Lane().AddN(32*j), mine.Index))
	})
	best := mine.OverWarp(b)
	power = ptx.Var(b.F32(0))
	c.each(func(j int) {
		taken := best.Index.Eq(b.Lane().AddN(32 * j))
		ptx.Set(power, ptx.Select(taken, c.powers[j], power))
		ptx.Set(c.keys[j], ptx.Select(taken, b.U32(0), c.keys[j]))
	})
	return best.Index, ptx.ShuffleIdx(power, best.Index.AndN(31))
}

// RouteArgs are the arguments of a launch of Route.
type RouteArgs struct {
	Logits    ptx.Address // f32 [Tokens, Experts]
	Weights   ptx.Address // f32 [Tokens, K], written
	Chosen    ptx.Address // u32 [Tokens, K], written
	Tokens    int
	Experts   int // at most 512
	K         int // experts per token, at most 32
	Normalize bool
}

func launchRoute(k *ptx.Kernel, a RouteArgs) (ptx.Launch, error) {
	if err := host.Valid(k, host.Bound("Experts", a.Experts, 1, maxExperts), host.Bound("K", a.K, 1, min(a.Experts, maxChosen)),
		host.Bound("Tokens", a.Tokens, 1, host.MaxSize/maxChosen),
		host.NonNil("Logits", a.Logits), host.NonNil("Weights", a.Weights), host.NonNil("Chosen", a.Chosen)); err != nil {
		return ptx.Launch{}, err
	}
	normalize := 0
	if a.Normalize {
		normalize = 1
	}
	return k.Launch([3]uint32{uint32(host.CeilDiv(a.Tokens, routeWarps)), 1, 1}, 32*routeWarps, 0, &routeParams{
		Logits: ptx.Addr(a.Logits), Weights: ptx.Addr(a.Weights), Chosen: ptx.Addr(a.Chosen),
		Tokens: ptx.Uint(a.Tokens), Experts: ptx.Uint(a.Experts), K: ptx.Uint(a.K), Normalize: ptx.Uint(normalize),
	})
}
