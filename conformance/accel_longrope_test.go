package conformance

import (
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// longRopeModel returns a Phi-3 with other rotation factors in sessions of more than 16
// positions.
func longRopeModel(t testing.TB) *model.Model {
	t.Helper()
	spec := tiny.New("phi3", 1)
	spec.Set(".rope.scaling.original_context_length", uint32(16))
	spec.OneLayer()
	spec.Add("rope_factors_short.weight", tiny.HeadDim/2)
	spec.Add("rope_factors_long.weight", tiny.HeadDim/2)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// logitsAfterPrompt returns the logits of tokens after a prompt, in a session of some
// capacity.
func logitsAfterPrompt(t testing.TB, e model.Engine, capacity int, prompt, tokens []int) []float32 {
	t.Helper()
	s, err := e.NewSession(capacity)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return promptThenSteps(t, s, prompt, tokens)
}

// TestAccelLongRope runs sequences with short and long factors at once and compares both
// with the reference.
func TestAccelLongRope(t *testing.T) {
	m := longRopeModel(t)
	oracle, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := accelEngine(t, m, smallDevice, accel.Options{Prefill: accel.PrefillExact, KV: model.KVF32})
	tokens := testTokens(m.Config.Vocab, 12)
	var kinds sync.WaitGroup
	for _, capacity := range []int{16, 17} {
		kinds.Go(func() {
			want, got := layerdiff.NewTrace(), layerdiff.NewTrace()
			want.AddFloats(-1, "logits", 7, m.Config.Vocab, logitsAfterPrompt(t, oracle, capacity, tokens[:7], tokens[7:]))
			got.AddFloats(-1, "logits", 7, m.Config.Vocab, logitsAfterPrompt(t, e, capacity, tokens[:7], tokens[7:]))
			checkTrace(t, want, got, layerdiff.Numerics{Float: float32Bound}, nil)
		})
	}
	kinds.Wait()
}

// TestAccelLongRopeRestore demands that a session with short factors refuses a snapshot
// with long factors.
func TestAccelLongRopeRestore(t *testing.T) {
	e := accelEngine(t, longRopeModel(t), smallDevice, accel.Options{})
	short, err := e.NewSession(16)
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	long := openSession(t, e)
	defer long.Close()
	promptThenSteps(t, long, []int{1, 2, 3, 4, 5}, nil)
	snap, err := long.Snapshot(5)
	if err != nil {
		t.Fatal(err)
	}
	if err := short.Restore(snap, 3); err == nil || !strings.Contains(err.Error(), "long contexts") {
		t.Errorf("restoring a snapshot with other factors: error %v", err)
	}
}
