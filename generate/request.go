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
// started it reads the results.
type request struct {
	p         Params
	prompt    []int
	maxTokens int
	capacity  int // positions of the sequence
	vocab     int
	tokenizer *tokenizer.Tokenizer // nil: tokens without text
	ends      []uint32             // bits of the tokens that end the text; nil unless MinTokens bans them
	pool      *pool                // of an embedding; nil: a generation
	batch     bool                 // exempt from Options.MaxWaiting
	caller    context.Context
	ctx       context.Context // ends with the caller's, and when the reader leaves
	cancel    context.CancelFunc
	detach    func() bool // ends the scheduler's watch of ctx
	begin     time.Time

	// Fields of the scheduler's loop.
	sequence  model.Sequence // nil until the request is admitted
	swapped   bool           // the sequence is in host memory
	computed  int            // positions, those of queued passes included
	chosen    int            // generated tokens, those of queued passes included
	inFlight  int            // queued passes that the request has a part in
	held      bool           // the last row waits for Engine.Choose
	ended     bool           // no further row or token
	generated []int
	text      stopper
	mask      func(generated []int) ([]uint32, error)
	permitted []uint32  // result of mask
	masked    int       // the number of generated tokens for which permitted holds
	bits      []uint32  // a mask without end tokens
	logits    []float32 // that the hook may change
	admitted  time.Time
	first     time.Time // when the first token was chosen

	left bool // of the reader: it needs no more

	// Fields that both share.
	mu    sync.Mutex
	out   []Token // chosen and not read
	stats Stats
	err   error
	more  chan struct{} // holds one element if out may have grown
	done  chan struct{} // closed by finish: no callback runs after it
}

// newRequest checks a generation.
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
	if err := g.prepare(r, prompt); err != nil {
		return nil, err
	}
	r.text.stops = p.Stop
	if m.Tokenizer != nil {
		r.text.decoder = m.Tokenizer.NewDecoder(prompt...)
	}
	if p.MinTokens > 0 {
		r.ends = make([]uint32, maskLen(r.vocab))
		if !p.IgnoreEOS {
			copy(r.ends, g.ends())
		}
		for _, id := range p.StopTokens {
			r.ends[id/32] |= 1 << (id % 32)
		}
	}
	return r, nil
}

