package model

import "time"

// Finish says why a generation ended.
type Finish int

const (
	FinishNone       Finish = iota // it has not, or nothing was asked for
	FinishLength                   // MaxTokens, or the context is full
	FinishStopToken                // a stop token
	FinishStopString               // a stop string
	FinishBreak                    // the loop over the tokens was left
	FinishError                    // an error, cancellation included
)

func (f Finish) String() string {
	switch f {
	case FinishNone:
		return "none"
	case FinishLength:
		return "length"
	case FinishStopToken:
		return "stop token"
	case FinishStopString:
		return "stop string"
	case FinishBreak:
		return "break"
	case FinishError:
		return "error"
	}
	return "unknown"
}

// Stats is what a generation did and how long its phases took. The time to the
// first token is Prepare + Prefill + Store and the choice of the token.
type Stats struct {
	PromptTokens    int
	ReusedTokens    int // of the prompt, not computed but taken from the prefix cache
	GeneratedTokens int // stop tokens not counted
	Steps           int // forward passes after the prefill
	Finish          Finish

	Prepare    time.Duration // checks, a session, the prefix restored
	Prefill    time.Duration // computing the rest of the prompt
	Store      time.Duration // keeping the prompt in the prefix cache
	FirstToken time.Duration // from the start until the first token was there
	Decode     time.Duration // all steps, choosing tokens included; the consumer's time is not
}

// PrefillRate is the prompt tokens computed a second, 0 when there were none.
func (s Stats) PrefillRate() float64 { return rate(s.PromptTokens-s.ReusedTokens, s.Prefill) }

// DecodeRate is the steps a second, 0 when there were none.
func (s Stats) DecodeRate() float64 { return rate(s.Steps, s.Decode) }

func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
