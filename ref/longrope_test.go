package ref_test

import (
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// longRopeEngine returns an engine with a Phi-3 that uses its long RoPE factors in
// sequences of more than 16 positions.
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

// A sequence's capacity selects the short or the long factors, also in a fork.
func TestLongRope(t *testing.T) {
	e := longRopeEngine(t)
	tokens := []int{5, 6, 7, 8}
	logits := map[int][]float32{}
	for _, capacity := range []int{15, 16, 17, 32} {
		s := textOf(t, e, capacity)
		logits[capacity] = forward(t, s, tokens, model.WantLogits)
		fork, err := s.Fork(2)
		if err != nil {
			t.Fatal(err)
		}
		defer fork.Close()
		if !slices.Equal(forward(t, text{fork, e}, tokens[2:], model.WantLogits), logits[capacity]) {
			t.Errorf("a fork of a sequence of %d positions uses other factors", capacity)
		}
	}
	if !slices.Equal(logits[15], logits[16]) || !slices.Equal(logits[17], logits[32]) {
		t.Error("sequences with the same factors differ")
	}
	if slices.Equal(logits[16], logits[17]) {
		t.Error("a sequence of 17 positions uses the short factors")
	}
}
