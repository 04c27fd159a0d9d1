package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// badVocabularies lists vocabularies that must be refused.
var badVocabularies = []struct {
	name, reason string
	change       change
	sentinel     error
	text         string // part of the message
}{
	{"unknown pre-tokenizer and a bad merge", "a contradiction whatever the split", both(set("tokenizer.ggml.pre", "gpt-22"), set("tokenizer.ggml.merges", []string{"ab"})), tokenizer.ErrVocab, "bad merge"},
	{"unknown model and fewer types", "a contradiction whatever the algorithm", both(set("tokenizer.ggml.model", "t5"), set(typesKey, []int32{1, 1})), tokenizer.ErrVocab, "differ in number"},
	{"unknown model and BOS beyond", "a contradiction whatever the algorithm", both(set("tokenizer.ggml.model", "t5"), set("tokenizer.ggml.bos_token_id", uint32(tiny.Vocab))), tokenizer.ErrVocab, "out of range"},
	{"too many tokens", "memory for each", both(del(".vocab_size"), set(tokensKey, make([]string, maxTokens+1))), errBadKey, ""},
	{"too many merges", "memory for each", set("tokenizer.ggml.merges", make([]string, maxMerges+1)), errBadKey, ""},
	{"no merges", "every text would be spelled byte by byte", del("tokenizer.ggml.merges"), errMissingKey, ""},
	{"gemma4 without merges", "every text would be spelled byte by byte", both(set("tokenizer.ggml.model", "gemma4"), del("tokenizer.ggml.merges")), errMissingKey, ""},
	{"no tokens", "an empty list", set(tokensKey, []string{}), tokenizer.ErrVocab, "no tokens"},
	{"fewer types", "one per token", set(typesKey, []int32{1, 1}), tokenizer.ErrVocab, "differ in number"},
	{"more scores", "one per token", set("tokenizer.ggml.scores", make([]float32, tiny.Vocab+1)), tokenizer.ErrVocab, "differ in number"},
	{"unknown type", "no such type", set(typesKey, make([]int32, tiny.Vocab)), tokenizer.ErrVocab, "unknown token type"},
	{"type beyond 32 bits", "must not wrap", set(typesKey, slices.Repeat([]int64{1 << 32}, tiny.Vocab)), errBadKey, ""},
	{"negative type", "no such type", set(typesKey, slices.Repeat([]int32{-1}, tiny.Vocab)), errBadKey, ""},
	{"BOS beyond", "an id", set("tokenizer.ggml.bos_token_id", uint32(tiny.Vocab)), tokenizer.ErrVocab, "out of range"},
	{"EOS beyond", "an id", set("tokenizer.ggml.eos_token_id", uint32(1e6)), tokenizer.ErrVocab, "out of range"},
	{"UNK beyond 31 bits", "an id", set("tokenizer.ggml.unknown_token_id", uint32(math.MaxUint32)), errBadKey, ""},
	{"merge of unknown tokens", "nothing to merge", set("tokenizer.ggml.merges", []string{"qq zz"}), tokenizer.ErrVocab, "bad merge"},
	{"merge of one", "no pair", set("tokenizer.ggml.merges", []string{"ab"}), tokenizer.ErrVocab, "bad merge"},
	{"too many rows", "no engine could choose among them", both(del(".vocab_size"), reshape(embedding, 32, maxVocab+1)), errTensorShape, "tokens are possible"},
	{"embedding larger", "tokens without a text", both(del(".vocab_size"), reshape(embedding, 32, tiny.Vocab+1)), errTensorShape, ""},
	{"embedding smaller", "tokens without a row", both(del(".vocab_size"), reshape(embedding, 32, tiny.Vocab-1)), errTensorShape, ""},
}

func TestBadVocabularies(t *testing.T) {
	for _, tt := range badVocabularies {
		t.Run(tt.name, func(t *testing.T) {
			spec := tiny.New("qwen2", 1) // tied: the embedding alone gives the rows
			spec.AddVocab(true)
			tt.change(spec)
			refused(t, spec, tt.reason, tt.sentinel, tt.text)
		})
	}
}

// sentencePiece gives a model a SentencePiece vocabulary of unknown, BOS, EOS, the bytes
// and some letters, without keys for special tokens.
func sentencePiece(m *tiny.Model) (tokens []string, types []int32) {
	tokens, types = []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6)
	}
	for r := 'a'; len(tokens) < tiny.Vocab; r++ {
		tokens, types = append(tokens, string(r)), append(types, 1)
	}
	m.Set("tokenizer.ggml.model", "llama")
	m.Set(tokensKey, tokens)
	m.Set(typesKey, types)
	m.Set("tokenizer.ggml.scores", make([]float32, tiny.Vocab))
	return tokens, types
}

// llama.cpp's own files name 2^32-1, which is no token, as padding. Nothing pads.
func TestPaddingTokenIsNotRead(t *testing.T) {
	spec := tiny.New("llama", 1)
	sentencePiece(spec)
	spec.Set("tokenizer.ggml.padding_token_id", uint32(math.MaxUint32))
	if _, err := Load(spec.File()); err != nil {
		t.Error(err)
	}
}

func TestSentencePieceDefaults(t *testing.T) {
	spec := tiny.New("llama", 1)
	sentencePiece(spec)
	m, err := Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	// BOS, the space before the text (U+2581, byte by byte), the letter.
	const byte0, a = 3, 3 + 256
	want := []int{1, byte0 + 0xE2, byte0 + 0x96, byte0 + 0x81, a}
	got, err := m.Prompt("a", false, len(want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !m.Tokenizer.Stops(2) {
		t.Error("</s> does not stop")
	}
}

// TestDefaultBOS loads byte-level vocabularies with and without add_bos_token.
func TestDefaultBOS(t *testing.T) {
	for _, tt := range []struct {
		pre  string
		set  any // add_bos_token; nil: absent
		want bool
	}{
		{"llama3", nil, true}, {"llama-v3", nil, true}, {"llama-bpe", nil, true},
		{"llama-v3", false, false}, {"tekken", nil, true}, {"lfm2", nil, true}, {"dbrx", nil, false},
		{"gpt-2", nil, false}, {"qwen2", nil, false}, {"smollm", nil, false}, {"default", nil, false},
		{"qwen2", true, true},
	} {
		spec := tiny.New("llama", 1)
		spec.AddVocab(false)
		spec.Set("tokenizer.ggml.pre", tt.pre)
		del("tokenizer.ggml.add_bos_token")(spec)
		if tt.set != nil {
			spec.Set("tokenizer.ggml.add_bos_token", tt.set)
		}
		m, err := Load(spec.File())
		if err != nil {
			t.Fatal(err)
		}
		ids, err := m.Prompt("a", false, m.Config.Context)
		if err != nil {
			t.Fatal(err)
		}
		if got := ids[0] == tiny.Begin; got != tt.want {
			t.Errorf("pre-tokenizer %s, add_bos_token %v: prompt %v begins with BOS: %v, want %v", tt.pre, tt.set, ids, got, tt.want)
		}
	}
}

// Byte tokens of a SentencePiece vocabulary must name bytes.
func TestBadByteToken(t *testing.T) {
	spec := tiny.New("llama", 1)
	tokens, _ := sentencePiece(spec)
	tokens[5] = "<0xZZ>"
	spec.Set(tokensKey, tokens)
	refused(t, spec, "no byte", tokenizer.ErrVocab, "bad byte token")
}
