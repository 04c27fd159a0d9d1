package tiny

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Vocab is the number of tokens of every model.
const Vocab = bytesInVocab + len(merges) + 2

// shape describes the keys and tensors of an architecture.
type shape struct {
	kvHeads    int
	layerNorm  bool
	noNormBias bool // of a LayerNorm
	rope       bool
	fusedQKV   bool
	qkvBias    bool
	allBias    bool // of every projection
	qkNorm     qkNorm
	sinks      bool
	attnGate   bool // attn_q holds queries and gates
	deltaNet   deltaNet
	noPreNorm  bool
	postNorm   bool
	ffnNorm    string // its name; "": ffn_norm
	gate       bool   // ffn_gate
	fusedUp    bool   // ffn_up holds gate and up
	noFFNNorm  bool
	mixture    bool
	dense      int  // the first layers, without experts
	step       int  // every step-th layer has experts; 0: all
	routerBias bool // exp_probs_b
	shared     bool // a shared expert
	sharedFFN  int  // its width; 0: SharedFFN
	sharedGate bool // ffn_gate_inp_shexp
	output     bool
	outputBias bool
	extra      map[string]any

	layers     int                        // 0: Layers
	sizes      func(layer int) LayerSizes // nil: HeadDim, kvHeads and FFN
	layerInput int                        // width of the inputs of layers
	layerScale bool                       // layer_output_scale
	branches   bool                       // the experts are beside the dense network, with norms of their own
	ropeFreqs  int                        // elements of rope_freqs
	altUp      bool                       // AltUp and LAuReL
}

// LayerSizes are the sizes of a layer.
type LayerSizes struct {
	HeadDim, KVHeads, FFN int
	NoK, NoV              bool // no attn_k and attn_v, or no attn_v
}

// Gemma4Layers and Gemma4Sizes are the sizes of gemma4: windowed and global layers in turn, of which the last two
// use the keys and values of the first two. The values of layer 1 are its keys.
const Gemma4Layers = 4

// Gemma4Sizes returns the sizes of a layer of gemma4.
func Gemma4Sizes(layer int) LayerSizes {
	s := LayerSizes{HeadDim: HeadDim, KVHeads: 2, FFN: FFN}
	if layer%2 == 1 {
		s.HeadDim, s.KVHeads, s.NoV = 2*HeadDim, 1, true
	}
	if layer >= 2 {
		s.FFN, s.NoK, s.NoV = FFN/3, true, true
	}
	return s
}

// Gemma3nLayers is the number of layers of gemma3n: windowed and global ones in turn, of which the last two use the keys and
// values of the first two.
const Gemma3nLayers = 4

// Gemma3nSizes returns the sizes of a layer of gemma3n.
func Gemma3nSizes(layer int) LayerSizes {
	return LayerSizes{HeadDim: HeadDim, KVHeads: 2, FFN: FFN, NoK: layer >= 2, NoV: layer >= 2}
}

// deltaNet says whether every other layer is a Gated DeltaNet, and the form of its tensors.
type deltaNet int

const (
	deltaNetNone    deltaNet = iota
	deltaNetTiled            // ssm_beta and ssm_alpha, as in Qwen3.5
	deltaNetGrouped          // ssm_ba, as in Qwen3-Next
)

// qkNorm says which weights the norms of Q and K have.
type qkNorm int

const (
	qkNormNone  qkNorm = iota
	qkNormHead         // [head dim]
	qkNormHeads        // [heads, head dim]
	qkNormFlat         // [heads·head dim]
)

