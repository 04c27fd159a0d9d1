package model

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/model/gguf"
)

// keyRule says with which values a key may be ignored, although it changes the computation of some architectures. It applies
// only to keys that the loading of a model did not read.
type keyRule struct {
	keys []string // one that begins with a dot has the architecture before it
	// neutral lists the values that change nothing, as gguf.Value.String returns them. An
	// array is neutral if all its elements are.
	neutral []string
	same    func(*Config) string // one more neutral value
	when    func(*Config) bool   // whether the model has what the keys change; nil: always
	reason  string               // why other values are refused, or why any is neutral
}

// anyValue among neutral values stands for all.
const anyValue = "any"

var (
	zero      = []string{"0"}
	zeroOrOne = []string{"0", "1"} // some writers write 0 for a value that is not set
)

func mixture(c *Config) bool     { return c.Experts > 0 }
func windowed(c *Config) bool    { return c.Window > 0 }
func rotated(c *Config) bool     { return c.Rope.Dim > 0 }
func withoutYaRN(c *Config) bool { return rotated(c) && c.Rope.YaRN.Factor == 0 }

// fileRules refuses files that are no language model, or have blocks that package quant does
// not read. Such files lack other keys, so these rules come first.
var fileRules = []keyRule{
	{keys: []string{"general.type"}, neutral: []string{`"model"`}, reason: "the file is no language model"},
	{keys: []string{"adapter.type"}, reason: "the file changes another model"},
	{keys: []string{"general.quantization_version"}, neutral: []string{"2"}, reason: "blocks have another layout"},
}

