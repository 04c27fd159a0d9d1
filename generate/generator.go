package generate

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/model"
)

// Options configures a Generator. The zero value has no prefix cache and sizes each
// session for its request.
type Options struct {
	// PrefixBytes is the memory, on the host and on the device, for the KV caches of
	// earlier prompts. A prompt that begins like one of them restores the shared
	// prefix instead of computing it. 0: no prefix cache.
	PrefixBytes int64
	// Parallel is the number of prompts of a batch that run at once. 0: GOMAXPROCS.
	Parallel int
	// Capacity is the number of positions of each session. 0: the prompt and
	// MaxTokens. If a model has RoPE factors for long contexts (see
	// model.Config.LongContext), the capacity selects them.
	Capacity int
}

// Generator generates with one engine. Its generations share a prefix cache and the
// limits in Options. It is safe for concurrent use. Close it before its engine.
type Generator struct {
	engine  model.Engine
	options Options
	prefix  *prefixCache // nil: none
}

// New returns a generator. The engine remains the caller's. Errors: ErrBadParams for a
// negative option, model.ErrContextLimit for a capacity beyond the model's context.
func New(engine model.Engine, o Options) (*Generator, error) {
	switch limit := engine.Model().Config.Context; {
	case o.Capacity < 0 || o.Parallel < 0 || o.PrefixBytes < 0:
		return nil, fmt.Errorf("generate: %w: negative value in Options: %+v", ErrBadParams, o)
	case o.Capacity > limit:
		return nil, fmt.Errorf("generate: Options.Capacity: %w", model.CheckCapacity(o.Capacity, limit))
	}
	return newGenerator(engine, o), nil
}

func newGenerator(engine model.Engine, o Options) *Generator {
	if o.Parallel == 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	g := &Generator{engine: engine, options: o}
	if o.PrefixBytes > 0 {
		g.prefix = newPrefixCache(o.PrefixBytes)
	}
	return g
}

// Close releases the prefix cache. Generations can still run, without the cache. Closing
// again does nothing.
func (g *Generator) Close() error {
	if g.prefix == nil {
		return nil
	}
	return g.prefix.close()
}

// PrefixStats returns the counters of the prefix cache; all 0 without one.
func (g *Generator) PrefixStats() PrefixStats {
	if g.prefix == nil {
		return PrefixStats{}
	}
	return g.prefix.counters()
}

// Text continues a text. If the vocabulary asks for a BOS token, Text puts it before the
// prompt, and the text may be empty. Otherwise an empty text is model.ErrEmptyPrompt.
//
// Breaking out of the loop ends the generation. An error is the last element;
// the Token beside it has no meaning. Before any computation the error may be
// model.ErrNoTokenizer, model.ErrEmptyPrompt, ErrBadParams, model.ErrBadToken or
// model.ErrContextLimit; later it may be ErrNoChoice, ctx.Err() or an error of the engine.
// Ranging over the sequence again generates again.
func (g *Generator) Text(ctx context.Context, prompt string, p Params) iter.Seq2[Token, error] {
	tokens, err := g.engine.Model().Prompt(prompt, p.ParseSpecial, g.limit())
	if err != nil {
		return func(yield func(Token, error) bool) {
			yield(Token{ID: NoToken}, fmt.Errorf("generate: %w", err))
		}
	}
	return g.Tokens(ctx, tokens, p)
}

// limit is the number of positions of a request: of its prompt and its new tokens.
func (g *Generator) limit() int {
	if g.options.Capacity > 0 {
		return g.options.Capacity
	}
	return g.engine.Model().Config.Context
}

// Tokens continues token ids as Text continues a text. It adds no BOS token.
func (g *Generator) Tokens(ctx context.Context, prompt []int, p Params) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		r := newGeneration(g, prompt, p, func(t Token) bool { return yield(t, nil) })
		if err := r.run(ctx); err != nil && !r.broken {
			yield(Token{ID: NoToken}, err)
		}
	}
}

// Result is the whole output of one prompt of a batch. If Err is set, Tokens and Text
// hold what was generated before it.
type Result struct {
	Tokens []int
	Text   string
	Stats  Stats
	Err    error
}

// BatchText continues texts of any lengths, Options.Parallel at once, and returns their
// results in the same order. Each result equals that of Text with the same parameters
// and seed. An error belongs to one prompt. p.Stats is ignored. If a callback of the engine
// panics, so does BatchText, after the other prompts.
func (g *Generator) BatchText(ctx context.Context, prompts []string, p Params) []Result {
	return g.batch(len(prompts), p, func(i int, p Params) iter.Seq2[Token, error] { return g.Text(ctx, prompts[i], p) })
}

// BatchTokens is BatchText for prompts of token ids.
func (g *Generator) BatchTokens(ctx context.Context, prompts [][]int, p Params) []Result {
	return g.batch(len(prompts), p, func(i int, p Params) iter.Seq2[Token, error] { return g.Tokens(ctx, prompts[i], p) })
}

func (g *Generator) batch(n int, p Params, start func(i int, p Params) iter.Seq2[Token, error]) []Result {
	results := make([]Result, n)
	next := make(chan int)
	panics := make(chan any, n)
	run := func(i int) {
		defer func() {
			if v := recover(); v != nil {
				panics <- v
			}
		}()
		own := p
		own.Stats = &results[i].Stats
		results[i].collect(start(i, own))
	}
	var wg sync.WaitGroup
	for range min(n, g.options.Parallel) {
		wg.Go(func() {
			for i := range next {
				run(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
	return results
}

func (r *Result) collect(tokens iter.Seq2[Token, error]) {
	var text strings.Builder
	for t, err := range tokens {
		if err != nil {
			r.Err = err
			continue
		}
		if t.ID != NoToken {
			r.Tokens = append(r.Tokens, t.ID)
		}
		text.WriteString(t.Text)
	}
	r.Text = text.String()
}
