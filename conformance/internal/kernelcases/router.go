package kernelcases

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/ptxgen/moe"
)

// routerCase chooses k experts for each token.
type routerCase struct {
	name, reason       string
	tokens, experts, k int
	spread             float32
	distinct           int // number of distinct logits; 0: Gaussian logits
	raw                bool
	plant              map[int]float32
}

func routerCases() []harness.Case {
	rows := []routerCase{
		{name: "mixtral", reason: "two of eight experts, normalized", tokens: 5, experts: 8, k: 2},
		{name: "qwen3moe", reason: "eight of 128 experts, normalized", tokens: 3, experts: 128, k: 8},
		{name: "raw", reason: "weights that are not normalized", tokens: 3, experts: 60, k: 4, raw: true},
		{name: "largest", reason: "the most experts and choices", tokens: 2, experts: 512, k: 32, spread: 5},
		{name: "256 experts", reason: "the most experts that fill one half of each lane's elements", tokens: 2, experts: 256, k: 32, spread: 5},
		{name: "257 experts", reason: "one expert in the second half of the elements", tokens: 2, experts: 257, k: 10, plant: map[int]float32{256: 50}},
		{name: "far ties", reason: "ties in both halves of a lane's elements", tokens: 2, experts: 500, k: 32, distinct: 9},
		{name: "all", reason: "all experts are chosen", tokens: 2, experts: 5, k: 5},
		{name: "one", reason: "one expert", tokens: 1, experts: 1, k: 1},
		{name: "ties", reason: "ties are ordered by index", tokens: 4, experts: 100, k: 16, distinct: 3},
		{name: "far apart", reason: "probabilities of 0 are chosen, without overflow", tokens: 2, experts: 16, k: 8, spread: 100},
		{name: "infinite", reason: "-Inf is chosen last", tokens: 1, experts: 4, k: 3, plant: map[int]float32{0: float32(math.Inf(-1)), 2: float32(math.Inf(-1))}},
	}
	for experts := 20; experts <= 512; experts += 32 {
		rows = append(rows, routerCase{
			name: fmt.Sprintf("raw, experts=%d", experts), reason: "elements that only some lanes have do not count in the sum",
			tokens: 2, experts: experts, k: 9, raw: true,
		})
	}
	var all []harness.Case
	for _, c := range rows {
		all = append(all, harness.Case{Operation: "router", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkRouter(r, c) }})
	}
	return append(all, harness.Case{
		Operation: "router", Format: "F32", Name: "NaN", Reason: "a token with NaN has NaN weights and valid indices; other tokens are unaffected", Run: checkRouterNaN,
	})
}

func (c routerCase) run(r *harness.Fixture, x []float32) (weights []float32, chosen []uint32) {
	w, e := r.Output("weights", 4*c.tokens*c.k), r.Output("experts", 4*c.tokens*c.k)
	spec := moe.Route()
	r.Launch(spec.Launch(r.Kernel(spec), moe.RouteArgs{
		Logits: r.F32s("logits", x).Addr(), Weights: w.Addr(), Chosen: e.Addr(), Tokens: c.tokens, Experts: c.experts, K: c.k, Normalize: !c.raw,
	}))
	return w.F32s(), e.U32s()
}

func checkRouter(r *harness.Fixture, c routerCase) {
	x := r.Vector(harness.Gaussian, c.tokens*c.experts)
	for i := range x {
		switch {
		case c.distinct > 0:
			x[i] = float32(r.Rand().IntN(c.distinct))
		case c.spread != 0:
			x[i] *= c.spread
		}
	}
	for i, v := range c.plant {
		x[i] = v
	}
	weights, chosen := c.run(r, x)
	for t := range c.tokens {
		row, at := x[t*c.experts:][:c.experts], t*c.k
		p, bound := softmaxRef(row)
		order := routerOrder(row, c.k)
		var total, slack float64
		for _, e := range order {
			total += p[e]
			slack += bound[e]
		}
		var want, within []float64
		for _, e := range order {
			if c.raw {
				want, within = append(want, p[e]), append(within, bound[e])
				continue
			}
			want = append(want, p[e]/total)
			within = append(within, bound[e]/total+p[e]/total*(slack/total+8*harness.UnitRoundoff))
		}
		harness.Exact(r, fmt.Sprintf("experts of token %d", t), chosen[at:at+c.k], order)
		r.Within(fmt.Sprintf("weights of token %d", t), weights[at:at+c.k], want, within)
	}
}

// routerOrder returns the indices of the k largest logits: -Inf last, equal logits by index.
func routerOrder(row []float32, k int) []uint32 {
	order := make([]uint32, len(row))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(row[b], row[a]) })
	return order[:k]
}

// softmaxRef returns softmax(x) and the error bound of each probability: (2|x − max| + 16)·u
// relative.
func softmaxRef(x []float32) (y, bound []float64) {
	y, bound = make([]float64, len(x)), make([]float64, len(x))
	const subnormal = 4 * 0x1p-149 // subnormal results: 2 units of the exponential and two roundings
	top, sum := math.Inf(-1), 0.0
	for _, v := range x {
		top = math.Max(top, float64(v))
	}
	for i, v := range x {
		d := float64(v) - top
		bound[i] = 2*math.Abs(d) + 16
		y[i] = math.Exp(d)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
		bound[i] = float64(bound[i]*harness.UnitRoundoff*y[i]) + subnormal
		if math.IsNaN(bound[i]) { // 0 times an infinite distance
			bound[i] = 0
		}
	}
	return y, bound
}

func checkRouterNaN(r *harness.Fixture) {
	c := routerCase{tokens: 2, experts: 30, k: 30}
	x := r.Vector(harness.Gaussian, 60)
	x[3], x[17] = float32(math.NaN()), float32(math.Inf(-1))
	weights, chosen := c.run(r, x)
	order := routerOrder(append(append([]float32{}, x[:3]...), x[4:30]...), 29)
	for i, e := range order {
		if e >= 3 { // the NaN was removed from the row
			order[i]++
		}
	}
	harness.Exact(r, "experts of the token with NaN", chosen[:30], append(order, 3))
	harness.Exact(r, "its neighbor's", chosen[30:], routerOrder(x[30:], 30))
	for i, w := range weights {
		if math.IsNaN(float64(w)) != (i < 30) {
			r.Errorf("weight %d is %v", i, w)
		}
	}
}
