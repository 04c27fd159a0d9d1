package tiny

import (
	"slices"

	"github.com/lockstep-go/lockstep/model/tokenizer"
)

const bytesInVocab = 256

// merges lists the merges of the vocabulary. Each produces a token.
var merges = [...][2]string{{"t", "h"}, {"th", "e"}, {"Ġ", "the"}, {"i", "n"}, {"e", "r"}, {"a", "n"}}

// Begin and End are the ids of the vocabulary's BOS and EOS tokens.
const (
	Begin = Vocab - 2
	End   = Vocab - 1
)

// AddVocab adds a byte-level BPE vocabulary: tokens 0 to 255 are the bytes, then follow
// the results of the merges, a BOS and an EOS token. addBOS is the value of the key
// tokenizer.ggml.add_bos_token.
func (m *Model) AddVocab(addBOS bool) {
	var tokens []string
	for b := range bytesInVocab {
		tokens = append(tokens, tokenizer.ByteToken(byte(b)))
	}
	var pairs []string
	for _, p := range merges {
		tokens = append(tokens, p[0]+p[1])
		pairs = append(pairs, p[0]+" "+p[1])
	}
	tokens = append(tokens, "<|begin|>", "<|end|>")
	const normal, control = 1, 3
	types := slices.Repeat([]int32{normal}, len(tokens))
	types[Begin], types[End] = control, control

	m.Set("tokenizer.ggml.model", "gpt2")
	m.Set("tokenizer.ggml.pre", "gpt-2")
	m.Set("tokenizer.ggml.tokens", tokens)
	m.Set("tokenizer.ggml.token_type", types)
	m.Set("tokenizer.ggml.merges", pairs)
	m.Set("tokenizer.ggml.bos_token_id", uint32(Begin))
	m.Set("tokenizer.ggml.eos_token_id", uint32(End))
	m.Set("tokenizer.ggml.add_bos_token", addBOS)
}

// AddTokens adds user-defined tokens to the vocabulary that the embedding has no rows for.
func (m *Model) AddTokens(texts ...string) {
	const tokens, types = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"
	const userDefined = 4
	m.Set(tokens, append(m.values[tokens].([]string), texts...))
	m.Set(types, append(m.values[types].([]int32), slices.Repeat([]int32{userDefined}, len(texts))...))
}
