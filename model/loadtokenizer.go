package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// LoadTokenizer builds the tokenizer that a file describes under tokenizer.*. It
// returns nil and no error for a file without a vocabulary (tokenizer.ggml.model
// absent or "no_vocab"). Contradictions in the vocabulary are errors of package
// tokenizer.
func LoadTokenizer(f *gguf.File) (*tokenizer.Tokenizer, error) {
	k := &keys{f: f, arch: "tokenizer.ggml"}
	v := tokenizer.Vocab{Model: k.text("model")}
	if k.err != nil {
		return nil, k.err
	}
	if v.Model == "" || v.Model == "no_vocab" {
		return nil, nil
	}
	if !k.has("tokens") {
		return nil, fmt.Errorf("model: key %q: %w", k.name("tokens"), ErrMissingKey)
	}
	v.Pre = k.text("pre")
	v.Tokens = list(k, "tokens", f.Strings)
	v.Merges = list(k, "merges", f.Strings)
	for _, s := range list(k, "scores", f.Floats) {
		v.Scores = append(v.Scores, float32(s))
	}
	for i, t := range list(k, "token_type", f.Ints) {
		if t < 0 || t > math.MaxInt32 {
			k.bad("token_type", "%d at index %d", t, i)
			break
		}
		v.Types = append(v.Types, tokenizer.TokenType(t))
	}
	readSpecials(k, &v)
	template, _, err := f.Str("tokenizer.chat_template")
	if err != nil {
		k.wrongType(err)
	}
	v.ChatTemplate = template
	if k.err != nil {
		return nil, k.err
	}
	return tokenizer.New(v)
}

// llama3 names the pre-tokenisers of vocabularies that begin a text with BOS
// although their files need not say so.
var llama3 = []string{"llama3", "llama-v3", "llama-bpe"}

// readSpecials reads the special tokens. What a SentencePiece vocabulary leaves
// out has the ids of the original Llama vocabulary.
func readSpecials(k *keys, v *tokenizer.Vocab) {
	unk, bos, eos := -1, -1, -1
	spm := v.Model == "llama"
	if spm && len(v.Tokens) > 2 {
		unk, bos, eos = 0, 1, 2
	}
	v.UNK = k.id("unknown_token_id", unk)
	v.BOS = k.id("bos_token_id", bos)
	v.EOS = k.id("eos_token_id", eos)
	v.EOT = k.id("eot_token_id", -1)
	v.EOM = k.id("eom_token_id", -1)
	v.PAD = k.id("padding_token_id", -1)
	v.AddBOS = k.flag("add_bos_token", spm || slices.Contains(llama3, v.Pre))
	v.AddEOS = k.flag("add_eos_token", false)
	v.AddSpacePrefix = k.flag("add_space_prefix", spm)
}

// list reads an array, nil when the key is absent.
func list[T any](k *keys, key string, read func(string) ([]T, bool, error)) []T {
	all, _, err := read(k.name(key))
	if err != nil {
		k.wrongType(err)
	}
	return all
}

// id reads a token id; whether the vocabulary has it is for the tokenizer to say.
func (k *keys) id(key string, def int) int {
	return k.count(key, def, 0, math.MaxInt32)
}

func (k *keys) flag(key string, def bool) bool {
	b, ok, err := k.f.Bool(k.name(key))
	if err != nil {
		k.wrongType(err)
	}
	if !ok || err != nil {
		return def
	}
	return b
}
