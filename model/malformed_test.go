package model

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// change makes a model file malformed.
type change func(m *tiny.Model)

func set(key string, v any) change          { return func(m *tiny.Model) { m.Set(key, v) } }
func del(key string) change                 { return func(m *tiny.Model) { m.Delete(key) } }
func drop(tensor string) change             { return func(m *tiny.Model) { m.Drop(tensor) } }
func add(tensor string, dims ...int) change { return func(m *tiny.Model) { m.Add(tensor, dims...) } }
func reshape(tensor string, dims ...int) change {
	return func(m *tiny.Model) { m.Reshape(tensor, dims...) }
}
func reformat(tensor string, f quant.Format) change {
	return func(m *tiny.Model) { m.Reformat(tensor, f) }
}

// layerInputs returns the length of the rows of a tiny model's embedding for layers.
func layerInputs(arch string) int {
	m, err := Load(tiny.New(arch, 1).File())
	if err != nil {
		panic(err)
	}
	return m.Weights.InputEmbedding.Cols
}

func both(a, b change) change { return func(m *tiny.Model) { a(m); b(m) } }

const (
	epsKey      = ".attention.layer_norm_rms_epsilon"
	baseKey     = ".rope.freq_base"
	layerEps    = ".attention.layer_norm_epsilon"
	tokensKey   = "tokenizer.ggml.tokens"
	typesKey    = "tokenizer.ggml.token_type"
	embedding   = "token_embd.weight"
	ropeDimKey  = ".rope.dimension_count"
	headsKey    = ".attention.head_count"
	kvHeadsKey  = ".attention.head_count_kv"
	firstNorm   = "blk.0.attn_norm.weight"
	scalingType = ".rope.scaling.type"
	sparsityKey = ".activation_sparsity_scale"
)

