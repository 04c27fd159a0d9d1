// Package generate continues texts with a language model: a scheduler that shares an engine
// among requests, stop rules, a prefix cache, batches and embeddings, over any model.Engine.
package generate

import (
	"context"
	"iter"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// NoToken is the ID of an element without a token: it has text that was held back until the end, or
// stands beside an error.
const NoToken = sampling.NoToken

// Token is a generated token.
type Token struct {
	ID int
	// Text is the text that this token completes: whole UTF-8 characters without any
	// part of a stop string. It is empty while a character is incomplete, while the
	// text may still become a stop string, and if the model has no vocabulary.
	Text string

	LogProb float32            // of the token, if sampling.Params.LogProb asks for it
	Top     []sampling.LogProb // the most likely tokens, if sampling.Params.TopLogProbs asks for them
}

// Text runs one generation on an engine, without a prefix cache. No other goroutine may use the
// engine meanwhile. See Generator.Text.
func Text(ctx context.Context, engine model.Engine, prompt string, p Params) iter.Seq2[Token, error] {
	return alone(engine, func(g *Generator) iter.Seq2[Token, error] { return g.Text(ctx, prompt, p) })
}

// Tokens is Text for a prompt of token ids.
func Tokens(ctx context.Context, engine model.Engine, prompt []int, p Params) iter.Seq2[Token, error] {
	return alone(engine, func(g *Generator) iter.Seq2[Token, error] { return g.Tokens(ctx, prompt, p) })
}

// alone runs one request in a generator of its own.
func alone(engine model.Engine, request func(*Generator) iter.Seq2[Token, error]) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		g := newGenerator(engine, Options{PrefixTokens: -1})
		defer g.Close()
		request(g)(yield)
	}
}
