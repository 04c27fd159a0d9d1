// Package generate continues texts with a language model: sampling parameters, stop
// rules, a prefix cache and batches, over any model.Engine.
package generate

import (
	"context"
	"iter"

	"github.com/lockstep-go/lockstep/model"
)

// NoToken is the ID of a Token that carries only text, which was held back until the
// generation ended.
const NoToken = -1

// Token is a generated token.
type Token struct {
	ID int
	// Text is the text that this token completes: whole UTF-8 characters without any
	// part of a stop string. It is empty while a character is incomplete, while the
	// text may still become a stop string, and if the model has no vocabulary.
	Text string
}

// Text continues a text by a Generator with zero Options: see Generator.Text.
func Text(ctx context.Context, engine model.Engine, prompt string, p Params) iter.Seq2[Token, error] {
	return newGenerator(engine, Options{}).Text(ctx, prompt, p)
}

// Tokens continues token ids by a Generator with zero Options: see Generator.Text.
func Tokens(ctx context.Context, engine model.Engine, prompt []int, p Params) iter.Seq2[Token, error] {
	return newGenerator(engine, Options{}).Tokens(ctx, prompt, p)
}
