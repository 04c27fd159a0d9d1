package modelbench

import (
	"fmt"

	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/model"
)

// Model describes the measured model.
type Model struct {
	Name    string  `json:"name"`
	Arch    string  `json:"arch"`
	Quant   string  `json:"quant"` // the recipe or the format of the weights
	Layers  int     `json:"layers"`
	Context int     `json:"context"`
	Bytes   float64 `json:"token_bytes"` // Work.Bytes(1)
	FLOP    float64 `json:"token_flop"`  // Work.FLOP(1, 0)
}

// String returns all fields, so that different models have different texts.
func (m Model) String() string {
	return fmt.Sprintf("%s, %s, %s, %d layers, context %d, %.0f bytes and %.0f FLOP per token",
		m.Name, m.Arch, m.Quant, m.Layers, m.Context, m.Bytes, m.FLOP)
}

// Report is a whole run. Its JSON is stable: fields keep their names, meaning and SI units,
// and Version counts incompatible changes. "kind", "depth", "prompt" and "sequences"
// identify a result. Without a GPU there are no limits and shares.
type Report struct {
	Benchmark string              `json:"benchmark"` // the constant Benchmark
	Version   int                 `json:"version"`
	Date      string              `json:"date"` // ISO 8601
	Model     Model               `json:"model"`
	Device    kernelbench.Device  `json:"device"`
	Engine    string              `json:"engine"`
	KV        string              `json:"kv"` // format of the KV cache
	Limits    *kernelbench.Limits `json:"limits,omitempty"`
	Energy    *Energy             `json:"energy,omitempty"` // nil: no GPU
	Start     *Start              `json:"start,omitempty"`
	Results   []Result            `json:"results"`
}

// Benchmark and Version tell that JSON is that of a Report, and how to read it.
const (
	Benchmark = "model"
	Version   = 3
)

// Ratios returns the speed of each result divided by that of the same case in an earlier report;
// 0 if one of them was not measured.
func (r Report) Ratios(earlier Report) []float64 {
	before := map[Case]float64{}
	for _, res := range earlier.Results {
		before[res.Case] = res.Rate
	}
	ratios := make([]float64, len(r.Results))
	for i, res := range r.Results {
		if rate := before[res.Case]; rate > 0 {
			ratios[i] = res.Rate / rate
		}
	}
	return ratios
}

// Describe returns the description of m.
func Describe(m *model.Model, name, quant string) Model {
	w := WorkOf(m)
	c := &m.Config
	return Model{name, c.Arch, quant, c.Layers, c.Context, w.Bytes(1), w.FLOP(1, 0)}
}
