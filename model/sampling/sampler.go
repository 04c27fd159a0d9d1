package sampling

import (
	"math"
	"sync"
)

// Sampler chooses the tokens of one sequence. One goroutine at a time may use it.
type Sampler struct {
	p       Params
	c       constants
	vocab   int
	counts  []uint32              // per token: its occurrences in the generated text, and inPrompt; nil without penalties
	counted []int32               // tokens with a count other than 0
	best    [MaxTopLogProbs]int32 // memory of top
}

// inPrompt marks a token of the prompt.
const inPrompt = 1 << 31

// New returns a sampler for a vocabulary of vocab tokens. It keeps p.Bias, which must not change.
// p must have passed Check.
func New(p *Params, vocab int) *Sampler {
	s := &Sampler{p: *p, c: p.constants(), vocab: vocab}
	if p.Penalizes() {
		s.counts = make([]uint32, vocab)
	}
	return s
}

// Add counts a token of the prompt or of the generated text for the penalties.
func (s *Sampler) Add(token int, generated bool) {
	if s.counts == nil {
		return
	}
	if s.counts[token] == 0 {
		s.counted = append(s.counted, int32(token))
	}
	if generated {
		s.counts[token]++
	} else {
		s.counts[token] |= inPrompt
	}
}

// Counts returns the counts of the tokens [vocab] as the kernels of package ptxgen/sample read them:
// occurrences in the generated text, and bit 31 for the prompt. It is nil without penalties, and
// valid until the next call of Add.
func (s *Sampler) Counts() []uint32 { return s.counts }

// Choose chooses a token from logits [vocab]. position is the index that the token will have in
// the sequence. Bit id%32 of element id/32 of the mask permits a token; nil permits all. Choose
// does not count the token: see Add.
func (s *Sampler) Choose(logits []float32, position int, mask []uint32) Choice {
	w := scratches.Get().(*scratch)
	defer scratches.Put(w)
	best := s.adjust(w, logits[:s.vocab], mask)
	var c Choice
	switch {
	case best == 0:
		return Choice{Token: -1}
	case s.p.Greedy():
		c.Token = w.first(best)
	default:
		c.Token = s.draw(w, best, position)
	}
	if s.p.LogProb || s.p.TopLogProbs > 0 {
		s.logProbs(w, logits[:s.vocab], &c)
	}
	return c
}

