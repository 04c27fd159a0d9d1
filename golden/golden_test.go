package golden_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/golden"
	"github.com/lockstep-go/lockstep/internal/npy"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing them")

func newRef(m *model.Model) (model.Engine, error) { return ref.New(m, ref.Options{}) }

func TestGolden(t *testing.T) {
	store := golden.Store{Dir: ".", New: newRef}
	do := store.Verify
	if *update {
		do = store.Update
	}
	if err := do(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestEmbeddedModel(t *testing.T) {
	m, err := golden.Model()
	if err != nil {
		t.Fatal(err)
	}
	onDisk, err := os.Stat("model/lockstep-tiny.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if m.File.Size() != onDisk.Size() || m.Tokenizer == nil {
		t.Errorf("the embedded model has %d bytes, the file %d; tokenizer %v", m.File.Size(), onDisk.Size(), m.Tokenizer)
	}
	if limit := int64(7_000_000); m.File.Size() > limit {
		t.Errorf("the embedded model has %d bytes, more than %d: every program would carry them", m.File.Size(), limit)
	}
}

func TestCasesAreDistinct(t *testing.T) {
	seen, models := map[string]bool{}, map[string]bool{}
	for _, c := range golden.Cases() {
		if c.Name == "" || c.Reason == "" || seen[c.Name] {
			t.Errorf("case %+v: want a name of its own and a reason", c)
		}
		seen[c.Name], models[c.Model] = true, true
	}
	for _, dir := range []string{"arch", "quant", "model"} {
		files, err := filepath.Glob(dir + "/*.gguf")
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", dir, files, err)
		}
		for _, f := range files {
			if !models[filepath.ToSlash(f)] {
				t.Errorf("%s has no case", f)
			}
		}
	}
}

// miniature returns an up-to-date store with one model and two cases.
func miniature(t *testing.T) golden.Store {
	t.Helper()
	dir := t.TempDir()
	gguf, err := os.ReadFile("arch/llama-gqa.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "m.gguf"), gguf, 0o644); err != nil {
		t.Fatal(err)
	}
	store := golden.Store{Dir: dir, New: newRef, Cases: []golden.Case{
		{Name: "all", Reason: "every position", Model: "m.gguf", Tokens: []int{1, 2, 3}},
		{Name: "last", Reason: "one position", Model: "m.gguf", Tokens: []int{1, 2, 3}, Last: 1},
	}}.Whole()
	if err := store.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Verify(t.Context()); err != nil {
		t.Fatalf("just written, and: %v", err)
	}
	return store
}

func TestLastIsTheEndOfAll(t *testing.T) {
	store := miniature(t)
	read := func(name string) (shape []int, data []float32) {
		raw, err := os.ReadFile(filepath.Join(store.Dir, "logits", name+".npy"))
		if err != nil {
			t.Fatal(err)
		}
		if shape, data, err = npy.Read(bytes.NewReader(raw)); err != nil {
			t.Fatal(err)
		}
		return shape, data
	}
	allShape, all := read("all")
	lastShape, last := read("last")
	if allShape[0] != 3 || lastShape[0] != 1 || allShape[1] != lastShape[1] {
		t.Fatalf("shapes %v and %v", allShape, lastShape)
	}
	for i, v := range last {
		if v != all[2*allShape[1]+i] {
			t.Fatalf("logit %d is %v alone and %v among all", i, v, all[2*allShape[1]+i])
		}
	}
}

func TestVerifyFindsWhatDiffers(t *testing.T) {
	edit := func(name string, change func([]byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, change(b), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 1; return b }
	}
	tests := []struct {
		name, reason string
		corrupt      func(t *testing.T, dir string)
		want         string
	}{
		{"a bit", "the last bit of one logit", edit("logits/all.npy", flip(128+4*5)), "logits/all.npy: 1 of 480 numbers differ"},
		{"a NaN", "exponent bits", edit("logits/all.npy", func(b []byte) []byte {
			copy(b[128:], "\x00\x00\xc0\x7f")
			return b
		}), "not finite"},
		{"another shape", "fewer positions", edit("logits/all.npy", func(b []byte) []byte {
			return bytes.Replace(b[:len(b)-640], []byte("(3, 160)"), []byte("(2, 160)"), 1)
		}), "[2 160]"},
		{"cut short", "half a file", edit("logits/all.npy", func(b []byte) []byte { return b[:300] }), "truncated"},
		{"gone", "a file that is not there", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "logits/last.npy")) }, "last.npy"},
		{"a stray file", "a case was removed, its file was not", func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "logits/old.npy"), nil, 0o644)
		}, "logits/old.npy: no case has this file"},
		{"the manifest", "a hash was edited", edit("manifest.json", flip(200)), "manifest.json"},
		{"no manifest", "it was never written", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "manifest.json")) }, "manifest.json"},
		{"the model's name", "a byte of metadata, no logit changes", edit("m.gguf", func(b []byte) []byte {
			return bytes.Replace(b, []byte("holdout-llama"), []byte("holdout-lamma"), 1)
		}), "manifest.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := miniature(t)
			tt.corrupt(t, store.Dir)
			err := store.Verify(t.Context())
			if !errors.Is(err, golden.ErrDiffers) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error %v, want %q", tt.reason, err, tt.want)
			}
			if err := store.Update(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := store.Verify(t.Context()); err != nil {
				t.Errorf("after an update: %v", err)
			}
		})
	}
}

