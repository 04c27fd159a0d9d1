package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Router chooses the experts of each token, a warp a token:
//
//	p       = softmax(x)                     over all experts
//	experts = the K largest of p, the largest first, the lowest index first among equals
//	weights = p / sum of the chosen p        or p itself
//
// It compares the logits x, which have the order of p. NaN comes last, so that every
// index is that of an expert; the weights of a token with a NaN are NaN. Its readable
// twin is mixture in package ref.
type Router struct{}

const (
	routerWarps = 4
	routerEach  = 16 // logits of a lane
	routerFew   = 8  // of them, all that a lane has where experts are few
	routerMost  = 32
)

func routerSpecs() []Spec { return []Spec{Router{}} }

// Name implements Spec.
func (Router) Name() string { return "router" }

// Build implements Spec.
func (s Router) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("experts = the k largest of softmax(x), weights = their probabilities, of sum 1 if normalize is 1")
	logits, weights, experts := b.Global("logits", 4), b.Global("weights", 4), b.Global("experts", 4)
	tokens, n, k, normalize := b.ParamU32("tokens"), b.ParamU32("n"), b.ParamU32("k"), b.ParamU32("normalize")
	token, lane := b.BlockX().MulN(routerWarps).Add(b.Warp()), b.Lane()
	b.ReturnIf(token.Ge(tokens)) // whole warps

	c := routerScores(b, logits.AtBytes(token.MulWide(n).ShlN(2)).Aligned(4), n)
	b.Comment("lane i keeps the i-th choice")
	weight, expert := ptx.Var(b.F32(0)), ptx.Var(b.U32(0))
	b.For(b.U32(0), k, b.U32(1), func(i ptx.U32) {
		index, power := c.take()
		ptx.Set(weight, ptx.Select(lane.Eq(i), power.Div(c.sum), weight))
		ptx.Set(expert, ptx.Select(lane.Eq(i), index, expert))
	}, ptx.NoUnroll)
	chosen := ptx.WarpSum(weight)
	weight = ptx.Select(normalize.Ne(b.U32(0)), weight.Div(chosen), weight)
	b.If(lane.Lt(k), func() {
		at := token.Mul(k).Add(lane)
		weights.At(at, 4).StoreF32(weight)
		experts.At(at, 4).StoreU32(expert)
	})
	return b.Finish(ptx.MaxThreads(32 * routerWarps))
}

// candidates are a token's experts, those of expert 32*j + lane in place j of a lane.
type candidates struct {
	b      *ptx.Builder
	keys   [routerEach]ptx.U32 // ordered logits; 1, below -Inf, for NaN; 0 for none or no longer
	powers [routerEach]ptx.F32 // e^(x - max x)
	sum    ptx.F32             // of the powers of all experts
	many   ptx.Pred            // a lane has more than routerFew
}

// each does something for each place of a lane, for those beyond routerFew only where
// the experts are so many. Nothing but variables may come out of it.
func (c *candidates) each(do func(j int)) {
	for j := range routerFew {
		do(j)
	}
	c.b.If(c.many, func() {
		for j := routerFew; j < routerEach; j++ {
			do(j)
		}
	})
}

func routerScores(b *ptx.Builder, logits ptx.Global, n ptx.U32) *candidates {
	c := &candidates{b: b, many: n.Gt(b.N(32 * routerFew))}
	for j := range c.keys {
		c.powers[j], c.keys[j] = ptx.Var(b.F32(float32(math.Inf(-1)))), ptx.Var(b.U32(0))
	}
	most := ptx.Var(b.F32(float32(math.Inf(-1))))
	c.each(func(j int) {
		e := b.Lane().AddN(32 * j)
		b.If(e.Lt(n), func() {
			x := logits.At(e, 4).LoadF32()
			ptx.Set(c.powers[j], x)
			ptx.Set(c.keys[j], ptx.Select(x.IsNaN(), b.U32(1), ordered(b, x)))
		})
		ptx.Set(most, most.Max(c.powers[j]))
	})
	most = ptx.WarpMax(most)
	sum := zeroTotal(b)
	c.each(func(j int) {
		ptx.Set(c.powers[j], expApprox(b, c.powers[j].Sub(most)))
		sum.add(ptx.Select(b.Lane().AddN(32*j).Lt(n), c.powers[j], b.F32(0)))
	})
	c.sum = warpTotal(sum).value(b)
	return c
}

// take removes the first in order; all lanes learn its index and its power.
func (c *candidates) take() (index ptx.U32, power ptx.F32) {
	b := c.b
	mine := best{ptx.Var(b.U32(0)), ptx.Var(b.U32(NoIndex))}
	c.each(func(j int) {
		better := c.keys[j].Gt(mine.value)
		ptx.Set(mine.value, ptx.Select(better, c.keys[j], mine.value))
		ptx.Set(mine.index, ptx.Select(better, b.Lane().AddN(32*j), mine.index))
	})
	won := mine.overWarp(b)
	power = ptx.Var(b.F32(0))
	c.each(func(j int) {
		taken := won.index.Eq(b.Lane().AddN(32 * j))
		ptx.Set(power, ptx.Select(taken, c.powers[j], power))
		ptx.Set(c.keys[j], ptx.Select(taken, b.U32(0), c.keys[j]))
	})
	return won.index, ptx.ShuffleIdx(power, won.index.AndN(31))
}

// RouterArgs are a launch's arguments.
type RouterArgs struct {
	Logits    Address // f32 [Tokens, Experts]
	Weights   Address // f32 [Tokens, K]
	Chosen    Address // u32 [Tokens, K]
	Tokens    int
	Experts   int // at most 512
	K         int // at most 32
	Normalize bool
}

// Launch makes a launch.
func (s Router) Launch(k *ptx.Kernel, a RouterArgs) (ptx.Launch, error) {
	if err := checkBounds(k, bound{"Experts", a.Experts, 1, 32 * routerEach}, bound{"K", a.K, 1, min(a.Experts, routerMost)},
		bound{"Tokens", a.Tokens, 1, maxSize / routerMost}); err != nil {
		return ptx.Launch{}, err
	}
	if err := checkPointers(k, pointer{"Logits", a.Logits}, pointer{"Weights", a.Weights}, pointer{"Chosen", a.Chosen}); err != nil {
		return ptx.Launch{}, err
	}
	normalize := 0
	if a.Normalize {
		normalize = 1
	}
	grid := ceilDiv(a.Tokens, routerWarps)
	return k.Launch([3]uint32{uint32(grid), 1, 1}, 32*routerWarps, 0,
		ptx.Addr(a.Logits), ptx.Addr(a.Weights), ptx.Addr(a.Chosen), ptx.Uint(a.Tokens), ptx.Uint(a.Experts), ptx.Uint(a.K), ptx.Uint(normalize))
}