// scratch is the memory of one call of Choose.
type scratch struct {
	keys    []uint32 // 0: no candidate
	ids     []int32  // of keys; empty: key i is of token i
	weights []uint64 // of keys
	bins    [1 << 16]uint64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// adjust sets the keys of the adjusted logits and returns the largest.
func (s *Sampler) adjust(w *scratch, logits []float32, mask []uint32) uint32 {
	if cap(w.keys) < len(logits) {
		w.keys, w.ids, w.weights = make([]uint32, len(logits)), make([]int32, len(logits)), make([]uint64, len(logits))
	}
	keys := w.keys[:len(logits)]
	w.keys, w.ids = keys, w.ids[:0]
	best := uint32(0)
	for id, x := range logits {
		k := key(x)
		keys[id] = k
		best = max(best, k)
	}
	if len(s.p.Bias) == 0 && len(s.counted) == 0 && mask == nil {
		return best
	}
	for id, bias := range s.p.Bias {
		keys[id] = key(s.penalize(id, logits[id]+bias))
	}
	for _, id := range s.counted {
		if _, biased := s.p.Bias[int(id)]; !biased {
			keys[id] = key(s.penalize(int(id), logits[id]))
		}
	}
	best = 0
	for id, k := range keys {
		if mask != nil && mask[id/32]>>(id%32)&1 == 0 {
			k = 0
			keys[id] = 0
		}
		best = max(best, k)
	}
	return best
}

// penalize applies the penalties to the biased logit of a token.
func (s *Sampler) penalize(id int, x float32) float32 {
	if s.counts == nil {
		return x
	}
	n := s.counts[id]
	if n != 0 && s.c.repeat != 1 {
		if x > 0 {
			x = float32(x * s.c.inverse)
		} else {
			x = float32(x * s.c.repeat) // rounded, so that no machine fuses it with a subtraction
		}
	}
	if n &^= inPrompt; n != 0 {
		x -= float32(float32(n) * s.c.frequency)
		x -= s.c.presence
	}
	return x
}

// first returns the first index at which keys has the key.
func (w *scratch) first(key uint32) int {
	for id, k := range w.keys {
		if k == key {
			return id
		}
	}
	return -1
}

// draw chooses a token at random. best is the largest key.
func (s *Sampler) draw(w *scratch, best uint32, position int) int {
	if k := s.p.TopK; k > 0 && k < len(w.keys) {
		w.keep(w.threshold(nil, uint64(k), best))
	}
	weights := w.weights[:len(w.keys)]
	total := weigh(weights, w.keys, best, s.c.scale)
	least, ties := uint32(0), uint64(0)
	if s.c.topP != 0 {
		least, ties = w.threshold(weights, ceil64(s.c.topP, total), best)
	}
	if s.c.topP != 0 || s.c.minWeight != 0 {
		total = 0
		for i, weight := range weights {
			switch k := w.keys[i]; {
			case weight < s.c.minWeight || k < least || k == least && ties == 0:
				weights[i] = 0
				continue
			case k == least:
				ties--
			}
			total += weight
		}
	}
	r := high64(s.p.random(position), total)
	for i, weight := range weights {
		if weight > r {
			if len(w.ids) > 0 {
				return int(w.ids[i])
			}
			return i
		}
		r -= weight
	}
	panic("sampling: the weights changed during a draw")
}

// keep lists the candidates whose keys are above least, and the first ties of those whose key is
// least: their keys in keys, and their ids in ids.
func (w *scratch) keep(least uint32, ties uint64) {
	n, ids := 0, w.ids[:len(w.keys)]
	for id, key := range w.keys {
		switch {
		case key < least || key == least && ties == 0:
			continue
		case key == least:
			ties--
		}
		w.keys[n], ids[n] = key, int32(id)
		n++
	}
	w.keys, w.ids = w.keys[:n], ids[:n]
}

// threshold finds the fewest first candidates with weights that add up to n. Without weights, each
// candidate weighs 1. threshold returns the key of the last of them, and how many of them have this
// key. If all candidates weigh less than n, it returns 1 and n.
func (w *scratch) threshold(weights []uint64, n uint64, best uint32) (least uint32, ties uint64) {
	weight := uint64(1)
	clear(w.bins[:])
	for i, k := range w.keys {
		if weights != nil {
			weight = weights[i]
		}
		w.bins[k>>16] += weight
	}
	bin, n := w.descend(best>>16, n)
	if bin == 0 { // no candidate has such a key
		return 1, n
	}
	clear(w.bins[:])
	for i, k := range w.keys {
		if k>>16 != bin {
			continue
		}
		if weights != nil {
			weight = weights[i]
		}
		w.bins[k&0xFFFF] += weight
	}
	low, n := w.descend(0xFFFF, n)
	least = bin<<16 | low
	if weights != nil {
		weight = weights[w.first(least)]
	}
	return least, (n + weight - 1) / weight
}

// descend adds bins, from bin top down, until the sum reaches n. It returns the last bin that it adds,
// and n less the bins above that one. If the sum stays below n, it returns bin 0.
func (w *scratch) descend(top uint32, n uint64) (bin uint32, rest uint64) {
	for bin = top; bin > 0 && w.bins[bin] < n; bin-- {
		n -= w.bins[bin]
	}
	return bin, n
}

// logProbs sets the log-probabilities of a choice.
func (s *Sampler) logProbs(w *scratch, logits []float32, c *Choice) {
	top := s.top(logits, max(s.p.TopLogProbs, 1))
	most := logits[top[0]]
	keys := w.keys[:len(logits)]
	for id, x := range logits {
		keys[id] = key(x)
	}
	sum := weigh(w.weights, keys, key(most), math.Log2E)
	if s.p.LogProb {
		c.LogProb = LogProbOf(logits[c.Token], most, sum)
	}
	if s.p.TopLogProbs > 0 {
		c.Top = make([]LogProb, len(top))
		for i, id := range top {
			c.Top[i] = LogProb{int(id), LogProbOf(logits[id], most, sum)}
		}
	}
}

// top returns the ids of the n largest logits, the largest first, then the lowest id. It is valid
// until the next call.
func (s *Sampler) top(logits []float32, n int) []int32 {
	top := s.best[:0]
	least := float32(math.Inf(-1)) // the n-th largest so far
	for id, x := range logits {
		if !(x > least) {
			continue
		}
		if len(top) < n {
			top = append(top, 0)
		}
		i := len(top) - 1
		for ; i > 0 && logits[top[i-1]] < x; i-- {
			top[i] = top[i-1]
		}
		top[i] = int32(id)
		if len(top) == n {
			least = logits[top[n-1]]
		}
	}
	return top
}
