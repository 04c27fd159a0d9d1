package ref_test

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/perplexity"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

var f16Products = ref.Numerics{F16Products: true}

// TestF16ProductLogits bounds what F16Products changes in the logits of the golden models.
func TestF16ProductLogits(t *testing.T) {
	const bound, maxKL = 1e-3, 1e-6
	for _, file := range oracles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".gguf"), func(t *testing.T) {
			m := open(t, file)
			logits := func(n ref.Numerics) []float32 {
				return forward(t, newText(t, engine(t, m, ref.Options{Numerics: n})), oracleTokens(), model.WantAll)
			}
			exact, f16 := logits(ref.Numerics{}), logits(f16Products)
			d, kl := relativeL2(f16, exact), divergence(exact, f16, m.Config.Vocab)
			t.Logf("relative L2 %.1e, KL %.1e", d, kl)
			if !(d > 0 && d <= bound && kl <= maxKL) {
				t.Errorf("relative L2 %.2e, bound %.0e; KL %.2e, bound %.0e", d, bound, kl, maxKL)
			}
		})
	}
}

// BenchmarkF16ProductLlama1B measures what F16Products changes in the logits of 32 positions of a model of real shape.
func BenchmarkF16ProductLlama1B(b *testing.B) {
	for _, quant := range []string{"q4_k_m", "bf16"} {
		b.Run(quant, func(b *testing.B) {
			m := open(b, randomLlama1B(b, quant))
			for b.Loop() {
				logits := func(n ref.Numerics) []float32 {
					return forward(b, newText(b, engine(b, m, ref.Options{Numerics: n})), moreOracleTokens(32, m.Config.Vocab), model.WantAll)
				}
				exact, f16 := logits(ref.Numerics{}), logits(f16Products)
				b.ReportMetric(relativeL2(f16, exact), "relative-L2")
				b.ReportMetric(divergence(exact, f16, m.Config.Vocab), "KL-nats")
			}
		})
	}
}

// divergence returns the mean KL divergence in nats of the predictions of got from those of want.
func divergence(want, got []float32, vocab int) (mean float64) {
	for at := 0; at < len(want); at += vocab {
		p, q := logSoftmax(want[at:at+vocab]), logSoftmax(got[at:at+vocab])
		for i := range p {
			mean += math.Exp(p[i]) * (p[i] - q[i])
		}
	}
	return mean * float64(vocab) / float64(len(want))
}

func logSoftmax(x []float32) []float64 {
	top, sum := math.Inf(-1), 0.0
	for _, v := range x {
		top = max(top, float64(v))
	}
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v) - top - math.Log(sum)
	}
	return y
}

var heldOut = flag.Int("heldout", 4<<10, "bytes of the held-out text that TestF16ProductPerplexity predicts")

// TestF16ProductPerplexity: on held-out text, the perplexity is that of exact products within 0.05%.
func TestF16ProductPerplexity(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "golden", "model", "heldout.txt"))
	if err != nil {
		t.Fatal(err)
	}
	size := *heldOut
	if testing.Short() {
		size = 1 << 10
	}
	text = text[:min(len(text), size)]
	m := open(t, filepath.Join("..", "golden", "model", "lockstep-tiny.gguf"))
	measure := func(n ref.Numerics) float64 {
		r, err := perplexity.Measure(t.Context(), engine(t, m, ref.Options{Numerics: n}), string(text), perplexity.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Perplexity()
	}
	exact, f16 := measure(ref.Numerics{}), measure(f16Products)
	t.Logf("perplexity %.5f, with products of f16 %+.4f%%", exact, 100*(f16/exact-1))
	if !(math.Abs(f16/exact-1) <= 0.0005) || f16 == exact {
		t.Errorf("perplexity %v, exact %v", f16, exact)
	}
}
