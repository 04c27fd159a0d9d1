package generate

import "time"

// FinishReason says why a generation ended.
type FinishReason int

const (
	FinishNone       FinishReason = iota // it still runs, or MaxTokens is 0
	FinishLength                         // MaxTokens are generated, or the context is full
	FinishStopToken                      // a stop token
	FinishStopString                     // a stop string
	FinishBreak                          // the caller left the loop over the tokens
	FinishError                          // an error or a canceled context
)

// String returns the reason in words.
func (f FinishReason) String() string {
	names := [...]string{"none", "length", "stop token", "stop string", "break", "error"}
	if f < 0 || int(f) >= len(names) {
		return "unknown"
	}
	return names[f]
}

// Stats counts the tokens of one generation and times its phases. Times include the steps in
// which other requests run too.
type Stats struct {
	PromptTokens    int
	ReusedTokens    int // tokens of the prompt that the prefix cache had
	GeneratedTokens int // without stop tokens
	Steps           int // forward passes after the prompt
	Preemptions     int // how often its pages were moved to host memory
	Finish          FinishReason

	Waited     time.Duration // from the start until the request is admitted
	Prefill    time.Duration // from then to the first token
	FirstToken time.Duration // from the start to the first token: Waited + Prefill
	Decode     time.Duration // from the first token to the last
}

// PrefillRate is the number of computed prompt tokens per second, 0 if there were none.
func (s Stats) PrefillRate() float64 { return rate(s.PromptTokens-s.ReusedTokens, s.Prefill) }

// DecodeRate is the number of steps per second, 0 if there were none.
func (s Stats) DecodeRate() float64 { return rate(s.Steps, s.Decode) }

func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}
