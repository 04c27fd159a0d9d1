package tiny

import (
	"fmt"
	"maps"
	"slices"
)

// Vocab is the number of tokens of every model.
const Vocab = bytesInVocab + len(merges) + 2

// shape describes the keys and tensors of an architecture.
type shape struct {
	kvHeads    int
	layerNorm  bool
	rope       bool
	fusedQKV   bool
	qkvBias    bool
	allBias    bool // of every projection
	qkNorm     bool
	postNorm   bool
	gate       bool // ffn_gate
	fusedUp    bool // ffn_up holds gate and up
	noFFNNorm  bool
	mixture    bool
	output     bool
	outputBias bool
	extra      map[string]any
}

var shapes = map[string]shape{
	"llama":      {kvHeads: 2, rope: true, gate: true, output: true},
	"qwen2":      {kvHeads: 2, rope: true, gate: true, qkvBias: true},
	"qwen3":      {kvHeads: 2, rope: true, gate: true, qkNorm: true, output: true},
	"qwen3moe":   {kvHeads: 2, rope: true, mixture: true, qkNorm: true, output: true},
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
		kvHeads: 1, rope: true, gate: true, postNorm: true, qkNorm: true,
		extra: map[string]any{".attention.sliding_window": uint32(5), ".rope.freq_base": float32(1e6)},
	},
}

func (s shape) setKeys(m *Model) {
	for _, k := range []struct {
		key   string
		value uint32
	}{
		{".vocab_size", uint32(Vocab)},
		{".block_count", Layers},
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
	for i := range Layers {
		p := fmt.Sprintf("blk.%d.", i)
		s.attention(m, p)
		s.ffn(m, p)
	}
	s.norm(m, "output_norm")
	if s.output {
		m.Add("output.weight", Hidden, Vocab)
	}
	if s.outputBias {
		m.Add("output.bias", Vocab)
	}
}

func (s shape) attention(m *Model, p string) {
	q, kv := Heads*HeadDim, s.kvHeads*HeadDim
	bias := s.qkvBias || s.allBias
	s.norm(m, p+"attn_norm")
	if s.fusedQKV {
		linear(m, p+"attn_qkv", q+2*kv, Hidden, bias)
	} else {
		linear(m, p+"attn_q", q, Hidden, bias)
		linear(m, p+"attn_k", kv, Hidden, bias)
		linear(m, p+"attn_v", kv, Hidden, bias)
	}
	if s.qkNorm {
		m.Add(p+"attn_q_norm.weight", HeadDim)
		m.Add(p+"attn_k_norm.weight", HeadDim)
	}
	linear(m, p+"attn_output", Hidden, q, s.allBias)
	if s.postNorm {
		s.norm(m, p+"post_attention_norm")
	}
}

func (s shape) ffn(m *Model, p string) {
	if !s.noFFNNorm {
		s.norm(m, p+"ffn_norm")
	}
	if s.mixture {
		m.Add(p+"ffn_gate_inp.weight", Hidden, Experts)
		m.Add(p+"ffn_gate_exps.weight", Hidden, FFN, Experts)
		m.Add(p+"ffn_up_exps.weight", Hidden, FFN, Experts)
		m.Add(p+"ffn_down_exps.weight", FFN, Hidden, Experts)
		return
	}
	up := FFN
	if s.fusedUp {
		up *= 2
	}
	if s.gate {
		linear(m, p+"ffn_gate", FFN, Hidden, s.allBias)
	}
	linear(m, p+"ffn_up", up, Hidden, s.allBias)
	linear(m, p+"ffn_down", Hidden, FFN, s.allBias)
	if s.postNorm {
		s.norm(m, p+"post_ffw_norm")
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
	if s.layerNorm {
		m.Add(name+".bias", Hidden)
	}
}
