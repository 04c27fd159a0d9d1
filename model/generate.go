package model

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// run is one generation: the one loop of this module.
type run struct {
	g        *Generator
	p        Params
	tok      *tokenizer.Tokenizer // nil: no text
	yield    func(Token) bool
	start    time.Time
	stats    *Stats
	sampler  *sampler
	text     stopper
	prompt   []int
	history  []int // prompt and generated tokens
	capacity int
	max      int  // tokens to generate
	broken   bool // the consumer has left: it must not be called again
}

func newRun(g *Generator, prompt []int, p Params, yield func(Token) bool) *run {
	m := g.eng.Model()
	r := &run{
		g: g, p: p, tok: m.Tokenizer, yield: yield,
		start:   time.Now(),
		stats:   p.Stats,
		sampler: newSampler(p, m.Config.Vocab),
		prompt:  slices.Clone(prompt),
		history: slices.Clone(prompt),
	}
	if r.stats == nil {
		r.stats = new(Stats)
	}
	*r.stats = Stats{PromptTokens: len(prompt)}
	return r
}

// check refuses, before anything is computed, what cannot work.
func (r *run) check() error {
	m := r.g.eng.Model()
	c := m.Config
	if err := r.p.Check(c.Vocab); err != nil {
		return err
	}
	if len(r.p.Stop) > 0 {
		if _, err := m.NeedTokenizer(); err != nil {
			return err
		}
	}
	if err := CheckTokens(r.prompt, c.Vocab); err != nil {
		return err
	}
	limit := c.Context
	if r.g.opts.Capacity > 0 {
		limit = r.g.opts.Capacity
	}
	n := len(r.prompt)
	r.max = r.p.MaxTokens
	if r.max < 0 {
		r.max = max(limit-n, 0)
	}
	if r.max > limit-n {
		need := n + min(r.max, math.MaxInt-n)
		return &ContextError{Need: need, Limit: limit}
	}
	r.capacity = n + r.max
	if r.g.opts.Capacity > 0 {
		r.capacity = limit
	}
	return nil
}

// generate runs the whole generation. What is held back when it ends comes out
// before an error does.
func (r *run) generate(ctx context.Context) error {
	err := r.check()
	if err == nil && r.max > 0 {
		r.text.stops = r.p.Stop
		if r.tok != nil {
			r.text.decoder = r.tok.NewDecoder(r.prompt...)
		}
		err = r.loop(ctx)
	}
	if err != nil {
		r.stats.Finish = FinishError
	}
	if r.stats.GeneratedTokens == 0 || r.broken {
		return err
	}
	if rest := r.text.flush(); rest != "" {
		r.broken = !r.yield(Token{ID: NoToken, Text: rest})
	}
	return err
}

// loop chooses a token from the prompt's output, and each further one from the
// output of the one before. The last one is never computed with.
func (r *run) loop(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := r.g.eng.NewSession(r.capacity)
	if err != nil {
		return err
	}
	defer func() {
		if e := s.Close(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	out, err := r.prefill(ctx, s)
	if err != nil {
		return err
	}
	id, err := r.sampler.next(out, r.history)
	for err == nil && r.emit(id) {
		id, err = r.step(ctx, s, id)
	}
	return err
}

// step computes with the last token and chooses the next one.
func (r *run) step(ctx context.Context, s Session, last int) (int, error) {
	begin := time.Now()
	defer func() { r.stats.Decode += time.Since(begin) }()
	r.stats.Steps++
	out, err := r.forward(ctx, s, []int{last})
	if err != nil {
		return 0, err
	}
	return r.sampler.next(out, r.history)
}

// forward ends a canceled generation even if the engine does not look at ctx.
func (r *run) forward(ctx context.Context, s Session, tokens []int) (Output, error) {
	if err := ctx.Err(); err != nil {
		return Output{}, err
	}
	out, err := s.Forward(ctx, tokens, r.p.want())
	if err == nil {
		err = ctx.Err()
	}
	return out, err
}

// emit hands out a token and reports whether to go on.
func (r *run) emit(id int) bool {
	if r.p.stopsAt(id, r.tok) {
		r.stats.Finish = FinishStopToken
		return false
	}
	r.history = append(r.history, id)
	r.stats.GeneratedTokens++
	if r.stats.GeneratedTokens == 1 {
		r.stats.FirstToken = time.Since(r.start)
	}
	text, stopped := r.text.next(id)
	last := r.stats.GeneratedTokens == r.max
	switch {
	case stopped:
		r.stats.Finish = FinishStopString
		if text == "" { // nothing precedes the stop string: the token is not shown
			return false
		}
	case last:
		r.stats.Finish = FinishLength
		text += r.text.flush()
	}
	if !r.yield(Token{ID: id, Text: text}) {
		r.broken = true
		r.stats.Finish = FinishBreak
		return false
	}
	return !stopped && !last
}