// keyRules covers the keys of llama.cpp (its LLM_KV_NAMES) that no architecture or only some
// of them use.
var keyRules = []keyRule{
	{keys: []string{".tensor_data_layout"}, neutral: []string{`"reference"`, `"Meta AI original pth"`}, reason: "rows are in another order"},

	// Scales and activations.
	{keys: []string{".embedding_scale", ".residual_scale", ".logit_scale"}, neutral: zeroOrOne, reason: "activations are scaled"},
	{keys: []string{".attention.output_scale", ".attention.value_scale"}, neutral: zeroOrOne, reason: "attention is scaled"},
	{keys: []string{".attention.temperature_scale"}, neutral: zero, reason: "queries are scaled by their position"},
	{keys: []string{".attention.clamp_kqv", ".swiglu_clamp_exp", ".swiglu_clamp_shexp"}, neutral: zero, reason: "activations are clamped"},
	{keys: []string{".activation_sparsity_scale"}, neutral: zero, reason: "small activations become 0"},
	{keys: []string{".hidden_activation"}, same: activationName, reason: "another activation"},
	{keys: []string{"xielu.alpha_n", "xielu.alpha_p", "xielu.beta", "xielu.eps"}, reason: "another activation"},

	// Attention.
	{keys: []string{".attention.causal"}, neutral: []string{"true"}, reason: "attention is not causal"},
	{keys: []string{".attention.max_alibi_bias", ".attention.relative_buckets_count"}, neutral: zero, reason: "scores have an ALiBi or relative position bias"},
	{
		keys: []string{
			".attention.q_lora_rank", ".attention.kv_lora_rank", ".attention.key_length_mla", ".attention.value_length_mla",
			".attention.output_lora_rank", ".attention.output_group_count", ".attention.compress_ratios", ".attention.indexer.top_k",
		},
		neutral: zero, reason: "attention is latent or sparse",
	},
	{keys: []string{".attention.shared_kv_layers"}, neutral: zero, reason: "layers share keys and values"},
	{
		keys: []string{".attention.key_length_swa"}, when: windowed, reason: "layers have heads of different sizes",
		same: func(c *Config) string { return strconv.Itoa(c.HeadDim) },
	},
	{
		keys: []string{".attention.value_length_swa"}, when: windowed, reason: "layers have heads of different sizes",
		same: func(c *Config) string { return strconv.Itoa(c.ValueDim) },
	},
	{
		// Only the architectures with a windowPattern read them.
		keys: []string{".attention.sliding_window", ".attention.sliding_window_pattern"}, neutral: []string{anyValue},
		reason: "llama.cpp ignores the window in other architectures",
	},

	// RoPE.
	{keys: []string{".no_rope_layer_interval"}, neutral: zero, when: rotated, reason: "some layers have no RoPE"},
	{keys: []string{".rope.dimension_sections"}, neutral: zero, when: rotated, reason: "M-RoPE: tokens have several positions"},
	{
		keys: []string{".rope.dimension_count_swa"}, when: windowed, reason: "layers rotate different parts of a head",
		same: func(c *Config) string { return strconv.Itoa(c.Rope.Dim) },
	},
	{
		keys: []string{".rope.freq_base_swa", ".rope.local.freq_base"}, when: windowed, reason: "layers have different bases",
		same: func(c *Config) string { return fmt.Sprint(float32(c.Rope.Theta)) },
	},
	{
		keys: []string{".rope.global.freq_base"}, when: rotated, reason: "another base",
		same: func(c *Config) string { return fmt.Sprint(float32(c.Rope.Theta)) },
	},
	{keys: []string{".rope.scaling.alpha"}, neutral: zeroOrOne, when: rotated, reason: "the base is scaled"},
	{keys: []string{".rope.scaling.yarn_ext_factor"}, neutral: []string{"0", "-1"}, when: withoutYaRN, reason: "a YaRN parameter without YaRN"},
	{keys: []string{".rope.scaling.yarn_attn_factor"}, neutral: []string{"1"}, when: rotated, reason: "the magnitude of queries and keys has another factor"},
	{keys: []string{".rope.scaling.yarn_beta_fast"}, neutral: []string{"32"}, when: withoutYaRN, reason: "a YaRN parameter without YaRN"},
	{keys: []string{".rope.scaling.yarn_beta_slow"}, neutral: []string{"1"}, when: withoutYaRN, reason: "a YaRN parameter without YaRN"},
	{keys: []string{".rope.scaling.yarn_log_multiplier"}, neutral: zero, when: withoutYaRN, reason: "a YaRN parameter without YaRN"},
	{keys: []string{".rope.scaling.finetuned"}, neutral: []string{anyValue}, reason: "it says how the model was trained"},

	// Mixtures of experts.
	{
		keys: []string{".expert_weights_norm"}, when: mixture, reason: "the chosen experts' weights have another sum",
		same: func(c *Config) string { return strconv.FormatBool(c.ExpertNorm) },
	},
	{keys: []string{".expert_weights_scale"}, neutral: zeroOrOne, when: mixture, reason: "the experts' weights are scaled"},
	{keys: []string{".expert_gating_func"}, neutral: zero, same: gatingFunction, when: mixture, reason: "the router uses another function"},
	{keys: []string{".router_logit_softcapping"}, neutral: zero, when: mixture, reason: "the router's logits are soft-capped"},
	{keys: []string{".expert_group_count"}, neutral: zeroOrOne, when: mixture, reason: "experts are chosen by group"},
	{
		keys: []string{
			".expert_shared_count", ".expert_shared_feed_forward_length", ".expert_chunk_feed_forward_length", ".experts_per_group",
			".moe_latent_size",
		},
		neutral: zero, when: mixture, reason: "there are other networks than the experts",
	},
	{keys: []string{".leading_dense_block_count", ".moe_every_n_layers"}, neutral: zero, when: mixture, reason: "some layers are dense"},
	{keys: []string{".decoder_sparse_step", ".interleave_moe_layer_step"}, neutral: []string{"1"}, when: mixture, reason: "some layers are dense"},

	// Layers.
	{
		keys: []string{".use_parallel_residual"}, reason: "attention and the feed-forward network are in another order",
		same: func(c *Config) string { return strconv.FormatBool(c.ParallelFFN) },
	},
	{keys: []string{".swin_norm"}, neutral: []string{"false"}, reason: "norms are in other places"},
	{keys: []string{".nextn_predict_layers"}, neutral: zero, reason: "the last layers predict later tokens"},
	{keys: []string{".full_attention_interval"}, neutral: zeroOrOne, reason: "some layers are recurrent"},
	{keys: []string{".attention.recurrent_layers", ".ssm.dt_b_c_rms"}, neutral: []string{"false", "0"}, reason: "some layers are recurrent"},
	{
		keys: []string{
			".ssm.conv_kernel", ".ssm.inner_size", ".ssm.state_size", ".ssm.time_step_rank", ".ssm.group_count", ".shortconv.l_cache",
			".kda.head_dim", ".wkv.head_size", ".token_shift_count", ".rescale_every_n_layers", ".time_mix_extra_dim", ".time_decay_extra_dim",
			".attention.decay_lora_rank", ".attention.iclr_lora_rank", ".attention.value_residual_mix_lora_rank", ".attention.gate_lora_rank",
		},
		neutral: zero, reason: "some layers are recurrent",
	},
	{
		keys: []string{
			".embedding_length_per_layer_input", ".altup.num_inputs", ".hyper_connection.count", ".hash_layer_count", ".n_deepstack_layers",
			".decoder_block_count", ".features_length", ".attention.group_norm_groups", ".posnet.block_count", ".convnext.block_count",
		},
		neutral: zero, reason: "there are other layers than transformer blocks",
	},
	{keys: []string{".deepstack_mapping", ".target_layers"}, reason: "layers have other inputs"},
	{
		keys: []string{".embedding_length_out"}, neutral: zero, reason: "the output has another width",
		same: func(c *Config) string { return strconv.Itoa(c.Hidden) },
	},

	// Without effect.
	{
		keys: []string{
			".classifier.output_labels", ".dense_2_feat_in", ".dense_2_feat_out", ".dense_3_feat_in", ".dense_3_feat_out",
		},
		neutral: []string{anyValue}, reason: "logits do not depend on what is made of the last layer's output",
	},
	{
		keys: []string{
			".altup.active_idx", ".attention.compress_rope_freq_base", ".attention.group_norm_epsilon", ".attention.indexer.head_count",
			".attention.indexer.key_length", ".attention.temperature_length", ".convnext.embedding_length", ".decoder_start_token_id",
			".expert_group_scale", ".expert_group_used_count", ".hyper_connection.epsilon", ".hyper_connection.sinkhorn_iterations",
			".norm_before_residual", ".posnet.embedding_length", ".target_hidden_size",
		},
		neutral: []string{anyValue}, reason: "it is used only with a key above",
	},
}

