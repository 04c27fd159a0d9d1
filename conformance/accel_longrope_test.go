package conformance

import (
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// longRopeModel returns a Phi-3 with other rotation factors in sequences of more than 16
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

// logitsAfterPrompt returns the logits of tokens after a prompt, in a sequence of some
// capacity.
func logitsAfterPrompt(t testing.TB, e model.Engine, capacity int, prompt, tokens []int) []float32 {
	t.Helper()
	s, err := e.NewSequence(capacity)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return promptThenSteps(t, text{s, e}, prompt, tokens)
}

// TestAccelLongRope computes sequences with short and long factors, each alone, and compares both
// with the reference. Steps of both together must give the same bits.
func TestAccelLongRope(t *testing.T) {
	m := longRopeModel(t)
	reference := func(n ref.Numerics) model.Engine {
		r, err := ref.New(m, ref.Options{Numerics: n})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	exact, rounded := reference(ref.Numerics{}), reference(accelnumerics.Of(model.KVF16, m.Config.HeadDim))
	e := accelEngine(t, m, smallDevice, accel.Options{})
	tokens := testTokens(m.Config.Vocab, 12)
	capacities := []int{16, 17}
	var alone [][]float32
	var both []text
	for _, capacity := range capacities {
		trace := func(logits []float32) *layerdiff.Trace {
			all := layerdiff.NewTrace()
			all.AddFloats(-1, "logits", 7, m.Config.Vocab, logits)
			return all
		}
		logits := func(e model.Engine) []float32 { return logitsAfterPrompt(t, e, capacity, tokens[:7], tokens[7:]) }
		want := trace(logits(rounded))
		effects, err := layerdiff.Effects(trace(logits(exact)), want)
		if err != nil {
			t.Fatal(err)
		}
		alone = append(alone, logits(e))
		got := trace(alone[len(alone)-1])
		checkTrace(t, want, got, layerdiff.Numerics{Input: quant.F16, Float: float32Bound}, effects)
		s, err := e.NewSequence(capacity)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		both = append(both, text{s, e})
	}
	together := make([][]float32, len(both))
	for from := 0; from < len(tokens); from = both[0].Len() {
		to := max(7, from+1)
		for i, out := range results(t, e, both[0].row(tokens[from:to], model.WantLogits), both[1].row(tokens[from:to], model.WantLogits)) {
			if from > 0 {
				together[i] = append(together[i], out.Logits...)
			}
		}
	}
	for i, want := range alone {
		if at := firstDifference(want, together[i]); at >= 0 {
			t.Errorf("capacity %d: in steps with other factors, logit %d differs", capacities[i], at)
		}
	}
}
