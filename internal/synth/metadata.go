package synth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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
		{a + "attention.head_count", uint32(s.Heads)},
		{a + "attention.head_count_kv", uint32(s.KVHeads)}, // Local replaces it
		{a + "attention.key_length", uint32(s.HeadDim)},
		{a + "attention.value_length", uint32(s.HeadDim)},
		{eps, s.NormEps},
		{a + "vocab_size", uint32(s.Vocab)},
	}
	if s.FFN > 0 {
		pairs = append(pairs, pair{a + "feed_forward_length", uint32(s.FFN)})
	}
	if s.RopeDim > 0 {
		pairs = append(pairs, pair{a + "rope.dimension_count", uint32(s.RopeDim)}, pair{a + "rope.freq_base", s.RopeTheta})
	}
	if s.Window > 0 {
		pairs = append(pairs, pair{a + "attention.sliding_window", uint32(s.Window)})
	}
	for _, kv := range append(s.layerKeys(), s.Keys...) {
		pairs = append(pairs, pair{a + kv.key, kv.value})
	}
	tokenizer := p.tokenizer
	if tokenizer == nil {
		tokenizer = vocabulary(s)
	}
	for _, kv := range append(pairs, tokenizer...) {
		if err := w.Set(kv.key, kv.value); err != nil {
			return err
		}
	}
	return p.Recipe.Mark(w)
}

// layerKeys returns the keys of experts and of layers that differ, without "Arch.".
func (s Preset) layerKeys() (pairs []pair) {
	if s.Local != nil {
		local, kvHeads := make([]bool, s.Layers), make([]uint32, s.Layers)
		for l := range s.Layers {
			if local[l], kvHeads[l] = s.isLocal(l), uint32(s.KVHeads); local[l] {
				kvHeads[l] = uint32(s.Local.KVHeads)
			}
		}
		pairs = append(pairs, pair{"attention.sliding_window_pattern", local}, pair{"attention.head_count_kv", kvHeads},
			pair{"attention.key_length_swa", uint32(s.Local.HeadDim)}, pair{"attention.value_length_swa", uint32(s.Local.HeadDim)},
			pair{"rope.dimension_count_swa", uint32(s.Local.HeadDim)}, pair{"rope.freq_base_swa", s.Local.RopeTheta})
	}
	if d := s.DeltaNet; d != nil {
		pairs = append(pairs, pair{"full_attention_interval", uint32(d.every)}, pair{"ssm.conv_kernel", uint32(d.Taps)},
			pair{"ssm.group_count", uint32(d.KeyHeads)}, pair{"ssm.time_step_rank", uint32(d.ValueHeads)},
			pair{"ssm.state_size", uint32(d.Dim)}, pair{"ssm.inner_size", uint32(d.ValueHeads * d.Dim)})
	}
	if s.Experts > 0 {
		pairs = append(pairs, pair{"expert_count", uint32(s.Experts)}, pair{"expert_used_count", uint32(s.ExpertsUsed)},
			pair{"expert_feed_forward_length", uint32(s.ExpertFFN)})
	}
	if s.SharedFFN > 0 {
		pairs = append(pairs, pair{"expert_shared_feed_forward_length", uint32(s.SharedFFN)})
	}
	return pairs
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
			tokens[id], types[id] = unused(id), typeUnused
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

func unused(id int) string { return fmt.Sprintf("<|unused_%d|>", id) }

// ErrVocab reports a vocabulary that a model cannot have.
var ErrVocab = errors.New("vocabulary does not fit")

// unusedScore is the merge priority of unused tokens, below that of published tokens.
const unusedScore = -10000

// SetTokenizer replaces the byte-level vocabulary by that of a file: all keys below
// "tokenizer". If the model has more tokens than the file, the rest are unused tokens. The
// error wraps ErrVocab if the file has more tokens than the model or none.
func (p *Plan) SetTokenizer(f *gguf.File) error {
	tokens := array(f, "tokens", gguf.Value.Strings)
	scores := array(f, "scores", gguf.Value.Floats)
	types := array(f, "token_type", gguf.Value.Ints)
	n, want := len(tokens), p.Preset.Vocab
	switch {
	case n == 0:
		return fmt.Errorf("synth: %w: the file has no tokens", ErrVocab)
	case n > want:
		return fmt.Errorf("synth: %w: the file has %d tokens, %s has %d", ErrVocab, n, p.Preset.Name, want)
	}
	p.tokenizer = []pair{}
	for _, key := range f.Keys() {
		if strings.HasPrefix(key, "tokenizer.") {
			v, _ := f.Value(key)
			p.tokenizer = append(p.tokenizer, pair{key, v})
		}
	}
	if n == want {
		return nil
	}
	for id := n; id < want; id++ {
		tokens = append(tokens, unused(id))
	}
	if len(types) == 0 {
		types = slices.Repeat([]int64{typeNormal}, n)
	}
	p.tokenizer = append(p.tokenizer, // these replace the shorter lists
		pair{"tokenizer.ggml.tokens", tokens}, pair{"tokenizer.ggml.token_type", extend[int32](types, want, typeUnused)})
	if len(scores) > 0 {
		p.tokenizer = append(p.tokenizer, pair{"tokenizer.ggml.scores", extend[float32](scores, want, unusedScore)})
	}
	return nil
}

// array returns a list of the vocabulary, nil if the file lacks it. Package gguf has checked
// its type.
func array[T any](f *gguf.File, name string, read func(gguf.Value) ([]T, error)) []T {
	v, _ := f.Value("tokenizer.ggml." + name)
	list, _ := read(v)
	return list
}

// extend converts a list and lengthens it to n elements.
func extend[To int32 | float32, From int64 | float64](list []From, n int, value To) []To {
	out := make([]To, n)
	for i := range out {
		out[i] = value
		if i < len(list) {
			out[i] = To(list[i])
		}
	}
	return out
}
