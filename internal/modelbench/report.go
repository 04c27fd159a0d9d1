package modelbench

import (
	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/model"
)

// Model says what was computed.
type Model struct {
	Name    string  `json:"name"`
	Arch    string  `json:"arch"`
	Quant   string  `json:"quant"` // the recipe or the format of the weights
	Layers  int     `json:"layers"`
	Context int     `json:"context"`
	Bytes   float64 `json:"token_bytes"` // Work.Bytes of one token
	FLOP    float64 `json:"token_flop"`  // Work.FLOP of one token without logits
}

// Report is a whole run. Its JSON is stable: fields keep their names, units and meaning,
// in SI units without prefixes, and Version counts the changes that break that. A result
// is found by "kind", "depth", "prompt" and "sequences". Those that were skipped or
// failed say why in "skipped" and "error", and have 0 for what was not measured. What
// "by_repeat" lacks of engine and device is not known of them. Limits
// are absent, and shares with them, where they mean nothing: without a GPU.
type Report struct {
	Version int                 `json:"version"`
	Date    string              `json:"date"` // ISO 8601
	Model   Model               `json:"model"`
	Device  kernelbench.Device  `json:"device"`
	Engine  string              `json:"engine"`
	KV      string              `json:"kv"` // what keys and values are rounded to
	Limits  *kernelbench.Limits `json:"limits,omitempty"`
	Energy  *Energy             `json:"energy,omitempty"` // absent as Limits
	Results []Result            `json:"results"`
}

// Version is that of Report.
const Version = 1

// Describe says what a model is.
func Describe(m *model.Model, name, quant string) Model {
	w := WorkOf(m)
	c := &m.Config
	return Model{name, c.Arch, quant, c.Layers, c.Context, w.Bytes(1), w.FLOP(1, 0)}
}
