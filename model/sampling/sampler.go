package sampling

import (
	"math"
	"sync"
)

// Sampler chooses the tokens of one sequence. One goroutine at a time may use it.
type Sampler struct {
	p     Params
	c     constants
	vocab int
	// Without penalties, counts is nil.
	counts  []uint32 // per token: the number of its occurrences in the generated text, and inPrompt
	counted []int32  // the tokens whose counts are not 0
	best    [MaxTopLogProbs]int32
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
		s.logProbs(logits[:s.vocab], &c)
	}
	return c
}

// scratch is the memory of one call of Choose.
type scratch struct {
	keys    []uint32 // per token; 0 if it is no candidate
	ids     []int32  // the candidates that are left, in the order of ids
	weights []uint64 // of ids
	bins    [1 << 16]uint64
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// adjust sets the keys of the adjusted logits and returns the largest.
func (s *Sampler) adjust(w *scratch, logits []float32, mask []uint32) uint32 {
	if cap(w.keys) < len(logits) {
		w.keys, w.ids, w.weights = make([]uint32, len(logits)), make([]int32, len(logits)), make([]uint64, len(logits))
	}
	keys := w.keys[:len(logits)]
	w.keys = keys
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

// first returns the lowest id of a key.
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
	least, ties := uint32(1), uint64(math.MaxUint64)
	if k := s.p.TopK; k > 0 && k < len(w.keys) {
		least, ties = w.threshold(uint64(k), best)
	}
	total := w.candidates(least, ties, best, s.c.scale)
	if s.c.topP != 0 {
		w.topP(ceil64(s.c.topP, total), best)
	}
	if s.c.topP != 0 || s.c.minWeight != 0 {
		total = 0
		for _, weight := range w.weights {
			if weight >= s.c.minWeight {
				total += weight
			}
		}
	}
	r := high64(s.p.random(position), total)
	for i, weight := range w.weights {
		if weight < s.c.minWeight {
			continue
		}
		if weight > r {
			return int(w.ids[i])
		}
		r -= weight
	}
	panic("sampling: the weights changed during a draw")
}

// candidates lists the candidates whose keys are above least, and the first ties of those whose
// key is least, in the order of ids. It returns the sum of their weights.
func (w *scratch) candidates(least uint32, ties uint64, best uint32, scale float64) (total uint64) {
	ids, weights, n := w.ids[:len(w.keys)], w.weights[:len(w.keys)], 0
	most := logitOf(best)
	for id, key := range w.keys {
		if key < least {
			continue
		}
		if key == least {
			if ties == 0 {
				continue
			}
			ties--
		}
		weight := weight(difference(logitOf(key), most), scale)
		ids[n], weights[n] = int32(id), weight
		total += weight
		n++
	}
	w.ids, w.weights = ids[:n], weights[:n]
	return total
}

// threshold returns the key of the n-th candidate, and how many candidates of this key are among
// the first n. If there are fewer than n candidates it returns 1 and n.
func (w *scratch) threshold(n uint64, best uint32) (least uint32, ties uint64) {
	clear(w.bins[:])
	for _, k := range w.keys {
		w.bins[k>>16]++
	}
	bin, n := w.descend(best>>16, n)
	if bin == 0 { // no candidate has such a key
		return 1, n
	}
	clear(w.bins[:])
	for _, k := range w.keys {
		if k>>16 == bin {
			w.bins[k&0xFFFF]++
		}
	}
	low, n := w.descend(0xFFFF, n)
	return bin<<16 | low, n
}

// descend returns the first bin, from bin from downwards, at which the sum of bins reaches n. It
// also returns n less the bins before it. If the sum stays below n, it returns bin 0.
func (w *scratch) descend(from uint32, n uint64) (bin uint32, rest uint64) {
	for bin = from; bin > 0 && w.bins[bin] < n; bin-- {
		n -= w.bins[bin]
	}
	return bin, n
}

// topP keeps the fewest of the first candidates whose weights add up to n.
func (w *scratch) topP(n uint64, best uint32) {
	clear(w.bins[:])
	for i, id := range w.ids {
		w.bins[w.keys[id]>>16] += w.weights[i]
	}
	bin, n := w.descend(best>>16, n)
	clear(w.bins[:])
	for i, id := range w.ids {
		if w.keys[id]>>16 == bin {
			w.bins[w.keys[id]&0xFFFF] += w.weights[i]
		}
	}
	low, n := w.descend(0xFFFF, n)
	least, kept := bin<<16|low, 0
	for i, id := range w.ids {
		switch k := w.keys[id]; {
		case k < least:
			continue
		case k == least:
			if n == 0 {
				continue
			}
			n -= min(n, w.weights[i])
		}
		w.ids[kept], w.weights[kept] = id, w.weights[i]
		kept++
	}
	w.ids, w.weights = w.ids[:kept], w.weights[:kept]
}

// logProbs sets the log-probabilities of a choice.
func (s *Sampler) logProbs(logits []float32, c *Choice) {
	top := s.top(logits, max(s.p.TopLogProbs, 1))
	most, sum := logits[top[0]], uint64(0)
	for _, x := range logits {
		sum += weight(difference(x, most), math.Log2E)
	}
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
