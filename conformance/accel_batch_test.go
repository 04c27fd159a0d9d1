package conformance

import (
	"path"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// newNeighbors returns streams with prompts of different lengths and given numbers of tokens, and
// the logits that each computes alone.
func newNeighbors(t testing.TB, e *accel.Engine, tokens []int, steps []int) (list []*stream, want [][]float32) {
	t.Helper()
	for i, n := range steps {
		x := &stream{s: openText(t, e), prompt: testTokens(e.Model().Config.Vocab, 3+i%5*7+i%8), tokens: tokens[:n]}
		t.Cleanup(func() { x.s.Close() })
		list, want = append(list, x), append(want, freshLogits(t, e, x.prompt, x.tokens))
	}
	return list, want
}

func checkSameAsAlone(t testing.TB, list []*stream, want [][]float32) {
	t.Helper()
	for i, x := range list {
		if hashLogits(x.logits) != hashLogits(want[i]) {
			t.Errorf("sequence %d differs from its result alone in logit %d", i, firstDifference(want[i], x.logits))
		}
	}
}

// TestAccelNeighbors computes four sequences in steps of changing composition, up to 4 or 3 at a
// time, and demands the bits that each computes alone.
func TestAccelNeighbors(t *testing.T) {
	parallelUnlessGPU(t)
	arch, each := "qwen3moe", 5
	if testing.Short() {
		arch, each = "llama", 1
	}
	m := tinyModel(t, arch)
	tokens := testTokens(m.Config.Vocab, 4*each)
	for _, most := range []int{4, 3} {
		e := accelEngine(t, m, smallDevice, accel.Options{MaxSequences: most})
		list, want := newNeighbors(t, e, tokens, []int{4 * each, 3 * each, 3 * each, 2 * each})
		together(t, e, list, most)
		checkSameAsAlone(t, list, want)
		if s := e.Stats(); s.LargestBatch != most && !testing.Short() {
			t.Errorf("the largest step has %d sequences, want %d", s.LargestBatch, most)
		}
	}
}

// TestAccelLargeBatch computes 20 sequences in one step: more tokens than Stream takes, and more slots than there are
// experts. It computes 130 in steps of 256 slots. Each must compute the same bits as alone.
func TestAccelLargeBatch(t *testing.T) {
	parallelUnlessGPU(t)
	for _, c := range []struct {
		name, kernel string
		sequences    int
		model        func(t *testing.T) *model.Model
	}{
		{"experts", "product_tile_*_experts*", 20, func(t *testing.T) *model.Model { return tinyModel(t, "qwen3moe") }},
		{"wgmma", "product_tile_q4_k_*_gated", 20, func(t *testing.T) *model.Model {
			skipIfShort(t)
			return goldenModel(t, "quant/q4_k.gguf")
		}},
		{"256 slots", "product_tile_*", 130, func(t *testing.T) *model.Model {
			skipIfShort(t)
			return tinyModel(t, "llama")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { checkLargeBatch(t, c.model(t), c.sequences, c.kernel) })
	}
}

// checkLargeBatch demands that the step of all sequences launches a kernel whose name matches
// a pattern.
func checkLargeBatch(t *testing.T, m *model.Model, sequences int, kernel string) {
	seen := false
	e := accelEngine(t, m, smallDevice, accel.Options{MaxSequences: 256, KVPages: 256, Timer: func(took accel.Timing) {
		for _, s := range took.Launches {
			matches, err := path.Match(kernel, s.Kernel)
			if err != nil {
				t.Error(err)
			}
			seen = seen || took.Tokens >= sequences && matches
		}
	}})
	list, want := newNeighbors(t, e, []int{29}, slices.Repeat([]int{1}, sequences))
	var rows []model.Row
	for _, x := range list {
		promptThenSteps(t, x.s, x.prompt, nil)
		rows = append(rows, x.row())
	}
	for i, out := range results(t, e, rows...) {
		list[i].logits = out.Logits
	}
	checkSameAsAlone(t, list, want)
	if s := e.Stats(); s.LargestBatch != sequences || !seen {
		t.Errorf("the largest step has %d sequences; launched %s: %v", s.LargestBatch, kernel, seen)
	}
}