var shapes = map[string]shape{
	"llama":    {kvHeads: 2, rope: true, gate: true, output: true},
	"qwen2":    {kvHeads: 2, rope: true, gate: true, qkvBias: true},
	"qwen3":    {kvHeads: 2, rope: true, gate: true, qkNorm: qkNormHead, output: true},
	"qwen3moe": {kvHeads: 2, rope: true, mixture: true, qkNorm: qkNormHead, output: true},
	"qwen2moe": {
		kvHeads: 2, rope: true, qkvBias: true, mixture: true, shared: true, sharedGate: true, output: true,
		extra: map[string]any{".expert_shared_feed_forward_length": uint32(SharedFFN)},
	},
	"glm4moe": {
		kvHeads: 2, rope: true, gate: true, qkvBias: true, qkNorm: qkNormHead, ffnNorm: "post_attention_norm",
		mixture: true, dense: 1, routerBias: true, shared: true, output: true,
		extra: map[string]any{
			".rope.dimension_count": uint32(HeadDim / 2), ".leading_dense_block_count": uint32(1),
			".expert_shared_count": uint32(SharedFFN / FFN), ".expert_gating_func": uint32(2),
			".expert_weights_norm": true, ".expert_weights_scale": float32(1.5),
		},
	},
	"gpt2":       {kvHeads: Heads, layerNorm: true, fusedQKV: true, allBias: true},
	"starcoder2": {kvHeads: 2, layerNorm: true, rope: true, allBias: true},
	"phi2": {
		kvHeads: Heads, layerNorm: true, rope: true, fusedQKV: true, allBias: true, noFFNNorm: true,
		output: true, outputBias: true, extra: map[string]any{".rope.dimension_count": uint32(HeadDim / 2)},
	},
	"phi3": {kvHeads: 2, rope: true, fusedQKV: true, fusedUp: true, output: true},
	"gemma2": {
		kvHeads: 2, rope: true, gate: true, postNorm: true,
		extra: map[string]any{".attention.sliding_window": uint32(5)},
	},
	"gemma3": {
		kvHeads: 1, rope: true, gate: true, postNorm: true, qkNorm: qkNormHead,
		extra: map[string]any{".attention.sliding_window": uint32(5), ".rope.freq_base": float32(1e6)},
	},
	"gemma": {kvHeads: 2, rope: true, gate: true},
	"gemma4": {
		rope: true, gate: true, postNorm: true, qkNorm: qkNormHead, mixture: true, branches: true,
		layers: Gemma4Layers, sizes: Gemma4Sizes, layerInput: LayerInput, layerScale: true, ropeFreqs: HeadDim,
		extra: map[string]any{
			".attention.head_count_kv": []uint32{2, 1, 2, 1}, ".feed_forward_length": []uint32{FFN, FFN, FFN / 3, FFN / 3},
			".attention.sliding_window": uint32(5), ".attention.sliding_window_pattern": []bool{true, false, true, false},
			".attention.key_length": uint32(2 * HeadDim), ".attention.value_length": uint32(2 * HeadDim),
			".attention.key_length_swa": uint32(HeadDim), ".attention.value_length_swa": uint32(HeadDim),
			".attention.shared_kv_layers": uint32(2), ".embedding_length_per_layer_input": uint32(LayerInput),
			".rope.freq_base": float32(1e6), ".final_logit_softcapping": float32(30),
		},
	},
	"gemma3n": {
		rope: true, gate: true, postNorm: true, qkNorm: qkNormHead, layers: Gemma3nLayers, sizes: Gemma3nSizes, layerInput: LayerInput, altUp: true,
		kvHeads: 2,
		extra: map[string]any{
			".attention.sliding_window": uint32(5), ".attention.sliding_window_pattern": []bool{true, false, true, false},
			".attention.shared_kv_layers": uint32(2), ".embedding_length_per_layer_input": uint32(LayerInput),
			".altup.num_inputs": uint32(Streams), ".altup.active_idx": uint32(0),
			".activation_sparsity_scale": []float32{1.25, float32(math.Inf(-1)), 0.5, 0},
		},
	},
	"seed_oss": {kvHeads: 2, rope: true, gate: true, qkvBias: true, ffnNorm: "post_attention_norm", output: true},
	"glm4":     {kvHeads: 2, rope: true, qkvBias: true, postNorm: true, fusedUp: true, output: true},
	"smollm3":  {kvHeads: 2, rope: true, gate: true},
	"mistral3": {
		kvHeads: 2, rope: true, gate: true, output: true,
		extra: map[string]any{
			".rope.scaling.type": "yarn", ".rope.scaling.factor": float32(4), ".rope.scaling.original_context_length": uint32(16),
			".rope.scaling.yarn_log_multiplier": float32(1), ".attention.temperature_scale": float32(0.5),
		},
	},
	"granite": {
		kvHeads: 2, rope: true, gate: true,
		extra: map[string]any{
			".embedding_scale": float32(3), ".residual_scale": float32(0.5), ".attention.scale": float32(0.25), ".logit_scale": float32(4),
		},
	},
	"granitemoe": {
		kvHeads: 2, rope: true, mixture: true, shared: true,
		extra: map[string]any{
			".embedding_scale": float32(3), ".residual_scale": float32(0.5), ".logit_scale": float32(4),
			".expert_shared_feed_forward_length": uint32(SharedFFN),
		},
	},
	"gpt-oss": {
		kvHeads: 2, rope: true, allBias: true, sinks: true, ffnNorm: "post_attention_norm", mixture: true, output: true,
		extra: map[string]any{".attention.sliding_window": uint32(5)},
	},
	"olmo2": {
		kvHeads: 2, rope: true, gate: true, noPreNorm: true, postNorm: true, qkNorm: qkNormFlat, output: true,
		extra: map[string]any{".attention.sliding_window": uint32(5), ".attention.sliding_window_pattern": uint32(2)},
	},
	"exaone4": {kvHeads: 2, rope: true, gate: true, noPreNorm: true, postNorm: true, qkNorm: qkNormHead},
	"cohere2": {
		kvHeads: 2, layerNorm: true, noNormBias: true, rope: true, gate: true, noFFNNorm: true,
		extra: map[string]any{
			".attention.sliding_window": uint32(5), ".attention.sliding_window_pattern": uint32(2), ".logit_scale": float32(0.25),
		},
	},
	"llama4": {
		kvHeads: 2, rope: true, gate: true, mixture: true, step: 2, shared: true, sharedFFN: FFN, output: true,
		extra: map[string]any{".interleave_moe_layer_step": uint32(2), ".attention.sliding_window_pattern": uint32(2)},
	},
	"qwen35": {
		kvHeads: 2, rope: true, gate: true, qkNorm: qkNormHead, attnGate: true, deltaNet: deltaNetTiled,
		ffnNorm: "post_attention_norm", output: true,
		extra: map[string]any{".rope.dimension_count": uint32(HeadDim / 2), ".rope.dimension_sections": []int32{1, 1, 0, 0}},
	},
	"qwen35moe": {
		kvHeads: 2, rope: true, mixture: true, shared: true, sharedGate: true, qkNorm: qkNormHead, attnGate: true, deltaNet: deltaNetTiled,
		ffnNorm: "post_attention_norm",
		extra: map[string]any{
			".rope.dimension_sections": []int32{2, 1, 1, 0}, ".expert_shared_feed_forward_length": uint32(SharedFFN),
		},
	},
	"qwen3next": {
		kvHeads: 2, rope: true, mixture: true, shared: true, sharedGate: true, qkNorm: qkNormHead, attnGate: true, deltaNet: deltaNetGrouped,
		ffnNorm: "post_attention_norm", output: true,
		extra: map[string]any{".expert_shared_feed_forward_length": uint32(SharedFFN)},
	},
	"stablelm": {kvHeads: 2, layerNorm: true, rope: true, gate: true, qkNorm: qkNormHeads, noFFNNorm: true, output: true},
}

