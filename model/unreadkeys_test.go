package model

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// TestUnreadKeys sets keys that other architectures use. A value that asks for another
// computation is refused by name; one that changes nothing loads as without the key.
func TestUnreadKeys(t *testing.T) {
	const llama, gpt2, gemma2, gemma3, phi2, phi3, moe = "llama", "gpt2", "gemma2", "gemma3", "phi2", "phi3", "qwen3moe"
	tests := []struct {
		arch    string
		key     string
		refused []any
		loads   []any
	}{
		{llama, "general.type", []any{"adapter", "mmproj", uint32(1)}, []any{"model"}},
		{llama, "adapter.type", []any{"lora"}, nil},
		{llama, "general.quantization_version", []any{uint32(1), uint32(3)}, []any{uint32(2), int32(2)}},
		{llama, ".tensor_data_layout", []any{"jploski"}, []any{"Meta AI original pth"}},

		{moe, ".expert_weights_norm", []any{false}, []any{true}},
		{"qwen3", ".expert_weights_norm", nil, []any{false}}, // dense
		{moe, ".expert_weights_scale", []any{float32(2.5)}, []any{float32(1), float32(0)}},
		{moe, ".expert_gating_func", []any{uint32(2)}, []any{uint32(1)}},
		{moe, ".expert_group_count", []any{uint32(8)}, []any{uint32(1), uint32(0)}},
		{moe, ".expert_group_used_count", nil, []any{uint32(1)}},
		{moe, ".expert_shared_count", []any{uint32(1)}, []any{uint32(0)}},
		{moe, ".expert_shared_feed_forward_length", []any{uint32(48)}, []any{uint32(0)}},
		{moe, ".expert_chunk_feed_forward_length", []any{uint32(48)}, nil},
		{moe, ".decoder_sparse_step", []any{uint32(2)}, []any{uint32(1)}},
		{moe, ".interleave_moe_layer_step", []any{uint32(2)}, []any{uint32(1)}},
		{moe, ".moe_every_n_layers", []any{uint32(2)}, nil},
		{moe, ".leading_dense_block_count", []any{uint32(1)}, []any{uint32(0)}},
		{moe, ".router_logit_softcapping", []any{float32(30)}, []any{float32(0)}},

		{llama, ".nextn_predict_layers", []any{uint32(1)}, []any{uint32(0)}},
		{llama, ".no_rope_layer_interval", []any{uint32(4)}, []any{uint32(0)}},
		{gpt2, ".no_rope_layer_interval", nil, []any{uint32(4)}}, // no layer has RoPE
		{llama, ".attention.temperature_scale", []any{float32(0.1)}, []any{float32(0)}},
		{llama, ".rope.scaling.yarn_ext_factor", []any{float32(1)}, []any{float32(-1)}},
		{phi3, ".rope.scaling.yarn_attn_factor", []any{float32(1.2)}, []any{float32(1)}},
		{llama, ".rope.scaling.yarn_beta_fast", []any{float32(16)}, []any{float32(32)}},
		{llama, ".rope.scaling.yarn_beta_slow", []any{float32(2)}, []any{float32(1)}},
		{llama, ".rope.scaling.yarn_log_multiplier", []any{float32(0.1)}, []any{float32(0)}},
		{llama, ".rope.scaling.alpha", []any{float32(1000)}, []any{float32(0)}},
		{llama, ".rope.scaling.finetuned", nil, []any{true, false}},
		{phi3, ".rope.scaling.original_context_length", nil, []any{uint32(tiny.Context)}},
		{llama, ".rope.dimension_sections", []any{[]int32{2, 1, 1, 0}, []string{"0"}, make([]int32, maxLayers+1)}, []any{[]int32{0, 0, 0, 0}}},
		{gemma2, ".rope.dimension_count_swa", []any{uint32(4)}, []any{uint32(tiny.HeadDim)}},
		{gemma2, ".rope.freq_base_swa", []any{float32(1e6)}, []any{float32(1e4)}},
		{gemma3, ".rope.freq_base_swa", nil, []any{float32(1e4)}},
		{llama, ".rope.freq_base_swa", nil, []any{float32(1e6)}}, // no windows
		{gemma3, ".rope.global.freq_base", []any{float32(1e4)}, []any{float32(1e6)}},

		{llama, ".attention.causal", []any{false}, []any{true}},
		{llama, ".attention.clamp_kqv", []any{float32(8)}, []any{float32(0)}},
		{llama, ".attention.max_alibi_bias", []any{float32(8)}, []any{float32(0)}},
		{llama, ".attention.key_length_mla", []any{uint32(192)}, nil},
		{llama, ".attention.output_scale", []any{float32(0.5)}, []any{float32(1)}},
		{llama, ".attention.shared_kv_layers", []any{uint32(1)}, []any{uint32(0)}},
		{gemma2, ".attention.key_length_swa", []any{uint32(4)}, []any{uint32(tiny.HeadDim)}},
		{gemma2, ".attention.value_length_swa", []any{uint32(4)}, []any{uint32(tiny.HeadDim)}},
		{"qwen2", ".attention.sliding_window", nil, []any{uint32(4096)}},
		{llama, ".attention.recurrent_layers", []any{[]bool{true, false}}, []any{[]bool{false, false}}},

		{llama, ".embedding_scale", []any{float32(12)}, []any{float32(1)}},
		{llama, ".residual_scale", []any{float32(0.22), "1"}, []any{float32(1)}},
		{llama, ".logit_scale", []any{float32(0.06)}, []any{float32(0), 1.0}},
		{llama, ".hidden_activation", []any{"relu"}, []any{"silu"}},
		{gemma2, ".hidden_activation", []any{"silu"}, []any{"gelu_pytorch_tanh"}},
		{llama, ".use_parallel_residual", []any{true}, []any{false}},
		{phi2, ".use_parallel_residual", []any{false}, []any{true}},
		{llama, ".swin_norm", []any{true}, []any{false}},
		{llama, ".ssm.conv_kernel", []any{uint32(4)}, []any{uint32(0)}},
		{llama, ".full_attention_interval", []any{uint32(4)}, []any{uint32(1)}},
		{llama, ".embedding_length_per_layer_input", []any{uint32(256)}, []any{uint32(0)}},
		{llama, ".embedding_length_out", []any{uint32(64)}, []any{uint32(tiny.Hidden)}},
		{llama, ".deepstack_mapping", []any{[]int32{1}}, nil},
		{llama, ".unheard_of", nil, []any{uint32(3), "text"}},
	}
	for _, tt := range tests {
		t.Run(tt.arch+"/"+tt.key, func(t *testing.T) {
			load := func(value any) (*Model, error) {
				spec := tiny.New(tt.arch, 1)
				if value != nil {
					spec.Set(tt.key, value)
				}
				return Load(spec.File())
			}
			plain, err := load(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, value := range tt.loads {
				m, err := load(value)
				if err != nil {
					t.Errorf("%v: %v", value, err)
				} else if diff := cmp.Diff(plain.Config, m.Config); diff != "" {
					t.Errorf("%v changed the model (-without +with):\n%s", value, diff)
				}
			}
			name := tt.key
			if strings.HasPrefix(name, ".") {
				name = tt.arch + name
			}
			for _, value := range tt.refused {
				if _, err := load(value); !errors.Is(err, ErrUnsupported) || !strings.HasPrefix(err.Error(), fmt.Sprintf("model: key %q: unsupported: ", name)) {
					t.Errorf("%v: error %v, want an ErrUnsupported that names the key", value, err)
				}
			}
		})
	}
}

// Keys of published files load, with the values that these files have.
func TestPublishedKeys(t *testing.T) {
	everywhere := map[string]any{
		"general.type": "model", "general.quantization_version": uint32(2), "general.file_type": uint32(15), "general.tags": []string{"chat"},
		"general.size_label": "8B", "general.base_model.count": uint32(1), "quantize.imatrix.chunks_count": int32(125),
		"split.no": uint16(0), "split.count": uint16(0), "split.tensors.count": int32(291),
	}
	for arch, keys := range map[string]map[string]any{
		"llama":    {".tensor_data_layout": "Meta AI original pth", ".rope.scaling.finetuned": false, ".pooling_type": uint32(3)},
		"qwen2":    {".attention.sliding_window": uint32(131072)},
		"qwen3":    {".pooling_type": uint32(3)},
		"qwen3moe": {".expert_shared_feed_forward_length": uint32(0), ".expert_weights_norm": true, ".decoder_sparse_step": uint32(1)},
		"phi3": {
			".rope.scaling.attn_factor": float32(1.190238), ".rope.scaling.original_context_length": uint32(4096),
			".attention.sliding_window": uint32(262144),
		},
		"gemma3": {
			".rope.scaling.type": "linear", ".rope.scaling.factor": float32(8), ".rope.freq_base_swa": float32(10000),
			".attention.sliding_window_pattern": uint32(6),
		},
	} {
		spec := tiny.New(arch, 1)
		for _, set := range []map[string]any{everywhere, keys} {
			for key, value := range set {
				spec.Set(key, value)
			}
		}
		if _, err := Load(spec.File()); err != nil {
			t.Errorf("%s: %v", arch, err)
		}
	}
}

// A file that is no language model is refused as such, although it lacks other keys.
func TestOtherFiles(t *testing.T) {
	for key, value := range map[string]any{"general.type": "adapter", "adapter.type": "lora"} {
		w := gguf.NewWriter()
		if err := w.Set(key, value); err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if _, err := w.WriteTo(&file); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Parse(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Load(f); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: error %v, want an ErrUnsupported that names it", key, err)
		}
	}
}

// No key is decided twice: the second decision would count for nothing, or refuse a value
// that the first lets load.
func TestKeyRulesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range slices.Concat(fileRules, keyRules) {
		if r.reason == "" {
			t.Errorf("%q: no reason", r.keys)
		}
		for _, key := range r.keys {
			if seen[key] {
				t.Errorf("%q has two rules", key)
			}
			seen[key] = true
		}
	}
}

// The error names the key, its value, the values that load and what others would change.
func TestUnreadKeyMessage(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.Set(".logit_scale", float32(0.0625))
	_, err := Load(spec.File())
	if want := `model: key "llama.logit_scale": unsupported: 0.0625, want 0 or 1: activations are scaled`; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// An architecture takes a key off the table by reading it.
func TestReadKeysAreNotRefused(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.Set(".logit_scale", float32(0.0625))
	for _, read := range []bool{true, false} {
		k := &keys{f: spec.File(), prefix: "llama"}
		if read {
			k.float("logit_scale", 1)
		}
		if refuseUnread(k, &Config{}, keyRules); (k.err == nil) != read {
			t.Errorf("read %v: error %v", read, k.err)
		}
	}
}
