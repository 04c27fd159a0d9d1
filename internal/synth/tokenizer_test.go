package synth

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/requant"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// file returns a GGUF file of the given keys.
func file(t *testing.T, pairs []pair) *gguf.File {
	t.Helper()
	w := gguf.NewWriter()
	for _, kv := range pairs {
		if err := w.Set(kv.key, kv.value); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// byteLevel returns a BPE vocabulary of 259 tokens: "ab", EOS and all bytes.
func byteLevel(types bool) []pair {
	tokens, kinds := []string{"ab", "</s>"}, []int32{typeNormal, typeControl}
	for b := range 256 {
		tokens, kinds = append(tokens, tokenizer.ByteToken(byte(b))), append(kinds, typeNormal)
	}
	tokens, kinds = append(tokens, "abab"), append(kinds, typeNormal)
	pairs := []pair{
		{"general.architecture", "llama"},
		{"llama.block_count", uint32(7)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", "gpt-2"},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.merges", []string{"a b", "ab ab"}},
		{"tokenizer.ggml.eos_token_id", uint32(1)},
		{"tokenizer.chat_template", "{{ messages[0].content }}!"},
	}
	if types {
		pairs = append(pairs, pair{"tokenizer.ggml.token_type", kinds})
	}
	return pairs
}

// sentencePiece returns a vocabulary of 262 tokens with scores.
func sentencePiece() []pair {
	tokens, scores, types := []string{"<unk>", "<s>", "</s>"}, make([]float32, 259), []int32{2, typeControl, typeControl}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6)
	}
	return []pair{
		{"tokenizer.ggml.model", "llama"},
		{"tokenizer.ggml.tokens", append(tokens, "a", "b", "ab")},
		{"tokenizer.ggml.scores", append(scores, -3, -2, -1)},
		{"tokenizer.ggml.token_type", append(types, typeNormal, typeNormal, typeNormal)},
		{"tokenizer.ggml.add_space_prefix", false},
		{"tokenizer.ggml.add_bos_token", false},
	}
}

func TestSetTokenizer(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		pairs        []pair
		vocab        int
		want         []int // ids of "abab"
	}{
		{"equal size", "nothing is padded", byteLevel(true), 259, []int{258}},
		{"padded", "the rest is unused", byteLevel(true), 300, []int{258}},
		{"padded without types", "all tokens of the file are normal", byteLevel(false), 300, []int{258}},
		{"padded with scores", "SentencePiece", sentencePiece(), 300, []int{261, 261}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			preset := small(presets[0])
			preset.Vocab = tt.vocab
			r, err := requant.ParseRecipe("q8_0")
			if err != nil {
				t.Fatal(err)
			}
			plan, err := NewPlan(preset, r, 1)
			if err != nil {
				t.Fatal(err)
			}
			source := file(t, tt.pairs)
			if err := plan.SetTokenizer(source); err != nil {
				t.Fatal(err)
			}
			f, err := gguf.Parse(write(t, plan, 1))
			if err != nil {
				t.Fatal(err)
			}
			m, err := model.Load(f)
			if err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			if got := m.Tokenizer.Encode("abab", false); !cmp.Equal(got, tt.want) {
				t.Errorf("%s: text abab is %v, want %v", tt.reason, got, tt.want)
			}
			checkConfig(t, plan.Preset, m.Config)
			checkVocabulary(t, source, f, tt.vocab)
		})
	}
}

// checkVocabulary checks that a file has the vocabulary of source, padded to n tokens.
func checkVocabulary(t *testing.T, source, f *gguf.File, n int) {
	t.Helper()
	for _, key := range source.Keys() {
		from, _ := source.Value(key)
		v, ok := f.Value(key)
		switch short := from.Len(); {
		case !strings.HasPrefix(key, "tokenizer."):
			continue
		case !ok:
			t.Errorf("key %s is lost", key)
		case !from.IsArray() || key == "tokenizer.ggml.merges":
			if d := cmp.Diff(from.Any(), v.Any()); d != "" {
				t.Errorf("key %s (-source +file):\n%s", key, d)
			}
		case v.Len() != n || v.TypeName() != from.TypeName():
			t.Errorf("key %s: %d of type %s, want %d of type %s", key, v.Len(), v.TypeName(), n, from.TypeName())
		case key == "tokenizer.ggml.tokens":
			got, _ := v.Strings()
			want, _ := from.Strings()
			if d := cmp.Diff(want, got[:short]); d != "" {
				t.Errorf("tokens (-source +file):\n%s", d)
			}
		case key == "tokenizer.ggml.token_type":
			types, _ := v.Ints()
			for id, kind := range types {
				if (kind == typeUnused) != (id >= short) {
					t.Errorf("token %d of %d has type %d", id, short, kind)
				}
			}
		}
	}
	for _, key := range f.Keys() {
		if _, ok := source.Value(key); !ok && strings.HasPrefix(key, "tokenizer.") && key != "tokenizer.ggml.token_type" {
			t.Errorf("key %s is not of the source", key)
		}
	}
	if v, _ := f.Value("llama.block_count"); v.Any() != uint32(1) {
		t.Errorf("block_count is %v: a key outside of the vocabulary was copied", v)
	}
}

func TestSetTokenizerRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		pairs        []pair
		want         string
	}{
		{"too many tokens", "both numbers are named", byteLevel(true), "the file has 259 tokens, llama-3.2-1b has 258"},
		{"no vocabulary", "nothing to copy", []pair{{"general.architecture", "llama"}}, "no tokens"},
	} {
		p := Plan{Preset: presets[0]}
		p.Preset.Vocab = 258
		err := p.SetTokenizer(file(t, tt.pairs))
		if !errors.Is(err, ErrVocab) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s (%s): error %v, want %q", tt.name, tt.reason, err, tt.want)
		}
	}
}