func (s shape) setKeys(m *Model) {
	for _, k := range []struct {
		key   string
		value uint32
	}{
		{".vocab_size", uint32(Vocab)},
		{".block_count", uint32(s.layerCount())},
		{".context_length", Context},
		{".embedding_length", Hidden},
		{".feed_forward_length", FFN},
		{".attention.head_count", Heads},
		{".attention.head_count_kv", uint32(s.kvHeads)},
	} {
		m.Set(k.key, k.value)
	}
	if s.layerNorm {
		m.Set(".attention.layer_norm_epsilon", float32(1e-5))
	} else {
		m.Set(".attention.layer_norm_rms_epsilon", float32(1e-5))
	}
	if s.mixture {
		m.Set(".expert_count", uint32(Experts))
		m.Set(".expert_used_count", uint32(Used))
		m.Set(".expert_feed_forward_length", uint32(FFN))
	}
	if s.deltaNet != deltaNetNone {
		m.Set(".full_attention_interval", uint32(2))
		m.Set(".ssm.group_count", uint32(KeyHeads))
		m.Set(".ssm.time_step_rank", uint32(ValueHeads))
		m.Set(".ssm.state_size", uint32(StateDim))
		m.Set(".ssm.inner_size", uint32(ValueHeads*StateDim))
		m.Set(".ssm.conv_kernel", uint32(Taps))
	}
	for _, key := range slices.Sorted(maps.Keys(s.extra)) {
		m.Set(key, s.extra[key])
	}
}

