package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model/gguf"
)

// An emulated GPU stays within its bounds for each cache format, in a prompt and in steps. The files
// agree with the output.
func TestDiff(t *testing.T) {
	dir := t.TempDir()
	for _, args := range []string{
		"--kv f16", "--kv bf16", "--steps", "--steps --kv bf16", "--tokens 7", "--tokens 7 --steps",
	} {
		t.Run(args, func(t *testing.T) {
			if !strings.Contains(args, "--tokens") {
				args += " --tokens 5,8,11,14,17,20,23,26,29,32,35,38,41,44,47,50,53"
			}
			page, figures := filepath.Join(dir, "d.html"), filepath.Join(dir, "d.json")
			r := succeed(t, "", append(strings.Fields("diff --device emu "+args), "--model", silentModel, "--html", page, "--json", figures)...)
			if r.err != "" || !strings.Contains(r.out, "all 12 operations stay within their bounds") || !strings.Contains(r.out, "KL divergence") {
				t.Errorf("output %q, standard error %q", r.out, r.err)
			}
			if text := read(t, page); !strings.Contains(text, "<svg") || !strings.Contains(text, "all 12 operations stay") {
				t.Errorf("the page is %.200q…", text)
			}
			var back struct {
				Within bool `json:"within_bounds"`
				Logits struct{ Positions int }
			}
			if err := json.Unmarshal([]byte(read(t, figures)), &back); err != nil || !back.Within || back.Logits.Positions != 1+strings.Count(args, ",") {
				t.Errorf("the figures are %+v, %v", back, err)
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDiffTokens(t *testing.T) {
	if r := succeed(t, "", "diff", "--device", "emu", "--model", silentModel); !strings.Contains(r.out, "at all 64 positions") {
		t.Errorf("output %q", r.out)
	}
	if r := succeed(t, "", "diff", "--device", "emu", "--prompt", "Well, Prince,"); !strings.Contains(r.out, "at all 5 positions") {
		t.Errorf("output %q", r.out)
	}
}

// withoutRow returns the path of a copy of a model in which a row of a matrix is 0.
func withoutRow(t *testing.T, file, tensor string, row int) string {
	t.Helper()
	data := []byte(read(t, file))
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	w, ok := f.Tensor(tensor)
	if !ok {
		t.Fatalf("%s has no %s", file, tensor)
	}
	size, err := w.Format.RowBytes(w.Dims[0])
	if err != nil {
		t.Fatal(err)
	}
	clear(data[int(w.Offset)+row*size:][:size])
	return put(t, "spoiled.gguf", string(data))
}

// diff finds a matrix with a missing row by its result: the row is the element.
func TestDiffNamesWeights(t *testing.T) {
	tests := []struct {
		tensor string
		row    int
		flags  string
		want   string
	}{
		{"blk.0.attn_v.weight", 3, "--kv f16", "layer 0, value, position 0, element 3: "},
		{"blk.1.attn_k.weight", 6, "--kv bf16", "layer 1, key, position 0, element 6: "},
		{"blk.1.ffn_down.weight", 9, "--kv f16", "layer 1, layer, position 0, element 9: "},
		{"blk.1.attn_v.weight", 5, "--steps", "layer 1, value, position 0, element 5: "},
		{"output.weight", 33, "--kv f16", "logits, position 0, element 33: "},
	}
	for _, tt := range tests {
		t.Run(tt.tensor, func(t *testing.T) {
			spoiled := withoutRow(t, silentModel, tt.tensor, tt.row)
			figures := filepath.Join(t.TempDir(), "d.json")
			args := append(strings.Fields("diff --device emu --tokens 5,42,80,9,3 "+tt.flags), "--model", silentModel, "--reference", spoiled, "--json", figures)
			r := runCommand(t, "", args...)
			if r.status != exitError || !strings.Contains(r.out, "\nfirst out of bounds: "+tt.want) || !strings.Contains(r.err, "out of bounds: "+tt.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("status %d, output %q, standard error %q, want %q", r.status, r.out, r.err, tt.want)
			}
			if text := read(t, figures); !strings.Contains(text, `"within_bounds": false`) {
				t.Errorf("the figures say %.500s", text)
			}
		})
	}
}

// A reference in another format rounds as the device does for the model's format.
func TestDiffReferenceFormat(t *testing.T) {
	const brain = "../../golden/quant/bf16.gguf"
	floats := filepath.Join(t.TempDir(), "f32.gguf")
	succeed(t, "", "quantize", "--in", brain, "--out", floats, "--type", "f32")
	r := succeed(t, "", "diff", "--device", "emu", "--tokens", "5,42,60,9,3", "--model", floats, "--reference", brain)
	if !strings.Contains(r.out, "stay within their bounds") {
		t.Errorf("output %q", r.out)
	}
}

// miscompiled is a device that replaces a constant in each kernel that it loads.
type miscompiled struct {
	driver.Device
	number, other string
	changed       *int
}

func (d miscompiled) Load(ptx []byte) (driver.Module, error) {
	*d.changed += bytes.Count(ptx, []byte(d.number))
	return d.Device.Load(bytes.ReplaceAll(ptx, []byte(d.number), []byte(d.other)))
}

// diff finds a kernel with a wrong sine by its queries, except at position 0, where the
// angle is 0. Only queries and keys are out of bounds, since each operation is computed from
// the device's own inputs.
func TestDiffNamesKernel(t *testing.T) {
	for _, how := range []string{"--steps=false", "--steps"} {
		gpu(t, smallGPU, nil)
		open, changed := openGPU, 0
		openGPU = func() (driver.Device, error) {
			dev, err := open()
			// The coefficient -1/6 of the sine becomes -1/5.
			return miscompiled{dev, "0dBFC5555555555555", "0dBFC999999999999A", &changed}, err
		}
		r := runCommand(t, "", "diff", "--model", silentModel, "--tokens", "5,42,80,9,3", how)
		const want = "layer 0, query, position 1, element "
		if changed == 0 || r.status != exitError || !strings.Contains(r.out, "first out of bounds: "+want) || !strings.Contains(r.err, "out of bounds: "+want) {
			t.Errorf("%s: %d numbers changed; status %d, output %q, standard error %q", how, changed, r.status, r.out, r.err)
		}
		if n := strings.Count(r.out, " !"); n != 4 { // of two layers
			t.Errorf("%s: %d operations are out of bounds, want 4: %s", how, n, r.out)
		}
	}
}

// For a mixture of experts, diff adds a note that rounding can select other experts.
func TestDiffExperts(t *testing.T) {
	const moe = "../../golden/arch/qwen3moe.gguf"
	spoiled := withoutRow(t, moe, "blk.0.ffn_down_exps.weight", 5) // of the first expert
	for _, kv := range []string{"f16", "bf16"} {
		r := runCommand(t, "", "diff", "--device", "emu", "--model", moe, "--reference", spoiled, "--tokens", "5,42,80,9,3,17,60,31", "--kv", kv)
		if r.status != exitError || !strings.Contains(r.err, "out of bounds: layer 0, layer, ") || !strings.Contains(r.err, "router") {
			t.Errorf("--kv %s: status %d, standard error %q", kv, r.status, r.err)
		}
	}
}

func TestSpreadTokens(t *testing.T) {
	for _, vocab := range []int{1, 2, 3, 64, 160, 151936} {
		seen := map[int]bool{}
		last := -1
		for _, id := range spreadTokens(diffTokens, vocab) {
			if id < 0 || id >= vocab || id == last && vocab > 1 {
				t.Fatalf("token %d after %d in a vocabulary of %d", id, last, vocab)
			}
			seen[id], last = true, id
		}
		if len(seen) < min(diffTokens, vocab)/2 {
			t.Errorf("%d tokens of a vocabulary of %d", len(seen), vocab)
		}
	}
}

func TestDiffRefuses(t *testing.T) {
	const other = "../../golden/arch/gpt2.gguf"
	many := strings.TrimSuffix(strings.Repeat("1,", 513), ",")
	tests := []struct {
		name, reason string
		args         string
		status       int
		want         []string
	}{
		{"no GPU", "no fallback", "--tokens 1", exitError, []string{"--device gpu", "no GPU driver"}},
		{"the CPU", "it computes the reference", "--device cpu --tokens 1", exitUsage, []string{"--device", "gpu"}},
		{"unknown cache", "the choices are named", "--kv f64 --tokens 1", exitUsage, []string{"--kv", "f16, bf16 or f32"}},
		{"the CPU's cache", "no device has it", "--device emu --kv f32 --tokens 1", exitUsage, []string{"--kv", "f16 or bf16 with --device emu"}},
		{"text and tokens", "ambiguous", "--prompt a --tokens 1", exitUsage, []string{"--prompt", "--tokens"}},
		{"no tokens", "nothing to compute", "--tokens=", exitUsage, []string{"--tokens"}},
		{"beyond the vocabulary", "the id is named", "--device emu --tokens 1,160", exitError, []string{"--tokens", "160", "index 1"}},
		{"beyond the context", "both numbers are named", "--device emu --tokens " + many, exitError, []string{"--tokens", "513", "512"}},
		{"no vocabulary", "a text needs one", "--prompt a", exitError, []string{"--prompt", silentModel}},
		{"another shape", "the layers differ", "--device emu --tokens 1 --reference " + other, exitError, []string{"--reference", other, "the model"}},
		{"no such reference", "it is named", "--tokens 1 --reference none.gguf", exitError, []string{"--reference", "none.gguf"}},
		{"page over the model", "an input would be lost", "--tokens 1 --html " + silentModel, exitError, []string{"--html", "is the input"}},
		{"JSON over the reference", "an input would be lost", fmt.Sprintf("--tokens 1 --reference %s --json %[1]s", other), exitError, []string{"--json", "is the input"}},
	}
	refused(t, runCommand(t, "", "diff", "--device", "emu", "--prompt", strings.Repeat("ab", 2000)), exitError, "--prompt", "more than 1024 tokens", "1024 positions")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, runCommand(t, "", append([]string{"diff", "--model", silentModel}, strings.Fields(tt.args)...)...), tt.status, tt.want...)
		})
	}
}
