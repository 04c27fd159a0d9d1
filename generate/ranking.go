package generate

import "github.com/lockstep-go/lockstep/internal/portable"

// candidate is a token that may be chosen.
type candidate struct {
	id    int
	logit float64
}

// before orders candidates: the larger logit first, the lower id on a tie.
func (c candidate) before(d candidate) bool {
	return c.logit > d.logit || c.logit == d.logit && c.id < d.id
}

// ranking is a binary heap of candidates, the first in order at index 0. A
// vocabulary is large and few candidates matter, so taking them out one by one
// is cheaper than sorting. A sorted slice is such a heap as well.
type ranking []candidate

func (r ranking) heapify() {
	for i := len(r)/2 - 1; i >= 0; i-- {
		r.down(i)
	}
}

func (r ranking) down(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r); child++ {
			if r[child].before(r[first]) {
				first = child
			}
		}
		if first == i {
			return
		}
		r[i], r[first] = r[first], r[i]
		i = first
	}
}

// pop takes out the first in order.
func (r *ranking) pop() candidate {
	h := *r
	top, last := h[0], len(h)-1
	h[0] = h[last]
	*r = h[:last]
	r.down(0)
	return top
}

// weight is a candidate's unnormalized probability at a temperature, relative to
// the most likely one's.
func (c candidate) weight(most, temperature float64) float64 {
	if c.logit == most { // also when both are +Inf
		return 1
	}
	return portable.Exp((c.logit - most) / temperature)
}

func (r ranking) total(temperature float64) float64 {
	sum := 0.0
	for _, c := range r {
		sum += c.weight(r[0].logit, temperature)
	}
	return sum
}

// topK keeps the first k; all for k = 0.
func (r ranking) topK(k int) ranking {
	if k == 0 || k >= len(r) {
		return r
	}
	kept := make(ranking, k)
	for i := range kept {
		kept[i] = r.pop()
	}
	return kept
}

// topP keeps the fewest of the first whose probabilities reach p in sum; all for
// p = 0 or 1.
func (r ranking) topP(p float64) ranking {
	if p == 0 || p == 1 {
		return r
	}
	most, need := r[0].logit, float64(p*r.total(1))
	var kept ranking
	for sum := 0.0; sum < need && len(r) > 0; { // need is above 0
		c := r.pop()
		kept = append(kept, c)
		sum += c.weight(most, 1)
	}
	return kept
}

// minP keeps those whose probability is at least p times the largest; all for
// p = 0.
func (r ranking) minP(p float64) ranking {
	if p == 0 {
		return r
	}
	most := r[0].logit
	var kept ranking
	for len(r) > 0 && r[0].weight(most, 1) >= p {
		kept = append(kept, r.pop())
	}
	return kept
}

// draw takes the candidate at which the sum of probabilities passes u in [0, 1).
func (r ranking) draw(temperature, u float64) int {
	most, target := r[0].logit, float64(u*r.total(temperature))
	sum := 0.0
	for {
		c := r.pop()
		sum += c.weight(most, temperature)
		if sum > target || len(r) == 0 {
			return c.id
		}
	}
}
