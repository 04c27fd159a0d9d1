package conformance

import (
	"math"
	"os"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/internal/perplexity"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// TestAccelEmbedded lets the embedded model continue a text greedily, and holds each
// choice to the reference's wherever its margin is wider than the logits may be off.
func TestAccelEmbedded(t *testing.T) {
	notShort(t)
	m, err := golden.Model()
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := m.NeedTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	prompt := tokenizer.Prompt("Well, Prince,", false)
	for _, mode := range []accel.PrefillMode{accel.Stepwise, accel.Fast} {
		e := accelEngine(t, m, smallDevice, accel.Options{Prefill: mode, KVPages: 8, MaxSequences: 1})
		oracle, err := ref.New(m)
		if err != nil {
			t.Fatal(err)
		}
		tokens := generatedBy(t, oracle, prompt, 8)
		want, got := teacherForced(t, oracle, tokens), teacherForced(t, e, tokens)
		compared, mean := 0, 0.0
		vocab := m.Config.Vocab
		for p := range tokens {
			w, g := want[p*vocab:(p+1)*vocab], got[p*vocab:(p+1)*vocab]
			off := largestError(w, g)
			best := model.Argmax(w)
			if margin(w, best) > 2*off {
				compared++
				if model.Argmax(g) != best {
					t.Errorf("prefill mode %d, position %d: the greedy token is %d, want %d", mode, p, model.Argmax(g), best)
				}
			}
			mean += divergence(w, g) / float64(len(tokens))
		}
		if compared == 0 || !(mean <= 2e-6) {
			t.Errorf("prefill mode %d: %d positions compared, mean KL %.3g", mode, compared, mean)
		}
		t.Logf("prefill mode %d: %d of %d positions have a margin that decides; mean KL %.2g", mode, compared, len(tokens), mean)
	}
}

// generatedBy is a prompt and n tokens behind it, chosen greedily.
func generatedBy(t *testing.T, e model.Engine, prompt []int, n int) []int {
	t.Helper()
	g := collect(model.GenerateTokens(t.Context(), e, prompt, model.Params{MaxTokens: n, IgnoreEOS: true}))
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	return append(append([]int(nil), prompt...), g.IDs...)
}

func largestError(want, got []float32) (most float64) {
	for i, w := range want {
		most = max(most, math.Abs(float64(got[i])-float64(w)))
	}
	return most
}

// margin is how far the best logit is above all others.
func margin(logits []float32, best int) float64 {
	second := math.Inf(-1)
	for i, v := range logits {
		if i != best {
			second = max(second, float64(v))
		}
	}
	return float64(logits[best]) - second
}

// divergence is Kullback and Leibler's, of the distributions that two lists of logits give.
func divergence(want, got []float32) (sum float64) {
	logSum := func(x []float32) float64 {
		top := math.Inf(-1)
		for _, v := range x {
			top = max(top, float64(v))
		}
		total := 0.0
		for _, v := range x {
			total += math.Exp(float64(v) - top)
		}
		return top + math.Log(total)
	}
	a, b := logSum(want), logSum(got)
	for i, w := range want {
		p := float64(w) - a
		sum += float64(math.Exp(p) * (p - (float64(got[i]) - b)))
	}
	return sum
}

// TestAccelPerplexity measures the embedded model on text that it never saw, on both
// engines.
func TestAccelPerplexity(t *testing.T) {
	notShort(t)
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
	oracle, err := ref.New(m)
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