// malformed lists files that Load must refuse, with the key or tensor that the error must
// name.
var malformed = []struct {
	name, reason string
	arch         string
	change       change
	sentinel     error
	text         string
}{
	{"no architecture", "nothing else can be read", "llama", del("general.architecture"), errMissingKey, "general.architecture"},
	{"unknown architecture", "the error lists the known ones", "llama", set("general.architecture", "mamba"), errUnsupportedArch, `"mamba": it is none of cohere2`},
	{"empty architecture", "not an architecture", "llama", set("general.architecture", ""), errUnsupportedArch, `""`},

	{"no layers", "a model needs layers", "llama", set(".block_count", uint32(0)), errBadKey, "llama.block_count"},
	{"513 layers", "beyond any model", "llama", set(".block_count", uint32(513)), errBadKey, "513"},
	{"huge layers", "overflows an int", "llama", set(".block_count", uint64(math.MaxUint64)), errBadKey, "llama.block_count"},
	{"negative layers", "signed types are allowed, negative values are not", "llama", set(".block_count", int32(-1)), errBadKey, "llama.block_count"},
	{"layers as text", "a wrong type", "llama", set(".block_count", "2"), errBadKey, "llama.block_count"},
	{"layers as float", "a wrong type", "llama", set(".block_count", float32(2)), gguf.ErrType, "llama.block_count"},
	{"layers missing", "required", "llama", del(".block_count"), errMissingKey, "llama.block_count"},
	{"more layers than tensors", "the first that is not there", "llama", set(".block_count", uint32(3)), errMissingTensor, "blk.2.attn_norm.weight"},
	{"fewer layers than tensors", "weights left over", "llama", set(".block_count", uint32(1)), errSurplusTensor, "blk.1."},
	{"a layer far beyond", "weights left over", "llama", add("blk.9.attn_q.weight", 32, 32), errSurplusTensor, "block_count is 2"},

	{"no context", "no position at all", "llama", set(".context_length", uint32(0)), errBadKey, "llama.context_length"},
	{"absurd context", "positions times anything overflows", "llama", set(".context_length", uint64(1)<<62), errBadKey, "llama.context_length"},
	{"context missing", "the limit of a session", "llama", del(".context_length"), errMissingKey, "llama.context_length"},
	{"context beyond positions", "learned positions end", "gpt2", set(".context_length", uint32(97)), errTensorShape, "position_embd.weight"},

	{"no width", "empty rows", "llama", set(".embedding_length", uint32(0)), errBadKey, "llama.embedding_length"},
	{"another width", "not the embedding's", "llama", set(".embedding_length", uint32(64)), errTensorShape, embedding},
	{"absurd width", "products overflow", "llama", set(".embedding_length", uint64(1)<<40), errBadKey, "llama.embedding_length"},
	{"width missing", "required", "llama", del(".embedding_length"), errMissingKey, "llama.embedding_length"},

	{"no heads", "a division by it", "llama", set(headsKey, uint32(0)), errBadKey, "llama.attention.head_count"},
	{"heads missing", "required", "llama", del(headsKey), errMissingKey, "llama.attention.head_count"},
	{"too many heads", "products overflow", "llama", set(headsKey, uint32(math.MaxUint32)), errBadKey, "llama.attention.head_count"},
	{"no kv heads", "a division by it", "llama", set(kvHeadsKey, uint32(0)), errBadKey, "llama.attention.head_count_kv"},
	{"odd groups", "heads no multiple of kv heads", "llama", set(kvHeadsKey, uint32(3)), errBadKey, "no multiple of 3"},
	{"more kv heads", "a group of less than one", "llama", set(kvHeadsKey, uint32(8)), errBadKey, "no multiple of 8"},
	{"uneven heads", "width no multiple of heads", "llama", both(set(headsKey, uint32(5)), set(kvHeadsKey, uint32(5))), errBadKey, "no multiple of the 5 heads"},
	{"heads differ by layer", "not computed", "llama", set(headsKey, []uint32{4, 2}), ErrUnsupported, "layer 1 has 2"},
	{"heads for other layers", "one too few", "llama", set(headsKey, []uint32{4}), errBadKey, "1 values for 2 layers"},
	{"heads as texts", "an array of a wrong type", "llama", set(headsKey, []string{"4", "4"}), errBadKey, "llama.attention.head_count"},
	{"heads all 0", "negative values in an array", "llama", set(headsKey, []uint32{0, 0}), errBadKey, "llama.attention.head_count"},
	{"heads all negative", "negative values in an array", "llama", set(headsKey, []int32{-4, -4}), errBadKey, "-4"},
	{"kv heads differ by layer", "not the projections'", "llama", set(kvHeadsKey, []uint32{2, 4}), errTensorShape, "blk.1.attn_k.weight"},
	{"odd groups in a layer", "heads no multiple of kv heads", "gemma4", set(kvHeadsKey, []uint32{2, 3, 2, 1}), errBadKey, "no multiple of 3"},
	{"kv heads all 0", "a division by it", "gemma4", set(kvHeadsKey, []uint32{0, 0, 0, 0}), errBadKey, "head_count_kv"},
	{"FFN differs by layer", "not the projections'", "llama", set(".feed_forward_length", []uint32{48, 32}), errTensorShape, "blk.1.ffn_gate.weight"},
	{"no FFN in a layer", "empty rows", "gemma4", set(".feed_forward_length", []uint32{48, 48, 0, 16}), errBadKey, "layer 2 has 0"},
	{"absurd FFN in a layer", "products overflow", "gemma4", set(".feed_forward_length", []uint64{48, 48, 16, 1 << 40}), errBadKey, "feed_forward_length"},
	{"FFN for other layers", "one too few", "gemma4", set(".feed_forward_length", []uint32{48, 48, 16}), errBadKey, "3 values for 4 layers"},
	{"key length 0", "empty heads", "llama", set(".attention.key_length", uint32(0)), errBadKey, "key_length"},
	{"another key length", "not the projections'", "llama", set(".attention.key_length", uint32(16)), errTensorShape, "blk.0.attn_q.weight"},
	{"another value length", "not the projections'", "llama", set(".attention.value_length", uint32(16)), errTensorShape, "blk.0.attn_v.weight"},
	{"no FFN", "empty rows", "llama", set(".feed_forward_length", uint32(0)), errBadKey, "feed_forward_length"},
	{"FFN missing", "required", "llama", del(".feed_forward_length"), errMissingKey, "feed_forward_length"},
	{"another FFN", "not the tensors'", "llama", set(".feed_forward_length", uint32(64)), errTensorShape, "blk.0.ffn_gate.weight"},

	{"odd rope", "pairs are rotated", "llama", set(ropeDimKey, uint32(7)), errBadKey, "rope.dimension_count"},
	{"rope beyond the head", "would rotate the next head", "llama", set(ropeDimKey, uint32(10)), errBadKey, "head size 8"},
	{"rope 0", "a file without RoPE omits the key", "llama", set(ropeDimKey, uint32(0)), errBadKey, "rope.dimension_count"},
	{"rope as text", "a wrong type", "llama", set(ropeDimKey, "8"), errBadKey, "rope.dimension_count"},
	{"eps 0", "a division by 0 for a zero vector", "llama", set(epsKey, float32(0)), errBadKey, epsKey},
	{"eps negative", "a root of a negative", "llama", set(epsKey, float32(-1e-5)), errBadKey, epsKey},
	{"eps NaN", "every result would be NaN", "llama", set(epsKey, float32(math.NaN())), errBadKey, epsKey},
	{"eps Inf", "every result would be 0", "llama", set(epsKey, float32(math.Inf(1))), errBadKey, epsKey},
	{"eps tiny", "0 as a float32", "llama", set(epsKey, 1e-60), errBadKey, epsKey},
	{"eps missing", "required", "llama", del(epsKey), errMissingKey, epsKey},
	{"LayerNorm eps missing", "another key", "gpt2", del(layerEps), errMissingKey, layerEps},
	{"base 0", "no frequencies", "llama", set(baseKey, float32(0)), errBadKey, baseKey},
	{"base negative", "a power of a negative", "llama", set(baseKey, float32(-1)), errBadKey, baseKey},
	{"base NaN", "every result would be NaN", "llama", set(baseKey, float32(math.NaN())), errBadKey, baseKey},
	{"base Inf", "frequencies 0", "llama", set(baseKey, float32(math.Inf(1))), errBadKey, baseKey},
	{"base tiny", "angles beyond portable.MaxAngle", "llama", set(baseKey, float32(1e-8)), errBadKey, "llama.rope.freq_base"},
	{"local base tiny", "angles beyond portable.MaxAngle", "gemma3", set(".rope.freq_base_swa", float32(1e-8)), errBadKey, "gemma3.rope.freq_base_swa"},
	{"scaling tiny", "angles beyond portable.MaxAngle", "llama", set(".rope.scaling.factor", float32(1e-6)), errBadKey, "llama.rope.scaling.factor"},
	{"context beyond the sine", "angles beyond portable.MaxAngle", "llama", set(".context_length", uint32(1650000)), errBadKey, "llama.context_length"},
	{"local base 0", "no frequencies", "gemma3", set(".rope.freq_base_swa", float32(0)), errBadKey, "freq_base_swa"},
	{"yarn beta 0", "a logarithm of infinity", "mistral3", set(".rope.scaling.yarn_beta_fast", float32(0)), errBadKey, "yarn_beta_fast"},
	{"yarn base 1", "all pairs turn equally fast", "mistral3", set(baseKey, float32(1)), errBadKey, "mistral3.rope.freq_base"},
	{"yarn in part", "a mixture with the original frequencies", "mistral3", set(".rope.scaling.yarn_ext_factor", float32(0.5)), ErrUnsupported, "yarn_ext_factor"},
	{"yarn factor tiny", "a negative magnitude", "mistral3", both(set(".rope.scaling.factor", float32(1e-30)), set(".rope.scaling.yarn_log_multiplier", float32(0))), errBadKey, "rope.scaling.factor"},
	{"yarn log multiplier negative", "a magnitude below 1", "mistral3", set(".rope.scaling.yarn_log_multiplier", float32(-1)), errBadKey, "yarn_log_multiplier"},
	{"query scale negative", "queries of the other sign", "mistral3", set(".attention.temperature_scale", float32(-1)), errBadKey, "temperature_scale"},
	{"query scale without a context", "its blocks have no length", "mistral3", both(del(scalingType), del(".rope.scaling.original_context_length")), errMissingKey, "original_context_length"},
	{"windows of other layers", "one bool per layer", "olmo2", set(".attention.sliding_window_pattern", []bool{true}), errBadKey, "sliding_window_pattern"},
	{"windows as text", "one bool per layer", "olmo2", set(".attention.sliding_window_pattern", []string{"a", "b"}), errBadKey, "sliding_window_pattern"},
	{"residual scale huge", "ε vanishes", "granite", set(".residual_scale", float32(1e30)), errBadKey, "residual_scale"},
	{"attention scale tiny", "0 in float32", "llama", set(".attention.scale", 1e-60), errBadKey, "attention.scale"},
	{"attention scale huge", "scores overflow", "llama", set(".attention.scale", float32(1e38)), errBadKey, "attention.scale"},
	{"rope factor huge", "angles overflow", "llama", both(set(".rope.scaling.type", "yarn"), both(set(".rope.scaling.factor", float32(4)), set(".rope.scaling.attn_factor", float32(1e30)))), errBadKey, "attn_factor"},
	{"logit scale tiny", "its inverse overflows", "granite", set(".logit_scale", float32(1e-45)), errBadKey, "logit_scale"},
	{"embedding scale negative", "embeddings of the other sign", "granite", set(".embedding_scale", float32(-1)), errBadKey, "embedding_scale"},
	{"norm of single heads", "all heads are normalized together", "olmo2", reshape("blk.0.attn_q_norm.weight", tiny.HeadDim), errTensorShape, "attn_q_norm"},
	{"norm of all heads", "each head is normalized", "exaone4", reshape("blk.0.attn_k_norm.weight", 2*tiny.HeadDim), errTensorShape, "attn_k_norm"},
	{"norms in some layers", "the first layer has none", "stablelm", both(drop("blk.0.attn_q_norm.weight"), drop("blk.0.attn_k_norm.weight")), errSurplusTensor, "blk.1.attn_"},
	{"norm before attention", "the architecture has none", "olmo2", add(firstNorm, tiny.Hidden), errSurplusTensor, firstNorm},
	{"sinks of other heads", "one per head", "gpt-oss", reshape("blk.0.attn_sinks.weight", tiny.Heads+1), errTensorShape, "attn_sinks"},
	{"bias of one expert", "each expert has its own", "gpt-oss", reshape("blk.1.ffn_up_exps.bias", tiny.FFN), errTensorShape, "ffn_up_exps.bias"},
	{"sinks without use", "the architecture has none", "llama", add("blk.0.attn_sinks.weight", tiny.Heads), errSurplusTensor, "attn_sinks"},
	{"unknown scaling", "an unknown type", "llama", set(scalingType, "spiral"), ErrUnsupported, `"spiral"`},
	{"scaling negative", "negative positions", "llama", set(".rope.scaling.factor", float32(-2)), errBadKey, "rope.scaling.factor"},
	{"scaling NaN", "every result would be NaN", "llama", set(".rope.scale_linear", float32(math.NaN())), errBadKey, "rope.scale_linear"},
	{"longrope without factors", "LongRoPE is nothing else", "phi3", set(scalingType, "longrope"), errMissingTensor, "rope_factors_short.weight"},
	{"longrope with a factor", "two scalings at once", "phi3", both(set(scalingType, "longrope"), set(".rope.scaling.factor", float32(2))), ErrUnsupported, "longrope"},
	{"attention factor 0", "no attention", "phi3", set(".rope.scaling.attn_factor", float32(0)), errBadKey, "attn_factor"},
	{"original context 0", "always long", "phi3", set(".rope.scaling.original_context_length", uint32(0)), errBadKey, "original_context_length"},
	{"short factors only", "half of LongRoPE", "phi3", add("rope_factors_short.weight", 4), errMissingTensor, "rope_factors_long.weight"},
	{"factors of another size", "one divisor per pair", "llama", add("rope_freqs.weight", 8), errTensorShape, "rope_freqs.weight"},
	{"factors 0", "a division by it", "llama", both(add("rope_freqs.weight", 4), reformat("rope_freqs.weight", quant.F16)), errBadKey, "factor 0 is 0"},
	{"factors without rope", "the model would not use them", "gpt2", add("rope_freqs.weight", 4), errSurplusTensor, "rope_freqs.weight"},

	{"attention cap negative", "flips signs", "gemma2", set(".attn_logit_softcapping", float32(-50)), errBadKey, "attn_logit_softcapping"},
	{"attention cap NaN", "every result would be NaN", "gemma2", set(".attn_logit_softcapping", float32(math.NaN())), errBadKey, "attn_logit_softcapping"},
	{"attention cap tiny", "scores divided by it leave float32", "gemma2", set(".attn_logit_softcapping", float32(1e-44)), errBadKey, "attn_logit_softcapping"},
	{"no window", "layers would attend to too much", "gpt-oss", del(".attention.sliding_window"), errMissingKey, "attention.sliding_window"},
	{"granitemoe logit scale tiny", "every logit would be infinite", "granitemoe", set(".logit_scale", float32(0x1p-65)), errBadKey, "logit_scale"},
	{"granitemoe logit scale huge", "every logit would be 0", "granitemoe", set(".logit_scale", float32(0x1p65)), errBadKey, "logit_scale"},
	{"cohere2 without a window", "layers would attend to too much", "cohere2", del(".attention.sliding_window"), errMissingKey, "attention.sliding_window"},
	{"tensor like an encoder's", "only v. begins those", "llama", add("vx.weight", 4, 4), errSurplusTensor, "vx.weight"},
	{"an alias of an unread key", "it has the meaning of the key", "llama", set(".rope.scaling_beta", float32(0.1)), ErrUnsupported, "rope.scaling_beta"},
	{"an alias with a large angle", "the error names the key that the file has", "gemma3", func(m *tiny.Model) {
		m.Delete(".rope.freq_base")
		m.Set(".rope.global.freq_base", float32(1e-30))
		m.Set(".context_length", uint32(1<<20))
	}, errBadKey, "gemma3.rope.global.freq_base"},
	{"output cap negative", "flips signs", "gemma2", set(".final_logit_softcapping", float32(-1)), errBadKey, "final_logit_softcapping"},
	{"output cap Inf", "Inf·tanh(0)", "gemma2", set(".final_logit_softcapping", float32(math.Inf(1))), errBadKey, "final_logit_softcapping"},
	{"window as text", "a wrong type", "gemma2", set(".attention.sliding_window", "5"), errBadKey, "sliding_window"},
	{"window absurd", "overflows an int", "gemma2", set(".attention.sliding_window", uint64(math.MaxUint64)), errBadKey, "sliding_window"},
	{"pattern 0", "a division by it", "gemma3", set(".attention.sliding_window_pattern", uint32(0)), errBadKey, "sliding_window_pattern"},
	{"unknown pooling", "embeddings would be wrong", "qwen3", set(".pooling_type", uint32(5)), errBadKey, "pooling_type"},
	{"scale negative", "would prefer unlike keys", "llama", set(".attention.scale", float32(-1)), errBadKey, "attention.scale"},

	{"experts in a dense architecture", "not computed", "qwen2", set(".expert_count", uint32(4)), ErrUnsupported, "expert_count"},
	{"no experts", "a mixture of none", "qwen3moe", set(".expert_count", uint32(0)), errBadKey, "expert_count"},
	{"experts missing", "required", "qwen3moe", del(".expert_count"), errMissingKey, "expert_count"},
	{"too many experts", "beyond any model", "qwen3moe", set(".expert_count", uint32(100000)), errBadKey, "expert_count"},
	{"another number of experts", "not the tensors'", "qwen3moe", set(".expert_count", uint32(8)), errTensorShape, "blk.0.ffn_gate_inp.weight"},
	{"stack of another height", "not as many as the router chooses from", "qwen3moe", reshape("blk.1.ffn_up_exps.weight", 32, 48, 3), errTensorShape, "[32 48 3], want [32 48 4]"},
	{"no expert used", "an empty sum", "qwen3moe", set(".expert_used_count", uint32(0)), errBadKey, "expert_used_count"},
	{"more used than there are", "beyond the list", "qwen3moe", set(".expert_used_count", uint32(5)), errBadKey, "expert_used_count"},
	{"used missing", "required", "qwen3moe", del(".expert_used_count"), errMissingKey, "expert_used_count"},
	{"expert FFN 0", "empty rows", "qwen3moe", set(".expert_feed_forward_length", uint32(0)), errBadKey, "expert_feed_forward_length"},
	{"expert FFN and FFN missing", "no width at all", "qwen3moe", both(del(".expert_feed_forward_length"), del(".feed_forward_length")), errMissingKey, "expert_feed_forward_length"},
	{"unknown gating function", "softmax and sigmoid are known", "glm4moe", set(".expert_gating_func", uint32(3)), errBadKey, "glm4moe.expert_gating_func"},
	{"gating function of another architecture", "its router is a softmax", "qwen2moe", set(".expert_gating_func", uint32(2)), ErrUnsupported, "qwen2moe.expert_gating_func"},
	{"normalization as a number", "a wrong type", "glm4moe", set(".expert_weights_norm", uint32(1)), errBadKey, "expert_weights_norm"},
	{"expert scale negative", "would subtract experts", "glm4moe", set(".expert_weights_scale", float32(-1)), errBadKey, "expert_weights_scale"},
	{"expert scale beyond float32", "every result would be infinite", "glm4moe", set(".expert_weights_scale", 1e300), errBadKey, "expert_weights_scale"},
	{"expert scale NaN", "every result would be NaN", "glm4moe", set(".expert_weights_scale", float32(math.NaN())), errBadKey, "expert_weights_scale"},
	{"groups of experts", "not computed", "glm4moe", set(".expert_group_count", uint32(2)), ErrUnsupported, "glm4moe.expert_group_count"},
	{"shared width missing", "required", "qwen2moe", del(".expert_shared_feed_forward_length"), errMissingKey, "expert_shared_feed_forward_length"},
	{"shared width 0", "empty rows", "qwen2moe", set(".expert_shared_feed_forward_length", uint32(0)), errBadKey, "expert_shared_feed_forward_length"},
	{"absurd shared width", "products overflow", "qwen2moe", set(".expert_shared_feed_forward_length", uint64(1)<<40), errBadKey, "expert_shared_feed_forward_length"},
	{"another shared width", "not the tensors'", "qwen2moe", set(".expert_shared_feed_forward_length", uint32(48)), errTensorShape, "blk.0.ffn_gate_shexp.weight"},
	{"shared count missing", "required", "glm4moe", del(".expert_shared_count"), errMissingKey, "expert_shared_count"},
	{"absurd shared count", "beyond any model", "glm4moe", set(".expert_shared_count", uint32(513)), errBadKey, "expert_shared_count"},
	{"absurd product of shared widths", "beyond any model", "glm4moe", both(set(".expert_shared_count", uint32(512)), set(".expert_feed_forward_length", uint32(1<<20))), errBadKey, "512 times the width 1048576"},
	{"shared width and count", "two widths", "glm4moe", set(".expert_shared_feed_forward_length", uint32(48)), ErrUnsupported, "expert_shared_feed_forward_length"},
	{"gate of the shared expert as two rows", "both shapes", "qwen2moe", reshape("blk.0.ffn_gate_inp_shexp.weight", 16, 2), errTensorShape, "have [16 2], want [32 1]"},
	{"gate of the shared expert where there is none", "it would be left out", "glm4moe", add("blk.1.ffn_gate_inp_shexp.weight", 32), errSurplusTensor, "ffn_gate_inp_shexp"},
	{"router bias of another number of experts", "both shapes", "glm4moe", reshape("blk.1.exp_probs_b.bias", 2), errTensorShape, "have [2], want [4]"},
	{"router bias where there is none", "it would be left out", "qwen2moe", add("blk.0.exp_probs_b.bias", 4), errSurplusTensor, "exp_probs_b"},
	{"more dense layers than layers", "contradictory", "glm4moe", set(".leading_dense_block_count", uint32(3)), errBadKey, "glm4moe.leading_dense_block_count"},
	{"no dense layer", "the first layer has none of the experts", "glm4moe", set(".leading_dense_block_count", uint32(0)), errMissingTensor, "blk.0.ffn_gate_inp.weight"},
	{"dense layers without a width", "required", "glm4moe", del(".feed_forward_length"), errMissingKey, "feed_forward_length"},
	{"experts in a dense layer", "they would be left out", "glm4moe", add("blk.0.ffn_up_exps.weight", 32, 48, 4), errSurplusTensor, "blk.0.ffn_up_exps.weight"},
	{"only predictors of further tokens", "a model needs layers", "glm4moe", set(".nextn_predict_layers", uint32(2)), errBadKey, "nextn_predict_layers"},
	{"a layer behind the predictors", "weights left over", "glm4moe", add("blk.3.attn_q.weight", 32, 32), errSurplusTensor, "block_count is 2"},
	{"half a QK norm", "optional, but of both", "glm4moe", drop("blk.0.attn_k_norm.weight"), errMissingTensor, "attn_k_norm"},
	{"M-RoPE", "tokens have several positions", "glm4moe", set(".rope.dimension_sections", []int32{1, 1, 0, 0}), ErrUnsupported, "rope.dimension_sections"},

	{"experts in no layer", "there are two layers", "llama4", set(".interleave_moe_layer_step", uint32(3)), errBadKey, "llama4.interleave_moe_layer_step"},
	{"experts in every 0th layer", "a division by it", "llama4", set(".interleave_moe_layer_step", uint32(0)), errBadKey, "llama4.interleave_moe_layer_step"},
	{"step missing", "required", "llama4", del(".interleave_moe_layer_step"), errMissingKey, "interleave_moe_layer_step"},
	{"experts in each layer", "the first has none", "llama4", set(".interleave_moe_layer_step", uint32(1)), errMissingTensor, "blk.0.ffn_gate_inp.weight"},
	{"experts between mixtures", "they would be left out", "llama4", add("blk.0.ffn_up_exps.weight", 32, 48, 4), errSurplusTensor, "blk.0.ffn_up_exps.weight"},
	{"dense width missing", "some layers are dense", "llama4", del(".feed_forward_length"), errMissingKey, "llama4.feed_forward_length"},
	{"shared expert of another width", "it is as wide as an expert", "llama4", reshape("blk.1.ffn_up_shexp.weight", 32, 96), errTensorShape, "have [32 96], want [32 48]"},
	{"softmax where the router is a sigmoid", "it is a sigmoid", "llama4", set(".expert_gating_func", uint32(1)), ErrUnsupported, "llama4.expert_gating_func"},
	{"normalized weights of sigmoids", "they are not divided", "llama4", set(".expert_weights_norm", true), ErrUnsupported, "llama4.expert_weights_norm"},
	{"absurd chunk", "beyond any model", "llama4", set(".attention.sliding_window", uint64(1)<<40), errBadKey, "llama4.attention.sliding_window"},
	{"weights of a norm without", "they would be left out", "llama4", add("blk.0.attn_q_norm.weight", 8), errSurplusTensor, "attn_q_norm"},
	{"sines that are scaled before a norm", "it would cancel the scale", "llama4", set(".rope.scaling.attn_factor", float32(2)), ErrUnsupported, "llama4.rope.scaling"},
	{"window missing where heads depend on it", "required", "gemma4", del(".attention.sliding_window"), errMissingKey, "sliding_window"},
	{"window 0 where heads depend on it", "all layers would have the same heads", "gemma4", set(".attention.sliding_window", uint32(0)), errBadKey, "sliding_window"},
	{"local key length missing", "required", "gemma4", del(".attention.key_length_swa"), errMissingKey, "key_length_swa"},
	{"local value length missing", "required", "gemma4", del(".attention.value_length_swa"), errMissingKey, "value_length_swa"},
	{"local key length 0", "empty heads", "gemma4", set(".attention.key_length_swa", uint32(0)), errBadKey, "key_length_swa"},
	{"another local key length", "not the projections'", "gemma4", set(".attention.key_length_swa", uint32(16)), errTensorShape, "blk.0.attn_q_norm.weight"},
	{"absurd local value length", "products overflow", "gemma4", set(".attention.value_length_swa", uint64(1)<<40), errBadKey, "value_length_swa"},
	{"odd local rope", "pairs", "gemma4", set(".rope.dimension_count_swa", uint32(3)), errBadKey, "dimension_count_swa"},
	{"local rope beyond the head", "no such elements", "gemma4", set(".rope.dimension_count_swa", uint32(16)), errBadKey, "dimension_count_swa"},
	{"base of local heads 0", "all angles would be infinite", "gemma4", set(".rope.freq_base_swa", float32(0)), errBadKey, "freq_base_swa"},
	{"absurd shared layers", "none would have keys", "gemma4", set(".attention.shared_kv_layers", uint32(4)), errBadKey, "shared_kv_layers"},
	{"shared layers without a global one before", "whose keys would it use", "gemma4", set(".attention.shared_kv_layers", uint32(3)), errBadKey, "for layer 1"},
	{"shared layers with other heads", "keys of another size", "gemma4", set(kvHeadsKey, []uint32{2, 1, 4, 1}), errBadKey, "layer 2 has 4"},
	{"shared layers in a family without", "not computed", "llama", set(".attention.shared_kv_layers", uint32(1)), ErrUnsupported, "shared_kv_layers"},
	{"own keys missing", "required", "gemma4", set(".attention.shared_kv_layers", uint32(1)), errMissingTensor, "blk.2.attn_k.weight"},
	{"another layer input", "not the tensors'", "gemma4", set(".embedding_length_per_layer_input", uint32(4)), errTensorShape, "per_layer_token_embd.weight"},
	{"more layer inputs than tokens", "they would be left out", "gemma3n", reshape("per_layer_token_embd.weight", layerInputs("gemma3n"), tiny.Vocab+1), errTensorShape, "per_layer_token_embd.weight"},
	{"fewer layer inputs than tokens", "only Gemma 3n says what the others have", "gemma4", reshape("per_layer_token_embd.weight", layerInputs("gemma4"), tiny.Vocab-1), errTensorShape, "per_layer_token_embd.weight"},
	{"absurd layer input", "products overflow", "gemma4", set(".embedding_length_per_layer_input", uint64(1)<<40), errBadKey, "embedding_length_per_layer_input"},
	{"layer inputs without their width", "they would be left out", "gemma4", set(".embedding_length_per_layer_input", uint32(0)), errSurplusTensor, "per_layer_token_embd"},
	{"layer inputs in a family without", "not computed", "llama", set(".embedding_length_per_layer_input", uint32(8)), ErrUnsupported, "embedding_length_per_layer_input"},
	{"layer scale of several numbers", "both shapes", "gemma4", reshape("blk.0.layer_output_scale.weight", 32), errTensorShape, "have [32], want [1]"},
	{"layer scale 0", "nothing would be left of x", "gemma4", reformat("blk.0.layer_output_scale.weight", quant.F16), errBadKey, "layer_output_scale.weight\": bad value: 0: want"},
	{"layer scale in a family without", "it would be left out", "gemma3", add("blk.0.layer_output_scale.weight", 1), errSurplusTensor, "layer_output_scale"},
	{"fused experts of another width", "both shapes", "gemma4", reshape("blk.0.ffn_gate_up_exps.weight", 32, 48, 4), errTensorShape, "have [32 48 4], want [32 96 4]"},
	{"fused and separate experts", "one too many", "gemma4", add("blk.0.ffn_gate_exps.weight", 32, 48, 4), errSurplusTensor, "blk.0.ffn_gate_exps.weight"},
	{"scales of another number of experts", "both shapes", "gemma4", reshape("blk.0.ffn_down_exps.scale", 2), errTensorShape, "have [2], want [4]"},
	{"scales of experts where there are none", "they would be left out", "qwen3moe", add("blk.0.ffn_down_exps.scale", 4), errSurplusTensor, "ffn_down_exps.scale"},
	{"another number of streams", "engines compute those of the published models", "gemma3n", set(".altup.num_inputs", uint32(2)), ErrUnsupported, "altup.num_inputs"},
	{"absurd number of streams", "products overflow", "gemma3n", set(".altup.num_inputs", uint64(1)<<40), errBadKey, "altup.num_inputs"},
	{"another active stream", "layers compute another one", "gemma3n", set(".altup.active_idx", uint32(1)), ErrUnsupported, "altup.active_idx"},
	{"sparsity of other layers", "one too few", "gemma3n", set(sparsityKey, []float32{1, 1, 1}), errBadKey, "3 values for 4 layers"},
	{"negative sparsity", "most activations would stay", "gemma3n", set(sparsityKey, []float32{1, -1, 1, 1}), errBadKey, "layer 1 has -1"},
	{"infinite sparsity", "no activation would stay", "gemma3n", set(sparsityKey, []float32{1, 1, float32(math.Inf(1)), 1}), errBadKey, "layer 2 has +Inf"},
	{"sparsity NaN", "no number", "gemma3n", set(sparsityKey, []float32{float32(math.NaN()), 1, 1, 1}), errBadKey, "layer 0 has NaN"},
	{"one sparsity", "not one per layer", "gemma3n", set(sparsityKey, float32(1)), errBadKey, sparsityKey[1:]},
	{"matrices of other streams", "both shapes", "gemma3n", reshape("altup_proj.weight", 32, 32, 2), errTensorShape, "have [32 32 2], want [32 32 3]"},
	{"coefficients of other streams", "both shapes", "gemma3n", reshape("blk.1.altup_predict_coef.weight", 4, 4), errTensorShape, "have [4 4], want [4 16]"},
	{"coefficients in blocks", "vectors are decoded", "gemma3n", both(reshape("blk.1.altup_correct_scale.weight", 32), reformat("blk.1.altup_correct_scale.weight", quant.Q8_0)), quant.ErrUnsupported, "altup_correct_scale"},
	{"another rank", "both shapes", "gemma3n", reshape("blk.0.laurel_l.weight", 32, 32), errTensorShape, "have [32 32], want [32 64]"},
	{"a mixture without its number of experts", "it would be left out", "gemma4", set(".expert_count", uint32(0)), errSurplusTensor, "ffn_gate_inp"},

	{"no embedding", "required", "llama", drop(embedding), errMissingTensor, embedding},
	{"flat embedding", "one row", "llama", reshape(embedding, 32*tiny.Vocab), errTensorShape, embedding},
	{"transposed embedding", "another shape", "llama", both(del(".vocab_size"), reshape(embedding, tiny.Vocab, 32)), errTensorShape, embedding},
	{"vocab_size", "not the embedding's rows", "llama", set(".vocab_size", uint32(100)), errTensorShape, "vocab_size is 100"},
	{"no vocabulary", "no tokens", "llama", set(".vocab_size", uint32(0)), errBadKey, "vocab_size"},
	{"no positions", "needed where there is no rope", "gpt2", drop("position_embd.weight"), errMissingTensor, "position_embd.weight"},
	{"norm missing", "required", "llama", drop(firstNorm), errMissingTensor, firstNorm},
	{"norm bias missing", "LayerNorm has one", "gpt2", drop("blk.1.ffn_norm.bias"), errMissingTensor, "blk.1.ffn_norm.bias"},
	{"norm of another width", "both shapes", "llama", reshape(firstNorm, 31), errTensorShape, "have [31], want [32]"},
	{"norm as a matrix", "both shapes", "llama", reshape(firstNorm, 8, 4), errTensorShape, "have [8 4], want [32]"},
	{"norm in blocks", "a vector is used as it is", "llama", reformat(firstNorm, quant.Q8_0), quant.ErrUnsupported, "Q8_0"},
	{"bias in blocks", "a vector is used as it is", "qwen2", reformat("blk.0.attn_q.bias", quant.Q4_0), quant.ErrUnsupported, "blk.0.attn_q.bias"},
	{"Q missing", "required", "llama", drop("blk.1.attn_q.weight"), errMissingTensor, "blk.1.attn_q.weight"},
	{"Q bias missing", "these models have one", "qwen2", drop("blk.1.attn_k.bias"), errMissingTensor, "blk.1.attn_k.bias"},
	{"QKV bias missing", "these models have one", "gpt2", drop("blk.0.attn_qkv.bias"), errMissingTensor, "blk.0.attn_qkv.bias"},
	{"QKV and Q", "one too many", "gpt2", add("blk.0.attn_q.weight", 32, 32), errSurplusTensor, "blk.0.attn_q.weight"},
	{"QKV too short", "both shapes", "phi3", reshape("blk.0.attn_qkv.weight", 32, 63), errTensorShape, "have [32 63], want [32 64]"},
	{"O transposed", "both shapes", "qwen3", both(set(".attention.key_length", uint32(8)), reshape("blk.0.attn_output.weight", 16, 64)), errTensorShape, "blk.0.attn_output.weight"},
	{"QK norm missing", "these models have one", "qwen3", drop("blk.0.attn_q_norm.weight"), errMissingTensor, "attn_q_norm"},
	{"QK norm of the whole width", "one head is normalized", "gemma3", reshape("blk.0.attn_k_norm.weight", 32), errTensorShape, "attn_k_norm"},
	{"QK norm in a family without", "it would be left out", "llama", add("blk.0.attn_q_norm.weight", 8), errSurplusTensor, "attn_q_norm"},
	{"post norm missing", "these models have one", "gemma2", drop("blk.0.post_ffw_norm.weight"), errMissingTensor, "post_ffw_norm"},
	{"half a gate", "gate and up in one", "phi3", reshape("blk.0.ffn_up.weight", 32, 48), errTensorShape, "blk.0.ffn_up.weight"},
	{"gate missing", "required", "llama", drop("blk.0.ffn_gate.weight"), errMissingTensor, "ffn_gate"},
	{"gate where there is none", "it would be left out", "gpt2", add("blk.0.ffn_gate.weight", 32, 48), errSurplusTensor, "ffn_gate"},
	{"down bias missing", "these models have one", "phi2", drop("blk.1.ffn_down.bias"), errMissingTensor, "blk.1.ffn_down.bias"},
	{"output bias missing", "this model has one", "phi2", drop("output.bias"), errMissingTensor, "output.bias"},
	{"no key heads", "a division by them", "qwen35", set(".ssm.group_count", uint32(0)), errBadKey, "qwen35.ssm.group_count"},
	{"uneven value heads", "no multiple of the key heads", "qwen35", set(".ssm.group_count", uint32(3)), errBadKey, "no multiple of 3 key heads"},
	{"absurd value heads", "products overflow", "qwen35", set(".ssm.time_step_rank", uint32(math.MaxUint32)), errBadKey, "qwen35.ssm.time_step_rank"},
	{"value heads missing", "required", "qwen3next", del(".ssm.time_step_rank"), errMissingKey, "qwen3next.ssm.time_step_rank"},
	{"absurd state", "products overflow", "qwen35moe", set(".ssm.state_size", uint32(1<<20)), errBadKey, "qwen35moe.ssm.state_size"},
	{"values of another size", "the state is square", "qwen35", set(".ssm.inner_size", uint32(128)), errBadKey, "qwen35.ssm.inner_size"},
	{"one tap", "no convolution", "qwen35", set(".ssm.conv_kernel", uint32(1)), errBadKey, "qwen35.ssm.conv_kernel"},
	{"absurd taps", "beyond any model", "qwen35", set(".ssm.conv_kernel", uint32(17)), errBadKey, "qwen35.ssm.conv_kernel"},
	{"other taps", "not those of the tensor", "qwen35", set(".ssm.conv_kernel", uint32(4)), errTensorShape, "blk.0.ssm_conv1d.weight"},
	{"interval of no layers", "a division by it", "qwen35", set(".full_attention_interval", uint32(0)), errBadKey, "full_attention_interval"},
	{"another interval", "the first layer would have attention", "qwen35", set(".full_attention_interval", uint32(1)), errMissingTensor, "blk.0.attn_q_norm.weight"},
	{"recurrent layers for other layers", "one too few", "qwen35", set(".attention.recurrent_layers", []bool{true}), errBadKey, "1 values for 2 layers"},
	{"recurrent layers as numbers", "a wrong type", "qwen35", set(".attention.recurrent_layers", []uint32{1, 0}), errBadKey, "want an array of bool"},
	{"recurrent layers as a number", "a wrong type", "qwen35", set(".attention.recurrent_layers", uint32(1)), errBadKey, "recurrent_layers"},
	{"sections missing", "required", "qwen35", del(".rope.dimension_sections"), errMissingKey, "qwen35.rope.dimension_sections"},
	{"sections of some pairs", "the others would not turn", "qwen35", set(".rope.dimension_sections", []int32{1, 0, 0, 0}), ErrUnsupported, "sections of 1 pairs"},
	{"five sections", "too many", "qwen35", set(".rope.dimension_sections", []int32{1, 1, 0, 0, 0}), errBadKey, "5 sections"},
	{"two sections", "too few", "qwen35", set(".rope.dimension_sections", []int32{1, 1}), errBadKey, "2 sections"},
	{"no key-value heads", "only layers without attention may have none", "qwen35", set(kvHeadsKey, []uint32{0, 0}), errBadKey, "attention.head_count_kv"},
	{"an alias with a bad value", "the error names the key that the file has", "gemma3", both(del(".rope.freq_base_swa"), set(".rope.local.freq_base", float32(-1))), errBadKey, "gemma3.rope.local.freq_base"},
	{"a negative section", "no number of pairs", "qwen35", set(".rope.dimension_sections", []int32{3, -1, 0, 0}), errBadKey, "-1 pairs"},
	{"sections as text", "a wrong type", "qwen35", set(".rope.dimension_sections", "1"), errBadKey, "dimension_sections"},
	{"queries without gates", "half the rows", "qwen35", reshape("blk.1.attn_q.weight", 32, 32), errTensorShape, "blk.1.attn_q.weight"},
	{"values of other heads", "gates multiply them", "qwen35", set(".attention.value_length", uint32(4)), errBadKey, "qwen35.attention.value_length"},
	{"beta of another layout", "the two are fused", "qwen3next", both(drop("blk.0.ssm_ba.weight"), add("blk.0.ssm_beta.weight", 32, 4)), errMissingTensor, "ssm_ba"},
	{"both layouts of inputs", "one would be left out", "qwen3next", add("blk.0.ssm_in.weight", 32, 192), errSurplusTensor, "attn_qkv"},
	{"output norm missing", "required", "llama", drop("output_norm.weight"), errMissingTensor, "output_norm.weight"},
	{"output of another vocabulary", "both shapes", "llama", reshape("output.weight", 32, 100), errTensorShape, "output.weight"},
	{"unknown tensor", "somebody meant it", "llama", add("surprise.weight", 3), errSurplusTensor, "surprise.weight"},
	{"unknown tensor of a layer", "somebody meant it", "llama", add("blk.0.attn_sinks.weight", 4), errSurplusTensor, "llama does not use it"},
	{"experts one by one", "an older layout", "llama", both(set(".expert_count", uint32(2)), set(".expert_used_count", uint32(1))), errMissingTensor, "ffn_gate_inp"},

	{"tokens missing", "a model without a list", "llama", set("tokenizer.ggml.model", "gpt2"), errMissingKey, tokensKey},
}

