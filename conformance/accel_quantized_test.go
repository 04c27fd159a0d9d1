package conformance

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// quantizedModel returns a golden model with its matrices in a format.
func quantizedModel(t testing.TB, file string, format quant.Format) *model.Model {
	t.Helper()
	r, err := requant.ParseRecipe(format.String())
	if err != nil {
		t.Fatal(err)
	}
	src, err := gguf.Open("../golden/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	w, _, err := requant.Convert(t.Context(), src, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if _, err := w.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAccelQuantized compares each operation of models in formats that golden/quant lacks with the reference: in a prompt
// and in single steps.
func TestAccelQuantized(t *testing.T) {
	slowParallel(t)
	for _, c := range []struct {
		file   string
		format quant.Format
	}{
		{"arch/llama-gqa.gguf", quant.MXFP4},
		{"arch/qwen3moe.gguf", quant.MXFP4},
	} {
		t.Run(fmt.Sprintf("%v of %s", c.format, strings.TrimSuffix(c.file, ".gguf")), func(t *testing.T) {
			m := quantizedModel(t, c.file, c.format)
			w := m.Weights.Layers[0].Q.W
			if experts := m.Weights.Layers[0].Experts; len(experts) > 0 { // other matrices may have another format
				w = experts[0].Up.W
			}
			if w.Format != c.format {
				t.Fatalf("a matrix is in %v", w.Format)
			}
			tokens := testTokens(m.Config.Vocab, 19)
			got := accelTrace(t, m, smallDevice, accel.Options{}, tokens)
			checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, got)
			got = accelTrace(t, m, smallDevice, accel.Options{}, tokens, len(tokens)-3, 1, 1)
			checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, got)
		})
	}
}
