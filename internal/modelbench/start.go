package modelbench

import (
	"context"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// Start is how long a new engine takes for the first two tokens of an answer, in seconds.
type Start struct {
	Prompt int       `json:"prompt"` // tokens of the prompt
	First  TokenTime `json:"first"`  // of the engine's first prompt
	Again  TokenTime `json:"again"`  // of the same prompt at last
}

// TokenTime holds the seconds from the start of a step to its token.
type TokenTime struct {
	Prompt float64 `json:"prompt_seconds"` // of the prompt, up to its first greedy token
	Decode float64 `json:"decode_seconds"` // of the decode step after it
}

// MeasureStart times the first two tokens after a prompt of random tokens, several times. The engine must be new.
func MeasureStart(ctx context.Context, eng model.Engine, prompt int) (Start, error) {
	return measureStart(ctx, eng, prompt, time.Now)
}

const startRepeats = 5

func measureStart(ctx context.Context, eng model.Engine, prompt int, now func() time.Time) (Start, error) {
	s, err := eng.NewSequence(prompt + 1)
	if err != nil {
		return Start{}, err
	}
	defer s.Close()
	result := Start{Prompt: prompt}
	b := newBench(eng, &Options{})
	tokens := b.tokens(prompt)
	for i := range startRepeats {
		if err := s.Truncate(0); err != nil {
			return result, err
		}
		begin := now()
		if _, err := model.Forward(ctx, eng, model.Row{Sequence: s, Tokens: tokens, Prompt: true, Want: model.WantToken}); err != nil {
			return result, err
		}
		middle := now()
		if _, err := model.Forward(ctx, eng, model.Row{Sequence: s, Want: model.WantToken}); err != nil {
			return result, err
		}
		result.Again = TokenTime{middle.Sub(begin).Seconds(), now().Sub(middle).Seconds()}
		if i == 0 {
			result.First = result.Again
		}
	}
	return result, nil
}