func TestMalformed(t *testing.T) {
	seen := map[string]bool{}
	for _, tt := range malformed {
		t.Run(tt.name, func(t *testing.T) {
			if seen[tt.name] {
				t.Fatal("two cases have this name")
			}
			seen[tt.name] = true
			spec := tiny.New(tt.arch, 1)
			tt.change(spec)
			refused(t, spec, tt.reason, tt.sentinel, tt.text)
		})
	}
}

// optional matches tensors of tiny models that files may lack.
var optional = regexp.MustCompile(`/output.weight$|^gemma4/.*(attn_v.weight|layer_output_scale.weight|ffn_down_exps.scale)$`)

// TestLoadMissingTensor drops each tensor of each architecture in turn. Without output.weight, the
// output matrix is the embedding. Without attn_qkv.weight, Load wants separate Q, K and V, but not of a
// Gated DeltaNet, and without ffn_gate_up_exps.weight separate gates and ups.
func TestLoadMissingTensor(t *testing.T) {
	for _, arch := range Architectures() {
		for _, x := range tiny.New(arch, 1).File().Tensors() {
			if optional.MatchString(arch + "/" + x.Name) {
				continue
			}
			t.Run(arch+"/"+x.Name, func(t *testing.T) {
				spec := tiny.New(arch, 1)
				spec.Drop(x.Name)
				missing := strings.Replace(x.Name, "ffn_gate_up_exps", "ffn_gate_exps", 1)
				if architectures[arch].deltaNet == deltaNetNever {
					missing = strings.Replace(missing, "attn_qkv.weight", "attn_q.weight", 1)
				}
				refused(t, spec, "required", errMissingTensor, missing)
			})
		}
	}
}

