package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/npy"
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
	off, all := 0.0, 0.0
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		off += d * d
		all += float64(want[i]) * float64(want[i])
	}
	if e := math.Sqrt(off / all); !(e <= 1e-5) {
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
