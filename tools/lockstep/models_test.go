package main

import (
	"encoding/json"
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

// home is a home folder of a user who has models of other programs. Other caches are not searched.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, value := range map[string]string{
		"HOME": dir, "USERPROFILE": dir, "OLLAMA_MODELS": filepath.Join(dir, "ollama"), "HF_HUB_CACHE": filepath.Join(dir, "hub"),
		"HF_HOME": "", "XDG_CACHE_HOME": "", "HF_ENDPOINT": "", "HF_TOKEN": "",
	} {
		t.Setenv(name, value)
	}
	return dir
}

// putIn writes a file below a folder.
func putIn(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	ollamaManifest = `{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:DIGEST", "size": 6275712}]}`
	someDigest     = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	ollamaLibrary  = "ollama/manifests/registry.ollama.ai/library/"
)

// fill puts models into a home folder: the embedded model in each cache, and a split one, one without a
// vocabulary, one that no engine runs, and a manifest that is no JSON.
func fill(t *testing.T, dir string) {
	t.Helper()
	tiny, silent := read(t, tinyModel), read(t, silentModel)
	putIn(t, dir, "ollama/blobs/sha256-"+someDigest, tiny)
	putIn(t, dir, ollamaLibrary+"war/latest", strings.Replace(ollamaManifest, "DIGEST", someDigest, 1))
	putIn(t, dir, ollamaLibrary+"broken/latest", "{")
	putIn(t, dir, ".lmstudio/models/me/War-GGUF/War-Q8_0.gguf", tiny)
	putIn(t, dir, ".lmstudio/models/me/Silent-GGUF/Silent.gguf", silent)
	putIn(t, dir, ".lmstudio/models/me/Other-GGUF/Other.gguf", strings.Replace(silent, "\x05\x00\x00\x00\x00\x00\x00\x00llama", "\x05\x00\x00\x00\x00\x00\x00\x00lllll", 1))
	for _, part := range splitTiny(t) {
		putIn(t, dir, "hub/models--me--War/snapshots/abc/War-Q8_0"+strings.TrimPrefix(filepath.Base(part), "m"), read(t, part))
	}
}

func TestModels(t *testing.T) {
	fill(t, home(t))
	lines := strings.Split(strings.TrimSpace(succeed(t, "", "models").out), "\n")
	for i, want := range []string{
		"NAME ARCHITECTURE FORMAT SIZE RUNS",
		"hf:me/War:Q8_0 llama q8_0 6.28 MB yes",
		"lmstudio:me/Other-GGUF/Other lllll F32 ",
		"lmstudio:me/Silent-GGUF/Silent llama F32 ",
		"lmstudio:me/War-GGUF/War-Q8_0 llama q8_0 6.28 MB yes",
		"ollama:broken:latest no: ",
		"ollama:war:latest llama q8_0 6.28 MB yes",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d: %q, want %q", i+1, got, want)
		}
	}
	var found []foundModel
	if err := json.Unmarshal([]byte(succeed(t, "", "models", "--json").out), &found); err != nil || len(found) != 6 {
		t.Fatalf("%d models, %v", len(found), err)
	}
	for i, want := range []string{"", `"lllll": it is none of`, "no vocabulary", "", "broken/latest: unexpected end of JSON input", ""} {
		if got := found[i].Refused; (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", found[i].Name, got, want)
		}
	}
	if m := found[5]; m.Arch != "llama" || m.Format != "q8_0" || m.Bytes != 6275712 || filepath.Base(m.File) != "sha256-"+someDigest {
		t.Errorf("%+v", m)
	}
}

func TestNoModels(t *testing.T) {
	home(t)
	if r := succeed(t, "", "models"); r.out != "" || r.err != "no models of Ollama, LM Studio or Hugging Face are here\n" {
		t.Errorf("%q, %q", r.out, r.err)
	}
	if r := succeed(t, "", "models", "--json"); r.out != "[]\n" || r.err != "" {
		t.Errorf("%q, %q", r.out, r.err)
	}
}

// A name of a model does what its file does.
func TestModelNames(t *testing.T) {
	fill(t, home(t))
	want := succeed(t, "", "tokenize", "--model", tinyModel, "Well, Prince").out
	for _, name := range []string{"ollama:war", "ollama:war:latest", "lmstudio:me/War-GGUF/War-Q8_0", "hf:me/War:q8_0", "hf:me/War"} {
		if got := succeed(t, "", "tokenize", "--model", name, "Well, Prince").out; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	t.Setenv("LOCKSTEP_MODEL", "ollama:broken")
	refused(t, runCommand(t, "", "tokenize", "x"), exitError, "broken", "unexpected end of JSON input")
	if got := succeed(t, "", "tokenize", "--model", "hf:me/War", "Well, Prince").out; got != want {
		t.Errorf("a flag instead of a variable: %q, want %q", got, want)
	}
	if got := succeed(t, "", "tokenize", "--model", "ollama:nope", "--model", tinyModel, "Well, Prince").out; got != want {
		t.Errorf("a file after a name: %q, want %q", got, want)
	}
}

// Every command takes names, and refuses one that no model has in one line.
func TestUnknownModelNames(t *testing.T) {
	home(t)
	for _, command := range commandsWithModel {
		args := strings.Fields(command)
		t.Run(args[0], func(t *testing.T) {
			out := put(t, "out", "precious")
			for i := range args {
				switch args[i] {
				case "F":
					args[i] = "hf:me/none:Q8_0"
				case "O":
					args[i] = out
				}
			}
			refused(t, runCommand(t, "", args...), exitError, "hf:me/none:Q8_0: no such model in ", "lockstep models lists those that are here")
			checkPrecious(t, out)
		})
	}
}
