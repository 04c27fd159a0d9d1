package synth

import (
	"fmt"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// metadata sets the keys that the file of the real model has.
func (p Plan) metadata(w *gguf.Writer) error {
	s := p.Preset
	a := s.Arch + "."
	eps := a + "attention.layer_norm_rms_epsilon"
	if s.LayerNorm {
		eps = a + "attention.layer_norm_epsilon"
	}
	pairs := []pair{
		{"general.architecture", s.Arch},
		{"general.type", "model"},
		{"general.name", s.Title + " (random weights)"},
		{a + "block_count", uint32(s.Layers)},
		{a + "context_length", uint32(s.Context)},
		{a + "embedding_length", uint32(s.Hidden)},
		{a + "feed_forward_length", uint32(s.FFN)},
		{a + "attention.head_count", uint32(s.Heads)},
		{a + "attention.head_count_kv", uint32(s.KVHeads)},
		{a + "attention.key_length", uint32(s.HeadDim)},
		{a + "attention.value_length", uint32(s.HeadDim)},
		{eps, s.NormEps},
		{a + "vocab_size", uint32(s.Vocab)},
	}
	if s.RopeDim > 0 {
		pairs = append(pairs, pair{a + "rope.dimension_count", uint32(s.RopeDim)}, pair{a + "rope.freq_base", s.RopeTheta})
	}
	if s.Window > 0 {
		pairs = append(pairs, pair{a + "attention.sliding_window", uint32(s.Window)})
	}
	for _, kv := range append(pairs, vocabulary(s)...) {
		if err := w.Set(kv.key, kv.value); err != nil {
			return err
		}
	}
	return p.Recipe.Mark(w)
}

type pair struct {
	key   string
	value any
}

// Values of tokenizer.ggml.token_type in the GGUF specification.
const (
	typeNormal  = 1
	typeControl = 3
	typeUnused  = 5
)

// vocabulary has the size and the special token ids of the real model. The first 256
// other ids are byte tokens, so that it encodes any text; the rest are unused tokens.
func vocabulary(s Preset) []pair {
	tokens := make([]string, s.Vocab)
	types := make([]int32, s.Vocab)
	tokens[s.EOS], types[s.EOS] = "<|end|>", typeControl
	if s.BOS != s.EOS {
		tokens[s.BOS], types[s.BOS] = "<|begin|>", typeControl
	}
	b := 0
	for id := range tokens {
		switch {
		case tokens[id] != "":
		case b < 256:
			tokens[id], types[id] = tokenizer.ByteToken(byte(b)), typeNormal
			b++
		default:
			tokens[id], types[id] = fmt.Sprintf("<|unused_%d|>", id), typeUnused
		}
	}
	return []pair{
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", s.Pre},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.token_type", types},
		{"tokenizer.ggml.merges", []string{}},
		{"tokenizer.ggml.bos_token_id", uint32(s.BOS)},
		{"tokenizer.ggml.eos_token_id", uint32(s.EOS)},
		{"tokenizer.ggml.add_bos_token", s.AddBOS},
	}
}
