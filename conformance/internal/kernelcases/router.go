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
	logit              func(token, expert int) float32 // instead of Gaussian logits

	sigmoid bool
	bias    func(expert int) float32
	scale   float32                  // of weights; 0: 1
	scales  func(expert int) float32 // of the weights of an expert
	shared  bool                     // a logit behind those of the experts weights the shared expert
	gap     int                      // elements between rows of logits that are not read
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
		{name: "all negative", reason: "negative numbers are not ordered like their bits", tokens: 2, experts: 512, k: 32, spread: 3,
			logit: func(_, e int) float32 { return -100 + float32(e*77%512)/8 }},
		{name: "zeros", reason: "-0 and 0 are a tie, in each of a lane's elements", tokens: 16, experts: 512, k: 32, raw: true, logit: oneElement(func(lane int) float32 {
			return float32(math.Copysign(0, float64(lane%3-1)))
		})},
		{name: "far below", reason: "tiny probabilities and those that are 0, in each of a lane's elements", tokens: 16, experts: 512, k: 32, raw: true, logit: oneElement(func(lane int) float32 {
			return -5 * float32(lane*5%32)
		})},
		{name: "least", reason: "the least normal probabilities, in which an error of the exponent counts most", tokens: 16, experts: 512, k: 32, raw: true, logit: oneElement(func(lane int) float32 {
			if lane == 0 {
				return 0
			}
			return -71.5 - float32(lane)/2
		})},
		{name: "lost terms", reason: "terms that vanish in the float32 sum, on one side of each butterfly", tokens: 6, experts: 512, k: 32, raw: true, logit: lostTerms},
		{name: "halves of a unit", reason: "a rounding error of half a unit in the last place, in each step of the butterfly", tokens: 5, experts: 64, k: 2, raw: true, logit: halfUnits},
		{name: "equal", reason: "the largest sum of the powers", tokens: 1, experts: 512, k: 2, raw: true, logit: func(_, _ int) float32 { return 3 }},
		{name: "rounding errors", reason: "each addition loses another part of a term", tokens: 32, experts: 512, k: 1, raw: true, logit: roundingErrors},
		{name: "deepseek", reason: "a sigmoid, a bias, and normalized weights that are scaled", tokens: 5, experts: 160, k: 8, sigmoid: true, bias: fractions, scale: 2.5},
		{name: "kimi", reason: "more than 256 experts with a sigmoid and a bias", tokens: 3, experts: 384, k: 8, sigmoid: true, bias: fractions, scale: 2.827},
		{name: "qwen2moe", reason: "a gate of the shared expert", tokens: 9, experts: 60, k: 4, raw: true, shared: true},
		{name: "gate of many", reason: "a gate of the shared expert behind 512 experts, and a gap behind it", tokens: 3, experts: 512, k: 4, sigmoid: true, shared: true, gap: 3},
		{name: "scaled", reason: "weights that are scaled but not normalized", tokens: 2, experts: 20, k: 3, raw: true, scale: 0.375},
		{name: "gemma4", reason: "normalized weights, and a scale per expert", tokens: 3, experts: 128, k: 8, scales: fractions},
		{name: "scales of many", reason: "negative scales of all of a lane's elements, and a common one", tokens: 2, experts: 512, k: 32, raw: true, scale: 3, scales: func(e int) float32 { return float32(e-256) / 64 }},
		{name: "sigmoid, scales", reason: "a bias decides, and scales do not", tokens: 2, experts: 60, k: 6, sigmoid: true, bias: fractions, scales: func(e int) float32 { return float32(e) / 8 }},
		{name: "rows apart", reason: "other numbers lie between rows", tokens: 6, experts: 33, k: 3, raw: true, gap: 7},
		{name: "sigmoid", reason: "weights that are not normalized", tokens: 2, experts: 512, k: 32, sigmoid: true, raw: true, spread: 5},
		{name: "sigmoid, all magnitudes", reason: "from 0 through subnormals to 1, in each of a lane's elements", tokens: 16, experts: 512, k: 32, sigmoid: true, raw: true, logit: func(token, expert int) float32 {
			if expert/32 != token {
				return -500
			}
			return 20.3*float32(expert%32*5%32) - 318
		}},
		{name: "sigmoid, saturated", reason: "probabilities of 1 are in the order of the logits", tokens: 2, experts: 300, k: 32, sigmoid: true, logit: func(_, e int) float32 { return 40 + float32(e*77%300) }},
		{name: "sigmoid, least weights", reason: "a sum below the least one does not divide", tokens: 3, experts: 100, k: 4, sigmoid: true, logit: func(token, e int) float32 {
			return -15 - 25*float32(token) - float32(e*7%100)
		}},
		{name: "sigmoid, small weights", reason: "a sum above the least one divides", tokens: 1, experts: 64, k: 1, sigmoid: true, logit: func(_, e int) float32 { return -9.6 - float32(e) }},
		{name: "sigmoid, smaller weights", reason: "a sum just below the least one does not divide", tokens: 1, experts: 64, k: 1, sigmoid: true, logit: func(_, e int) float32 { return -10 - float32(e) }},
		{name: "sigmoid, 256 experts", reason: "the most experts that fill one half of each lane's elements", tokens: 2, experts: 256, k: 32, sigmoid: true, spread: 5},
		{name: "sigmoid, 257 experts", reason: "one expert in the second half of the elements", tokens: 2, experts: 257, k: 10, sigmoid: true, plant: map[int]float32{256: 50}},
		{name: "bias decides", reason: "the bias reverses the order, and weights are without it", tokens: 2, experts: 64, k: 6, sigmoid: true, raw: true, bias: func(e int) float32 { return float32(e) },
			logit: func(_, e int) float32 { return -float32(e) / 8 }},
		{name: "negative bias", reason: "scores below 0, in all of a lane's elements", tokens: 2, experts: 512, k: 32, sigmoid: true, bias: func(e int) float32 { return -1 - float32(e*77%512)/64 }},
		{name: "bias ties", reason: "equal scores are ordered by index", tokens: 2, experts: 200, k: 32, sigmoid: true, bias: func(e int) float32 { return float32(e % 3) },
			logit: func(token, _ int) float32 { return float32(token) }},
		{name: "biased softmax", reason: "probabilities plus bias, not logits", tokens: 3, experts: 60, k: 4, bias: fractions, spread: 3},
		{name: "biased softmax of many", reason: "in all of a lane's elements", tokens: 3, experts: 500, k: 20, bias: fractions, spread: 3, scale: 16},
		{name: "biased softmax, least weights", reason: "the bias decides for experts whose sum is below the least one", tokens: 2, experts: 16, k: 2, bias: func(e int) float32 { return float32(e) },
			logit: func(_, e int) float32 { return -2 * float32(e) }},
		{name: "infinite", reason: "-Inf is chosen last", tokens: 1, experts: 4, k: 3, plant: map[int]float32{0: float32(math.Inf(-1)), 2: float32(math.Inf(-1))}},
	}
	for _, sigmoid := range []bool{false, true} {
		rows = append(rows, []routerCase{
			{name: fmt.Sprintf("gate, all magnitudes, sigmoid=%v", sigmoid), reason: "the shared expert's sigmoid from 0 through subnormals to 1",
				tokens: 250, experts: 2, k: 1, shared: true, sigmoid: sigmoid, logit: twoExperts(-320, 2.6)},
			{name: fmt.Sprintf("gate, least, sigmoid=%v", sigmoid), reason: "the least normal sigmoids, in which an error of the exponent counts most",
				tokens: 50, experts: 2, k: 1, shared: true, sigmoid: sigmoid, logit: twoExperts(-87.3, 0.125)},
		}...)
	}
	for experts := 21; experts <= 512; experts += 32 {
		for _, sigmoid := range []bool{false, true} {
			rows = append(rows, routerCase{
				name: fmt.Sprintf("biased, experts=%d, sigmoid=%v", experts, sigmoid), reason: "elements that only some lanes have get no bias",
				tokens: 2, experts: experts, k: 9, sigmoid: sigmoid, bias: fractions, scales: fractions, plant: map[int]float32{experts - 1: 50},
			})
		}
		rows = append(rows, routerCase{
			name: fmt.Sprintf("raw, experts=%d", experts), reason: "elements that only some lanes have do not count in the sum",
			tokens: 2, experts: experts, k: 9, raw: true,
		})
	}
	var all []harness.Case
	for _, c := range rows {
		all = append(all, harness.Case{Operation: "router", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkRouter(r, c) }})
	}
	for _, c := range []struct {
		name, reason string
		routerCase
		numbers int // of the first token; the others are NaN
	}{
		{"NaN", "a token with NaN has NaN weights and valid indices; other tokens are unaffected", routerCase{tokens: 2, experts: 30, k: 30}, 29},
		{"mostly NaN", "NaN is chosen last, in the order of the indices", routerCase{tokens: 2, experts: 512, k: 32}, 9},
		{"sigmoid, mostly NaN", "NaN is chosen last, with a gate that is NaN", routerCase{tokens: 2, experts: 512, k: 32, sigmoid: true, shared: true}, 9},
		{"sigmoid, NaN, not normalized", "numbers have weights", routerCase{tokens: 2, experts: 512, k: 32, sigmoid: true, raw: true}, 9},
		{"bias, mostly NaN", "a sum with NaN is chosen last", routerCase{tokens: 2, experts: 512, k: 12, sigmoid: true, bias: fractions}, 9},
		{"biased softmax, mostly NaN", "all probabilities are NaN, and experts are chosen by index", routerCase{tokens: 2, experts: 512, k: 32, bias: fractions}, 9},
	} {
		all = append(all, harness.Case{Operation: "router", Format: "F32", Name: c.name, Reason: c.reason, Run: func(r *harness.Fixture) { checkRouterNaN(r, c.routerCase, c.numbers) }})
	}
	for experts := 53; experts <= 512; experts += 32 {
		for _, bias := range []func(int) float32{nil, fractions} {
			c := routerCase{tokens: 2, experts: experts, k: 32, bias: bias}
			all = append(all, harness.Case{
				Operation: "router", Format: "F32", Name: fmt.Sprintf("mostly NaN, experts=%d, biased=%v", experts, bias != nil),
				Reason: "elements without an expert are not chosen before NaN", Run: func(r *harness.Fixture) { checkRouterNaN(r, c, 9) },
			})
		}
	}
	return all
}

