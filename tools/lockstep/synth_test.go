package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSynthTokenizerRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, reason, file string
		want               []string
	}{
		{"no vocabulary", "a model for token ids", silentModel, []string{"no vocabulary"}},
		{"its own output", "it would be replaced", "O", []string{"--out"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := put(t, "out", "precious")
			file := tt.file
			if file == "O" {
				w, _ := tinyKeys(t)
				out = writeGGUF(t, w)
				file = out
			} else {
				tt.want = append(tt.want, "--tokenizer: "+file)
			}
			refused(t, runCommand(t, "", "synth", "--preset", "gpt2", "--quant", "q4_0", "--layers", "1", "--out", out, "--tokenizer", file), exitError, tt.want...)
		})
	}
}

// A model with the vocabulary of another file encodes text as that file does.
func TestSynthTokenizer(t *testing.T) {
	if testing.Short() {
		t.Skip("makes models of hundreds of MB")
	}
	w, _ := tinyKeys(t)
	checkSynthTokenizer(t, "gpt2", writeGGUF(t, w))
	const vocabularies = "../../../shared/vocab"
	if _, err := os.Stat(vocabularies); err != nil {
		t.Skip(err)
	}
	llama := filepath.Join(vocabularies, "llama-bpe.gguf")
	checkSynthTokenizer(t, "llama-3.2-1b", llama)
	refused(t, runCommand(t, "", "synth", "--preset", "gpt2", "--quant", "q4_0", "--out", filepath.Join(t.TempDir(), "out"), "--tokenizer", llama),
		exitError, "--tokenizer: "+llama, "128256", "50257")
}

func checkSynthTokenizer(t *testing.T, preset, vocabulary string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "model.gguf")
	succeed(t, "", "synth", "--preset", preset, "--quant", "q4_0", "--layers", "1", "--out", out, "--tokenizer", vocabulary)
	const text = "Well, Prince, naïve\n\tcafé 🙂 <|eot_id|> 12345"
	got, want := succeed(t, "", "tokenize", "--model", out, "--special", text), succeed(t, "", "tokenize", "--model", vocabulary, "--special", text)
	if got.out != want.out {
		t.Errorf("%s with the vocabulary of %s encodes as %s, want %s", preset, vocabulary, got.out, want.out)
	}
}

func TestSynth(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.gguf")
	args := []string{"synth", "--preset", "gpt2", "--quant", "q4_0", "--layers", "1", "--out"}
	if r := succeed(t, "", append(args, path)...); !strings.Contains(r.out, "GB/s") || r.err != "" {
		t.Errorf("output %q, standard error %q", r.out, r.err)
	}
	d := inspectJSON(t, path)
	if d.Refused != "" || len(d.Tensors) != 16 {
		t.Errorf("%d tensors, refused %q", len(d.Tensors), d.Refused)
	}
	r := succeed(t, "", "generate", "--model", path, "--max-tokens", "3", "Hello")
	if !strings.HasPrefix(r.out, "Hello") || !strings.Contains(r.err, "prompt: 5 tokens") {
		t.Errorf("%q, %q", r.out, r.err)
	}
	other := filepath.Join(dir, "b.gguf")
	succeed(t, "", append(args, other, "--seed", "2")...)
	a, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(other)
	if err != nil || string(a) == string(b) || len(a) != len(b) {
		t.Errorf("another seed: %d and %d bytes, equal %v, %v", len(a), len(b), string(a) == string(b), err)
	}
}
