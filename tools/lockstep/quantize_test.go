package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
