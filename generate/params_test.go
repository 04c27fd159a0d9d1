package generate

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/model"
)

func TestParamsCheck(t *testing.T) {
	const vocab = 10
	tests := []struct {
		name, reason string
		p            Params
		field        string
		sentinel     error
	}{
		{"negative temperature", "would turn likely into unlikely", Params{Temperature: -0.1}, "Temperature: -0.1, want a finite number, at least 0", ErrBadParams},
		{"NaN temperature", "no comparison catches it by chance", Params{Temperature: math.NaN()}, "Temperature", ErrBadParams},
		{"infinite temperature", "Inf/Inf", Params{Temperature: math.Inf(1)}, "Temperature", ErrBadParams},
		{"negative top-k", "a count", Params{TopK: -1}, "TopK", ErrBadParams},
		{"top-p above 1", "a probability", Params{TopP: 1.1}, "TopP: 1.1, want 0 to 1", ErrBadParams},
		{"negative top-p", "a probability", Params{TopP: -0.1}, "TopP", ErrBadParams},
		{"NaN top-p", "a probability", Params{TopP: math.NaN()}, "TopP", ErrBadParams},
		{"min-p above 1", "a probability", Params{MinP: 2}, "MinP", ErrBadParams},
		{"NaN min-p", "a probability", Params{MinP: math.NaN()}, "MinP", ErrBadParams},
		{"negative repetition", "would flip signs", Params{RepeatPenalty: -1}, "RepeatPenalty", ErrBadParams},
		{"NaN presence", "a number", Params{PresencePenalty: math.NaN()}, "PresencePenalty: NaN, want a finite number", ErrBadParams},
		{"infinite frequency", "a finite number", Params{FrequencyPenalty: math.Inf(-1)}, "FrequencyPenalty", ErrBadParams},
		{"negative window", "a count", Params{RepeatLast: -1}, "RepeatLast", ErrBadParams},
		{"bias of no token", "an id", Params{LogitBias: map[int]float32{vocab: 1}}, "LogitBias: token outside the vocabulary: 10, want 0 to 9", model.ErrBadToken},
		{"bias of a negative id", "an id", Params{LogitBias: map[int]float32{-1: 1}}, "LogitBias", model.ErrBadToken},
		{"NaN bias", "would hide a token", Params{LogitBias: map[int]float32{1: nan}}, "LogitBias", ErrBadParams},
		{"+Inf bias", "would meet -Inf", Params{LogitBias: map[int]float32{1: inf}}, "LogitBias", ErrBadParams},
		{"empty stop", "would stop everything", Params{Stop: []string{"a", ""}}, "Stop[1]", ErrBadParams},
		{"stop no UTF-8", "would cut a character", Params{Stop: []string{"\x80"}}, "Stop[0]", ErrBadParams},
		{"stop token", "an id", Params{StopTokens: []int{1, 11}}, "StopTokens: token 11 at index 1 is", model.ErrBadToken},
		{"one stop token", "an id", Params{StopTokens: []int{vocab}}, "StopTokens: token 10 at index 0 is", model.ErrBadToken},
		{"limits", "the largest values", Params{Temperature: math.MaxFloat64, TopP: 1, MinP: 1, StopTokens: []int{vocab - 1},
			LogitBias: map[int]float32{0: 1, vocab - 1: 1}}, "", nil},
		{"zero", "all off", Params{}, "", nil},
		{"all on", "ordinary values", Params{Temperature: 0.7, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1,
			PresencePenalty: -2, FrequencyPenalty: 2, RepeatLast: 64, LogitBias: map[int]float32{1: negInf, 2: 3},
			Stop: []string{"é"}, StopTokens: []int{0, 9}}, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.p.check(vocab)
			if !errors.Is(err, tt.sentinel) {
				t.Fatalf("%s: error %v, want %v", tt.reason, err, tt.sentinel)
			}
			if err != nil && !strings.Contains(err.Error(), tt.field) {
				t.Errorf("%s: %q does not name %s", tt.reason, err, tt.field)
			}
		})
	}
}