// fractions are biases in [0, 1) in a sequence that does not repeat.
func fractions(expert int) float32 {
	_, fraction := math.Modf(float64(expert+1) * math.Phi)
	return float32(fraction)
}

// twoExperts returns the logits 0 and 1 of two experts, and a gate that is first for token 0 and
// rises by step for each token.
func twoExperts(first, step float32) func(token, expert int) float32 {
	return func(token, expert int) float32 {
		if expert < 2 {
			return float32(expert)
		}
		return first + step*float32(token)
	}
}

// oneElement returns logits of which one in each lane is near the maximum 0: element t of the lanes
// for token t. The others have the probability 0.
func oneElement(logit func(lane int) float32) func(token, expert int) float32 {
	return func(token, expert int) float32 {
		if expert/32 != token {
			return -200
		}
		return logit(expert % 32)
	}
}

// lostTerms are logits whose first 32 powers are 1. The others are 0, or a little less than half
// of the distance from 1 to the next float32, so that a lane's sum stays 1. For token t, lanes
// with bit t have none of these. For token 5, all lanes have them, of half the size, so that
// they vanish beside -1 too.
func lostTerms(token, expert int) float32 {
	switch {
	case expert < 32:
		return 0
	case token == 5:
		return float32(math.Log(0.45 * harness.UnitRoundoff))
	case expert>>token&1 != 0:
		return -200
	}
	return float32(math.Log(0.95 * harness.UnitRoundoff))
}

