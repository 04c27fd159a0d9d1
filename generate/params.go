package generate

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// Errors for errors.Is.
var (
	// ErrBadParams means a field of Params or Options with an impossible value.
	ErrBadParams = errors.New("bad parameter")
	// ErrNoChoice means that no token can be chosen: every logit is NaN, -Inf or masked.
	ErrNoChoice = errors.New("no token can be chosen: every logit is NaN, -Inf or masked")
	// ErrBusy means that as many requests wait as Options.MaxWaiting permits.
	ErrBusy = errors.New("too many requests wait")
)

// Params are the sampling parameters and stop rules of one generation. Except for
// MaxTokens, zero values are neutral: greedy, until the model ends the text.
type Params struct {
	Sampling sampling.Params

	// MaxTokens is the largest number of tokens to generate. 0 generates none and
	// computes nothing; a negative number generates until the context is full.
	MaxTokens int
	// MinTokens is the number of tokens before which neither end tokens nor stop strings
	// end the text. End tokens are not chosen until then, unless Mask permits nothing else.
	MinTokens int

	// Stop ends the text before the first complete stop string, wherever tokens begin
	// and end.
	Stop       []string
	StopTokens []int // end the text, in addition to the vocabulary's end-of-generation tokens
	IgnoreEOS  bool  // continue after the vocabulary's end-of-generation tokens

	// ParseSpecial encodes the text of a special token in the prompt as that token. A
	// rendered chat template needs it. Leave it false for untrusted text.
	ParseSpecial bool

	// Mask, if set, is called once per generation. It returns a function that is called once
	// before each token, with the tokens so far, and returns the mask of the
	// tokens that may follow: bit id%32 of element id/32, [ceil(vocab/32)]. The slice must not
	// change until the next call. An error ends the generation. Package generate/constraint
	// makes masks.
	Mask func() func(generated []int) ([]uint32, error)
	// Logits, if set, is called once before each token, with the tokens so far and a copy of
	// the logits, [vocab]. It may change the copy. It must not keep either.
	//
	// All requests wait for Mask and Logits, so they should be fast, and must not wait for
	// the generator. Those of different requests run at the same time. A panic reaches the
	// range over the tokens.
	Logits func(generated []int, logits []float32)

	// Stats, if not nil, is filled while generating. It belongs to one generation at
	// a time.
	Stats *Stats
}

// check returns an error for the first field that is impossible with a vocabulary of
// vocab tokens. It wraps ErrBadParams or model.ErrBadToken.
func (p *Params) check(vocab int) error {
	if err := p.Sampling.Check(vocab); err != nil {
		return fmt.Errorf("%w: %w", ErrBadParams, err)
	}
	if p.MinTokens < 0 || p.MaxTokens >= 0 && p.MinTokens > p.MaxTokens {
		return fmt.Errorf("%w: MinTokens: %d, want 0 to MaxTokens, which is %d", ErrBadParams, p.MinTokens, p.MaxTokens)
	}
	for i, s := range p.Stop {
		if s == "" || !utf8.ValidString(s) {
			return fmt.Errorf("%w: Stop[%d]: %q, want UTF-8 text", ErrBadParams, i, s)
		}
	}
	if len(p.StopTokens) > 0 {
		if err := model.CheckTokens(p.StopTokens, vocab); err != nil {
			return fmt.Errorf("StopTokens: %w", err)
		}
	}
	return nil
}
