package model

import (
	"context"
	"fmt"
	"iter"
	"runtime"
)

// NoToken is the ID of a Token that carries only text: what was held back when
// the generation ended.
const NoToken = -1

// Token is a generated token.
type Token struct {
	ID int
	// Text is the text that this token completes: whole UTF-8 characters, and
	// nothing that belongs or may belong to a stop string. It is "" while a
	// character is incomplete or text is held back, and without a vocabulary.
	Text string
}

// Options configures a Generator. The zero value keeps no prefixes and sizes each
// session for its request.
type Options struct {
	// PrefixBytes bounds the host memory in which the caches of earlier prompts are
	// kept, so that a prompt that begins like one of them is not computed again;
	// 0: none are kept.
	PrefixBytes int64
	// Parallel is how many prompts of a batch run at once; 0: as many as there are
	// processors.
	Parallel int
	// Capacity is the positions that each session holds; 0: as many as the prompt
	// and MaxTokens need. Where a model has rotation factors for long contexts
	// (Config.LongContext), the capacity decides between them.
	Capacity int
}

// Generator generates with one engine. It holds what generations share: the
// prefix cache and the limits. It is safe for concurrent use. Close a generator
// that has a prefix cache before its engine.
type Generator struct {
	eng    Engine
	opts   Options
	prefix *prefixCache // nil: none
}

// NewGenerator returns a generator. It does not own the engine. A capacity beyond
// the model's context is a *ContextError.
func NewGenerator(eng Engine, opts Options) (*Generator, error) {
	switch context := eng.Model().Config.Context; {
	case opts.Capacity < 0 || opts.Parallel < 0 || opts.PrefixBytes < 0:
		return nil, fmt.Errorf("%w: negative value in %+v", ErrBadParams, opts)
	case opts.Capacity > context:
		return nil, &ContextError{Need: opts.Capacity, Limit: context}
	}
	if opts.Parallel == 0 {
		opts.Parallel = runtime.GOMAXPROCS(0)
	}
	g := &Generator{eng: eng, opts: opts}
	if opts.PrefixBytes > 0 {
		g.prefix = newPrefixCache(opts.PrefixBytes)
	}
	return g, nil
}

// Close releases the prefix cache. Generations that run go on, and those that begin
// later work without the cache. Closing twice does nothing.
func (g *Generator) Close() error {
	if g.prefix == nil {
		return nil
	}
	return g.prefix.close()
}

// Generate continues a text. The prompt gets the BOS token that its vocabulary
// asks for, so that an empty text is a prompt where there is one, and
// ErrEmptyPrompt where there is none.
//
// Breaking out of the loop ends the generation, and what came before stands. An
// error comes once, last, with a Token to be ignored: ErrNoTokenizer,
// ErrEmptyPrompt, ErrBadParams, *TokenError, *ContextError (all before anything is
// computed), ErrNoChoice, ctx.Err() or an error of the engine. Ranging over the
// sequence again generates again.
func (g *Generator) Generate(ctx context.Context, prompt string, p Params) iter.Seq2[Token, error] {
	ids, err := g.encode(prompt, p)
	if err != nil {
		return func(yield func(Token, error) bool) { yield(Token{ID: NoToken}, err) }
	}
	return g.GenerateTokens(ctx, ids, p)
}

// GenerateTokens is Generate for a prompt of token ids, taken as they are.
func (g *Generator) GenerateTokens(ctx context.Context, prompt []int, p Params) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		r := newRun(g, prompt, p, func(t Token) bool { return yield(t, nil) })
		if err := r.generate(ctx); err != nil && !r.broken {
			yield(Token{ID: NoToken}, err)
		}
	}
}

// encode makes a prompt of a text.
func (g *Generator) encode(text string, p Params) ([]int, error) {
	tok, err := g.eng.Model().NeedTokenizer()
	if err != nil {
		return nil, err
	}
	return tok.Prompt(text, p.ParseSpecial), nil
}

// Generate continues a text with a generator of its own: see Generator.Generate.
func Generate(ctx context.Context, eng Engine, prompt string, p Params) iter.Seq2[Token, error] {
	return alone(eng).Generate(ctx, prompt, p)
}

// GenerateTokens continues token ids with a generator of its own: see
// Generator.GenerateTokens.
func GenerateTokens(ctx context.Context, eng Engine, prompt []int, p Params) iter.Seq2[Token, error] {
	return alone(eng).GenerateTokens(ctx, prompt, p)
}

// GenerateBatch continues texts with a generator of its own: see
// Generator.GenerateBatch.
func GenerateBatch(ctx context.Context, eng Engine, prompts []string, p Params) []Result {
	return alone(eng).GenerateBatch(ctx, prompts, p)
}

func alone(eng Engine) *Generator {
	return &Generator{eng: eng, opts: Options{Parallel: runtime.GOMAXPROCS(0)}}
}
