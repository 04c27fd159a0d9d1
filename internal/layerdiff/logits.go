package layerdiff

import (
	"fmt"
	"math"
)

// Logits is how two engines' predictions differ.
type Logits struct {
	Positions        int
	MeanKL, MaxKL    float64 // nats, of what is got from what is wanted
	MaxKLPosition    int
	MeanBound        float64 // of the divergences
	MaxBound         float64
	Decided          int // positions where the margin of the best token is more than twice the bound of a logit
	Disagree         int // of these, where another token is best
	DisagreePosition int // the first of them
}

// LeftOut is the share of positions whose best token the bound does not decide.
func (l *Logits) LeftOut() float64 { return 1 - float64(l.Decided)/float64(l.Positions) }

// Err says what left its bound.
func (l *Logits) Err() error {
	switch {
	case l.Disagree > 0:
		return fmt.Errorf("the best token differs at %d of %d positions where the margin decides, first at position %d", l.Disagree, l.Decided, l.DisagreePosition)
	case !(l.MeanKL <= l.MeanBound):
		return fmt.Errorf("the mean KL divergence of the logits is %.3g (bound %.3g)", l.MeanKL, l.MeanBound)
	case !(l.MaxKL <= l.MaxBound):
		return fmt.Errorf("the KL divergence of the logits is %.3g at position %d (bound %.3g)", l.MaxKL, l.MaxKLPosition, l.MaxBound)
	}
	return nil
}

// Err says what left its bound first; nil if all stayed within.
func (r *Report) Err() error {
	switch {
	case r.First != nil:
		return fmt.Errorf("%v", r.First)
	case r.Logits != nil:
		return r.Logits.Err()
	}
	return nil
}

func compareLogits(want, got *Trace, lim limits, bound float64) *Logits {
	l := &Logits{MeanBound: lim.meanKL, MaxBound: lim.largest, MaxKL: -1}
	sum := 0.0
	for _, p := range want.positions(logitsOp) {
		w, g := want.rows[logitsOp][p], got.rows[logitsOp][p]
		l.Positions++
		kl := divergence(w, g)
		sum += kl
		if kl > l.MaxKL || math.IsNaN(kl) && !math.IsNaN(l.MaxKL) {
			l.MaxKL, l.MaxKLPosition = kl, p
		}
		best, margin := top(w)
		if !(margin > 2*mostOff(w, bound)) {
			continue
		}
		l.Decided++
		if other, _ := top(g); other != best {
			if l.Disagree == 0 {
				l.DisagreePosition = p
			}
			l.Disagree++
		}
	}
	l.MeanKL = sum / float64(l.Positions)
	return l
}

// mostOff is how far any logit of a row may be off.
func mostOff(row []float64, bound float64) float64 {
	_, v := errorsOf(row, row)
	rms := math.Sqrt(v / float64(len(row)))
	most := 0.0
	for _, w := range row {
		most = max(most, elementBound(w, rms, bound))
	}
	return most
}

// top is the index of the largest value, the lowest of equals, and how far all others
// are below it. NaN is never the largest; without any other value the index is -1.
func top(x []float64) (best int, margin float64) {
	best = -1
	first, second := math.Inf(-1), math.Inf(-1)
	for i, v := range x {
		switch {
		case math.IsNaN(v):
		case best < 0 || v > first:
			best, first, second = i, v, first
		default:
			second = max(second, v)
		}
	}
	return best, first - second
}

// divergence is Kullback and Leibler's, of the distributions that two lists of logits
// give. A NaN in either makes it a NaN.
func divergence(want, got []float64) (sum float64) {
	a, b := logSum(want), logSum(got)
	for i, w := range want {
		// What has no probability adds nothing, whatever the other gives it.
		if p := math.Exp(w - a); p != 0 {
			sum += float64(p * ((w - a) - (got[i] - b)))
		} else if math.IsNaN(got[i]) {
			return math.NaN()
		}
	}
	return sum
}

// logSum is the logarithm of the sum of exponentials.
func logSum(x []float64) float64 {
	most := math.Inf(-1)
	for _, v := range x {
		most = max(most, v)
	}
	total := 0.0
	for _, v := range x {
		total += math.Exp(v - most)
	}
	return most + math.Log(total)
}
