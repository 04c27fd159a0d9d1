package generate

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

func TestParamsCheck(t *testing.T) {
	const vocab = 10
	tests := []struct {
		name, reason string
		p            Params
		field        string
		sentinel     error
	}{
		{"empty stop", "would stop everything", Params{Stop: []string{"a", ""}}, "Stop[1]", ErrBadParams},
		{"stop no UTF-8", "would cut a character", Params{Stop: []string{"\x80"}}, "Stop[0]", ErrBadParams},
		{"stop token", "an id", Params{StopTokens: []int{1, 11}}, "StopTokens: token 11 at index 1 is", model.ErrBadToken},
		{"one stop token", "an id", Params{StopTokens: []int{vocab}}, "StopTokens: token 10 at index 0 is", model.ErrBadToken},
		{"negative minimum", "a count", Params{MaxTokens: 1, MinTokens: -1}, "MinTokens: -1", ErrBadParams},
		{"minimum above the maximum", "cannot be reached", Params{MaxTokens: 3, MinTokens: 4}, "MinTokens: 4, want 0 to MaxTokens, which is 3", ErrBadParams},
		{"minimum without a maximum", "until the context is full", Params{MaxTokens: -1, MinTokens: 4}, "", nil},
		{"limits", "the largest values", Params{MaxTokens: 3, MinTokens: 3, StopTokens: []int{vocab - 1}}, "", nil},
		{"zero", "all off", Params{}, "", nil},
		{"all on", "ordinary values", Params{Sampling: sampling.Params{Temperature: 0.7, TopK: 40}, Stop: []string{"é"}, StopTokens: []int{0, 9}}, "", nil},
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
