package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTokenize(t *testing.T) {
	tests := []struct {
		name, reason string
		stdin        string
		args         string
		want         string
	}{
		{"argument", "no BOS is added", "", "hi", "[72,73]\n"},
		{"standard input", "its last newline is not part of the text", "hi\n", "", "[72,73]\n"},
		{"nothing", "an array, not null", "", "", "[]\n"},
		{"lines", "one array for each", "\"hi\"\n\"\"\n\"h\\u0069\"\n", "--jsonl", "[72,73]\n[]\n[72,73]\n"},
		{"no last newline", "the last line counts", "\"hi\"\n\"hi\"", "--jsonl", "[72,73]\n[72,73]\n"},
		{"no lines", "nothing in, nothing out", "", "--jsonl", ""},
		{"special", "with --special", `"<|endoftext|>"`, "--jsonl --special", "[0]\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := succeed(t, tt.stdin, append([]string{"tokenize"}, strings.Fields(tt.args)...)...)
			if r.out != tt.want || r.err != "" {
				t.Errorf("%s: %q, want %q; standard error %q", tt.reason, r.out, tt.want, r.err)
			}
		})
	}
}

// Without --special, the text of a special token is encoded as plain text.
func TestTokenizeSpecialAsText(t *testing.T) {
	var ids []int
	r := succeed(t, "", "tokenize", "<|endoftext|>")
	if err := json.Unmarshal([]byte(r.out), &ids); err != nil || len(ids) < 3 || slices.Contains(ids, 0) {
		t.Errorf("ids %v, error %v", ids, err)
	}
}

func TestTokenizeRefuses(t *testing.T) {
	tests := []struct {
		name, reason, stdin, want string
	}{
		{"no string", "a number", "17\n", "want a JSON string"},
		{"null", "which decoders turn into an empty string", "null\n", "want a JSON string"},
		{"open string", "the closing quote is missing", "\"hi\n", "want a JSON string"},
		{"two strings", "on one line", "\"a\" \"b\"\n", "want a JSON string"},
		{"empty line", "no string at all", "\n\"hi\"\n", "want a JSON string"},
		{"long line", "it is not read to its end", "\"" + strings.Repeat("a", maxLine-2) + "\"\n", "longer than 16.8 MB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := runCommand(t, "\"hi\"\n"+tt.stdin, "tokenize", "--jsonl")
			if r.out != "[72,73]\n" {
				t.Errorf("the line before is answered by %q", r.out)
			}
			r.out = ""
			refused(t, r, exitError, "standard input", "line 2", tt.want)
		})
	}
}

// Each line is answered before the next one arrives.
func TestTokenizeAnswersAtOnce(t *testing.T) {
	in, ask := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan int)
	go func() {
		var errw bytes.Buffer
		status := run(t.Context(), []string{"tokenize", "--jsonl"}, in, out, &errw)
		out.Close()
		done <- status
	}()
	dec := json.NewDecoder(answers)
	for range 3 {
		if _, err := io.WriteString(ask, "\"hi\"\n"); err != nil {
			t.Fatal(err)
		}
		var ids []int
		if err := dec.Decode(&ids); err != nil || len(ids) != 2 {
			t.Fatalf("answer %v, %v", ids, err)
		}
	}
	ask.Close()
	if status := <-done; status != exitOK {
		t.Errorf("status %d", status)
	}
}

// A file with a vocabulary and no weights is enough.
func TestTokenizeVocabularyFile(t *testing.T) {
	w, _ := tinyKeys(t)
	const text = "Well, Prince, naïve\n\tcafé 🙂"
	got, want := succeed(t, "", "tokenize", "--model", writeGGUF(t, w), text), succeed(t, "", "tokenize", text)
	if got.out != want.out {
		t.Errorf("%s, and with the weights %s", got.out, want.out)
	}
}

// The vocabularies of published models whose pre-tokenizers are known.
func TestTokenizeVocabularyFiles(t *testing.T) {
	const vocabularies = "../../../shared/vocab"
	if _, err := os.Stat(vocabularies); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{"gpt-2", "llama-bpe", "llama-spm", "phi-3", "starcoder", "tekken", "gpt-4o", "deepseek-v3", "qwen3"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(vocabularies, name+".gguf")
			in, err := os.ReadFile(path + ".inp")
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(path + ".out")
			if err != nil {
				t.Fatal(err)
			}
			var lines bytes.Buffer
			enc := json.NewEncoder(&lines)
			for _, text := range strings.Split(string(in), "\n__ggml_vocab_test__\n") {
				if err := enc.Encode(text); err != nil {
					t.Fatal(err)
				}
			}
			r := succeed(t, lines.String(), "tokenize", "--model", path, "--jsonl")
			got := strings.Split(strings.TrimSpace(r.out), "\n")
			for i, line := range strings.Split(strings.TrimRight(string(want), "\n"), "\n") {
				ids := "[" + strings.Join(strings.Fields(line), ",") + "]"
				if i >= len(got) || got[i] != ids {
					t.Fatalf("case %d: %v, want %s", i, got[min(i, len(got)-1)], ids)
				}
			}
		})
	}
}