// halfUnits are logits whose first 32 powers are 1. In lanes without bit t, token t has another
// power, the distance from 1 to the next float32. So step t of the butterfly adds 1 + 2^-23 and
// 1, or multiples of them, and rounds off half of a unit.
func halfUnits(token, expert int) float32 {
	switch {
	case expert < 32:
		return 0
	case expert>>token&1 != 0:
		return -200
	}
	return float32(math.Log(2 * harness.UnitRoundoff))
}

// roundingErrors are logits whose first 32 powers are 1. The others are the same in each lane,
// between 1/7 and 13 times the unit roundoff, in a sequence that does not repeat.
func roundingErrors(token, expert int) float32 {
	if expert < 32 {
		return 0
	}
	_, fraction := math.Modf(float64(16*token+expert/32) * math.Phi)
	return float32(-18.5 + float64(4.5*fraction))
}

// columns is the number of logits of a token that are read.
func (c routerCase) columns() int {
	if c.shared {
		return c.experts + 1
	}
	return c.experts
}

// run returns results for logits [tokens, columns].
func (c routerCase) run(r *harness.Fixture, x []float32) (weights []float32, chosen []uint32, shared []float32) {
	stride := c.columns() + c.gap
	logits := r.Input("logits", 4*c.tokens*stride)
	for t := range c.tokens {
		logits.SetF32s(4*t*stride, x[t*c.columns():][:c.columns()])
	}
	w, e, g := r.Output("weights", 4*c.tokens*c.k), r.Output("experts", 4*c.tokens*c.k), r.Output("shared weights", 4*c.tokens)
	a := moe.RouteArgs{
		Logits: logits.Addr(), Weights: w.Addr(), Chosen: e.Addr(), Tokens: c.tokens, Experts: c.experts, Stride: stride, K: c.k, Normalize: !c.raw, Scale: c.scale,
	}
	if c.bias != nil {
		a.Bias = r.F32s("bias", c.biases()).Addr()
	}
	if c.scales != nil {
		a.Scales = r.F32s("scales", perExpert(c.experts, c.scales)).Addr()
	}
	if c.shared {
		a.Shared = g.Addr()
	}
	spec := moe.Route(c.sigmoid)
	r.Launch(spec.Launch(r.Kernel(spec), a))
	if !c.shared {
		g.Untouched(0, 4*c.tokens)
		return w.F32s(), e.U32s(), nil
	}
	return w.F32s(), e.U32s(), g.F32s()
}

