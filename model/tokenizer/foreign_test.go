package tokenizer_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/model/tokenizer"
)

// foreign is golden/tokenizer/tokens.json: token ids of other tokenizers for vocabularies
// of this project, written by tools/oracle/tokens.py.
type foreign struct {
	Texts     []string `json:"texts"`
	ByteLevel struct {
		Tokens []string           `json:"tokens"`
		Merges []string           `json:"merges"`
		IDs    map[string][][]int `json:"ids"` // by pre-tokenizer
	} `json:"byte_level"`
	SentencePiece struct {
		Tokens []string  `json:"tokens"`
		Scores []float32 `json:"scores"`
		Types  []int32   `json:"types"`
		IDs    [][]int   `json:"ids"`
	} `json:"sentence_piece"`
}

func readForeign(t *testing.T) (f foreign) {
	t.Helper()
	raw, err := os.ReadFile("../../golden/tokenizer/tokens.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Texts) < 50 || len(f.ByteLevel.IDs) < 4 {
		t.Fatalf("%d texts, %d pre-tokenizers", len(f.Texts), len(f.ByteLevel.IDs))
	}
	return f
}

func compare(t *testing.T, tok *tokenizer.Tokenizer, texts []string, want [][]int) {
	t.Helper()
	for i, text := range texts {
		got := tok.Encode(text, false)
		if !slices.Equal(got, want[i]) {
			t.Errorf("%.60q: %v, want %v", text, got, want[i])
		}
		if back := tok.Decode(got); back != text {
			t.Errorf("%.60q comes back as %.60q", text, back)
		}
	}
}

// One vocabulary with each pre-tokenizer, compared with Hugging Face tokenizers.
func TestByteLevelLikeHuggingFace(t *testing.T) {
	f := readForeign(t)
	seen := map[string]string{}
	for pre, want := range f.ByteLevel.IDs {
		if other, same := seen[fmt.Sprint(want)]; same {
			t.Errorf("no text tells %s from %s", pre, other)
		}
		seen[fmt.Sprint(want)] = pre
		t.Run(pre, func(t *testing.T) {
			tok, err := tokenizer.New(tokenizer.Vocab{
				Model: "gpt2", Pre: pre,
				Tokens: f.ByteLevel.Tokens, Merges: f.ByteLevel.Merges,
				BOS: -1, EOS: -1, UNK: -1, EOT: -1, EOM: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, tok, f.Texts, want)
		})
	}
}

func TestSentencePieceLikeGoogles(t *testing.T) {
	f := readForeign(t)
	tok, err := tokenizer.New(tokenizer.Vocab{
		Model: "llama", Pre: "default",
		Tokens: f.SentencePiece.Tokens, Scores: f.SentencePiece.Scores, Types: f.SentencePiece.Types,
		BOS: 1, EOS: 2, UNK: 0, EOT: -1, EOM: -1, AddSpacePrefix: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, tok, f.Texts, f.SentencePiece.IDs)
}
