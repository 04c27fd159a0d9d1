package ref_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// trainer is the data that tools/train/train.py wrote with the embedded model.
type trainer struct {
	Oracle struct {
		File   string `json:"file"`
		Text   string `json:"text"`
		Tokens []int  `json:"tokens"`
		First  int    `json:"first_position"`
	} `json:"oracle"`
	Tokenizer []struct {
		Text   string `json:"text"`
		Tokens []int  `json:"tokens"`
	} `json:"tokenizer"`
}

func trainerOracle(t testing.TB) (o trainer) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "golden", "model", "oracle.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func equal(a, b []int) bool { return slices.Equal(a, b) }
