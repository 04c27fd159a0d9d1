package ref_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// longRopeEngine returns an engine with a Phi-3 that uses its long RoPE factors in sessions
// of more than 16 positions.
func longRopeEngine(t *testing.T) *ref.Engine {
	t.Helper()
	spec := tiny.New("phi3", 1)
	spec.Set(".rope.scaling.original_context_length", uint32(16))
	spec.Add("rope_factors_short.weight", tiny.HeadDim/2)
	spec.Add("rope_factors_long.weight", tiny.HeadDim/2)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return engine(t, m, ref.Options{})
}

// A session's capacity selects the short or the long factors. A session refuses a snapshot
// that was computed with the other ones.
func TestLongRope(t *testing.T) {
	e := longRopeEngine(t)
	tokens := []int{5, 6, 7, 8}
	logits := map[int][]float32{}
	snapshots := map[int]model.Snapshot{}
	for _, capacity := range []int{15, 16, 17, 32} {
		s, err := e.NewSession(capacity)
		if err != nil {
			t.Fatal(err)
		}
		logits[capacity] = forward(t, s, tokens, model.WantLast)
		if snapshots[capacity], err = s.Snapshot(2); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(logits[15], logits[16]) || !slices.Equal(logits[17], logits[32]) {
		t.Error("sessions with the same factors differ")
	}
	if slices.Equal(logits[16], logits[17]) {
		t.Error("a session of 17 positions uses the short factors")
	}
	s, err := e.NewSession(32)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Restore(snapshots[17], 2); err != nil {
		t.Errorf("a snapshot with the same factors: %v", err)
	}
	if err := s.Restore(snapshots[16], 2); err == nil || !strings.Contains(err.Error(), "long contexts") {
		t.Errorf("a snapshot with the other factors: error %v", err)
	}
}