// prepare checks a prompt and sets the fields that all requests have.
func (g *Generator) prepare(r *request, prompt []int) error {
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

// admit notes that the request has a sequence.
func (r *request) admit(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admitted = now
	r.stats.ReusedTokens, r.stats.Queued = r.computed, now.Sub(r.begin)
}

// preempted notes that the sequence is in host memory.
func (r *request) preempted() {
	r.swapped = true
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Preemptions++
}

// next returns the sequence's next row, with at most n tokens of the prompt. ok is false if
// there is no budget for its prompt, if the last choice is held and not queued, or if all
// tokens are queued.
func (r *request) next(n int) (row model.Row, ok bool) {
	row = model.Row{Sequence: r.sequence, Want: model.WantToken}
	if left := len(r.prompt) - r.computed; left > 0 {
		row.Prompt = true
		row.Tokens = r.prompt[r.computed : r.computed+min(n, left)]
		switch {
		case r.pool != nil:
			row.Want = model.WantHidden
			return row, n > 0
		case n < left:
			row.Want = model.WantNothing
			return row, n > 0
		}
	} else {
		if r.held || r.chosen >= r.maxTokens {
			return model.Row{}, false
		}
		if at := r.computed - len(r.prompt); at < len(r.generated) {
			row.Tokens = r.generated[at : at+1]
		}
	}
	if r.p.Logits != nil {
		row.Want = model.WantLogits
	}
	row.Hold = r.p.Logits != nil || r.p.Mask != nil || r.chosen < r.p.MinTokens
	return row, true
}

// queued notes that a row is in a pass.
func (r *request) queued(row model.Row) {
	r.computed += max(len(row.Tokens), 1)
	if row.Want == model.WantToken || row.Want == model.WantLogits {
		r.chosen++
		r.held = row.Hold
	}
}

// rewind makes the next row continue the sequence after the last accepted token, because a
// pass in flight failed.
func (r *request) rewind() error {
	r.computed = min(r.sequence.Len(), len(r.prompt)+max(len(r.generated)-1, 0))
	if len(r.generated) == 0 {
		r.computed = min(r.computed, len(r.prompt)-1)
	}
	r.chosen, r.held = len(r.generated), false
	if err := r.sequence.Truncate(r.computed); err != nil || r.pool != nil {
		return err
	}
	return r.sequence.SetSampling(&r.p.Sampling, r.prompt, r.generated)
}

// choice returns the choice for a row with Hold.
func (r *request) choice() (model.Choose, error) {
	c := model.Choose{Sequence: r.sequence}
	if r.p.Mask != nil {
		if err := r.permit(); err != nil {
			return c, fmt.Errorf("generate: Params.Mask: %w", err)
		}
		c.Mask = r.permitted
	}
	if len(r.generated) < r.p.MinTokens {
		c.Mask = r.withoutEnds(c.Mask)
	}
	if r.p.Logits != nil {
		r.p.Logits(r.generated, r.logits)
		c.Logits = r.logits
	}
	return c, nil
}

// permit sets permitted for the next token, once per token.
func (r *request) permit() (err error) {
	if r.mask == nil {
		r.mask = r.p.Mask()
	} else if r.masked == len(r.generated) {
		return nil
	}
	if r.permitted, err = r.mask(r.generated); err != nil {
		return err
	}
	r.masked = len(r.generated)
	if n := maskLen(r.vocab); len(r.permitted) != n {
		return fmt.Errorf("%w: %d elements, want %d for a vocabulary of %d", ErrBadParams, len(r.permitted), n, r.vocab)
	}
	return nil
}

// withoutEnds removes the end tokens from a mask, unless it permits nothing else.
func (r *request) withoutEnds(mask []uint32) []uint32 {
	if r.bits == nil {
		r.bits = make([]uint32, len(r.ends))
	}
	any := uint32(0)
	for i, end := range r.ends {
		r.bits[i] = ^end
		if mask != nil {
			r.bits[i] &= mask[i]
		}
		any |= r.bits[i]
	}
	if any == 0 {
		return mask
	}
	return r.bits
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
	if r.first.IsZero() {
		r.first = now
		r.stats.Prefill, r.stats.FirstToken = now.Sub(r.admitted), now.Sub(r.begin)
	} else {
		r.stats.Steps++
		r.stats.Decode = now.Sub(r.first)
	}
	if r.stopsAt(c.Token) {
		r.stats.Finish = FinishStopToken
		return false, nil
	}
	r.generated = append(r.generated, c.Token)
	r.stats.GeneratedTokens++
	t := Token{ID: c.Token, LogProb: c.LogProb, Top: slices.Clone(c.Top)}
	text, stopped := r.text.next(c.Token, len(r.generated) >= r.p.MinTokens)
	last := len(r.generated) == r.maxTokens
	switch {
	case stopped:
		r.stats.Finish = FinishStopString
		if text == "" { // the token holds nothing but the stop string
			return false, nil
		}
	case last:
		r.stats.Finish = FinishLength
		text += r.text.flush()
	}
	t.Text = text
	r.send(t)
	return !stopped && !last, nil
}

// stopsAt reports whether a token ends the text.
func (r *request) stopsAt(id int) bool {
	return slices.Contains(r.p.StopTokens, id) || r.tokenizer != nil && !r.p.IgnoreEOS && r.tokenizer.Stops(id)
}

// send gives a token to the reader. The caller holds the mutex.
func (r *request) send(t Token) {
	r.out = append(r.out, t)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// finish publishes the end of a request to its reader. Passes in flight may still hold its
// sequence; deliver closes it then.
func (r *request) finish(err error) {
	r.detach()
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; err != nil {
		r.stats.Finish = FinishError
	}
	if len(r.generated) > 0 {
		if rest := r.text.flush(); rest != "" {
			r.out = append(r.out, Token{ID: NoToken, Text: rest})
		}
	}
	close(r.done)
}

// panicError is a panic of a callback. It panics again where the request is read.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guard calls f and returns its panic as an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v}
		}
	}()
	return f()
}

// read yields the tokens as they are chosen, and returns the error that ended the request.
// If yield returns false or panics, or the context ends, the request ends. read returns when
// the scheduler has let go of it.
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

// take returns the tokens that were not read, and whether the request has ended. It waits
// for either.
func (r *request) take() (tokens []Token, ended bool) {
	select {
	case <-r.more:
	case <-r.done:
		ended = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	tokens, r.out = r.out, nil
	if r.p.Stats != nil {
		*r.p.Stats = r.stats
	}
	return tokens, ended
}

// leave ends the request if it still runs, and waits for that. Only the first call counts.
func (r *request) leave(why FinishReason) {
	if r.left {
		return
	}
	r.left = true
	r.cancel()
	<-r.done
	if why != FinishNone {
		r.stats.Finish = why
	}
	if r.p.Stats != nil {
		*r.p.Stats = r.stats
	}
}
