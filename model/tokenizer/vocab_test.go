package tokenizer_test

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// shared is the directory of published vocabularies, which may be missing.
const shared = "../../../shared/vocab"

// vocabularies lists files of shared, some of which tools/oracle/vocab.mjs writes. Each has
// texts (.inp) and the ids of llama.cpp, or of the model's tokenizer.json, without BOS (.out).
// No text contains a special token, so parsing them must give the same ids.
var vocabularies = []struct {
	name, reason string
	nfc          bool // the tokenizer normalizes text
}{
	{"gpt-2", "byte-level BPE with the first of the expressions", false},
	{"llama-bpe", "groups of three digits, words taken whole, 280,147 merges", false},
	{"qwen2", "single digits, line ends with punctuation", false},
	{"starcoder", "digits are cut out before words are", false},
	{"llama-spm", "merging by scores, byte fallback, space prefix", false},
	{"tekken", "single digits, letters by case", false},
	{"gpt-4o", "contractions after words, letters by case, marks in words", false},
	{"deepseek-v3", "numbers and CJK are cut out before words are", false},
	{"qwen3", "text is normalized", true},
	{"llama3_1", "words taken whole, from the model's own tokenizer.json", false},
	{"gemma3", "merges of characters over whole lines, byte fallback", false},
	{"phi-3", "a user-defined token in a SentencePiece vocabulary", false},
}

// load reads a vocabulary of shared. It skips the test if the file is missing.
func load(t testing.TB, name string) *tokenizer.Tokenizer {
	t.Helper()
	v := readVocab(t, filepath.Join(shared, name+".gguf"))
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func readVocab(t testing.TB, path string) tokenizer.Vocab {
	t.Helper()
	f, err := gguf.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is not there", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v := tokenizer.Vocab{BOS: -1, EOS: -1, EOT: -1, EOM: -1, UNK: -1}
	v.Model, v.Pre = get(t, f, gguf.Value.Str, "model"), get(t, f, gguf.Value.Str, "pre")
	v.Tokens, v.Merges = get(t, f, gguf.Value.Strings, "tokens"), get(t, f, gguf.Value.Strings, "merges")
	for _, s := range get(t, f, gguf.Value.Floats, "scores") {
		v.Scores = append(v.Scores, float32(s))
	}
	for _, kind := range get(t, f, gguf.Value.Ints, "token_type") {
		v.Types = append(v.Types, int32(kind))
	}
	for key, id := range map[string]*int{
		"bos_token_id": &v.BOS, "eos_token_id": &v.EOS, "unknown_token_id": &v.UNK,
	} {
		if _, ok := f.Value("tokenizer.ggml." + key); ok {
			*id = int(get(t, f, gguf.Value.Uint, key))
		}
	}
	v.AddBOS = new(get(t, f, gguf.Value.Bool, "add_bos_token"))
	v.AddSpacePrefix = v.Model == "llama"
	if template, ok := f.Value("tokenizer.chat_template"); ok {
		if v.ChatTemplate, err = template.Str(); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// get reads a key of the tokenizer. It returns the zero value if the file lacks the key.
func get[V any](t testing.TB, f *gguf.File, as func(gguf.Value) (V, error), key string) (x V) {
	t.Helper()
	v, ok := f.Value("tokenizer.ggml." + key)
	if !ok {
		return x
	}
	x, err := as(v)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// cases reads the texts and ids of a vocabulary.
func cases(t testing.TB, name string) (texts []string, ids [][]int) {
	t.Helper()
	in, err := os.ReadFile(filepath.Join(shared, name+".gguf.inp"))
	if err != nil {
		t.Skipf("no texts: %v", err)
	}
	out, err := os.ReadFile(filepath.Join(shared, name+".gguf.out"))
	if err != nil {
		t.Skipf("no ids: %v", err)
	}
	const end = "\n__ggml_vocab_test__\n" // ends every text, also the last
	texts = strings.Split(strings.TrimSuffix(string(in), end), end)
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(texts) != len(lines) || len(texts) < 40 {
		t.Fatalf("%d texts and %d lines of ids", len(texts), len(lines))
	}
	for _, line := range lines {
		var row []int
		for _, field := range strings.Fields(line) {
			id, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row, id)
		}
		ids = append(ids, row)
	}
	return texts, ids
}

func TestVocabularies(t *testing.T) {
	if _, err := os.Stat(shared); err != nil {
		t.Skip(err)
	}
	for _, v := range vocabularies {
		t.Run(v.name, func(t *testing.T) {
			tok := load(t, v.name)
			texts, want := cases(t, v.name)
			for i, text := range texts {
				got := tok.Encode(text, false)
				if diff := cmp.Diff(want[i], got); diff != "" {
					t.Errorf("%s: Encode(%q): -want +got\n%s", v.reason, text, diff)
				}
				if diff := cmp.Diff(got, tok.Encode(text, true)); diff != "" {
					t.Errorf("Encode(%q) parsing special tokens: -without +with\n%s", text, diff)
				}
				if v.nfc {
					text = norm.NFC.String(text)
				}
				if back := tok.Decode(got); back != text {
					t.Errorf("Decode(Encode(%q)) = %q", text, back)
				}
			}
		})
	}
}

// TestPhi3Chat renders the template of a published file and encodes the result. Phi-3's
// special tokens include the line ends after them.
func TestPhi3Chat(t *testing.T) {
	v := readVocab(t, filepath.Join(shared, "phi-3.gguf"))
	tok, err := tokenizer.New(v)
	if err != nil {
		t.Fatal(err)
	}
	text, err := tok.Render(tokenizer.Conversation{Messages: []tokenizer.Message{
		{Role: "user", Content: "Hi"}, {Role: "assistant", Content: "Ho"}, {Role: "user", Content: "Hu?"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := "<s><|user|>\nHi<|end|>\n<|assistant|>\nHo<|end|>\n<|user|>\nHu?<|end|>\n<|assistant|>\n"
	if text.String() != want {
		t.Fatalf("Render gives %q, want %q", text, want)
	}
	var tokens []string
	ids, _ := tok.PromptText(text, math.MaxInt)
	for _, id := range ids {
		tokens = append(tokens, v.Tokens[id])
	}
	wantTokens := []string{
		"<s>", "<|user|>", "\u2581Hi", "<|end|>", "<|assistant|>", "\u2581Ho", "<|end|>",
		"<|user|>", "\u2581Hu", "?", "<|end|>", "<|assistant|>",
	}
	if diff := cmp.Diff(wantTokens, tokens); diff != "" {
		t.Errorf("Prompt: -want +got\n%s", diff)
	}
	for _, text := range []string{"<|end|>", "<|endoftext|>", "</s>"} {
		if ids := tok.Encode(text, true); len(ids) != 1 || !tok.Stops(ids[0]) {
			t.Errorf("%s becomes %v and does not stop", text, ids)
		}
	}
}
