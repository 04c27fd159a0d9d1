package requant

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/model/gguf"
	"github.com/lockstep-go/lockstep/quant"
)

// wave returns n weights that no format represents exactly.
func wave(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i*i%97)/97 - 0.4
	}
	return x
}

// source returns a small file in F32 that looks like a model.
func source(t *testing.T, tensors map[string][]int, order ...string) *gguf.File {
	t.Helper()
	return reparse(t, writer(t, tensors, order...))
}

// writer returns the writer of the file of source.
func writer(t *testing.T, tensors map[string][]int, order ...string) *gguf.Writer {
	t.Helper()
	w := gguf.NewWriter()
	for _, kv := range []struct {
		key   string
		value any
	}{
		{"general.architecture", "llama"}, {"llama.block_count", uint32(1)}, {"general.file_type", uint32(0)},
		{"tokenizer.ggml.tokens", []string{"a", "b"}}, {"empty", []string{}}, {"x.f", []float32{1, 2}}, {"x.b", true},
	} {
		if err := w.Set(kv.key, kv.value); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range order {
		dims := tensors[name]
		n := 1
		for _, d := range dims {
			n *= d
		}
		err := w.Add(gguf.TensorInfo{Name: name, Format: quant.F32, Dims: dims, Write: func(dst io.Writer) error {
			return binary.Write(dst, binary.LittleEndian, wave(n))
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func reparse(t *testing.T, w *gguf.Writer) *gguf.File {
	t.Helper()
	var buf bytes.Buffer
	if _, err := w.WriteTo(&buf); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func recipe(t *testing.T, name string) Recipe {
	t.Helper()
	r, err := ParseRecipe(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestConvert(t *testing.T) {
	dims := map[string][]int{
		"token_embd.weight": {256, 40}, "blk.0.attn_norm.weight": {256}, "blk.0.attn_q.weight": {256, 3},
		"blk.0.attn_v.weight": {256, 2000}, "blk.0.odd.weight": {250, 2}, "blk.0.ffn_down_exps.weight": {512, 3, 2},
	}
	src := source(t, dims, "token_embd.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight", "blk.0.attn_v.weight",
		"blk.0.odd.weight", "blk.0.ffn_down_exps.weight")
	tests := []struct {
		name, reason string
		recipe       string
		formats      []quant.Format // in file order
		relative     float64        // largest error relative to the largest weight
	}{
		{"q8_0", "blocks of 32", "q8_0", []quant.Format{quant.Q8_0, quant.F32, quant.Q8_0, quant.Q8_0, quant.F32, quant.Q8_0}, 0.006},
		{"f16", "odd rows fill blocks of one", "f16", []quant.Format{quant.F16, quant.F32, quant.F16, quant.F16, quant.F16, quant.F16}, 0.001},
		{"mix", "tied, so the embedding is Q6_K", "q4_k_m", []quant.Format{quant.Q6_K, quant.F32, quant.Q4_K, quant.Q6_K, quant.F32, quant.Q6_K}, 0.1},
		{"mxfp4", "the experts only", "mxfp4", []quant.Format{quant.Q8_0, quant.F32, quant.Q8_0, quant.Q8_0, quant.F32, quant.MXFP4}, 0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := recipe(t, tt.recipe)
			progress := 0
			w, kept, err := Convert(t.Context(), src, r, func(n int) { progress += n })
			if err != nil {
				t.Fatal(err)
			}
			got := reparse(t, w)
			var formats []quant.Format
			bytesOut := 0
			for _, tensor := range got.Tensors() {
				formats = append(formats, tensor.Format)
				bytesOut += len(tensor.Data)
				if d := cmp.Diff(dims[tensor.Name], tensor.Dims); d != "" {
					t.Errorf("%s: dimensions (-want +got):\n%s", tensor.Name, d)
				}
				checkClose(t, tensor, tt.relative)
			}
			if d := cmp.Diff(tt.formats, formats); d != "" {
				t.Errorf("%s: formats (-want +got):\n%s", tt.reason, d)
			}
			if progress != bytesOut {
				t.Errorf("progress was told of %d bytes, the tensors have %d", progress, bytesOut)
			}
			if f32 := count(tt.formats, quant.F32); len(kept) != f32 {
				t.Errorf("kept %v, want %d tensors", kept, f32)
			}
			checkMetadata(t, src, got, r)
		})
	}
}

func checkClose(t *testing.T, tensor gguf.Tensor, relative float64) {
	t.Helper()
	got := make([]float32, tensor.Elements())
	quant.Decode(tensor.Format, got, tensor.Data)
	for i, want := range wave(len(got)) {
		if e := math.Abs(float64(got[i] - want)); !(e <= 0.6*relative) {
			t.Fatalf("%s: weight %d is %v, want %v", tensor.Name, i, got[i], want)
		}
	}
}

func count(all []quant.Format, f quant.Format) int {
	n := 0
	for _, g := range all {
		if g == f {
			n++
		}
	}
	return n
}

// All keys are kept in order, except for the two that name the format.
func checkMetadata(t *testing.T, src, got *gguf.File, r Recipe) {
	t.Helper()
	if d := cmp.Diff(append(src.Keys(), "general.quantization_version"), got.Keys()); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
	for _, key := range src.Keys() {
		a, _ := src.Value(key)
		b, _ := got.Value(key)
		if key != "general.file_type" && !cmp.Equal(a.Any(), b.Any()) {
			t.Errorf("%s: %v became %v", key, a, b)
		}
	}
	if ft, _ := got.Value("general.file_type"); ft.Any() != r.FileType() {
		t.Errorf("general.file_type is %v", ft)
	}
}

func TestConvertRefuses(t *testing.T) {
	old := writer(t, map[string][]int{"token_embd.weight": {256, 4}}, "token_embd.weight")
	src := reparse(t, old)
	old.Set("general.quantization_version", uint32(1))
	bare := func(pairs ...any) *gguf.File {
		w := gguf.NewWriter()
		for i := 0; i < len(pairs); i += 2 {
			if err := w.Set(pairs[i].(string), pairs[i+1]); err != nil {
				t.Fatal(err)
			}
		}
		return reparse(t, w)
	}
	tests := []struct {
		name, reason string
		src          *gguf.File
		recipe       string
		text         string
	}{
		{"old version", "blocks of another layout", reparse(t, old), "q8_0", `"general.quantization_version": unsupported format: 1, want 2`},
		{"no encoder", "decoded only", src, "iq4_xs", "cannot be encoded"},
		{"no architecture", "the layers cannot be counted", bare(), "q8_0", "general.architecture"},
		{"no layers", "the mix needs their number", bare("general.architecture", "llama"), "q8_0", "llama.block_count"},
		{"no tensors", "a vocabulary is no model", bare("general.architecture", "llama", "llama.block_count", uint32(1)), "q8_0", "no tensors"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Convert(t.Context(), tt.src, recipe(t, tt.recipe), nil)
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%s: error %v, want %q", tt.reason, err, tt.text)
			}
		})
	}
}

// A chunk is bounded however long a row is: a sparse file can have a row of gigabytes.
func TestConvertLongRow(t *testing.T) {
	const cols = 3*chunkWeights + 256
	src := source(t, map[string][]int{"output.weight": {cols, 2}}, "output.weight")
	for _, name := range []string{"q8_0", "f32"} { // converted, and copied
		largest := 0
		w, _, err := Convert(t.Context(), src, recipe(t, name), func(n int) { largest = max(largest, n) })
		if err != nil {
			t.Fatal(err)
		}
		tensor, _ := reparse(t, w).Tensor("output.weight")
		if want := chunkWeights / tensor.Format.BlockLen() * tensor.Format.BlockBytes(); largest != want {
			t.Errorf("%s: a chunk of %d bytes, want %d", name, largest, want)
		}
		checkClose(t, tensor, 0.006)
	}
}

// TestConvertTruncated cuts the last byte of the source file while it is converted. It then
// reads as zero without a fault.
func TestConvertTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cut.gguf")
	if err := writer(t, map[string][]int{"output.weight": {250, 4}}, "output.weight").WriteFile(path); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f16", "f32"} { // converted, and copied
		src, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		w, _, err := Convert(t.Context(), src, recipe(t, name), func(int) {
			if err := os.Truncate(path, src.Size()-1); err != nil {
				t.Skipf("this system does not cut a mapped file: %v", err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteTo(io.Discard); !errors.Is(err, gguf.ErrTruncated) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want a gguf.ErrTruncated with %s", name, err, path)
		}
		if err := os.Truncate(path, src.Size()); err != nil {
			t.Fatal(err)
		}
	}
}

// A weight that the format cannot represent gives an error with the name of the tensor and
// the place in it.
func TestConvertNamesTheTensor(t *testing.T) {
	w := gguf.NewWriter()
	w.Set("general.architecture", "llama")
	w.Set("llama.block_count", uint32(1))
	row := wave(chunkWeights + 32)
	row[chunkWeights+3] = float32(math.NaN())
	err := w.Add(gguf.TensorInfo{Name: "output.weight", Format: quant.F32, Dims: []int{len(row), 1}, Write: func(dst io.Writer) error {
		return binary.Write(dst, binary.LittleEndian, row)
	}})
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := Convert(t.Context(), reparse(t, w), recipe(t, "q8_0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.WriteTo(io.Discard); !errors.Is(err, quant.ErrRange) || !strings.Contains(err.Error(), `"output.weight": from weight 262144 on: `) || !strings.Contains(err.Error(), "weight 3 is NaN") {
		t.Errorf("error %v", err)
	}
}

func TestConvertIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	src := source(t, map[string][]int{"output.weight": {256, 4}}, "output.weight")
	w, _, err := Convert(ctx, src, recipe(t, "q8_0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := w.WriteTo(io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