// biases returns the bias of each expert, 0 if there is none.
func (c routerCase) biases() []float32 {
	if c.bias == nil {
		return make([]float32, c.experts)
	}
	return perExpert(c.experts, c.bias)
}

func perExpert(experts int, of func(expert int) float32) []float32 {
	list := make([]float32, experts)
	for e := range list {
		list[e] = of(e)
	}
	return list
}

// order returns the chosen experts of a row of logits: the largest scores first, NaN last, equal
// ones by index. Scores are p plus bias or, without a bias, logits. Sums that differ must do so by
// more than their error bounds.
func (c routerCase) order(r *harness.Fixture, row []float32, p, bound []float64) []uint32 {
	scores, order := make([]float64, len(row)), make([]uint32, len(row))
	bias := c.biases()
	for i, v := range row {
		order[i], scores[i] = uint32(i), float64(v)
		if c.bias != nil {
			scores[i] = p[i] + float64(bias[i])
		}
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(scores[b], scores[a]) })
	for i := range min(c.k, len(order)-1) {
		a, b := order[i], order[i+1]
		if d := scores[a] - scores[b]; c.bias != nil && d > 0 && d < bound[a]+bound[b]+2*harness.UnitRoundoff*math.Abs(scores[a]) {
			r.Fatalf("experts %d and %d are too near each other for this test", a, b)
		}
	}
	return order[:c.k]
}

// probabilities returns those of a row of logits, and their error bounds.
func (c routerCase) probabilities(row []float32) (p, bound []float64) {
	if c.sigmoid {
		return sigmoidRef(row)
	}
	return softmaxRef(row)
}

func checkRouter(r *harness.Fixture, c routerCase) {
	columns := c.columns()
	x := r.Vector(harness.Gaussian, c.tokens*columns)
	for i := range x {
		switch {
		case c.logit != nil:
			x[i] = c.logit(i/columns, i%columns)
		case c.distinct > 0:
			x[i] = float32(r.Rand().IntN(c.distinct))
		case c.spread != 0:
			x[i] *= c.spread
		}
	}
	for i, v := range c.plant {
		x[i] = v
	}
	const least = 0x1p-14
	weights, chosen, shared := c.run(r, x)
	var gates []float32 // with c.shared, of each token
	for t := range c.tokens {
		row, at := x[t*columns:][:c.experts], t*c.k
		p, bound := c.probabilities(row)
		order := c.order(r, row, p, bound)
		var total, slack float64
		for _, e := range order {
			total += p[e]
			slack += bound[e]
		}
		if total < least {
			total, slack = least, 0
		}
		var want, within []float64
		for _, e := range order {
			w, b := p[e], bound[e]
			if !c.raw {
				w, b = w/total, b/total+w/total*(slack/total+8*harness.UnitRoundoff)
			}
			if c.scale != 0 {
				w, b = w*float64(c.scale), (b+w*harness.UnitRoundoff)*float64(c.scale)
			}
			if c.scales != nil {
				s := float64(c.scales(int(e)))
				w, b = w*s, (b+w*harness.UnitRoundoff)*math.Abs(s)
			}
			want, within = append(want, w), append(within, b)
		}
		harness.Exact(r, fmt.Sprintf("experts of token %d", t), chosen[at:at+c.k], order)
		r.Within(fmt.Sprintf("weights of token %d", t), weights[at:at+c.k], want, within)
		gates = append(gates, x[t*columns+columns-1])
	}
	if c.shared {
		want, within := sigmoidRef(gates)
		r.Within("weights of the shared expert", shared, want, within)
	}
}