// addTensors adds the tensors.
func (s shape) addTensors(m *Model) {
	m.Add("token_embd.weight", Hidden, Vocab)
	if !s.rope {
		m.Add("position_embd.weight", Hidden, Context)
	}
	if s.ropeFreqs > 0 {
		m.Add("rope_freqs.weight", s.ropeFreqs)
	}
	if n := s.layerInput; n > 0 {
		m.Add("per_layer_token_embd.weight", s.layers*n, Vocab)
		m.Add("per_layer_model_proj.weight", Hidden, s.layers*n)
		m.Add("per_layer_proj_norm.weight", n)
	}
	if s.altUp {
		m.Add("altup_proj.weight", Hidden, Hidden, Streams-1)
		m.Add("altup_unembd_proj.weight", Hidden, Hidden, Streams-1)
	}
	for i := range s.layerCount() {
		p := fmt.Sprintf("blk.%d.", i)
		if s.deltaNet != deltaNetNone && i%2 == 0 {
			s.recurrence(m, p)
		} else {
			s.attention(m, p, s.sizesOf(i))
		}
		s.ffn(m, p, i)
		if n := s.layerInput; n > 0 {
			m.Add(p+"inp_gate.weight", Hidden, n)
			m.Add(p+"proj.weight", n, Hidden)
			s.norm(m, p+"post_norm")
		}
		if s.altUp {
			s.streams(m, p)
		}
		if s.layerScale {
			m.Add(p+"layer_output_scale.weight", 1)
		}
	}
	s.norm(m, "output_norm")
	if s.output {
		m.Add("output.weight", Hidden, Vocab)
	}
	if s.outputBias {
		m.Add("output.bias", Vocab)
	}
}

func (s shape) layerCount() int { return cmp.Or(s.layers, Layers) }

func (s shape) sizesOf(layer int) LayerSizes {
	if s.sizes == nil {
		return LayerSizes{HeadDim: HeadDim, KVHeads: s.kvHeads, FFN: FFN}
	}
	return s.sizes(layer)
}

func (s shape) attention(m *Model, p string, size LayerSizes) {
	q, kv := Heads*size.HeadDim, size.KVHeads*size.HeadDim
	bias := s.qkvBias || s.allBias
	if !s.noPreNorm {
		s.norm(m, p+"attn_norm")
	}
	if s.fusedQKV {
		linear(m, p+"attn_qkv", q+2*kv, Hidden, bias)
	} else {
		if s.attnGate {
			linear(m, p+"attn_q", 2*q, Hidden, bias)
		} else {
			linear(m, p+"attn_q", q, Hidden, bias)
		}
		if !size.NoK {
			linear(m, p+"attn_k", kv, Hidden, bias)
		}
		if !size.NoV {
			linear(m, p+"attn_v", kv, Hidden, bias)
		}
	}
	s.headNorm(m, p+"attn_q_norm.weight", size.HeadDim, Heads)
	if !size.NoK {
		s.headNorm(m, p+"attn_k_norm.weight", size.HeadDim, size.KVHeads)
	}
	if s.sinks {
		m.Add(p+"attn_sinks.weight", Heads)
	}
	linear(m, p+"attn_output", Hidden, q, s.allBias)
	if s.postNorm {
		s.norm(m, p+"post_attention_norm")
	}
}

// recurrence adds a Gated DeltaNet.
func (s shape) recurrence(m *Model, p string) {
	const keys, values = KeyHeads * StateDim, ValueHeads * StateDim
	s.norm(m, p+"attn_norm")
	m.Add(p+"attn_qkv.weight", Hidden, 2*keys+values)
	m.Add(p+"attn_gate.weight", Hidden, values)
	m.Add(p+"ssm_conv1d.weight", Taps, 2*keys+values)
	m.Add(p+"ssm_dt.bias", ValueHeads)
	m.Add(p+"ssm_a", ValueHeads)
	if s.deltaNet == deltaNetGrouped {
		m.Add(p+"ssm_ba.weight", Hidden, 2*ValueHeads)
	} else {
		m.Add(p+"ssm_beta.weight", Hidden, ValueHeads)
		m.Add(p+"ssm_alpha.weight", Hidden, ValueHeads)
	}
	m.Add(p+"ssm_norm.weight", StateDim)
	m.Add(p+"ssm_out.weight", values, Hidden)
}