func refused(t *testing.T, spec *tiny.Model, reason string, sentinel error, text string) {
	t.Helper()
	m, err := Load(spec.File())
	switch {
	case err == nil:
		t.Fatalf("%s: loaded as %+v", reason, m.Config)
	case !errors.Is(err, sentinel):
		t.Errorf("%s: error %q, want %q", reason, err, sentinel)
	case !strings.Contains(err.Error(), text):
		t.Errorf("%s: error %q does not contain %q", reason, err, text)
	}
}

// TestLoadVectorLimit loads the vector that reaches the limit, and the one after it. Sparse
// files can claim vectors of gigabytes.
func TestLoadVectorLimit(t *testing.T) {
	f := tiny.New("llama", 1).File()
	l := &loader{f: f, c: &Config{}, used: map[string]bool{}, elements: maxElements - 2*tiny.Hidden}
	for _, name := range []string{firstNorm, "blk.1.attn_norm.weight"} {
		if v := l.vector(name, tiny.Hidden); len(v) != tiny.Hidden || l.err != nil {
			t.Fatalf("%s: %d numbers, error %v", name, len(v), l.err)
		}
	}
	l.elements--
	const want = `tensor "output_norm.weight": unsupported: norms, biases and RoPE factors up to it have 67108895 numbers, more than 67108864`
	if v := l.vector("output_norm.weight", tiny.Hidden); v != nil || !errors.Is(l.err, ErrUnsupported) || l.err.Error() != want {
		t.Errorf("%d numbers, error %v, want %s", len(v), l.err, want)
	}
}

