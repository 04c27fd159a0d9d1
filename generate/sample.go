package generate

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/lockstep-go/lockstep/model"
)

// sampler chooses tokens. The order of its steps is bias, penalties, top-k,
// top-p, min-p, temperature, draw. It uses no function whose result depends on
// the machine. A sampler serves one generation.
type sampler struct {
	p      Params
	vocab  int
	random *rand.PCG
	logits []float64 // kept between calls, as is buf
	buf    ranking
}

func newSampler(p Params, vocab int) *sampler {
	return &sampler{p: p, vocab: vocab, random: rand.NewPCG(p.Seed, 0)}
}

// next chooses the token after history, which holds prompt and generated tokens.
func (s *sampler) next(out model.Output, history []int) (int, error) {
	id := out.Greedy
	if s.p.want() == model.WantLast {
		if len(out.Logits) != s.vocab {
			return 0, fmt.Errorf("generate: the engine gave %d logits for a vocabulary of %d", len(out.Logits), s.vocab)
		}
		id = s.choose(out.Logits, history)
	}
	if id < 0 {
		return 0, ErrNoChoice
	}
	if id >= s.vocab {
		return 0, fmt.Errorf("generate: the engine's choice: %w: %d, want 0 to %d", model.ErrBadToken, id, s.vocab-1)
	}
	return id, nil
}

// choose is next with logits at hand; -1 when there is nothing to choose.
func (s *sampler) choose(logits []float32, history []int) int {
	r := s.candidates(logits, history)
	if len(r) == 0 {
		return -1
	}
	r.heapify()
	if s.p.greedy() {
		return r[0].id
	}
	r = r.topK(s.p.TopK).topP(s.p.TopP).minP(s.p.MinP)
	return r.draw(s.p.Temperature, s.uniform())
}

// uniform is a random number in [0, 1).
func (s *sampler) uniform() float64 {
	return float64(s.random.Uint64()>>11) / (1 << 53)
}

// candidates are the tokens that can be chosen at all, with bias and penalties
// applied to their logits.
func (s *sampler) candidates(logits []float32, history []int) ranking {
	r := s.buf[:0]
	for id, l := range s.adjust(logits, history) {
		if l > math.Inf(-1) { // neither -Inf nor NaN
			r = append(r, candidate{id: id, logit: l})
		}
	}
	s.buf = r
	return r
}

// adjust applies bias and penalties to a copy of the logits.
func (s *sampler) adjust(logits []float32, history []int) []float64 {
	s.logits = s.logits[:0]
	for _, x := range logits {
		s.logits = append(s.logits, float64(x))
	}
	for id, b := range s.p.LogitBias {
		s.logits[id] += float64(b)
	}
	if !s.p.penalizes() {
		return s.logits
	}
	if n := s.p.RepeatLast; n > 0 && n < len(history) {
		history = history[len(history)-n:]
	}
	counts := map[int]int{}
	for _, id := range history {
		counts[id]++
	}
	for id, n := range counts {
		s.logits[id] = s.penalize(s.logits[id], n)
	}
	return s.logits
}

// penalize lowers the logit of a token that occurs n times.
func (s *sampler) penalize(l float64, n int) float64 {
	switch {
	case !s.p.repeats():
	case l > 0:
		l /= s.p.RepeatPenalty
	default:
		l = float64(l * s.p.RepeatPenalty)
	}
	// Each product is rounded, so that no machine fuses it with a subtraction.
	return l - float64(float64(n)*s.p.FrequencyPenalty) - s.p.PresencePenalty
}