// streams adds what AltUp and LAuReL have in a layer.
func (s shape) streams(m *Model, p string) {
	s.norm(m, p+"altup_router_norm")
	m.Add(p+"altup_router.weight", Hidden, Streams)
	m.Add(p+"altup_predict_coef.weight", Streams, Streams*Streams)
	m.Add(p+"altup_correct_coef.weight", Streams, Streams)
	m.Add(p+"altup_correct_scale.weight", Hidden)
	m.Add(p+"laurel_l.weight", Hidden, LaurelRank)
	m.Add(p+"laurel_r.weight", LaurelRank, Hidden)
	s.norm(m, p+"laurel_post_norm")
}

func (s shape) ffn(m *Model, p string, layer int) {
	if !s.noFFNNorm && !s.noPreNorm {
		s.norm(m, p+cmp.Or(s.ffnNorm, "ffn_norm"))
	}
	if s.mixture && layer >= s.dense && (layer+1)%max(s.step, 1) == 0 {
		s.experts(m, p)
		if !s.branches {
			return
		}
	}
	ffn := s.sizesOf(layer).FFN
	up := ffn
	if s.fusedUp {
		up *= 2
	}
	if s.gate {
		linear(m, p+"ffn_gate", ffn, Hidden, s.allBias)
	}
	linear(m, p+"ffn_up", up, Hidden, s.allBias)
	linear(m, p+"ffn_down", Hidden, ffn, s.allBias)
	if s.postNorm {
		s.norm(m, p+"post_ffw_norm")
	}
}

func (s shape) experts(m *Model, p string) {
	linear(m, p+"ffn_gate_inp", Experts, Hidden, s.allBias)
	if s.routerBias {
		m.Add(p+"exp_probs_b.bias", Experts)
	}
	type stack struct {
		name       string
		rows, cols int
	}
	list := []stack{{"gate", FFN, Hidden}, {"up", FFN, Hidden}, {"down", Hidden, FFN}}
	if s.branches {
		list = []stack{{"gate_up", 2 * FFN, Hidden}, {"down", Hidden, FFN}}
		m.Add(p+"ffn_gate_inp.scale", Hidden)
		m.Add(p+"ffn_down_exps.scale", Experts)
		s.norm(m, p+"pre_ffw_norm_2")
		s.norm(m, p+"post_ffw_norm_1")
		s.norm(m, p+"post_ffw_norm_2")
	}
	for _, x := range list {
		m.Add(p+"ffn_"+x.name+"_exps.weight", x.cols, x.rows, Experts)
		if s.allBias {
			m.Add(p+"ffn_"+x.name+"_exps.bias", x.rows, Experts)
		}
	}
	if s.shared {
		ffn := cmp.Or(s.sharedFFN, SharedFFN)
		m.Add(p+"ffn_gate_shexp.weight", Hidden, ffn)
		m.Add(p+"ffn_up_shexp.weight", Hidden, ffn)
		m.Add(p+"ffn_down_shexp.weight", ffn, Hidden)
	}
	if s.sharedGate {
		m.Add(p+"ffn_gate_inp_shexp.weight", Hidden)
	}
}

func linear(m *Model, name string, rows, cols int, bias bool) {
	m.Add(name+".weight", cols, rows)
	if bias {
		m.Add(name+".bias", rows)
	}
}

func (s shape) norm(m *Model, name string) {
	m.Add(name+".weight", Hidden)
	if s.layerNorm && !s.noNormBias {
		m.Add(name+".bias", Hidden)
	}
}

func (s shape) headNorm(m *Model, name string, dim, heads int) {
	switch s.qkNorm {
	case qkNormHead:
		m.Add(name, dim)
	case qkNormHeads:
		m.Add(name, dim, heads)
	case qkNormFlat:
		m.Add(name, heads*dim)
	}
}