// sigmoidRef returns 1/(1+e^-x) and the error bound of each element: 10 unit roundoffs for the
// exponential, and 2 for the sum and the quotient (device.Sigmoid).
func sigmoidRef(x []float32) (y, bound []float64) {
	const subnormal = 4 * 0x1p-149
	for _, v := range x {
		p := 1 / (1 + math.Exp(-float64(v)))
		y, bound = append(y, p), append(bound, 12*harness.UnitRoundoff*1.0001*p+subnormal)
	}
	return y, bound
}

// softmaxRef returns softmax(x) and the error bound of each probability. In unit roundoffs, a
// power e^d, d = x − max, has the rounding error of d and 10 for the exponential (device.Exp),
// or none if d is 0, since PTX defines 2^0 as exactly 1. The sum of the powers has their mean
// error, weighted by p, and 1 for its own rounding since it is compensated. The quotient has 1.
func softmaxRef(x []float32) (y, bound []float64) {
	y, bound = make([]float64, len(x)), make([]float64, len(x))
	const subnormal = 4 * 0x1p-149 // subnormal results: 2 units of the exponential and two roundings
	top, sum, mean := math.Inf(-1), 0.0, 0.0
	for _, v := range x {
		top = math.Max(top, float64(v))
	}
	for i, v := range x {
		d := float64(v) - top
		y[i] = math.Exp(d)
		sum += y[i]
		if d < 0 && y[i] > 0 {
			bound[i] = 10 + math.Abs(float64(v-float32(top))-d)/harness.UnitRoundoff
			mean += float64(bound[i] * y[i])
		}
	}
	mean /= sum
	for i := range y {
		y[i] /= sum
		bound[i] = float64((bound[i]+mean+2)*harness.UnitRoundoff*1.0001*y[i]) + subnormal // 1.0001: errors of second order
	}
	return y, bound
}

// checkRouterNaN checks indices, and that the weights of NaN probabilities are NaN. Only the first
// token has NaNs.
func checkRouterNaN(r *harness.Fixture, c routerCase, numbers int) {
	columns := c.columns()
	x := r.Vector(harness.Gaussian, c.tokens*columns)
	for _, e := range r.Rand().Perm(c.experts)[numbers:] {
		x[e] = float32(math.NaN())
	}
	x[slices.IndexFunc(x, func(v float32) bool { return v == v })] = float32(math.Inf(-1))
	if c.shared {
		x[c.experts] = float32(math.NaN())
	}
	weights, chosen, shared := c.run(r, x)
	for t := range c.tokens {
		row := x[t*columns:][:c.experts]
		p, bound := c.probabilities(row)
		order := c.order(r, row, p, bound)
		harness.Exact(r, fmt.Sprintf("experts of token %d", t), chosen[t*c.k:][:c.k], order)
		all := !c.raw && slices.ContainsFunc(order, func(e uint32) bool { return math.IsNaN(p[e]) })
		for i, e := range order {
			if w := weights[t*c.k+i]; math.IsNaN(float64(w)) != (all || math.IsNaN(p[e])) {
				r.Errorf("weight %d of token %d is %v", i, t, w)
			}
		}
	}
	for i, w := range shared {
		if math.IsNaN(float64(w)) != (i == 0) {
			r.Errorf("the weight of the shared expert of token %d is %v", i, w)
		}
	}
}
