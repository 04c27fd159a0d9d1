package ref

import (
	"context"
	"slices"
	"sort"

	"github.com/lockstep-go/lockstep/model"
)

// mixture computes a mixture of experts. For each position the router chooses experts:
//
//	p    = softmax(Router·x), or σ(Router·x)                             [experts]
//	T    = the ExpertsUsed largest of p + RouterBias, lowest index first on a tie
//	w[t] = ExpertScale · p[t] / max(Σ_{T}p, leastSum)                without ExpertNorm: ExpertScale · p[t]
//	y    = Σ_{t∈T} w[t] · expert_t(x) + σ(SharedGate·x) · shared(x)      without SharedGate: shared(x)
//
// With ExpertInputs, expert_t(w[t]·x) takes the place of w[t] · expert_t(x).
// x is h, or for the router and the experts a norm of their own of the residual stream. With ExpertScales,
// expert_t(x) is multiplied by the scale of t. Both terms of y may have a norm.
//
// Terms are added in descending order of p + RouterBias. Each position is computed alone, so its
// sum does not depend on other positions.
func (e *Engine) mixture(ctx context.Context, x tensor, h input, l *model.Layer) (tensor, error) {
	cfg := &e.model.Config
	own := func(n model.Norm) input {
		if n.Weight == nil {
			return h
		}
		return e.normed(x, n)
	}
	logits, err := e.linear(ctx, own(l.RouterNorm), l.Router)
	if err != nil {
		return tensor{}, err
	}
	in := own(l.ExpertNorm)
	y := newTensor(x.rows, x.cols)
	for p := range x.rows {
		chosen, weights := chooseExperts(logits.row(p), l.RouterBias, cfg)
		for i, t := range chosen {
			ex, one, weight := l.Experts[t], in.row(p), weights[i]
			if l.ExpertScales != nil {
				weight *= float64(l.ExpertScales[t])
			}
			if cfg.ExpertInputs {
				one, weight = one.scaled(weight), 1
			}
			out, err := e.network(ctx, one, ex.Gate, ex.Up, ex.Down, 0)
			if err != nil {
				return tensor{}, err
			}
			dst := y.row(p)
			for j, v := range out.data {
				dst[j] += float64(weight * v)
			}
		}
	}
	y = norm(y, l.ExpertPostNorm, cfg)
	if l.Up.W.Rows == 0 {
		return y, nil
	}
	shared, err := e.network(ctx, h, l.Gate, l.Up, l.Down, 0)
	if err != nil {
		return tensor{}, err
	}
	if l.SharedGate.Rows > 0 {
		gate, err := e.linear(ctx, h, model.Linear{W: l.SharedGate})
		if err != nil {
			return tensor{}, err
		}
		for p, g := range gate.data {
			for i := range shared.row(p) {
				shared.row(p)[i] *= sigmoid(g)
			}
		}
	}
	y.add(norm(shared, l.SharedPostNorm, cfg))
	return y, nil
}

// leastSum bounds the sum by which weights are divided from below, as in llama.cpp: the smallest
// normal float16.
const leastSum = 0x1p-14

// chooseExperts replaces the router's logits of a position by probabilities in place, and returns
// the chosen experts and their weights.
func chooseExperts(logits []float64, bias []float32, cfg *model.Config) (chosen []int, weights []float64) {
	probs := logits
	if cfg.RouterSigmoid {
		for i, v := range logits {
			probs[i] = sigmoid(v)
		}
	} else {
		softmax(probs)
	}
	chosen = topExperts(probs, bias, cfg.ExpertsUsed)
	total := 0.0
	for _, t := range chosen {
		total += probs[t]
	}
	for _, t := range chosen {
		w := probs[t]
		if cfg.ExpertNorm {
			w /= max(total, leastSum)
		}
		weights = append(weights, w*float64(cfg.ExpertScale))
	}
	return chosen, weights
}

// topExperts returns the indices of the n largest probabilities plus bias in descending order.
func topExperts(probs []float64, bias []float32, n int) []int {
	order, scores := make([]int, len(probs)), slices.Clone(probs)
	for i := range order {
		order[i] = i
	}
	for i, b := range bias {
		scores[i] += float64(b)
	}
	sort.SliceStable(order, func(a, b int) bool { return scores[order[a]] > scores[order[b]] })
	return order[:n]
}
