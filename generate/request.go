package generate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// request is a generation or an embedding. The scheduler computes it, and the goroutine that
// started it reads its tokens.
type request struct {
	p         Params
	prompt    []int
	maxTokens int
	capacity  int // positions of the sequence
	vocab     int
	tokenizer *tokenizer.Tokenizer // nil: tokens without text
	endTokens []uint32             // bits of the tokens that end the text; nil without MinTokens
	pool      *pool                // of an embedding; nil: a generation
	batch     bool                 // may wait whatever Options.MaxWaiting is
	arrived   time.Time
	caller    context.Context
	ctx       context.Context // ends with caller, and when the reader leaves
	cancel    context.CancelFunc
	unwatch   func() bool // ends the scheduler's watch of ctx

	// Fields of the scheduler's loop. A row is scheduled once it is in a pass, and so are its
	// positions and its token.
	sequence   model.Sequence // nil until the request is admitted
	admitted   time.Time
	preempted  bool // the sequence is in host memory
	succeeded  bool // it ended without an error
	computed   int  // scheduled positions, and those of the prefix cache
	chosen     int  // scheduled tokens
	choiceHeld bool // the last row has Hold, and no call of Engine.Choose followed
	inFlight   int  // passes in flight in which the request has a part
	generated  []int
	stopToken  []int // the token that ended the text, which is not part of it; nil: none
	firstToken time.Time
	text       stopper
	ended      bool // no further row or token

	// The choice of the next token.
	nextMask    func(generated []int) ([]uint32, error) // of Params.Mask
	mask        []uint32                                // result of nextMask
	maskNoEnds  []uint32                                // memory of withoutEnds
	logits      []float32                               // as Params.Logits left them
	constrained bool                                    // mask and logits are those of the next token

	readerLeft bool // field of the reader: leave was called

	// Fields that both share.
	mu     sync.Mutex
	unread []Token
	stats  Stats
	err    error
	more   chan struct{} // holds one element if unread may have grown
	done   chan struct{} // closed by finish: no callback runs after it
}

// newRequest returns the request of a generation, or an error if its parameters are bad.
func (g *Generator) newRequest(prompt []int, p Params) (*request, error) {
	m := g.model
	if err := p.check(m.Config.Vocab); err != nil {
		return nil, err
	}
	if len(p.Stop) > 0 {
		if _, err := m.NeedTokenizer(); err != nil {
			return nil, err
		}
	}
	r := &request{p: p, vocab: m.Config.Vocab, tokenizer: m.Tokenizer, maxTokens: p.MaxTokens}
	if r.maxTokens < 0 {
		r.maxTokens = max(g.limit-len(prompt), 0)
	}
	if err := g.initRequest(r, prompt); err != nil {
		return nil, err
	}
	r.text.stops = p.Stop
	if m.Tokenizer != nil {
		r.text.decoder = m.Tokenizer.NewDecoder(prompt...)
	}
	if p.MinTokens > 0 {
		r.endTokens = make([]uint32, sampling.MaskLen(r.vocab))
		if !p.IgnoreEOS {
			copy(r.endTokens, g.endTokens())
		}
		for _, id := range p.StopTokens {
			r.endTokens[id/32] |= 1 << (id % 32)
		}
	}
	return r, nil
}

// initRequest checks a prompt and sets the fields that generations and embeddings have.
func (g *Generator) initRequest(r *request, prompt []int) error {
	if err := model.CheckTokens(prompt, g.model.Config.Vocab); err != nil {
		return err
	}
	n := len(prompt)
	need := n + min(r.maxTokens, math.MaxInt-n)
	if err := model.CheckCapacity(need, g.limit); err != nil {
		return err
	}
	r.prompt = slices.Clone(prompt)
	r.capacity = g.limit
	if long := g.model.Config.LongContext; g.options.Capacity == 0 && need <= long {
		r.capacity = min(r.capacity, long) // keeps the RoPE factors for short contexts
	}
	r.stats = Stats{PromptTokens: n}
	r.more, r.done = make(chan struct{}, 1), make(chan struct{})
	return nil
}

// noteAdmitted notes that the request has its sequence.
func (r *request) noteAdmitted(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admitted = now
	r.stats.ReusedTokens, r.stats.Waited = r.computed, now.Sub(r.arrived)
}

// notePreempted notes that the sequence is in host memory.
func (r *request) notePreempted() {
	r.preempted = true
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Preemptions++
}

// nextRow returns the row that the next step computes, with at most budget tokens of the prompt.
// ok is false if there is none: the budget is 0, the last choice is held, or the last token is
// scheduled.
func (r *request) nextRow(budget int) (row model.Row, ok bool) {
	row = model.Row{Sequence: r.sequence, Want: model.WantToken}
	if remaining := len(r.prompt) - r.computed; remaining > 0 {
		n := min(budget, remaining)
		row.Prompt, row.Tokens = true, r.prompt[r.computed:][:n]
		switch {
		case r.pool != nil:
			row.Want = model.WantHidden
			return row, n > 0
		case n < remaining:
			row.Want = model.WantNothing
			return row, n > 0
		}
	} else {
		if r.choiceHeld || r.chosen >= r.maxTokens {
			return model.Row{}, false
		}
		if at := r.computed - len(r.prompt); at < len(r.generated) { // else only the engine has the token
			row.Tokens = r.generated[at : at+1]
		}
	}
	if r.p.Logits != nil {
		row.Want = model.WantLogits
	}
	row.Hold = r.p.Logits != nil || r.p.Mask != nil || r.chosen < r.p.MinTokens
	return row, true
}