// TestLoadCopyLimit copies the rows that reach the limit, and those after them. Sparse files can claim matrices of
// gigabytes.
func TestLoadCopyLimit(t *testing.T) {
	const name, rows = "blk.1.attn_q.weight", 2 * tiny.Heads * tiny.HeadDim
	f := tiny.New("qwen35", 1).File()
	l := &loader{f: f, c: &Config{}, used: map[string]bool{}, copied: maxCopied - 4*rows*tiny.Hidden}
	m := l.matrix(name, rows, tiny.Hidden)
	if parts := l.splitInterleaved(m, tiny.Heads, tiny.HeadDim, tiny.HeadDim); parts[1].W.Rows != rows/2 || l.err != nil {
		t.Fatalf("%d rows, error %v", parts[1].W.Rows, l.err)
	}
	const want = `tensor "blk.1.attn_q.weight": unsupported: 2147491840 bytes of rows to reorder up to it, more than 2147483648`
	if l.splitInterleaved(m, tiny.Heads, tiny.HeadDim, tiny.HeadDim); !errors.Is(l.err, ErrUnsupported) || l.err.Error() != want {
		t.Errorf("error %v, want %s", l.err, want)
	}
}

// A mapped file that becomes shorter must give an error and no crash.
func TestLoadTruncatedMapping(t *testing.T) {
	whole := tiny.New("llama", 1).Bytes()
	for name, size := range map[string]int{"pages": 4096, "last byte": len(whole) - 1} {
		path := filepath.Join(t.TempDir(), "cut.gguf")
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := os.Truncate(path, int64(size)); err != nil {
			t.Skipf("this system does not cut a mapped file: %v", err)
		}
		if _, err := Load(f); !errors.Is(err, gguf.ErrTruncated) {
			t.Errorf("%s: error %v, want gguf.ErrTruncated", name, err)
		}
	}
}
