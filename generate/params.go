package generate

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/lockstep-go/lockstep/model"
)

// Errors for errors.Is.
var (
	// ErrBadParams means a field of Params or Options with an impossible value.
	ErrBadParams = errors.New("bad parameter")
	// ErrNoChoice means that every logit is NaN or -Inf.
	ErrNoChoice = errors.New("no token can be chosen: every logit is NaN or -Inf")
)

// Params are the sampling parameters and stop rules of one generation. Except for
// MaxTokens, zero values are neutral: greedy, no penalties, until the model ends the
// text.
//
// They apply in this order: LogitBias, RepeatPenalty, the other penalties, TopK, TopP, MinP,
// Temperature, the random draw.
type Params struct {
	// MaxTokens is the largest number of tokens to generate. 0 generates none and
	// computes nothing; a negative number generates until the context is full.
	MaxTokens int

	// Temperature divides the logits before the draw. 0 is greedy: the largest logit
	// wins, and on a tie the lowest id.
	Temperature float64
	TopK        int     // draw among the k most likely tokens; 0: all; 1: greedy
	TopP        float64 // draw among the fewest tokens whose probabilities add up to TopP; 0 or 1: all
	MinP        float64 // draw among tokens with at least MinP times the largest probability; 0: all

	// RepeatPenalty divides the positive logits and multiplies the negative logits of
	// tokens that occur in the last RepeatLast tokens. 0 or 1: none.
	RepeatPenalty    float64
	PresencePenalty  float64 // subtracted from the logits of these tokens
	FrequencyPenalty float64 // subtracted once for each occurrence of these tokens
	// RepeatLast is the number of tokens that the penalties look back, prompt
	// included. 0: all.
	RepeatLast int

	// LogitBias is added to the logits of token ids first of all; -Inf bans a token.
	// With any bias, even of 0, a greedy choice is made on the host.
	LogitBias map[int]float32

	// Seed starts the random draws. The same seed and parameters give the same text
	// on every machine. 0 is an ordinary seed.
	Seed uint64

	// Stop ends the text before the first complete stop string, wherever tokens begin
	// and end.
	Stop       []string
	StopTokens []int // end the text, in addition to the vocabulary's end-of-generation tokens
	IgnoreEOS  bool  // continue after the vocabulary's end-of-generation tokens

	// ParseSpecial encodes the text of a special token in the prompt as that token. A
	// rendered chat template needs it. Leave it false for untrusted text.
	ParseSpecial bool

	// Stats, if not nil, is filled while generating. It belongs to one generation at
	// a time.
	Stats *Stats
}

// greedy reports whether no random draw is needed.
func (p *Params) greedy() bool { return p.Temperature == 0 || p.TopK == 1 }

// adjusts reports whether logits change before the choice.
func (p *Params) adjusts() bool { return len(p.LogitBias) > 0 || p.penalizes() }

func (p *Params) penalizes() bool {
	return p.repeats() || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

func (p *Params) repeats() bool { return p.RepeatPenalty != 0 && p.RepeatPenalty != 1 }

// want is the output that the sampler needs from an engine.
func (p *Params) want() model.Want {
	if p.greedy() && !p.adjusts() {
		return model.WantGreedy
	}
	return model.WantLast
}

// check returns an error for the first field that is impossible with a vocabulary of
// vocab tokens. It wraps ErrBadParams or model.ErrBadToken.
func (p *Params) check(vocab int) error {
	for _, f := range []struct {
		name   string
		value  float64
		lo, hi float64
	}{
		{"Temperature", p.Temperature, 0, math.MaxFloat64},
		{"TopK", float64(p.TopK), 0, math.MaxFloat64},
		{"TopP", p.TopP, 0, 1},
		{"MinP", p.MinP, 0, 1},
		{"RepeatPenalty", p.RepeatPenalty, 0, math.MaxFloat64},
		{"PresencePenalty", p.PresencePenalty, -math.MaxFloat64, math.MaxFloat64},
		{"FrequencyPenalty", p.FrequencyPenalty, -math.MaxFloat64, math.MaxFloat64},
		{"RepeatLast", float64(p.RepeatLast), 0, math.MaxFloat64},
	} {
		if !(f.value >= f.lo && f.value <= f.hi) { // true for NaN too
			return fmt.Errorf("%w: %s: %v, want %s", ErrBadParams, f.name, f.value, interval(f.lo, f.hi))
		}
	}
	for id, b := range p.LogitBias {
		if id < 0 || id >= vocab {
			return fmt.Errorf("LogitBias: %w: %d, want 0 to %d", model.ErrBadToken, id, vocab-1)
		}
		if b != b || math.IsInf(float64(b), 1) {
			return fmt.Errorf("%w: LogitBias: token %d: %v", ErrBadParams, id, b)
		}
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

func interval(lo, hi float64) string {
	switch {
	case lo < 0:
		return "a finite number"
	case hi == math.MaxFloat64:
		return fmt.Sprintf("a finite number, at least %v", lo)
	}
	return fmt.Sprintf("%v to %v", lo, hi)
}
