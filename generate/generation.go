package generate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// generation is the state of one request: check, prefill, then one step per token.
type generation struct {
	g         *Generator
	p         Params
	tokenizer *tokenizer.Tokenizer // nil: tokens without text
	yield     func(Token) bool
	start     time.Time
	stats     *Stats
	sampler   *sampler
	text      stopper
	prompt    []int
	history   []int // prompt and generated tokens
	capacity  int   // positions of the session
	maxTokens int
	broken    bool // yield returned false and must not be called again
}

func newGeneration(g *Generator, prompt []int, p Params, yield func(Token) bool) *generation {
	m := g.engine.Model()
	r := &generation{
		g: g, p: p, tokenizer: m.Tokenizer, yield: yield,
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

// check refuses bad requests before anything is computed, and sets capacity and
// maxTokens.
func (r *generation) check() error {
	m := r.g.engine.Model()
	if err := r.p.check(m.Config.Vocab); err != nil {
		return err
	}
	if len(r.p.Stop) > 0 {
		if _, err := m.NeedTokenizer(); err != nil {
			return err
		}
	}
	if err := model.CheckTokens(r.prompt, m.Config.Vocab); err != nil {
		return err
	}
	limit := m.Config.Context
	if r.g.options.Capacity > 0 {
		limit = r.g.options.Capacity
	}
	n := len(r.prompt)
	r.maxTokens = r.p.MaxTokens
	if r.maxTokens < 0 {
		r.maxTokens = max(limit-n, 0)
	}
	if r.maxTokens > limit-n {
		need := n + min(r.maxTokens, math.MaxInt-n)
		return model.CheckCapacity(need, limit)
	}
	r.capacity = n + r.maxTokens
	if r.g.options.Capacity > 0 {
		r.capacity = limit
	}
	return nil
}

// run generates everything. Held-back text comes out before an error does.
func (r *generation) run(ctx context.Context) error {
	err := r.check()
	if err != nil {
		err = fmt.Errorf("generate: %w", err)
	} else if r.maxTokens > 0 {
		r.text.stops = r.p.Stop
		if r.tokenizer != nil {
			r.text.decoder = r.tokenizer.NewDecoder(r.prompt...)
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

// loop samples the first token from the prompt's output and each further token from
// the step of the one before. The last token needs no step.
func (r *generation) loop(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := r.g.engine.NewSession(r.capacity)
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

// prefill restores what the prefix cache has of the prompt, computes the rest and
// returns the output of the last position.
func (r *generation) prefill(ctx context.Context, s model.Session) (model.Output, error) {
	cache := r.g.prefix
	long := r.g.engine.Model().Config.LongRope(s.Cap())
	hit := cache.lookup(r.prompt, long, r.p.want())
	if hit.entry != nil {
		err := s.Restore(hit.entry.snapshot, hit.positions)
		if err = errors.Join(err, cache.release(hit.entry)); err != nil {
			return model.Output{}, fmt.Errorf("generate: prefix cache: %w", err)
		}
	}
	r.stats.ReusedTokens = hit.positions
	prepared := time.Now()
	r.stats.Prepare = prepared.Sub(r.start)
	if hit.out != nil {
		return *hit.out, nil
	}
	out, err := r.forward(ctx, s, r.prompt[hit.positions:])
	computed := time.Now()
	r.stats.Prefill = computed.Sub(prepared)
	if err != nil || cache == nil {
		return out, err
	}
	snapshot, err := s.Snapshot(len(r.prompt))
	if err != nil {
		return model.Output{}, fmt.Errorf("generate: prefix cache: %w", err)
	}
	out.Logits = slices.Clone(out.Logits) // the engine's are valid until its next call only
	if err := cache.store(newPrefixEntry(r.prompt, long, snapshot, out)); err != nil {
		return model.Output{}, fmt.Errorf("generate: prefix cache: %w", err)
	}
	r.stats.Store = time.Since(computed)
	return out, nil
}

// step computes one token and samples the next.
func (r *generation) step(ctx context.Context, s model.Session, last int) (int, error) {
	begin := time.Now()
	defer func() { r.stats.Decode += time.Since(begin) }()
	r.stats.Steps++
	out, err := r.forward(ctx, s, []int{last})
	if err != nil {
		return 0, err
	}
	return r.sampler.next(out, r.history)
}

// forward checks ctx itself, in case the engine does not.
func (r *generation) forward(ctx context.Context, s model.Session, tokens []int) (model.Output, error) {
	if err := ctx.Err(); err != nil {
		return model.Output{}, err
	}
	out, err := s.Forward(ctx, tokens, r.p.want())
	if err == nil {
		err = ctx.Err()
	}
	return out, err
}

// emit yields a token and reports whether to continue.
func (r *generation) emit(id int) bool {
	if r.p.stopsAt(id, r.tokenizer) {
		r.stats.Finish = FinishStopToken
		return false
	}
	r.history = append(r.history, id)
	r.stats.GeneratedTokens++
	if r.stats.GeneratedTokens == 1 {
		r.stats.FirstToken = time.Since(r.start)
	}
	text, stopped := r.text.next(id)
	last := r.stats.GeneratedTokens == r.maxTokens
	switch {
	case stopped:
		r.stats.Finish = FinishStopString
		if text == "" { // the token holds nothing but the stop string
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
