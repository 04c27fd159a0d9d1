package accel

import (
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/model/sampling"
)

// TestUnknownToken: a replay needs all tokens, and no pass in flight will tell this one.
func TestUnknownToken(t *testing.T) {
	s := &sequence{engine: &Engine{}, past: []int32{7, sampling.NoToken}}
	if err := s.awaitTokens(1); err != nil {
		t.Errorf("the first token is known: %v", err)
	}
	if err := s.awaitTokens(2); err == nil || !strings.Contains(err.Error(), "position 1") {
		t.Errorf("got %v, want an error about position 1", err)
	}
}
