package model

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// TestLoadGoldenFiles loads every file of golden/arch and golden/quant.
func TestLoadGoldenFiles(t *testing.T) {
	var files []string
	for _, dir := range []string{"arch", "quant"} {
		found, err := filepath.Glob("../golden/" + dir + "/*.gguf")
		if err != nil || len(found) < 10 {
			t.Fatalf("%d models in golden/%s (%v)", len(found), dir, err)
		}
		files = append(files, found...)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			m, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if m.Tokenizer != nil {
				t.Error("a vocabulary out of nowhere")
			}
			checkShapes(t, m, expectations[m.Config.Arch])
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGoldenFilePerArchitecture checks that golden/arch has a model of each architecture.
func TestGoldenFilePerArchitecture(t *testing.T) {
	files, err := filepath.Glob("../golden/arch/*.gguf")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range files {
		m, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		found[m.Config.Arch] = true
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, arch := range Architectures() {
		if !found[arch] {
			t.Errorf("golden/arch has no model of architecture %q", arch)
		}
	}
}

func TestLoadTokenizerOfFiles(t *testing.T) {
	tests := []struct {
		file   string
		addBOS bool
	}{{"llama-bpe", true}, {"llama-spm", true}, {"gpt-2", false}}
	const vocabularies = "../../shared/vocab"
	if _, err := os.Stat(vocabularies); err != nil {
		t.Skip(err)
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			f, err := gguf.Open(filepath.Join(vocabularies, tt.file+".gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			tok, err := LoadTokenizer(f)
			if err != nil {
				t.Fatal(err)
			}
			bos, ok := tok.BOS()
			ids, _ := tok.Prompt("Hello", false, math.MaxInt)
			if got := ok && len(ids) > 1 && ids[0] == bos; got != tt.addBOS {
				t.Errorf("prompt %v with BOS %d: begins with it %v, want %v", ids, bos, got, tt.addBOS)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gave %v", err)
	}
	spec := tiny.New("llama", 1)
	spec.Set("general.architecture", "mamba")
	path := filepath.Join(dir, "mamba.gguf")
	if err := os.WriteFile(path, spec.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(path)
	if !errors.Is(err, errUnsupportedArch) || !strings.HasPrefix(err.Error(), "model: "+path+": key \"general.architecture\": ") || !strings.Contains(err.Error(), "qwen3moe") {
		t.Errorf("another architecture gave %v", err)
	}
}
