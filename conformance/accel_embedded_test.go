package conformance

import (
	"math"
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/internal/perplexity"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// TestAccelEmbedded continues a text with the embedded model. It compares the predictions
// with those of the exact reference: their divergence, and each greedy choice whose margin
// exceeds the effect of rounding.
func TestAccelEmbedded(t *testing.T) {
	slowParallel(t)
	m, err := golden.Model()
	if err != nil {
		t.Fatal(err)
	}
	prompt, err := m.Prompt("Well, Prince,", false, m.Config.Context)
	if err != nil {
		t.Fatal(err)
	}
	oracle, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tokens := greedyContinuation(t, oracle, prompt, 8)
	exact := refTrace(t, m, ref.Numerics{}, tokens, nil)
	effects, err := layerdiff.Effects(exact, refTrace(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, nil))
	if err != nil {
		t.Fatal(err)
	}
	got := accelTrace(t, m, smallDevice, accel.Options{KVPages: 8, MaxSequences: 1}, tokens)
	r, err := layerdiff.Compare(exact, got, layerdiff.Numerics{KV: quant.F16, Input: quant.F16}, effects)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Logits.Err(); err != nil || r.Logits.Decided == 0 {
		t.Errorf("%v; %+v", err, r.Logits)
	}
}

// TestAccelPerplexity compares the perplexity of the embedded model on held-out text
// between the engines.
func TestAccelPerplexity(t *testing.T) {
	slowParallel(t)
	m, err := golden.Model()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../golden/model/heldout.txt")
	if err != nil {
		t.Fatal(err)
	}
	bytes := 200
	if *longCases || *onGPU {
		bytes = 4000
	}
	oracle, err := ref.New(m, ref.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var results [2]perplexity.Result
	for i, e := range []model.Engine{oracle, accelEngine(t, m, smallDevice, accel.Options{MaxSequences: 1, KVPages: 8})} {
		if results[i], err = perplexity.Measure(t.Context(), e, string(text[:bytes]), perplexity.Options{Window: 128}); err != nil {
			t.Fatal(err)
		}
	}
	want, got := results[0].Perplexity(), results[1].Perplexity()
	if !(math.Abs(got/want-1) <= 1e-4) {
		t.Errorf("perplexity %.6f, the reference's is %.6f", got, want)
	}
	t.Logf("perplexity of %d tokens: %.6f, the reference's %.6f", results[1].Tokens, got, want)
}
