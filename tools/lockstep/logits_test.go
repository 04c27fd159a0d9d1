package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/npy"
	"github.com/lockstep-go/lockstep/model/gguf"
)

func readNPY(t *testing.T, path string) ([]int, []float32) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	shape, data, err := npy.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return shape, data
}

// The logits equal those of another engine, for the tokens 5, 8, … 59.
func TestLogits(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.npy")
	r := succeed(t, "", "logits", "--model", silentModel, "--tokens", "5,8,11,14,17,20,23,26,29,32,35,38,41,44,47,50,53,56,59", "--out", out)
	if r.out != "" || r.err != "" {
		t.Errorf("output %q, standard error %q", r.out, r.err)
	}
	shape, got := readNPY(t, out)
	wantShape, want := readNPY(t, strings.Replace(silentModel, ".gguf", ".npy", 1))
	if d := cmp.Diff(wantShape, shape); d != "" {
		t.Fatalf("shape (-want +got):\n%s", d)
	}
	if e := relative(want, got); !(e <= 1e-5) {
		t.Errorf("relative L2 %g from the oracle", e)
	}
}

func TestLogitsRefuses(t *testing.T) {
	tests := []struct {
		name, reason string
		tokens       string
		want         []string
	}{
		{"beyond the vocabulary", "the id and its index are named", "1,160", []string{"--tokens", "160", "index 1"}},
		{"negative", "no such id", "1,-1", []string{"--tokens", "-1", "index 1"}},
		{"beyond the context", "both numbers are named", strings.Repeat("1,", 512) + "1", []string{"--tokens", "513", "512"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := put(t, "out", "precious")
			refused(t, runCommand(t, "", "logits", "--model", silentModel, "--tokens="+tt.tokens, "--out", out), exitError, tt.want...)
			checkPrecious(t, out)
		})
	}
	refused(t, runCommand(t, "", "logits", "--model", silentModel, "--tokens", "1", "--out", silentModel), exitError, "--out", "is the input")
}

// Logits that are not finite are written, and are an error.
func TestLogitsNotFinite(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.npy")
	r := runCommand(t, "", "logits", "--device", "cpu", "--model", brokenModel(t, silentModel), "--tokens", "1,2", "--out", out)
	refused(t, r, exitError, "2 of 2 rows of logits are not finite: row 0 is all NaN", out)
	if shape, data := readNPY(t, out); shape[0] != 2 || !math.IsNaN(float64(data[0])) {
		t.Errorf("shape %v, first logit %g", shape, data[0])
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	tests := []struct {
		logits []float32
		want   string
	}{
		{[]float32{1, 2, 3, 4}, ""},
		{[]float32{nan, nan, 3, 4}, "1 of 2 rows of logits are not finite: row 0 is all NaN"},
		{[]float32{1, 2, nan, 4}, "1 of 2 rows of logits are not finite: row 1 has 1 NaN and 0 infinite of 2"},
		{[]float32{1, 2, inf, -inf}, "1 of 2 rows of logits are not finite: row 1 has 0 NaN and 2 infinite of 2"},
		{[]float32{inf, nan, nan, nan}, "2 of 2 rows of logits are not finite: row 0 has 1 NaN and 1 infinite of 2"},
	}
	for _, tt := range tests {
		if err := checkFinite(tt.logits, 2); (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%v: error %v, want %q", tt.logits, err, tt.want)
		}
	}
}

// brokenModel returns a copy of a model whose logits are all NaN.
func brokenModel(t *testing.T, path string) string {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	norm, ok := f.Tensor("output_norm.weight")
	if !ok {
		t.Fatalf("%s: no tensor output_norm.weight", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(raw, norm.Data)
	if at < 0 {
		t.Fatal("the tensor is not in the file")
	}
	binary.LittleEndian.PutUint32(raw[at:], math.Float32bits(float32(math.NaN())))
	return put(t, "broken.gguf", string(raw))
}
