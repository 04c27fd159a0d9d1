package main

import (
	"maps"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// TestSlowModel: a note on standard error tells of a model that is large for the CPU.
func TestSlowModel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gpt2.gguf")
	succeed(t, "", "synth", "--preset", "gpt2", "--quant", "q8_0", "--layers", "1", "--out", file)
	note := regexp.MustCompile(`^slow: the CPU computes in float64: about [\d.e+]+ tokens/s with a short context \(46 million parameters, 51\.7 MB\)\n`)
	if r := succeed(t, "", "generate", "--device", "cpu", "-m", file, "-n", "1", "x"); !note.MatchString(r.err) {
		t.Errorf("standard error %q", r.err)
	}
	if r := succeed(t, "", "generate", "--device", "cpu", "-n", "1", "x"); strings.Contains(r.err, "slow") {
		t.Errorf("of a small model, standard error %q", r.err)
	}
}

// TestStepSeconds: a step reads each matrix once, but of an embedding one row, and of the experts
// those that are used.
func TestStepSeconds(t *testing.T) {
	matrix := func(f quant.Format, rows, cols int) model.Matrix {
		return model.Matrix{Format: f, Rows: rows, Cols: cols}
	}
	linear := func(f quant.Format, rows, cols int) model.Linear { return model.Linear{W: matrix(f, rows, cols)} }
	expert := model.Expert{Gate: model.Linear{W: matrix(quant.Q4_K, 1, 256)}, Up: model.Linear{W: matrix(quant.Q4_K, 1, 256)}, Down: model.Linear{W: matrix(quant.Q8_0, 1, 256)}}
	m := &model.Model{Config: model.Config{Experts: 4, ExpertsUsed: 2}}
	m.Weights.Embedding = matrix(quant.F32, 1000, 1000)
	m.Weights.Output = linear(quant.F32, 10, 10)
	m.Weights.Layers = []model.Layer{
		{Q: linear(quant.F16, 10, 10), K: linear(quant.F16, 1, 10), V: linear(quant.F16, 2, 10), O: linear(quant.F16, 3, 10)},
		{Router: model.Linear{W: matrix(quant.F16, 4, 10)}, SharedGate: matrix(quant.F16, 1, 10), Experts: []model.Expert{expert, expert, expert, expert}},
		{Gate: linear(quant.Q8_0, 1, 32), Up: linear(quant.Q8_0, 1, 32), Down: linear(quant.Q8_0, 1, 32)},
	}
	want := map[quant.Format]int{quant.F32: 100, quant.F16: 210, quant.Q4_K: 1024, quant.Q8_0: 512 + 96}
	weights := stepWeights(m)
	if !maps.Equal(weights, want) {
		t.Errorf("weights %v, want %v", weights, want)
	}
	got := stepSeconds(weights, func(f quant.Format) float64 { return float64(want[f]) / 2 })
	if got != 8 {
		t.Errorf("%v s, want 2 s for each of four formats", got)
	}
}
