package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// commandsWithModel has every command that reads a model. F is the model, O the output.
var commandsWithModel = []string{
	"generate --model F hello",
	"logits --model F --tokens 1,2 --out O",
	"tokenize --model F hello",
	"inspect F",
	"quantize --in F --out O --type q8_0",
	"perplexity --model F --text main.go",
	"plan --model F",
	"synth --preset llama-3.2-1b --quant q4_0 --layers 1 --out O --tokenizer F",
	"bench --model F --device cpu --json O",
	"bench sampling --model F --device cpu --json O",
	"diff --model F --device emu --json O",
	"chat --model F",
	"serve --model F --addr 127.0.0.1:0",
}

// Every command refuses a bad model file in one line that names it, and keeps an existing
// output file.
func TestBadModelFiles(t *testing.T) {
	tiny, err := os.ReadFile(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, reason string
		path         string
	}{
		{"missing", "a typo", filepath.Join(t.TempDir(), "none.gguf")},
		{"directory", "not a file", t.TempDir()},
		{"empty", "an empty download", put(t, "empty.gguf", "")},
		{"text", "not GGUF", put(t, "text.gguf", "hello\n")},
		{"cut short", "an incomplete download", put(t, "cut.gguf", string(tiny[:len(tiny)/2]))},
	}
	for _, tt := range tests {
		for _, command := range commandsWithModel {
			name, _, _ := strings.Cut(command, " ")
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				out := put(t, "out", "precious")
				args := strings.Fields(command)
				for i := range args {
					switch args[i] {
					case "F":
						args[i] = tt.path
					case "O":
						args[i] = out
					}
				}
				refused(t, runCommand(t, "", args...), exitError, tt.path)
				checkPrecious(t, out)
			})
		}
	}
}

// checkPrecious checks that a file of put is unchanged and alone in its directory.
func checkPrecious(t *testing.T, path string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the previous output is lost: %q, %v", b, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestModelsWithoutVocabulary(t *testing.T) {
	for _, command := range []string{"generate --model F hello", "tokenize --model F hello", "perplexity --model F --text main.go"} {
		args := strings.Fields(strings.Replace(command, "F", silentModel, 1))
		refused(t, runCommand(t, "", args...), exitError, silentModel, "no vocabulary")
	}
}