// activationName returns Transformers' name of the activation.
func activationName(c *Config) string {
	if c.Activation == GELU {
		return `"gelu_pytorch_tanh"`
	}
	return `"silu"`
}

// gatingFunction returns llama.cpp's number of the router's function.
func gatingFunction(c *Config) string {
	if c.RouterSigmoid {
		return "2"
	}
	return "1"
}

// refuseUnread refuses a file if a key that was not read asks for another computation than c.
func refuseUnread(k *keys, c *Config, rules []keyRule) {
	for _, r := range rules {
		if r.when != nil && !r.when(c) {
			continue
		}
		neutral := r.neutral
		if r.same != nil {
			neutral = append(slices.Clip(neutral), r.same(c))
		}
		for _, name := range withAliases(r.keys) {
			if strings.HasPrefix(name, ".") {
				name = k.prefix + name
			}
			v, ok := k.f.Value(name)
			if !ok || k.seen[name] || isNeutral(v, neutral) {
				continue
			}
			want := ""
			if len(neutral) > 0 {
				want = ", want " + strings.Join(neutral, " or ")
			}
			k.fail(fmt.Errorf("key %q: %w: %s%s: %s", name, ErrUnsupported, v, want, r.reason))
		}
	}
}

// withAliases returns keys of a rule and their aliases.
func withAliases(names []string) (all []string) {
	for _, name := range names {
		all = append(all, name)
		if alias, ok := keyAliases[strings.TrimPrefix(name, ".")]; ok {
			all = append(all, "."+alias)
		}
	}
	return all
}

// isNeutral reports whether a value, or each element of an array of at most one number per
// layer, is one of the neutral ones.
func isNeutral(v gguf.Value, neutral []string) bool {
	switch {
	case slices.Contains(neutral, anyValue):
		return true
	case !v.IsArray():
		return slices.Contains(neutral, v.String())
	case v.Len() > maxLayers || v.TypeName() == "array of string":
		return false
	}
	all := reflect.ValueOf(v.Any())
	for i := range all.Len() {
		if !slices.Contains(neutral, fmt.Sprint(all.Index(i))) {
			return false
		}
	}
	return true
}
