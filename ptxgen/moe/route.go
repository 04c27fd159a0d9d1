// Package moe holds the kernels of a mixture of experts, except for its matrix products: they
// choose the experts of each token, group the tokens by expert, and combine the results.
package moe

import (
	"cmp"
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

// leastWeights is the least sum of weights by which Route divides them, as in llama.cpp: the
// smallest normal float16.
const leastWeights = 0x1p-14

// Route chooses the experts of each token, one warp per token:
//
//	p       = softmax(logits), or sigmoid(logits)       over all experts
//	chosen  = the K largest of p + bias, the largest first, the lowest index first among equals
//	weights = p / max(sum of the chosen p, 2^-14)       with Normalize; else p
//	weights = weights * scale * scales[expert]
//	shared  = sigmoid(logits[Experts])                  with Shared
//
// Without a bias it compares logits instead of p, because their order is the same. NaN comes
// last, so every chosen index is below Experts. The weight of an expert whose logit is NaN is NaN, and so are
// all weights of its token with softmax, or with Normalize if it is chosen. The sum of the softmax is compensated.
// A butterfly over the lanes adds the chosen p. Package ref computes the same in chooseExperts.
func Route(sigmoid bool) kernel.Typed[RouteArgs] {
	name := "moe_route"
	if sigmoid {
		name += "_sigmoid"
	}
	return kernel.New(name, func(b *ptx.Builder) (*ptx.Kernel, error) { return buildRoute(b, sigmoid) }, launchRoute)
}

type routeParams struct {
	Logits, Bias, Scales, Weights, Chosen, Shared ptx.Global
	Tokens, Experts, Stride, K, Normalize         ptx.U32
	Scale                                         ptx.F32
}

func buildRoute(b *ptx.Builder, sigmoid bool) (*ptx.Kernel, error) {
	b.LaunchDependents()
	form := "softmax"
	if sigmoid {
		form = "sigmoid"
	}
	b.Doc("chosen = the k largest of %s(logits) + bias, weights = their probabilities, of sum 1 if normalize is 1, times scale and the expert's scale", form)
	var p routeParams
	ptx.Declare(b, &p)
	token, lane := b.BlockX().MulN(routeWarps).Add(b.Warp()), b.Lane()
	c := candidates{b: b, experts: p.Experts, sigmoid: sigmoid, many: p.Experts.Gt(b.N(32 * fewExperts))}
	hasBias, hasScales, hasShared := device.NonNil(b, p.Bias), device.NonNil(b, p.Scales), device.NonNil(b, p.Shared)
	bias, scales := c.variables(0), c.variables(1)
	b.If(hasBias, func() { c.load(bias, p.Bias, ptx.ReadOnly) })
	b.If(hasScales, func() { c.load(scales, p.Scales, ptx.ReadOnly) })
	b.WaitForPrior()
	b.ReturnIf(token.Ge(p.Tokens)) // whole warps

	logits := p.Logits.AtBytes(token.MulWide(p.Stride).ShlN(2)).Aligned(4)
	c.powers = c.variables(float32(math.Inf(-1)))
	c.load(c.powers, logits)
	gate := ptx.Var(b.F32(0))
	b.When(hasShared, func() { ptx.Set(gate, logits.At(p.Experts, 4).LoadF32()) })
	c.start()
	b.If(hasBias, func() { c.addBias(bias) })
	b.Comment("lane i keeps the i-th choice")
	expert := ptx.Var(b.U32(0))
	b.For(b.U32(0), p.K, b.U32(1), func(i ptx.U32) { ptx.Set(expert, ptx.Select(lane.Eq(i), c.take(), expert)) }, ptx.NoUnroll)
	weight := ptx.Select(lane.Lt(p.K), c.probability(c.of(expert, c.powers)), b.F32(0))
	chosen := ptx.WarpSum(weight)
	chosen = ptx.Select(chosen.Lt(b.F32(leastWeights)), b.F32(leastWeights), chosen) // NaN stays
	weight = ptx.Var(ptx.Select(p.Normalize.Ne(b.U32(0)), weight.Div(chosen), weight).Mul(p.Scale))
	b.If(hasScales, func() { ptx.Set(weight, weight.Mul(c.of(expert, scales))) })
	b.If(lane.Lt(p.K), func() {
		at := token.Mul(p.K).Add(lane)
		p.Weights.At(at, 4).StoreF32(weight)
		p.Chosen.At(at, 4).StoreU32(expert)
	})
	b.If(hasShared.And(lane.EqN(0)), func() { p.Shared.At(token, 4).StoreF32(device.Sigmoid(b, gate)) })
	return b.Finish(ptx.MaxThreads(32 * routeWarps))
}

// candidates are the experts of a token that are not chosen yet. Element j of a lane is
// expert 32*j + lane.
type candidates struct {
	b       *ptx.Builder
	experts ptx.U32
	sigmoid bool
	keys    []ptx.U32 // see keyOf; 0: chosen, or no expert
	powers  []ptx.F32 // logits, and after start e^(x - max x), or sigmoid(x)
	sum     ptx.F32   // of the powers of all experts; with sigmoid, unused
	many    ptx.Pred  // lanes have more than fewExperts experts
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

// mask returns a number of ones if element j of the lane is an expert, and of zeros otherwise. It takes no predicate:
// if all elements had one, ptxas would wait for each load before the next.
func (c *candidates) mask(j int) ptx.U32 {
	return c.b.Lane().AddN(32 * j).Sub(c.experts).S32().ShrN(31).U32()
}

// variables returns a variable per element of a lane.
func (c *candidates) variables(initial float32) []ptx.F32 {
	list := make([]ptx.F32, laneExperts)
	for j := range list {
		list[j] = ptx.Var(c.b.F32(initial))
	}
	return list
}

// load sets variables to numbers of experts in memory.
func (c *candidates) load(to []ptx.F32, from ptx.Global, cache ...ptx.CacheOp) {
	c.each(func(j int) {
		x := from.At(c.b.Lane(), 4).Plus(128 * j)
		c.b.When(c.b.Lane().AddN(32*j).Lt(c.experts), func() { ptx.Set(to[j], x.LoadF32(cache...)) })
	})
}

// of returns the number of an expert, which each lane chooses, of those that load loaded.
func (c *candidates) of(expert ptx.U32, list []ptx.F32) ptx.F32 {
	x, lane, element := ptx.Var(c.b.F32(0)), expert.AndN(31), expert.ShrN(5)
	c.each(func(j int) { ptx.Set(x, ptx.Select(element.EqN(j), ptx.ShuffleIdx(list[j], lane), x)) })
	return x
}

// keyOf returns a number in the order of x: 1 for NaN, and more for others.
func keyOf(b *ptx.Builder, x ptx.F32) ptx.U32 {
	return ptx.Select(x.IsNaN(), b.U32(1), device.OrderedBits(b, x))
}

// start computes keys and powers from logits.
func (c *candidates) start() {
	b, most := c.b, ptx.Var(c.b.F32(float32(math.Inf(-1))))
	for range laneExperts {
		c.keys = append(c.keys, ptx.Var(b.U32(0)))
	}
	c.each(func(j int) {
		ptx.Set(c.keys[j], keyOf(b, c.powers[j]).And(c.mask(j)))
		if c.sigmoid {
			ptx.Set(c.powers[j], device.Sigmoid(b, c.powers[j]))
		} else {
			ptx.Set(most, most.Max(c.powers[j]))
		}
	})
	if c.sigmoid {
		return
	}
	most = ptx.WarpMax(most)
	sum := device.NewSum2(b)
	c.each(func(j int) {
		ptx.Set(c.powers[j], device.Exp(b, c.powers[j].Sub(most)))
		sum.Add(c.powers[j]) // 0 if there is no expert, or NaN if most is -Inf
	})
	c.sum = sum.OverWarp().Value(b)
}

// probability returns the probability of a power.
func (c *candidates) probability(power ptx.F32) ptx.F32 {
	if c.sigmoid {
		return power
	}
	return power.Div(c.sum)
}

// addBias makes keys of probabilities plus bias.
func (c *candidates) addBias(bias []ptx.F32) {
	c.each(func(j int) {
		ptx.Set(c.keys[j], keyOf(c.b, c.probability(c.powers[j]).Add(bias[j])).And(c.mask(j)))
	})
}

// take removes the best candidate and returns its index to all lanes.
func (c *candidates) take() ptx.U32 {
	b := c.b
	best := c.best(0, fewExperts)
	best = device.Best{Value: ptx.Var(best.Value), Index: ptx.Var(best.Index)}
	b.If(c.many, func() {
		top := better(best, c.best(fewExperts, laneExperts))
		ptx.Set(best.Value, top.Value)
		ptx.Set(best.Index, top.Index)
	})
	index := best.OverWarp(b).Index
	fromLane, taken := index.Sub(b.Lane()), ptx.Var(b.U32(0))
	c.each(func(j int) { ptx.Set(c.keys[j], ptx.Select(fromLane.EqN(32*j), taken, c.keys[j])) })
	return index
}

// best returns the best of the elements from first to end-1 of the lane, by a tree.
func (c *candidates) best(first, end int) device.Best {
	if end-first == 1 {
		return device.Best{Value: c.keys[first], Index: c.b.Lane().AddN(32 * first)}
	}
	middle := (first + end) / 2
	return better(c.best(first, middle), c.best(middle, end))
}

// better returns the better of two candidates. x has the lower index.
func better(x, y device.Best) device.Best {
	keep := x.Value.Ge(y.Value)
	return device.Best{Value: ptx.Select(keep, x.Value, y.Value), Index: ptx.Select(keep, x.Index, y.Index)}
}

// RouteArgs are the arguments of a launch of Route.
type RouteArgs struct {
	Logits    ptx.Address // f32 [Tokens, Experts], rows Stride apart
	Bias      ptx.Address // f32 [Experts]; 0: none
	Scales    ptx.Address // f32 [Experts], of weights; 0: all 1
	Weights   ptx.Address // f32 [Tokens, K], written
	Chosen    ptx.Address // u32 [Tokens, K], written
	Shared    ptx.Address // f32 [Tokens], written: the weight of the shared expert, of logit Experts of a row; 0: none
	Tokens    int
	Experts   int // at most 512
	Stride    int // elements; 0: Experts
	K         int // experts per token, at most 32
	Normalize bool
	Scale     float32 // 0: 1
}

func launchRoute(k *ptx.Kernel, a RouteArgs) (ptx.Launch, error) {
	a.Stride, a.Scale = cmp.Or(a.Stride, a.Experts), cmp.Or(a.Scale, 1)
	columns := a.Experts
	if a.Shared != 0 {
		columns++
	}
	if err := host.Valid(k, host.Bound("Experts", a.Experts, 1, maxExperts), host.Bound("K", a.K, 1, min(a.Experts, maxChosen)),
		host.Bound("Tokens", a.Tokens, 1, host.MaxSize/maxChosen), host.Bound("Stride", a.Stride, columns, host.MaxSize), host.NonNegative("Scale", a.Scale),
		host.NonNil("Logits", a.Logits), host.NonNil("Weights", a.Weights), host.NonNil("Chosen", a.Chosen)); err != nil {
		return ptx.Launch{}, err
	}
	normalize := 0
	if a.Normalize {
		normalize = 1
	}
	return k.Launch([3]uint32{uint32(host.CeilDiv(a.Tokens, routeWarps)), 1, 1}, 32*routeWarps, 0, &routeParams{
		Logits: ptx.Addr(a.Logits), Bias: ptx.Addr(a.Bias), Scales: ptx.Addr(a.Scales), Weights: ptx.Addr(a.Weights), Chosen: ptx.Addr(a.Chosen), Shared: ptx.Addr(a.Shared),
		Tokens: ptx.Uint(a.Tokens), Experts: ptx.Uint(a.Experts), Stride: ptx.Uint(a.Stride), K: ptx.Uint(a.K), Normalize: ptx.Uint(normalize),
		Scale: ptx.Float(a.Scale),
	})
}
