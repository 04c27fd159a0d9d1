// Package generate continues texts with a language model: sampling parameters, stop
// rules, a prefix cache and batches, over any model.Engine.
package generate

import (
	"context"
	"iter"

	"github.com/lockstep-go/lockstep/model"
)

// NoToken is the ID of a Token without a token id: the last Token, if text was held back
// until the generation ended, and the Token beside an error.
const NoToken = -1

// Token is a generated token.
type Token struct {
	ID int
	// Text is the text that this token completes: whole UTF-8 characters without any
	// part of a stop string. It is empty while a character is incomplete, while the
	// text may still become a stop string, and if the model has no vocabulary.
	Text string
}

// Text is Generator.Text of a Generator with zero Options.
func Text(ctx context.Context, engine model.Engine, prompt string, p Params) iter.Seq2[Token, error] {
	return newGenerator(engine, Options{}).Text(ctx, prompt, p)
}

// Tokens is Generator.Tokens of a Generator with zero Options.
func Tokens(ctx context.Context, engine model.Engine, prompt []int, p Params) iter.Seq2[Token, error] {
	return newGenerator(engine, Options{}).Tokens(ctx, prompt, p)
}
