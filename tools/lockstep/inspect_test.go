package main

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

func TestInspect(t *testing.T) {
	r := succeed(t, "", "inspect", tinyModel)
	for _, want := range []string{
		"GGUF version 3, 6.28 MB", "general.architecture", `"llama"`, "… 4088 more",
		"token_embd.weight", "Q8_0", "256 × 4096", "KV cache of 1024 positions", "3.15 MB in F16", "6.29 MB in F32",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the output has no %q:\n%s", want, r.out)
		}
	}
	if strings.Contains(r.out, "cannot be") || r.err != "" {
		t.Errorf("the model can be run: %q", r.err)
	}
}

// decoded is the JSON of inspect.
type decoded struct {
	File     string
	Version  int
	Parts    int
	Bytes    int64
	Metadata []struct {
		Key, Type string
		Length    int
		Value     any
	}
	Tensors []struct {
		Name, Format  string
		Dims          []int
		Part          int
		Offset, Bytes int64
	}
	Parameters int64
	Memory     map[string]int64
	Refused    string `json:"cannot_run"`
	NoText     string `json:"cannot_tokenize"`
}

func inspectJSON(t *testing.T, path string) decoded {
	t.Helper()
	var d decoded
	if err := json.Unmarshal([]byte(succeed(t, "", "inspect", "--json", path).out), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestInspectJSON(t *testing.T) {
	d := inspectJSON(t, tinyModel)
	if d.File != tinyModel || d.Version != 3 || d.Bytes != 6275712 || len(d.Tensors) != 56 || d.Refused != "" {
		t.Errorf("%+v", d)
	}
	if got := d.Memory["kv_cache_f32"]; got != 6*4*(32+32)*1024*4 || d.Memory["kv_cache_f16"] != got/2 || d.Memory["context"] != 1024 {
		t.Errorf("memory %v", d.Memory)
	}
	first := d.Tensors[0]
	if first.Name != "token_embd.weight" || first.Format != "Q8_0" || first.Dims[0] != 256 || first.Dims[1] != 4096 || first.Bytes != 4096*8*34 {
		t.Errorf("%+v", first)
	}
	for _, m := range d.Metadata {
		if m.Key == "tokenizer.ggml.tokens" && (m.Type != "array of string" || m.Length != 4096 || m.Value != nil) {
			t.Errorf("%+v", m)
		}
		if m.Key == "llama.block_count" && m.Value != 6.0 {
			t.Errorf("%+v", m)
		}
	}
}

// odd writes a file with values that are difficult in JSON or in a table.
func odd(t *testing.T) string {
	t.Helper()
	w := gguf.NewWriter()
	for _, kv := range []struct {
		key   string
		value any
	}{
		{"bytes", []uint8{1, 2, 255}}, {"nan", math.NaN()}, {"floats", []float32{1, float32(math.Inf(-1))}},
		{"text", "tab\tline\nend"}, {"none", []string{}}, {"flags", []bool{true, false}},
	} {
		if err := w.Set(kv.key, kv.value); err != nil {
			t.Fatal(err)
		}
	}
	return writeGGUF(t, w)
}

func TestInspectOddValues(t *testing.T) {
	path := odd(t)
	want := map[string]string{
		"bytes": "[1,2,255]", "nan": `"NaN"`, "floats": `[1,"-Inf"]`, "text": `"tab\tline\nend"`, "none": "[]", "flags": "[true,false]",
	}
	d := inspectJSON(t, path)
	for _, m := range d.Metadata {
		got, err := json.Marshal(m.Value)
		if err != nil || string(got) != want[m.Key] {
			t.Errorf("%s: %s, want %s", m.Key, got, want[m.Key])
		}
	}
	if len(d.Metadata) != len(want) || !strings.Contains(d.Refused, "general.architecture") {
		t.Errorf("%+v", d)
	}
	r := succeed(t, "", "inspect", path)
	for line := range strings.Lines(r.out) {
		if strings.Contains(line, "end") && !strings.Contains(line, `"tab\tline\nend"`) {
			t.Errorf("a value breaks its line: %q", line)
		}
	}
	if !strings.Contains(r.out, "This file cannot be run: ") {
		t.Errorf("no reason why it cannot be run:\n%s", r.out)
	}
}

// A model with an unknown pre-tokenizer runs on token ids.
func TestInspectUnknownPreTokenizer(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	spec.Set("tokenizer.ggml.pre", "gpt-22")
	path := filepath.Join(t.TempDir(), "test.gguf")
	if err := os.WriteFile(path, spec.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	const want = `unknown pre-tokenizer: tokenizer.ggml.pre is "gpt-22"`
	r := succeed(t, "", "inspect", path)
	if !strings.Contains(r.out, "The vocabulary of this file cannot be used: ") || !strings.Contains(r.out, want) || strings.Contains(r.out, "cannot be run") {
		t.Errorf("the output does not say %q:\n%s", want, r.out)
	}
	if d := inspectJSON(t, path); !strings.Contains(d.NoText, want) || d.Refused != "" {
		t.Errorf("%+v", d)
	}
}

// Text may be cut otherwise than in training if a file does not name its pre-tokenizer.
func TestUnnamedPreTokenizer(t *testing.T) {
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	spec.Delete("tokenizer.ggml.pre")
	path := filepath.Join(t.TempDir(), "test.gguf")
	if err := os.WriteFile(path, spec.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	const want = "warning: the file does not name its pre-tokenizer"
	if r := succeed(t, "", "inspect", path); !strings.Contains(r.out, want) {
		t.Errorf("inspect: no %q:\n%s", want, r.out)
	}
	if r := succeed(t, "", "generate", "--model", path, "--device", "cpu", "--max-tokens", "1", "a"); !strings.Contains(r.err, want) {
		t.Errorf("generate: no %q:\n%s", want, r.err)
	}
	if r := succeed(t, "", "inspect", "../../golden/model/lockstep-tiny.gguf"); strings.Contains(r.out, "warning") {
		t.Errorf("a warning about a file that names it:\n%s", r.out)
	}
}

// The JSON has as many values as fit. A header of long texts would otherwise make an output
// of gigabytes.
func TestInspectJSONIsBounded(t *testing.T) {
	room := 100
	for _, c := range []struct {
		value any
		fits  bool
		room  int // afterwards
	}{
		{strings.Repeat("x", 101), false, 100},
		{strings.Repeat("x", 30), true, 70},
		{[]string{strings.Repeat("x", 40), strings.Repeat("y", 31)}, false, 70},
		{[]string{strings.Repeat("x", 10), strings.Repeat("y", 10)}, true, 50},
		{[]uint8{1, 2, 3, 4, 5, 6, 7}, false, 50},
		{[]uint8{1, 2, 3}, true, 26},
		{[]float32{1, 2, 3, 4}, false, 26},
		{uint32(7), true, 18},
	} {
		w := gguf.NewWriter()
		if err := w.Set("k", c.value); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(writeGGUF(t, w))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		v, _ := f.Value("k")
		if k := describeKey("k", v, &room); (k.Value != nil) != c.fits || room != c.room || k.text == "" {
			t.Errorf("%v: value %v, room for %d, want it: %v, room for %d", v, k.Value, room, c.fits, c.room)
		}
	}
}

// Text of a file can neither break the table nor control the terminal.
func TestInspectHostileNames(t *testing.T) {
	w := gguf.NewWriter()
	for key, value := range map[string]any{
		"a\x1b[31mred\nkey": "text\x1b[2J\n", "b": []string{"el\x1b[2J\nem"}, "general.architecture": "ar\x1b[2J\nch",
	} {
		if err := w.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	data := func(dst io.Writer) error { _, err := dst.Write(make([]byte, 128)); return err }
	if err := w.Add(gguf.TensorInfo{Name: "ten\x1b[2J\nsor", Format: quant.F32, Dims: []int{32}, Write: data}); err != nil {
		t.Fatal(err)
	}
	r := succeed(t, "", "inspect", writeGGUF(t, w))
	for _, want := range []string{`"a\x1b[31mred\nkey"`, `"text\x1b[2J\n"`, `"el\x1b[2J\nem"`, `"ten\x1b[2J\nsor"`} {
		if strings.Count(r.out, want) != 1 {
			t.Errorf("the output has not exactly one %s", want)
		}
	}
	if hidden := func(c rune) bool { return c != '\n' && !strconv.IsPrint(c) }; strings.IndexFunc(r.out, hidden) >= 0 {
		t.Errorf("characters that are not printable: %q", r.out)
	}
	if got, want := strings.Count(r.out, "\n"), 14; got != want {
		t.Errorf("%d lines, want %d:\n%s", got, want, r.out)
	}
}

func TestInspectVocabularyFile(t *testing.T) {
	w, _ := tinyKeys(t)
	published, _ := filepath.Glob("../../../shared/vocab/*.gguf") // none: not beside the checkout
	for _, path := range append(published, writeGGUF(t, w)) {
		d := inspectJSON(t, path)
		if len(d.Tensors) != 0 || len(d.Metadata) == 0 || d.Refused == "" {
			t.Errorf("%s: %d tensors, %d keys, refused %q", path, len(d.Tensors), len(d.Metadata), d.Refused)
		}
	}
}
