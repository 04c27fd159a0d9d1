package generate

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// Options configures a Generator. The zero value suits most uses.
type Options struct {
	// Capacity is the largest number of positions of a request, prompt and generated tokens
	// together. 0: the smaller of the model's context and the KV cache. If a model has
	// RoPE factors for long contexts (see model.Config.LongContext), all requests use those of
	// this length; with 0, each uses those of its own length.
	Capacity int
	// PromptTokens is the largest number of prompt tokens per step. A smaller number
	// shortens the pauses between the tokens of other requests. 0: the engine's limit.
	PromptTokens int
	// MaxWaiting is the number of requests that may wait for a slot or for pages, the preempted
	// ones included. A request that arrives when as many wait ends at once with ErrBusy, unless
	// it is part of a batch. 0: no limit.
	MaxWaiting int
	// PrefixTokens is the number of positions of earlier prompts and answers that the prefix cache keeps.
	// A prompt with the same beginning reuses them. 0: all of the KV cache that requests do
	// not need, or 8192 if the cache has no pages. Negative: none.
	PrefixTokens int
}

// Generator runs any number of requests on one engine at once. It is safe for concurrent
// use. Nothing else may use the engine. Close the generator before the engine.
type Generator struct {
	scheduler *scheduler
	model     *model.Model
	options   Options
	limit     int             // positions of a request
	endTokens func() []uint32 // bits of the vocabulary's end-of-generation tokens
}

// New returns a generator. The engine remains the caller's. Errors: ErrBadParams for an
// option, model.ErrContextLimit for a capacity beyond the model's context or the KV cache.
func New(engine model.Engine, o Options) (*Generator, error) {
	for _, f := range []struct {
		name  string
		value int
	}{{"Capacity", o.Capacity}, {"PromptTokens", o.PromptTokens}, {"MaxWaiting", o.MaxWaiting}} {
		if f.value < 0 {
			return nil, fmt.Errorf("generate: %w: Options.%s: %d, want at least 0", ErrBadParams, f.name, f.value)
		}
	}
	if err := model.CheckCapacity(o.Capacity, positions(engine)); err != nil {
		return nil, fmt.Errorf("generate: Options.Capacity: %w", err)
	}
	return newGenerator(engine, o), nil
}

// positions returns the largest number of positions that a sequence of an engine can have.
func positions(engine model.Engine) int {
	limit := engine.Model().Config.Context
	if l := engine.Limits(); l.Pages > 0 {
		limit = min(limit, l.Pages*l.PageTokens)
	}
	return limit
}

func newGenerator(engine model.Engine, o Options) *Generator {
	m := engine.Model()
	g := &Generator{scheduler: newScheduler(engine, o), model: m, options: o, limit: o.Capacity}
	if g.limit == 0 {
		g.limit = positions(engine)
	}
	g.endTokens = sync.OnceValue(func() []uint32 {
		mask := make([]uint32, sampling.MaskLen(m.Config.Vocab))
		for id := range m.Config.Vocab {
			if m.Tokenizer != nil && m.Tokenizer.Stops(id) {
				mask[id/32] |= 1 << (id % 32)
			}
		}
		return mask
	})
	return g
}

// Model returns the model that the engine computes.
func (g *Generator) Model() *model.Model { return g.model }

// Capacity returns the largest number of positions of a request, prompt and generated tokens
// together.
func (g *Generator) Capacity() int { return g.limit }

// Close ends all requests with model.ErrClosed, also later ones. It waits until the engine is idle
// and drops the prefix cache. Callbacks must not call it. Closing again does nothing.
func (g *Generator) Close() error { return g.scheduler.close() }

// Load returns the state of the generator and its counters. They include each request that has
// ended.
func (g *Generator) Load() Load { return g.scheduler.current() }

