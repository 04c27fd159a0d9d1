package model

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// Limits on a vocabulary, above any published one. A tokenizer takes memory for each token
// and merge, however short their texts are in the file.
const (
	maxTokens = maxVocab
	maxMerges = 1 << 20
)

// LoadTokenizer builds the tokenizer that a file describes under tokenizer.*, without the
// model. For a file without a vocabulary (tokenizer.ggml.model absent or "no_vocab") it
// returns nil and no error. Contradictions and unknown algorithms are errors of package
// tokenizer.
func LoadTokenizer(f *gguf.File) (*tokenizer.Tokenizer, error) {
	v, _ := f.Value(archKey)
	name, _ := v.Str()
	a, _ := architectureOf(name) // an unknown one has no defaults
	rows := 0
	if t, ok := f.Tensor(embeddingName); ok && a.surplusTokens && len(t.Dims) > 1 {
		rows = t.Dims[1]
	}
	tok, err := loadTokenizer(f, a, rows)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	return tok, nil
}

// unnamedPreTokenizer reports whether a file with a byte-level BPE vocabulary lacks the name of the pre-tokenizer, and the
// architecture has no default for it.
func unnamedPreTokenizer(f *gguf.File, a architecture) bool {
	k := &keys{f: f, prefix: "tokenizer.ggml"}
	return k.text("model") == "gpt2" && k.text("pre") == "" && a.pre == ""
}

// loadTokenizer is LoadTokenizer for an architecture and an embedding with the given number of rows; 0: any.
func loadTokenizer(f *gguf.File, a architecture, rows int) (*tokenizer.Tokenizer, error) {
	k := &keys{f: f, prefix: "tokenizer.ggml"}
	v := tokenizer.Vocab{Model: k.text("model"), Pre: k.text("pre")}
	if general := []string{"", "default", "gpt-2"}; slices.Contains(general, v.Pre) {
		v.Pre = cmp.Or(a.pre, v.Pre)
	}
	if v.Model == "llama" && v.Pre == "gemma4" { // as Ollama published it
		v.Model = "gemma4"
	}
	if k.err != nil {
		return nil, k.err
	}
	if v.Model == "" || v.Model == "no_vocab" {
		return nil, nil
	}
	if err := checkLengths(k, v.Model, a.surplusTokens, rows); err != nil {
		return nil, err
	}
	v.Tokens, _ = read(k, k.name("tokens"), gguf.Value.Strings)
	v.Merges, _ = read(k, k.name("merges"), gguf.Value.Strings)
	v.Scores, _ = read(k, k.name("scores"), float32s)
	v.Types, _ = read(k, k.name("token_type"), tokenTypes)
	if a.surplusTokens && rows > 0 {
		v.Tokens, v.Scores, v.Types = v.Tokens[:min(rows, len(v.Tokens))], v.Scores[:min(rows, len(v.Scores))], v.Types[:min(rows, len(v.Types))]
	}
	readSpecials(k, &v)
	v.ChatTemplate, _ = read(k, "tokenizer.chat_template", gguf.Value.Str)
	// A file may have several templates: tokenizer.chat_templates lists their names, and
	// tokenizer.chat_template.NAME has each but the default (llama.cpp, gguf-py/gguf/constants.py).
	// As in Hugging Face's transformers, the one named tool_use is for conversations with tools.
	v.ToolTemplate, _ = read(k, "tokenizer.chat_template.tool_use", gguf.Value.Str)
	if k.err != nil {
		return nil, k.err
	}
	return tokenizer.New(v)
}

// checkLengths compares the lengths of the vocabulary's lists before memory is allocated
// for them. model is the name of the algorithm. With surplus, the vocabulary may have more tokens than the embedding has rows.
func checkLengths(k *keys, model string, surplus bool, rows int) error {
	length := func(key string) int {
		v, _ := k.f.Value(k.name(key))
		return v.Len()
	}
	tokens, scores, types, merges := length("tokens"), length("scores"), length("token_type"), length("merges")
	switch {
	case !k.has("tokens"):
		return fmt.Errorf("key %q: %w", k.name("tokens"), errMissingKey)
	case (model == "gpt2" || model == "gemma4") && !k.has("merges"): // it would spell every text byte by byte
		return fmt.Errorf("key %q: %w", k.name("merges"), errMissingKey)
	case tokens == 0:
		return fmt.Errorf("key %q: %w: no tokens", k.name("tokens"), tokenizer.ErrVocab)
	case tokens > maxTokens:
		k.bad("tokens", "%d tokens, at most %d are possible", tokens, maxTokens)
	case merges > maxMerges:
		k.bad("merges", "%d merges, at most %d are possible", merges, maxMerges)
	case rows > 0 && tokens != rows && !(surplus && tokens > rows):
		return fmt.Errorf("tensor %q: %w: %d rows and the vocabulary has %d tokens", embeddingName, errTensorShape, rows, tokens)
	case scores > 0 && scores != tokens || types > 0 && types != tokens:
		return fmt.Errorf("key %q: %w: tokens, scores and types differ in number: %d, %d, %d", k.name("tokens"), tokenizer.ErrVocab, tokens, scores, types)
	}
	return k.err
}

// float32s converts an array of floats.
func float32s(v gguf.Value) ([]float32, error) {
	if x, ok := v.Any().([]float32); ok {
		return x, nil
	}
	wide, err := v.Floats()
	out := make([]float32, len(wide))
	for i, x := range wide {
		out[i] = float32(x)
	}
	return out, err
}

// tokenTypes converts an array of integers of any type. Value.Ints would take twice the
// memory.
func tokenTypes(v gguf.Value) ([]int32, error) {
	all := reflect.ValueOf(v.Any())
	if all.Kind() != reflect.Slice {
		return nil, fmt.Errorf("not an array of integers")
	}
	out := make([]int32, all.Len())
	for i := range out {
		switch x := all.Index(i); {
		case x.CanInt() && x.Int() >= 0 && x.Int() <= math.MaxInt32:
			out[i] = int32(x.Int())
		case x.CanUint() && x.Uint() <= math.MaxInt32:
			out[i] = int32(x.Uint())
		default:
			return nil, fmt.Errorf("%v at index %d", x, i)
		}
	}
	return out, nil
}

// readSpecials reads the special tokens. The defaults for SentencePiece are the ids of
// the original Llama vocabulary.
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
	if k.has("add_bos_token") {
		v.AddBOS = new(k.flag("add_bos_token", false))
	}
	v.AddEOS = k.flag("add_eos_token", false)
	v.AddSpacePrefix = k.flag("add_space_prefix", spm)
}

// id reads a token id. The tokenizer checks that the vocabulary has it.
func (k *keys) id(key string, def int) int {
	return k.count(key, def, 0, math.MaxInt32)
}
