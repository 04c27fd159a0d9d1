package conformance

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
	"github.com/lockstep-go/lockstep/ref"
)

// tracked is a model whose every operation is compared with the reference's.
type tracedModel struct {
	file   string // below the golden directory
	kv     model.KVFormat
	tokens int
	long   bool
}

// bound32 is what a model of a few layers may be off in float32: cases.md allows the
// logits 1e-5. Rounding errors of some 2e-8 a step grow with the roots of the layers and
// of the sums, so that a smaller bound holds for models this small.
const float32Bound = 2e-6

// modelFiles are the golden models in a folder.
func modelFiles(folder string) []string {
	var files []string
	for _, c := range golden.Cases() {
		if filepath.Dir(c.Model) == folder && !slices.Contains(files, c.Model) {
			files = append(files, c.Model)
		}
	}
	return files
}

func tracedModels() []tracedModel {
	var all []tracedModel
	for _, f := range modelFiles("arch") {
		for _, kv := range []model.KVFormat{model.KVF32, model.KVF16, model.KVBF16} {
			all = append(all, tracedModel{f, kv, 70, true})
			if kv == model.KVF32 || f == "arch/llama-gqa.gguf" {
				all = append(all, tracedModel{f, kv, 18, false})
			}
		}
	}
	for i, f := range modelFiles("quant") {
		all = append(all, tracedModel{f, model.KVF32, 3, i%3 != 0}, tracedModel{f, model.KVF32, 70, true})
	}
	return all
}

// TestAccelOperations holds every operation of every layer to the reference, positions by
// the dozen and one by one: to what the reference computes by itself and, where the cache
// rounds, to what it computes of the operations before as the accelerator gave them.
func TestAccelOperations(t *testing.T) {
	slowParallel(t)
	for _, c := range tracedModels() {
		if c.long && !*longCases {
			continue
		}
		t.Run(fmt.Sprintf("%s/%v/%d positions", strings.TrimSuffix(c.file, ".gguf"), c.kv, c.tokens), func(t *testing.T) {
			m := goldenModel(t, c.file)
			tokens := testTokens(m.Config.Vocab, c.tokens)
			got := accelTrace(t, m, smallDevice, accel.Options{KV: c.kv, Prefill: accel.PrefillExact}, tokens, len(tokens)-2, 1)
			n := layerdiff.Numerics{KV: c.kv.Format(quant.F16), Float: float32Bound}
			checkTrace(t, refTrace(t, m, ref.Numerics{KV: c.kv}, tokens, nil), got, n, nil)
			n.Followed = true
			checkTrace(t, refTrace(t, m, ref.Numerics{KV: c.kv}, tokens, got), got, n, nil)
		})
	}
}

// within demands that every operation stays within its bound at every position, and that
// the predictions are alike.
func checkTrace(t *testing.T, want, got *layerdiff.Trace, n layerdiff.Numerics, effects map[layerdiff.Op]float64) {
	t.Helper()
	r, err := layerdiff.Compare(want, got, n, effects)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("followed %v: %s", n.Followed, r.Verdict())
}
