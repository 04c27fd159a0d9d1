package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// splitTiny splits the embedded model and returns the paths of the parts.
func splitTiny(t *testing.T) []string {
	t.Helper()
	f, err := gguf.Open(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return tiny.Split(f, filepath.Join(t.TempDir(), "m"), 0, 20, 36)
}

func TestInspectSplit(t *testing.T) {
	parts := splitTiny(t)
	if out := succeed(t, "", "inspect", parts[0]).out; !strings.Contains(out, "GGUF version 3, 3 parts, 6.28 MB, ") || strings.Contains(out, "split.") {
		t.Errorf("output:\n%s", out)
	}
	whole, split := inspectJSON(t, tinyModel), inspectJSON(t, parts[0])
	var total int64
	for _, path := range parts {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if split.Parts != 3 || whole.Parts != 1 || split.Bytes != total || split.Parameters != whole.Parameters || split.Memory["weights"] != whole.Memory["weights"] {
		t.Errorf("%d parts and %d bytes, want 3 and %d; of the whole %d parts; %d and %d parameters; memory %v and %v",
			split.Parts, split.Bytes, total, whole.Parts, split.Parameters, whole.Parameters, split.Memory, whole.Memory)
	}
	for i, want := range map[int]int{0: 2, 19: 2, 20: 3, 55: 3} {
		if got := split.Tensors[i]; got.Part != want || got.Name != whole.Tensors[i].Name || whole.Tensors[i].Part != 1 {
			t.Errorf("tensor %d: %+v, want it in part %d; in the whole %+v", i, got, want, whole.Tensors[i])
		}
	}
	refused(t, runCommand(t, "", "inspect", parts[1]), exitError, parts[1], "this is part 2 of 3: open the first, "+parts[0])
}

// Commands give the same results for the parts as for the whole model.
func TestSplitModel(t *testing.T) {
	parts := splitTiny(t)
	for _, command := range []string{
		"plan --device cpu --model",
		"generate --max-tokens 8 Well --device cpu --model",
		"tokenize Hello --model",
	} {
		args := strings.Fields(command)
		whole, split := succeed(t, "", append(args, tinyModel)...), succeed(t, "", append(args, parts[0])...)
		if whole.out != split.out || whole.out == "" {
			t.Errorf("%s: output %q, of the whole model %q", command, split.out, whole.out)
		}
	}
	var quantized [2][]byte
	for i, in := range []string{tinyModel, parts[0]} {
		out := filepath.Join(t.TempDir(), "q.gguf")
		succeed(t, "", "quantize", "--in", in, "--out", out, "--type", "q4_0")
		var err error
		if quantized[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(quantized[0], quantized[1]) {
		t.Errorf("quantize writes %d bytes, of the whole model %d, and they differ", len(quantized[1]), len(quantized[0]))
	}
}

// No part of an input is overwritten.
func TestSplitInputIsKept(t *testing.T) {
	parts := splitTiny(t)
	for _, command := range []string{
		"quantize --type q4_0 --in " + parts[0] + " --out",
		"synth --preset gpt2 --quant q4_0 --layers 1 --tokenizer " + parts[0] + " --out",
		"logits --tokens 1,2 --model " + parts[0] + " --out",
		"diff --device emu --reference " + parts[0] + " --html",
	} {
		for _, part := range parts {
			before, err := os.ReadFile(part)
			if err != nil {
				t.Fatal(err)
			}
			r := runCommand(t, "", append(strings.Fields(command), part)...)
			refused(t, r, exitError, part+" is the input "+part)
			if after, err := os.ReadFile(part); err != nil || !bytes.Equal(before, after) {
				t.Errorf("%s %s: the part is overwritten (%v)", command, part, err)
			}
		}
	}
}