// Text continues a text. If the vocabulary asks for a BOS token, Text puts it before the
// prompt, and the text may be empty. Otherwise an empty text is model.ErrEmptyPrompt.
//
// Breaking out of the range ends the generation. When the range has ended, no callback of the
// request runs any more. Its pages of the KV cache are free within a step, except those that the
// prefix cache keeps. A slow reader does not delay the generation: tokens wait for it.
//
// An error is the last element; the Token beside it has no meaning. Before any computation
// the error may be model.ErrNoTokenizer, model.ErrEmptyPrompt, ErrBadParams,
// model.ErrBadToken, model.ErrContextLimit, ErrBusy or model.ErrClosed; later it may be
// ErrNoChoice, model.ErrClosed, ctx.Err() or an error of the engine. Ranging over the
// sequence again generates again.
func (g *Generator) Text(ctx context.Context, prompt string, p Params) iter.Seq2[Token, error] {
	tokens, err := g.model.Prompt(prompt, p.ParseSpecial, g.limit)
	if err != nil {
		return func(yield func(Token, error) bool) {
			yield(Token{ID: NoToken}, fmt.Errorf("generate: %w", err))
		}
	}
	return g.Tokens(ctx, tokens, p)
}

// Tokens continues token ids as Text continues a text. It adds no BOS token.
func (g *Generator) Tokens(ctx context.Context, prompt []int, p Params) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		r, err := g.start(ctx, prompt, p, false)
		if err != nil {
			yield(Token{ID: NoToken}, fmt.Errorf("generate: %w", err))
			return
		}
		if err := r.read(func(t Token) bool { return yield(t, nil) }); err != nil {
			yield(Token{ID: NoToken}, err)
		}
	}
}

// start checks a generation and submits it.
func (g *Generator) start(ctx context.Context, prompt []int, p Params, batch bool) (*request, error) {
	arrived := time.Now()
	if p.Stats != nil {
		*p.Stats = Stats{PromptTokens: len(prompt), Finish: FinishError}
	}
	r, err := g.newRequest(prompt, p)
	if err != nil {
		return nil, err
	}
	r.arrived, r.batch = arrived, batch
	return r, g.scheduler.submit(ctx, r)
}

// Result is the whole output of one prompt of a batch. If Err is set, Tokens and Text
// hold what was generated before it.
type Result struct {
	Tokens []int
	Text   string
	Stats  Stats
	Err    error
}

// BatchText continues texts of any lengths and returns their results in the same order.
// Each result equals that of Text with the same parameters and seed. All prompts may wait,
// whatever Options.MaxWaiting. An error belongs to one prompt. p.Stats is ignored. If a callback
// panics, so does BatchText, after the other prompts.
func (g *Generator) BatchText(ctx context.Context, prompts []string, p Params) []Result {
	return g.batch(ctx, len(prompts), p, func(i int) ([]int, error) {
		return g.model.Prompt(prompts[i], p.ParseSpecial, g.limit)
	})
}

// BatchTokens is BatchText for prompts of token ids.
func (g *Generator) BatchTokens(ctx context.Context, prompts [][]int, p Params) []Result {
	return g.batch(ctx, len(prompts), p, func(i int) ([]int, error) { return prompts[i], nil })
}

func (g *Generator) batch(ctx context.Context, n int, p Params, prompt func(i int) ([]int, error)) []Result {
	results := make([]Result, n)
	requests := make([]*request, n)
	for i := range n {
		p.Stats = &results[i].Stats
		tokens, err := prompt(i)
		if err == nil {
			requests[i], err = g.start(ctx, tokens, p, true)
		}
		if err != nil {
			requests[i], results[i].Err = nil, fmt.Errorf("generate: %w", err)
		}
	}
	var panicked any
	for i, r := range requests {
		if r != nil {
			panicked = cmp.Or(panicked, readAll(r, &results[i]))
		}
	}
	if panicked != nil {
		panic(panicked)
	}
	return results
}

// readAll reads a request to its end. It returns the value of a panic of a callback.
func readAll(r *request, result *Result) (panicked any) {
	var text strings.Builder
	defer func() { panicked, result.Text = recover(), text.String() }()
	result.Err = r.read(func(t Token) bool {
		if t.ID != NoToken {
			result.Tokens = append(result.Tokens, t.ID)
		}
		text.WriteString(t.Text)
		return true
	})
	return nil
}
