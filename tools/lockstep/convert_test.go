package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/golden"
)

func TestQuantize(t *testing.T) {
	out := filepath.Join(t.TempDir(), "q.gguf")
	r := succeed(t, "", "quantize", "--in", tinyModel, "--out", out, "--type", "Q4_K_M")
	if !strings.Contains(r.out, "43 of 56 tensors in q4_k_m") || !strings.Contains(r.err, "13 tensors (one dimension)") {
		t.Errorf("output %q, standard error %q", r.out, r.err)
	}
	before, after := inspectJSON(t, tinyModel), inspectJSON(t, out)
	formats := map[string]int{}
	for i, tensor := range after.Tensors {
		formats[tensor.Format]++
		if tensor.Name != before.Tensors[i].Name {
			t.Errorf("tensor %d is %s, was %s", i, tensor.Name, before.Tensors[i].Name)
		}
	}
	// The tied embedding and, of 6 layers, 2 and 5 (7·6/8 rounded down) twice.
	if formats["Q6_K"] != 5 || formats["Q4_K"] != 38 || formats["F32"] != 13 {
		t.Errorf("formats %v", formats)
	}
	if len(before.Metadata) != len(after.Metadata) || after.Bytes >= before.Bytes {
		t.Errorf("%d keys and %d bytes became %d and %d", len(before.Metadata), before.Bytes, len(after.Metadata), after.Bytes)
	}
	text := succeed(t, "", "generate", "--model", out, "--max-tokens", "10", "Well, Prince,")
	if !strings.HasPrefix(text.out, "Well, Prince,") {
		t.Errorf("the quantized model generates %q", text.out)
	}
}

func TestQuantizeRefuses(t *testing.T) {
	refused(t, runCommand(t, "", "quantize", "--in", tinyModel, "--out", tinyModel, "--type", "q4_0"), exitError, "--out", "is the input")
	link := filepath.Join(t.TempDir(), "link.gguf")
	if err := os.Symlink(mustAbs(t, tinyModel), link); err == nil {
		refused(t, runCommand(t, "", "quantize", "--in", tinyModel, "--out", link, "--type", "q4_0"), exitError, "--out", "is the input")
	}
	out := put(t, "out", "precious")
	refused(t, runCommand(t, "", "quantize", "--in", odd(t), "--out", out, "--type", "q4_0"), exitError, "--in", "general.architecture")
	checkPrecious(t, out)
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// An interrupt leaves the previous output file and no other.
func TestWritersInterrupted(t *testing.T) {
	for _, command := range []string{
		"quantize --in " + tinyModel + " --type q4_0 --out",
		"synth --preset llama-3.1-8b --quant q8_0 --out",
		"logits --tokens 1,2 --out",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		out := put(t, "out", "precious")
		r := runContext(ctx, "", append(strings.Fields(command), out)...)
		if r.status != exitError || r.err != "lockstep: interrupted\n" {
			t.Errorf("%s: status %d, %q", command, r.status, r.err)
		}
		checkPrecious(t, out)
	}
}

func TestSynth(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.gguf")
	args := []string{"synth", "--preset", "gpt2", "--quant", "q4_0", "--layers", "1", "--out"}
	if r := succeed(t, "", append(args, path)...); !strings.Contains(r.out, "GB/s") || r.err != "" {
		t.Errorf("output %q, standard error %q", r.out, r.err)
	}
	d := inspectJSON(t, path)
	if d.Refused != "" || len(d.Tensors) != 16 {
		t.Errorf("%d tensors, refused %q", len(d.Tensors), d.Refused)
	}
	r := succeed(t, "", "generate", "--model", path, "--max-tokens", "3", "Hello")
	if !strings.HasPrefix(r.out, "Hello") || !strings.Contains(r.err, "prompt: 5 tokens") {
		t.Errorf("%q, %q", r.out, r.err)
	}
	other := filepath.Join(dir, "b.gguf")
	succeed(t, "", append(args, other, "--seed", "2")...)
	a, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(other)
	if err != nil || string(a) == string(b) || len(a) != len(b) {
		t.Errorf("another seed: %d and %d bytes, equal %v, %v", len(a), len(b), string(a) == string(b), err)
	}
}

func TestPerplexity(t *testing.T) {
	text := put(t, "text", "It was the best of times, said the prince, and looked at the princess.\n")
	r := succeed(t, "", "perplexity", "--text", text)
	if !strings.HasPrefix(r.out, "perplexity ") || !strings.Contains(r.out, " ± ") || !strings.Contains(r.out, " 71 bytes, 1 windows") {
		t.Errorf("output %q", r.out)
	}
	var d map[string]float64
	if err := json.Unmarshal([]byte(succeed(t, "", "perplexity", "--text", text, "--json", "--context", "8").out), &d); err != nil {
		t.Fatal(err)
	}
	if d["windows"] < 2 || d["bytes"] != 71 || !(d["perplexity"] > 1 && d["perplexity"] < 4096) || !(d["nats_stderr"] > 0) {
		t.Errorf("%v", d)
	}
	refused(t, runCommand(t, "", "perplexity", "--text", filepath.Join(t.TempDir(), "none")), exitError, "--text", "none")
	refused(t, runCommand(t, "", "perplexity", "--text", t.TempDir()), exitError, "--text", "directory")
	empty := put(t, "empty", "")
	refused(t, runCommand(t, "", "perplexity", "--text", empty), exitError, "--text", empty)
}

// A perplexity that is no number is printed, and is an error.
func TestPerplexityNotFinite(t *testing.T) {
	broken, text := brokenModel(t, tinyModel), put(t, "text", "It was the best of times.")
	r := runCommand(t, "", "perplexity", "--device", "cpu", "--model", broken, "--text", text)
	if r.status != exitError || !strings.HasPrefix(r.out, "perplexity NaN") || !strings.Contains(r.err, broken+": the perplexity is NaN: logits are not finite") {
		t.Errorf("status %d, %q, %q", r.status, r.out, r.err)
	}
}

func TestGolden(t *testing.T) {
	refused(t, runCommand(t, "", "golden", "--dir", "none"), exitError, "--dir", "none")
	dir := t.TempDir()
	refused(t, runCommand(t, "", "golden", "--dir", dir), exitError, filepath.Join(dir, "model"))
	if testing.Short() {
		t.Skip("the golden package computes its files itself")
	}
	want := "golden files are unchanged\n"
	if r := succeed(t, "", "golden", "--dir", "../../golden"); !strings.HasSuffix(r.out, want) {
		t.Errorf("output %q", r.out)
	}
	if err := os.CopyFS(dir, os.DirFS("../../golden")); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	spoilt := filepath.Join(dir, "logits", golden.Cases()[0].Name+".npy")
	if err := os.WriteFile(spoilt, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, runCommand(t, "", "golden", "--dir", dir), exitError, golden.Cases()[0].Name)
	succeed(t, "", "golden", "--dir", dir, "--update")
	succeed(t, "", "golden", "--dir", dir)
}
