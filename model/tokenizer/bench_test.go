package tokenizer_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// BenchmarkNew builds tokenizers of published vocabularies.
func BenchmarkNew(b *testing.B) {
	for _, name := range []string{"llama-bpe", "llama-spm"} {
		b.Run(name, func(b *testing.B) {
			v := readVocab(b, filepath.Join(shared, name+".gguf"))
			for b.Loop() {
				if _, err := tokenizer.New(v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// novel returns a megabyte of a novel. It skips the benchmark if the text is not there.
func novel(b *testing.B) string {
	text, err := os.ReadFile("../../../shared/corpus/war-and-peace.txt")
	if err != nil {
		b.Skipf("no text: %v", err)
	}
	return string(text[:min(len(text), 1<<20)])
}

func BenchmarkEncode(b *testing.B) {
	text := novel(b)
	for _, name := range []string{"gpt-2", "llama-bpe", "starcoder", "llama-spm"} {
		b.Run(name, func(b *testing.B) {
			tok := load(b, name)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, false)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	text := novel(b)
	tok := load(b, "llama-bpe")
	ids := tok.Encode(text, false)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Decode(ids)
	}
}
