package ref_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/internal/synth"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// BenchmarkLlama1B measures decoding after a short prompt and prefill of 64 positions, in
// tokens per second, with the shapes of Llama-3.2-1B, random weights and two formats.
func BenchmarkLlama1B(b *testing.B) {
	for _, quant := range []string{"q8_0", "q4_k_m"} {
		e := engine(b, open(b, randomLlama1B(b, quant)), ref.Options{})
		b.Run(fmt.Sprintf("%s/decode", quant), func(b *testing.B) {
			s := newText(b, e)
			for b.Loop() {
				step(b, s, []int{100 + s.Len()})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
		b.Run(fmt.Sprintf("%s/prefill=64", quant), func(b *testing.B) {
			prompt := make([]int, 64)
			for i := range prompt {
				prompt[i] = 100 + i
			}
			for b.Loop() {
				step(b, newText(b, e), prompt)
			}
			b.ReportMetric(float64(b.N*len(prompt))/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// randomLlama1B writes the model and returns its path.
func randomLlama1B(b *testing.B, quant string) string {
	b.Helper()
	preset, err := synth.Find("llama-3.2-1b")
	if err != nil {
		b.Fatal(err)
	}
	recipe, err := requant.ParseRecipe(quant)
	if err != nil {
		b.Fatal(err)
	}
	plan, err := synth.NewPlan(preset, recipe, 0)
	if err != nil {
		b.Fatal(err)
	}
	w, err := plan.Writer(b.Context(), 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), quant+".gguf")
	if err := w.WriteFile(path); err != nil {
		b.Fatal(err)
	}
	return path
}

func step(b *testing.B, s text, tokens []int) {
	if _, err := s.Forward(b.Context(), tokens, model.WantToken); err != nil {
		b.Fatal(err)
	}
}
