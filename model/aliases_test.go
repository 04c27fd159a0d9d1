package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
)

// TestOllamaFiles loads models in the form that Ollama published, and in the usual form.
func TestOllamaFiles(t *testing.T) {
	replace := strings.NewReplacer
	scaled := func(m *tiny.Model) {
		m.Set(".context_length", uint32(1<<17))
		m.Set(".rope.scaling.type", "linear")
		m.Set(".rope.scaling.factor", float32(8))
	}
	yarn := func(m *tiny.Model) {
		m.Set(".rope.scaling.factor", float32(4))
		m.Set(".rope.scaling.original_context_length", uint32(16))
		m.Set(".rope.scaling.yarn_beta_fast", float32(20))
		m.Set(".rope.scaling.yarn_beta_slow", float32(2))
	}
	nothing := func(*tiny.Model) {}
	for _, tt := range []struct {
		name, arch     string
		usual, change  func(m *tiny.Model)
		keys, tensors  *strings.Replacer
		ollama, reason string
	}{
		{
			name: "gpt-oss", arch: "gpt-oss", reason: "another architecture name, YaRN and the experts' width left out", ollama: "gptoss",
			usual: func(m *tiny.Model) {
				yarn(m)
				m.Set(".rope.scaling.type", "yarn")
			},
			change: func(m *tiny.Model) {
				m.Delete(".rope.scaling.type")
				m.Delete(".expert_feed_forward_length")
			},
			keys:    replace("gpt-oss.", "gptoss."),
			tensors: replace("attn_output", "attn_out", "attn_sinks.weight", "attn_sinks", "post_attention_norm", "ffn_norm"),
		},
		{name: "olmo3", arch: "olmo2", reason: "another architecture name", usual: nothing, change: nothing, keys: replace("olmo2.", "olmo3."), ollama: "olmo3"},
		{
			name: "gemma3", arch: "gemma3", reason: "ε and the scaling of RoPE are left out", usual: func(m *tiny.Model) {
				scaled(m)
				m.Set(epsKey, float32(1e-6))
			},
			change: func(m *tiny.Model) {
				m.Delete(epsKey)
				m.Delete(".rope.scaling.type")
				m.Delete(".rope.scaling.factor")
			},
		},
		{
			name: "gemma3, texts alone", arch: "gemma3", reason: "with ε and the bases by other names", usual: func(m *tiny.Model) {
				scaled(m)
				m.Set(".rope.freq_base", float32(9e5))
				m.Set(".rope.freq_base_swa", float32(9000))
			},
			change: func(m *tiny.Model) {
				m.Delete(".rope.scaling.type")
				m.Delete(".rope.scaling.factor")
			},
			keys: replace("rope.freq_base_swa", "rope.local.freq_base", "rope.freq_base", "rope.global.freq_base"),
		},
		{
			name: "gemma3, images", arch: "gemma3", reason: "the scaling of RoPE is left out beside encoders", usual: scaled, change: func(m *tiny.Model) {
				m.Delete(".rope.scaling.type")
				m.Delete(".rope.scaling.factor")
				m.Add("v.patch_embedding.weight", 4, 4)
			},
		},
		{
			name: "gemma3, short", arch: "gemma3", reason: "a shorter context was never scaled", usual: func(m *tiny.Model) { m.Set(".context_length", uint32(1<<17-1)) },
			change: func(m *tiny.Model) { m.Set(".mm.tokens_per_image", uint32(256)) },
		},
		{name: "gemma4", arch: "gemma4", reason: "the experts' scales by another name", usual: nothing, change: nothing, tensors: replace("ffn_down_exps.scale", "ffn_gate_inp.per_expert_scale")},
		{
			name: "mistral3", arch: "mistral3", reason: "YaRN by other names", usual: yarn, change: nothing,
			keys: replace("yarn_beta_fast", "beta_fast", "yarn_beta_slow", "beta_slow", "yarn_log_multiplier", "mscale_all_dim", "attention.temperature_scale", "rope.scaling_beta"),
		},
		{
			name: "qwen35", arch: "qwen35", reason: "three sections, no key-value heads in recurrent layers", usual: nothing, change: func(m *tiny.Model) {
				m.Set(".rope.dimension_sections", []int32{1, 1, 0})
				m.Set(kvHeadsKey, []uint32{0, 2})
				m.Add("mtp.fc.weight", tiny.Hidden, tiny.Hidden)
			},
			tensors: replace("ssm_dt.bias", "ssm_dt"),
		},
		{name: "qwen3next", arch: "qwen3next", reason: "no key-value heads in recurrent layers", usual: nothing, change: func(m *tiny.Model) { m.Set(kvHeadsKey, []uint32{0, 2}) }, tensors: replace("ssm_dt.bias", "ssm_dt")},
		{
			name: "images and sound", arch: "llama4", reason: "encoders in the same file", usual: nothing, change: func(m *tiny.Model) {
				for _, name := range []string{"v.blk.0.attn_q.weight", "mm.0.weight", "a.conv1d.0.weight", "model.vision_tower.x"} {
					m.Add(name, 4, 4)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			load := func(change func(m *tiny.Model)) *Model {
				spec := tiny.New(tt.arch, 1)
				tt.usual(spec)
				change(spec)
				m, err := Load(spec.File())
				if err != nil {
					t.Fatalf("%s: %v", tt.reason, err)
				}
				return m
			}
			want := load(nothing)
			got := load(func(spec *tiny.Model) {
				tt.change(spec)
				spec.Rename(or(tt.keys), or(tt.tensors))
				if tt.ollama != "" {
					spec.Set(archKey, tt.ollama)
				}
			})
			config := got.Config
			config.Arch = want.Config.Arch
			if diff := cmp.Diff(want.Config, config); diff != "" {
				t.Errorf("%s: configuration, -usual +Ollama:\n%s", tt.reason, diff)
			}
			sameNames := cmp.Transformer("unnamed", func(m Matrix) any { return []any{m.Format, m.Rows, m.Cols, m.Data} })
			if diff := cmp.Diff(want.Weights, got.Weights, sameNames); diff != "" {
				t.Errorf("%s: weights, -usual +Ollama:\n%s", tt.reason, diff)
			}
		})
	}
}

// or returns a replacer that changes nothing instead of nil.
func or(r *strings.Replacer) *strings.Replacer {
	if r == nil {
		return strings.NewReplacer()
	}
	return r
}

// TestOllamaVocabularies loads vocabularies in the form that Ollama published.
func TestOllamaVocabularies(t *testing.T) {
	text := "the error <image_soft_token> in the hat"
	encode := func(arch string, change func(m *tiny.Model)) []int {
		t.Helper()
		spec := tiny.New(arch, 1)
		spec.AddVocab(false)
		if arch == "gemma4" {
			bytesAndMerges(spec)
		}
		change(spec)
		m, err := Load(spec.File())
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		tok, err := m.NeedTokenizer()
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		alone, err := LoadTokenizer(spec.File())
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		ids := tok.Encode(text, true)
		if diff := cmp.Diff(ids, alone.Encode(text, true)); diff != "" {
			t.Errorf("%s: the tokenizer alone, -model +alone:\n%s", arch, diff)
		}
		return ids
	}
	set := func(key string, value any) func(m *tiny.Model) { return func(m *tiny.Model) { m.Set(key, value) } }
	const pre = "tokenizer.ggml.pre"
	for _, tt := range []struct {
		name, arch    string
		usual, ollama func(m *tiny.Model)
	}{
		{"gpt-oss without a pre-tokenizer", "gpt-oss", set(pre, "gpt-4o"), func(m *tiny.Model) { m.Delete(pre) }},
		{"mistral3 with the default one", "mistral3", set(pre, "tekken"), set(pre, "default")},
		{"gemma3 with tokens of images", "gemma3", func(*tiny.Model) {}, func(m *tiny.Model) { m.AddTokens("<image_soft_token>", "<start_of_image>") }},
		{
			"gemma4 as SentencePiece", "gemma4", func(m *tiny.Model) {
				m.Set("tokenizer.ggml.model", "gemma4")
				m.Set(pre, "gemma4")
			}, func(m *tiny.Model) {
				m.Set("tokenizer.ggml.model", "llama")
				m.Set(pre, "gemma4")
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(encode(tt.arch, tt.usual), encode(tt.arch, tt.ollama)); diff != "" {
				t.Errorf("-usual +Ollama:\n%s", diff)
			}
		})
	}
}

// bytesAndMerges replaces the vocabulary by one of tokens of single bytes, and of merges of letters.
func bytesAndMerges(m *tiny.Model) {
	const normal, byteToken = 1, 6
	var tokens []string
	for b := range 256 {
		tokens = append(tokens, fmt.Sprintf("<0x%02X>", b))
	}
	types := slices.Repeat([]int32{byteToken}, len(tokens))
	tokens = append(tokens, "t", "h", "e", "th", "the", "▁", "▁the", "r")
	types = append(types, slices.Repeat([]int32{normal}, len(tokens)-len(types))...)
	m.Set(tokensKey, tokens)
	m.Set(typesKey, types)
	m.Set("tokenizer.ggml.merges", []string{"t h", "th e", "▁ the"})
}