// TestSomeCases verifies and updates some cases and ignores the others.
func TestSomeCases(t *testing.T) {
	whole := miniature(t)
	part := golden.Store{Dir: whole.Dir, New: newRef, Cases: whole.Cases[:1]}
	corrupt := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(whole.Dir, name), []byte("corrupt"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, s golden.Store, want string) {
		t.Helper()
		err := s.Verify(t.Context())
		if (err != nil) != (want != "") || err != nil && (!errors.Is(err, golden.ErrDiffers) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", what, err, want)
		}
	}
	update := func(s golden.Store) {
		t.Helper()
		if err := s.Update(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	expect("nothing is wrong", part, "")
	corrupt("logits/last.npy")
	expect("another case is wrong", part, "")
	corrupt("logits/all.npy")
	expect("its own case is wrong", part, "logits/all.npy")
	update(part)
	expect("updated", part, "")
	expect("the other case is not", whole, "logits/last.npy")
	update(whole)

	more := golden.Case{Name: "more", Reason: "a new case", Model: "m.gguf", Tokens: []int{4}}
	whole.Cases = append(whole.Cases, more)
	part.Cases = []golden.Case{more}
	expect("a new case", part, "logits/more.npy")
	update(part)
	expect("the old cases and the new one", whole, "")

	corrupt("manifest.json")
	expect("no manifest to read", part, "manifest.json")
	if err := part.Update(t.Context()); err == nil || !strings.Contains(err.Error(), "manifest.json") {
		t.Errorf("a part of a manifest that cannot be read was written: %v", err)
	}
}

func TestUpdateRefusesBadCases(t *testing.T) {
	tests := []struct {
		name, reason string
		c            golden.Case
		want         string
	}{
		{"no model", "a file that is not there", golden.Case{Name: "x", Model: "none.gguf", Tokens: []int{1}}, "none.gguf"},
		{"bad token", "beyond the vocabulary", golden.Case{Name: "x", Model: "m.gguf", Tokens: []int{160}}, "160"},
		{"text without a vocabulary", "the model has none", golden.Case{Name: "x", Model: "m.gguf", Prompt: "hello"}, "no vocabulary"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			store := miniature(t)
			before, err := os.ReadFile(filepath.Join(store.Dir, "manifest.json"))
			if err != nil {
				t.Fatal(err)
			}
			store.Cases = []golden.Case{tt.c}
			if err := store.Update(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: error %v, want %q", tt.reason, err, tt.want)
			}
			after, err := os.ReadFile(filepath.Join(store.Dir, "manifest.json"))
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the manifest changed: %v", err)
			}
		})
	}
}
