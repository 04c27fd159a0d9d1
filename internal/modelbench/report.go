package modelbench

import (
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

// Report is a whole run. Its JSON is stable: fields keep their names, meaning and SI units,
// and Version counts incompatible changes. "kind", "depth", "prompt" and "sequences"
// identify a result. Without a GPU there are no limits and shares.
type Report struct {
	Version int                 `json:"version"`
	Date    string              `json:"date"` // ISO 8601
	Model   Model               `json:"model"`
	Device  kernelbench.Device  `json:"device"`
	Engine  string              `json:"engine"`
	KV      string              `json:"kv"` // format of the KV cache
	Limits  *kernelbench.Limits `json:"limits,omitempty"`
	Energy  *Energy             `json:"energy,omitempty"` // nil: no GPU
	Results []Result            `json:"results"`
}

// Version is the version of the JSON of Report.
const Version = 3

// Describe returns the description of m.
func Describe(m *model.Model, name, quant string) Model {
	w := WorkOf(m)
	c := &m.Config
	return Model{name, c.Arch, quant, c.Layers, c.Context, w.Bytes(1), w.FLOP(1, 0)}
}