// scheduled notes that a row is in a pass.
func (r *request) scheduled(row model.Row) {
	r.computed += max(len(row.Tokens), 1)
	if row.Want == model.WantToken || row.Want == model.WantLogits {
		r.chosen++
		r.choiceHeld = row.Hold
	}
}

// computedTokens returns the tokens that the sequence has computed. That includes the stop token if the engine was a step ahead.
func (r *request) computedTokens() []int {
	tokens := slices.Concat(r.prompt, r.generated, r.stopToken)
	return tokens[:min(len(tokens), r.sequence.Len())]
}

// rewind makes the next row follow the results that were delivered, after passes in flight were
// dropped. In a generation that row computes the last known token again, because the token behind it
// is lost. The sequence may be longer: the engine may have computed a pass that was dropped.
func (r *request) rewind() error {
	delivered := len(r.prompt) + len(r.generated) - 1
	if r.pool != nil {
		delivered = r.pool.n
	}
	r.computed = min(r.sequence.Len(), delivered)
	r.chosen, r.choiceHeld = len(r.generated), false
	if err := r.sequence.Truncate(r.computed); err != nil || r.pool != nil {
		return err
	}
	return r.sequence.SetSampling(&r.p.Sampling, r.prompt, r.generated)
}

// accept appends a chosen token. It reports whether the text goes on.
func (r *request) accept(c sampling.Choice, now time.Time) (bool, error) {
	switch id := c.Token; {
	case id < 0:
		return false, ErrNoChoice
	case id >= r.vocab:
		return false, fmt.Errorf("generate: the engine's choice: %w: %d, want 0 to %d", model.ErrBadToken, id, r.vocab-1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.firstToken.IsZero() {
		r.firstToken = now
		r.stats.Prefill, r.stats.FirstToken = now.Sub(r.admitted), now.Sub(r.arrived)
	} else {
		r.stats.Steps++
		r.stats.Decode = now.Sub(r.firstToken)
	}
	if r.stopsAt(c.Token) {
		r.stopToken = []int{c.Token}
		r.stats.Finish = FinishStopToken
		return false, nil
	}
	r.generated, r.constrained = append(r.generated, c.Token), false
	r.stats.GeneratedTokens++
	text, stopped := r.text.next(c.Token, len(r.generated) >= r.p.MinTokens)
	last := len(r.generated) == r.maxTokens
	switch {
	case stopped:
		r.stats.Finish = FinishStopString
		if text == "" { // nothing of the token's text is before the stop string
			return false, nil
		}
	case last:
		r.stats.Finish = FinishLength
		text += r.text.flush()
	}
	r.send(Token{ID: c.Token, Text: text, LogProb: c.LogProb, Top: slices.Clone(c.Top)})
	return !stopped && !last, nil
}

// stopsAt reports whether a token ends the text.
func (r *request) stopsAt(id int) bool {
	return slices.Contains(r.p.StopTokens, id) || r.tokenizer != nil && !r.p.IgnoreEOS && r.tokenizer.Stops(id)
}

// send gives a token to the reader. The caller holds the mutex.
func (r *request) send(t Token) {
	r.unread = append(r.unread, t)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// finish tells the reader that the request has ended, and gives it the text that was held back.
func (r *request) finish(err error) {
	r.unwatch()
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; err != nil {
		r.stats.Finish = FinishError
	}
	if len(r.generated) > 0 {
		if rest := r.text.flush(); rest != "" {
			r.unread = append(r.unread, Token{ID: NoToken, Text: rest})
		}
	}
	close(r.done)
}

// read yields the tokens as they are chosen, and returns the error that ended the request. If
// yield returns false or panics, or the context ends, the request ends. When read returns, no
// callback of the request runs any more.
func (r *request) read(yield func(Token) bool) error {
	defer r.leave(FinishBreak) // if yield panics or returns false
	for {
		tokens, ended := r.take()
		for _, t := range tokens {
			if err := r.caller.Err(); err != nil {
				r.leave(FinishError)
				return err
			}
			if !yield(t) {
				return nil
			}
		}
		if ended {
			r.leave(FinishNone)
			if p, ok := r.err.(*panicError); ok {
				panic(p.value)
			}
			return r.err
		}
	}
}

// take waits until there are unread tokens or the request has ended. It returns the tokens and
// whether it has ended.
func (r *request) take() (tokens []Token, ended bool) {
	select {
	case <-r.more:
	case <-r.done:
		ended = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tokens, r.unread = r.unread, nil
	if r.p.Stats != nil {
		*r.p.Stats = r.stats
	}
	return tokens, ended
}

// leave ends the request if it still runs, waits for its end, and notes why the reader left. Only
// the first call counts.
func (r *request) leave(why FinishReason) {
	if r.readerLeft {
		return
	}
	r.readerLeft = true
	r.cancel()
	<-r.done
	if why != FinishNone {
		r.stats.Finish = why
	}
	if r.p.Stats != nil {
		*r.p.Stats = r.stats
	}
}
