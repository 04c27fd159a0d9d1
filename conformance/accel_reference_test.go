package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/internal/layerdiff"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// tracedModel is a model whose operations are all compared with the reference.
type tracedModel struct {
	file   string // in the golden directory
	kv     model.KVFormat
	tokens int
	long   bool
}

func tracedModels() []tracedModel {
	var all []tracedModel
	for _, f := range modelFiles("arch") {
		for _, kv := range []model.KVFormat{model.KVF16, model.KVBF16} {
			all = append(all, tracedModel{f, kv, 70, true})
			if kv == model.KVF16 || f == "arch/llama-gqa.gguf" {
				all = append(all, tracedModel{f, kv, 18, false})
			}
		}
	}
	for i, f := range modelFiles("quant") {
		all = append(all, tracedModel{f, model.KVF16, 3, i%3 != 0}, tracedModel{f, model.KVF16, 70, true})
	}
	return all
}

// TestAccelOperations compares each operation of each layer with the reference, in prompts
// and in single steps.
func TestAccelOperations(t *testing.T) {
	slowParallel(t)
	for _, c := range tracedModels() {
		if c.long && !*longCases {
			continue
		}
		t.Run(fmt.Sprintf("%s/%v/%d positions", strings.TrimSuffix(c.file, ".gguf"), c.kv, c.tokens), func(t *testing.T) {
			m := goldenModel(t, c.file)
			tokens := testTokens(m.Config.Vocab, c.tokens)
			got := accelTrace(t, m, smallDevice, accel.Options{KV: c.kv}, tokens, slices.Repeat([]int{1}, len(tokens)-1)...)
			checkRounded(t, m, accelnumerics.Of(c.kv, m.Config.HeadDim), tokens, got)
		})
	}
}

// TestAccelCombinedForms compares models of forms that no golden model combines: gemma4 has experts with scales, layers with
// inputs, and layers that use the keys and values of others; gemma3n has layers of several sparsities.
func TestAccelCombinedForms(t *testing.T) {
	slowParallel(t)
	for _, arch := range []string{"gemma4", "gemma3n"} {
		t.Run(arch, func(t *testing.T) {
			m := tinyModel(t, arch)
			tokens := testTokens(m.Config.Vocab, 14)
			steps := accelTrace(t, m, smallDevice, accel.Options{}, tokens, slices.Repeat([]int{1}, len(tokens)-1)...)
			checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, steps)
			prompt := accelTrace(t, m, smallDevice, accel.Options{}, tokens)
			checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, prompt)
		})
	}
}

// TestAccelFewerLayerInputs compares the engine with the reference on a model whose per-layer embedding has no rows for the last tokens.
func TestAccelFewerLayerInputs(t *testing.T) {
	slowParallel(t)
	const rows = 9
	spec := tiny.New("gemma3n", 1)
	spec.Reshape("per_layer_token_embd.weight", tinyModel(t, "gemma3n").Weights.InputEmbedding.Cols, rows)
	m := withText(t, spec)
	tokens := []int{1, rows - 1, rows, m.Config.Vocab - 1}
	steps := accelTrace(t, m, smallDevice, accel.Options{}, tokens, slices.Repeat([]int{1}, len(tokens)-1)...)
	checkRounded(t, m, accelnumerics.Of(model.KVF16, m.Config.HeadDim), tokens, steps)
}

// TestAccelLargeHeads compares a model with the heads of Gemma 4's layers without a window.
func TestAccelLargeHeads(t *testing.T) {
	slowParallel(t)
	const dim = 512
	spec := tiny.New("llama", 1)
	spec.OneLayer()
	spec.Set(".attention.key_length", uint32(dim))
	spec.Set(".attention.value_length", uint32(dim))
	spec.Reshape("blk.0.attn_q.weight", tiny.Hidden, tiny.Heads*dim)
	spec.Reshape("blk.0.attn_k.weight", tiny.Hidden, 2*dim)
	spec.Reshape("blk.0.attn_v.weight", tiny.Hidden, 2*dim)
	spec.Reshape("blk.0.attn_output.weight", tiny.Heads*dim, tiny.Hidden)
	m := withText(t, spec)
	tokens := testTokens(m.Config.Vocab, 14)
	steps := accelTrace(t, m, smallDevice, accel.Options{}, tokens, slices.Repeat([]int{1}, len(tokens)-1)...)
	checkRounded(t, m, accelnumerics.Of(model.KVF16, dim), tokens, steps)
	prompt := accelTrace(t, m, smallDevice, accel.Options{}, tokens)
	followed := refTrace(t, m, accelnumerics.Of(model.KVF16, dim), tokens, prompt)
	checkTrace(t, followed, prompt, layerdiff.Numerics{KV: quant.F16, Input: quant.F16, Float: float32Bound, Followed: true}, nil)
}
