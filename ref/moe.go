package ref

import (
	"context"
	"sort"

	"github.com/lockstep-go/lockstep/model"
)

// mixture computes a mixture of experts. For each position the router chooses experts:
//
//	p = softmax(Router·x)                                       [experts]
//	T = the ExpertsUsed largest of p, lowest index first on a tie
//	y = Σ_{t∈T} p[t]/Σ_{T}p · expert_t(x)
//
// Terms are added in descending order of p. Each position is computed alone, so its sum
// does not depend on other positions.
func (e *Engine) mixture(ctx context.Context, in input, l *model.Layer) (tensor, error) {
	probs, err := e.linear(ctx, in, model.Linear{W: l.Router})
	if err != nil {
		return tensor{}, err
	}
	y := newTensor(in.x.rows, in.x.cols)
	for p := range in.x.rows {
		softmax(probs.row(p))
		chosen, total := topExperts(probs.row(p), e.model.Config.ExpertsUsed)
		for _, t := range chosen {
			ex := l.Experts[t]
			out, err := e.network(ctx, in.row(p), model.Linear{W: ex.Gate}, model.Linear{W: ex.Up}, model.Linear{W: ex.Down})
			if err != nil {
				return tensor{}, err
			}
			weight := probs.row(p)[t] / total
			dst := y.row(p)
			for i, v := range out.data {
				dst[i] += float64(weight * v)
			}
		}
	}
	return y, nil
}

// topExperts returns the indices of the n largest probabilities in descending order, and
// the sum of these probabilities.
func topExperts(probs []float64, n int) (chosen []int, total float64) {
	order := make([]int, len(probs))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return probs[order[a]] > probs[order[b]] })
	for _, t := range order[:n] {
		total += probs[t]
	}
	return order[:n], total
}
