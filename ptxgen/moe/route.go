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
	device.Overlap(b)
	form := "softmax"
	if sigmoid {
		form = "sigmoid"
	}
	b.Doc("chosen = the k largest of %s(logits) + bias, weights = their probabilities, of sum 1 if normalize is 1, times scale and the expert's scale", form)
	var p routeParams
	ptx.Declare(b, &p)
	token, lane := b.BlockX().MulN(routeWarps).Add(b.Warp()), b.Lane()
	b.ReturnIf(token.Ge(p.Tokens)) // whole warps

	logits := p.Logits.AtBytes(token.MulWide(p.Stride).ShlN(2)).Aligned(4)
	b.If(device.NonNil(b, p.Shared).And(lane.EqN(0)), func() {
		p.Shared.At(token, 4).StoreF32(device.Sigmoid(b, logits.At(p.Experts, 4).LoadF32()))
	})
	c := newCandidates(b, logits, p.Experts, sigmoid)
	b.If(device.NonNil(b, p.Bias), func() { c.addBias(p.Bias) })
	b.Comment("lane i keeps the i-th choice")
	weight, expert := ptx.Var(b.F32(0)), ptx.Var(b.U32(0))
	b.For(b.U32(0), p.K, b.U32(1), func(i ptx.U32) {
		index, power := c.take()
		ptx.Set(weight, ptx.Select(lane.Eq(i), c.probability(power), weight))
		ptx.Set(expert, ptx.Select(lane.Eq(i), index, expert))
	}, ptx.NoUnroll)
	chosen := ptx.WarpSum(weight)
	chosen = ptx.Select(chosen.Lt(b.F32(leastWeights)), b.F32(leastWeights), chosen) // NaN stays
	ptx.Set(weight, ptx.Select(p.Normalize.Ne(b.U32(0)), weight.Div(chosen), weight).Mul(p.Scale))
	b.If(lane.Lt(p.K), func() {
		b.If(device.NonNil(b, p.Scales), func() { ptx.Set(weight, weight.Mul(p.Scales.At(expert, 4).LoadF32())) })
		at := token.Mul(p.K).Add(lane)
		p.Weights.At(at, 4).StoreF32(weight)
		p.Chosen.At(at, 4).StoreU32(expert)
	})
	return b.Finish(ptx.MaxThreads(32 * routeWarps))
}

// candidates are the experts of a token that are not chosen yet. Element j of a lane is
// expert 32*j + lane.
type candidates struct {
	b       *ptx.Builder
	experts ptx.U32
	sigmoid bool
	keys    [laneExperts]ptx.U32 // see keyOf; 0: chosen, or no expert
	powers  [laneExperts]ptx.F32 // e^(x - max x), or sigmoid(x)
	sum     ptx.F32              // of the powers of all experts; with sigmoid, unused
	many    ptx.Pred             // lanes have more than fewExperts experts
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

// keyOf returns a number in the order of x: 1 for NaN, and more for others.
func keyOf(b *ptx.Builder, x ptx.F32) ptx.U32 {
	return ptx.Select(x.IsNaN(), b.U32(1), device.OrderedBits(b, x))
}

// newCandidates loads the logits of n experts.
func newCandidates(b *ptx.Builder, logits ptx.Global, n ptx.U32, sigmoid bool) *candidates {
	c := &candidates{b: b, experts: n, sigmoid: sigmoid, many: n.Gt(b.N(32 * fewExperts))}
	for j := range c.keys {
		c.powers[j], c.keys[j] = ptx.Var(b.F32(float32(math.Inf(-1)))), ptx.Var(b.U32(0))
	}
	most := ptx.Var(b.F32(float32(math.Inf(-1))))
	c.each(func(j int) {
		e := b.Lane().AddN(32 * j)
		b.If(e.Lt(n), func() {
			x := logits.At(e, 4).LoadF32()
			ptx.Set(c.powers[j], x)
			ptx.Set(c.keys[j], keyOf(b, x))
		})
		if sigmoid {
			ptx.Set(c.powers[j], device.Sigmoid(b, c.powers[j]))
		} else {
			ptx.Set(most, most.Max(c.powers[j]))
		}
	})
	if sigmoid {
		return c
	}
	most = ptx.WarpMax(most)
	sum := device.NewSum2(b)
	c.each(func(j int) {
		ptx.Set(c.powers[j], device.Exp(b, c.powers[j].Sub(most)))
		sum.Add(ptx.Select(b.Lane().AddN(32*j).Lt(n), c.powers[j], b.F32(0)))
	})
	c.sum = sum.OverWarp().Value(b)
	return c
}

// probability returns the probability of a power.
func (c *candidates) probability(power ptx.F32) ptx.F32 {
	if c.sigmoid {
		return power
	}
	return power.Div(c.sum)
}

// addBias makes keys of probabilities plus bias.
func (c *candidates) addBias(bias ptx.Global) {
	c.each(func(j int) {
		e := c.b.Lane().AddN(32 * j)
		c.b.If(e.Lt(c.experts), func() {
			ptx.Set(c.keys[j], keyOf(c.b, c.probability(c.powers[j]).Add(bias.At(e, 4).LoadF32())))
		})
	})
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
		host.Bound("Tokens", a.Tokens, 1, host.MaxSize/maxChosen), host.Bound("Stride", a.Stride, columns, host.MaxSize), host.Number("Scale", a.Scale),
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
