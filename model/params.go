package model

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Params says how to generate. The zero value of every field but MaxTokens is the
// plain choice: greedy, no penalties, until the model ends the text itself.
// MaxTokens must be set: its zero value generates nothing.
//
// Logits are changed and tokens chosen in this order: LogitBias, penalties, TopK,
// TopP, MinP, Temperature, the draw.
type Params struct {
	// MaxTokens is the most tokens to generate. 0 generates none and computes
	// nothing; a negative number generates until the context is full.
	MaxTokens int

	// Temperature divides the logits before the draw; 0 is greedy: the largest
	// logit wins, the lowest id on a tie.
	Temperature float64
	TopK        int     // draw among the k most likely only; 0: all; 1: greedy
	TopP        float64 // draw among the most likely that together reach this probability; 0 or 1: all
	MinP        float64 // draw among those at least this times as likely as the most likely; 0: all

	// RepeatPenalty divides positive logits, and multiplies negative ones, of
	// tokens in the last RepeatLast tokens; 0 or 1: none.
	RepeatPenalty    float64
	PresencePenalty  float64 // is subtracted from the logits of those tokens
	FrequencyPenalty float64 // is subtracted once for each time that they occur
	// RepeatLast is how far back the penalties look, prompt included; 0: over the
	// whole sequence.
	RepeatLast int

	// LogitBias is added to the logits of token ids, before anything else; -Inf
	// bans a token.
	LogitBias map[int]float32

	// Seed starts the random draws. The same seed and parameters give the same
	// text on every machine, and 0 is a seed like any other.
	Seed uint64

	// Stop ends the text before any of these strings, wherever tokens begin and
	// end; the one that is complete first counts.
	Stop       []string
	StopTokens []int // end the text, beside those of the vocabulary
	IgnoreEOS  bool  // go on past the stop tokens of the vocabulary

	// ParseSpecial takes special tokens in the prompt's text for what they are, as
	// a rendered chat template needs. Leave it false for text that others wrote.
	ParseSpecial bool

	// HostArgmax makes a greedy choice here, from all the logits, and not in the
	// engine. The tokens are the same.
	HostArgmax bool

	// Stats, when not nil, is filled in while generating. It belongs to one
	// generation at a time.
	Stats *Stats
}

// greedy reports whether no draw is needed.
func (p *Params) greedy() bool { return p.Temperature == 0 || p.TopK == 1 }

// adjusts reports whether logits are changed before the choice.
func (p *Params) adjusts() bool { return len(p.LogitBias) > 0 || p.penalises() }

func (p *Params) penalises() bool {
	return p.repeats() || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

func (p *Params) repeats() bool { return p.RepeatPenalty != 0 && p.RepeatPenalty != 1 }

// want is what the sampler needs from an engine.
func (p *Params) want() Want {
	if p.greedy() && !p.adjusts() && !p.HostArgmax {
		return WantGreedy
	}
	return WantLast
}

// Check returns an error that wraps ErrBadParams or ErrBadToken and names the
// first field that makes no sense for a model of vocab tokens.
func (p *Params) Check(vocab int) error {
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
		if !(f.value >= f.lo && f.value <= f.hi) { // NaN too
			return fmt.Errorf("%w: %s is %v, want %s", ErrBadParams, f.name, f.value, interval(f.lo, f.hi))
		}
	}
	for id, b := range p.LogitBias {
		if id < 0 || id >= vocab {
			return fmt.Errorf("LogitBias: %w", &TokenError{Index: -1, ID: id, Vocab: vocab})
		}
		if b != b || math.IsInf(float64(b), 1) {
			return fmt.Errorf("%w: LogitBias of token %d is %v", ErrBadParams, id, b)
		}
	}
	for i, s := range p.Stop {
		if s == "" || !utf8.ValidString(s) {
			return fmt.Errorf("%w: Stop[%d] is %q, want text in UTF-8", ErrBadParams, i, s)
		}
	}
	if len(p.StopTokens) > 0 {
		if err := CheckTokens(p.StopTokens, vocab); err != nil {
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
