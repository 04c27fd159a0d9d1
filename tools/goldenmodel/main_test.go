package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// TestRun writes the model of each architecture twice, loads it, and checks what the
// tests of golden/arch need: contexts of 70 positions and vocabularies of 64 tokens.
func TestRun(t *testing.T) {
	for _, arch := range tiny.Architectures() {
		t.Run(arch, func(t *testing.T) {
			var files [2][]byte
			path := filepath.Join(t.TempDir(), "model.gguf")
			for i := range files {
				if err := run(arch, 7, path); err != nil {
					t.Fatal(err)
				}
				var err error
				if files[i], err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(files[0], files[1]) {
				t.Error("two runs differ")
			}
			if len(files[0]) > 500_000 {
				t.Errorf("%d bytes", len(files[0]))
			}
			m, err := model.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if c := m.Config; c.Context < 70 || c.Vocab < 64 || c.Layers < 2 {
				t.Errorf("context %d, vocabulary %d, layers %d", c.Context, c.Vocab, c.Layers)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := run("bert", 1, path); err == nil {
		t.Error("an unknown architecture was written")
	}
	if err := run("llama", 1, ""); err == nil {
		t.Error("a model without a file name was written")
	}
}
