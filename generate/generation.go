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
	generator *Generator
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

func newGeneration(generator *Generator, prompt []int, p Params, yield func(Token) bool) *generation {
	m := generator.engine.Model()
	g := &generation{
		generator: generator, p: p, tokenizer: m.Tokenizer, yield: yield,
		start:   time.Now(),
		stats:   p.Stats,
		sampler: newSampler(p, m.Config.Vocab),
		prompt:  slices.Clone(prompt),
		history: slices.Clone(prompt),
	}
	if g.stats == nil {
		g.stats = new(Stats)
	}
	*g.stats = Stats{PromptTokens: len(prompt)}
	return g
}

// check refuses bad requests before anything is computed, and sets capacity and
// maxTokens.
func (g *generation) check() error {
	m := g.generator.engine.Model()
	if err := g.p.check(m.Config.Vocab); err != nil {
		return err
	}
	if len(g.p.Stop) > 0 {
		if _, err := m.NeedTokenizer(); err != nil {
			return err
		}
	}
	if err := model.CheckTokens(g.prompt, m.Config.Vocab); err != nil {
		return err
	}
	n, limit := len(g.prompt), g.generator.limit()
	g.maxTokens = g.p.MaxTokens
	if g.maxTokens < 0 {
		g.maxTokens = max(limit-n, 0)
	}
	if g.maxTokens > limit-n {
		need := n + min(g.maxTokens, math.MaxInt-n)
		return model.CheckCapacity(need, limit)
	}
	g.capacity = n + g.maxTokens
	if g.generator.options.Capacity > 0 {
		g.capacity = limit
	}
	return nil
}

// run executes the request. It yields held-back text before it returns, also if it fails.
func (g *generation) run(ctx context.Context) error {
	err := g.check()
	if err != nil {
		err = fmt.Errorf("generate: %w", err)
	} else if g.maxTokens > 0 {
		g.text.stops = g.p.Stop
		if g.tokenizer != nil {
			g.text.decoder = g.tokenizer.NewDecoder(g.prompt...)
		}
		err = g.loop(ctx)
	}
	if err != nil {
		g.stats.Finish = FinishError
	}
	if g.stats.GeneratedTokens == 0 || g.broken {
		return err
	}
	if rest := g.text.flush(); rest != "" {
		g.broken = !g.yield(Token{ID: NoToken, Text: rest})
	}
	return err
}

// loop samples the first token from the output of the prefill, and each further token from
// a step over the token before it. No step follows the last token.
func (g *generation) loop(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := g.generator.engine.NewSession(g.capacity)
	if err != nil {
		return err
	}
	defer func() {
		if e := s.Close(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	out, err := g.prefill(ctx, s)
	if err != nil {
		return err
	}
	id, err := g.sampler.next(out, g.history)
	for err == nil && g.emit(id) {
		id, err = g.step(ctx, s, id)
	}
	return err
}

// prefill restores the cached prefix of the prompt, computes the rest and returns the
// output of the last position.
func (g *generation) prefill(ctx context.Context, s model.Session) (model.Output, error) {
	cache := g.generator.prefix
	long := g.generator.engine.Model().Config.LongRope(s.Cap())
	hit := cache.lookup(g.prompt, long, g.p.want())
	if hit.entry != nil {
		if err := cache.restore(s, hit); err != nil {
			return model.Output{}, fmt.Errorf("generate: prefix cache: %w", err)
		}
	}
	g.stats.ReusedTokens = hit.positions
	prepared := time.Now()
	g.stats.Prepare = prepared.Sub(g.start)
	if hit.out != nil {
		return *hit.out, nil
	}
	out, err := g.forward(ctx, s, g.prompt[hit.positions:])
	computed := time.Now()
	g.stats.Prefill = computed.Sub(prepared)
	if err != nil || cache == nil {
		return out, err
	}
	snapshot, err := s.Snapshot(len(g.prompt))
	if err != nil {
		return model.Output{}, fmt.Errorf("generate: prefix cache: %w", err)
	}
	out.Logits = slices.Clone(out.Logits) // the session overwrites its logits in its next call
	if err := cache.store(newPrefixEntry(g.prompt, long, snapshot, out)); err != nil {
		return model.Output{}, fmt.Errorf("generate: prefix cache: %w", err)
	}
	g.stats.Store = time.Since(computed)
	return out, nil
}

// step runs a forward pass over the last token and samples the next one.
func (g *generation) step(ctx context.Context, s model.Session, last int) (int, error) {
	begin := time.Now()
	defer func() { g.stats.Decode += time.Since(begin) }()
	g.stats.Steps++
	out, err := g.forward(ctx, s, []int{last})
	if err != nil {
		return 0, err
	}
	return g.sampler.next(out, g.history)
}

// forward computes tokens. It checks ctx itself, in case the engine does not.
func (g *generation) forward(ctx context.Context, s model.Session, tokens []int) (model.Output, error) {
	if err := ctx.Err(); err != nil {
		return model.Output{}, err
	}
	out, err := s.Forward(ctx, tokens, g.p.want())
	if err == nil {
		err = ctx.Err()
	}
	return out, err
}

// emit yields a token and reports whether to continue.
func (g *generation) emit(id int) bool {
	if g.p.stopsAt(id, g.tokenizer) {
		g.stats.Finish = FinishStopToken
		return false
	}
	g.history = append(g.history, id)
	g.stats.GeneratedTokens++
	if g.stats.GeneratedTokens == 1 {
		g.stats.FirstToken = time.Since(g.start)
	}
	text, stopped := g.text.next(id)
	last := g.stats.GeneratedTokens == g.maxTokens
	switch {
	case stopped:
		g.stats.Finish = FinishStopString
		if text == "" { // the token holds nothing but the stop string
			return false
		}
	case last:
		g.stats.Finish = FinishLength
		text += g.text.flush()
	}
	if !g.yield(Token{ID: id, Text: text}) {
		g.broken = true
		g.stats.Finish = FinishBreak
		return false
	}
	return !stopped && !last
}
