package plan

import (
	"github.com/lockstep-go/lockstep/accel/internal/memory"
	"github.com/lockstep-go/lockstep/accel/internal/upload"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// ropeTable holds a RoPE and the addresses of its frequencies, f64 [rope dim/2] in radians per position.
// Sequences that use the factors for long contexts read long, all others ordinary.
type ropeTable struct {
	rope           model.Rope
	ordinary, long ptx.Address
}

// address returns the frequencies of a sequence.
func (r *ropeTable) address(long bool) ptx.Address {
	if long {
		return r.long
	}
	return r.ordinary
}

// ropeTables holds the tables of a model, one per RoPE of its layers.
type ropeTables struct {
	model  *model.Model
	memory *memory.List
	tables map[model.Rope]*ropeTable
}

// layer returns the table of a layer; nil if the layer has no RoPE.
func (t *ropeTables) layer(l int) *ropeTable {
	cfg := &t.model.Config
	rope := cfg.LayerRope(l)
	if rope.Dim == 0 {
		return nil
	}
	r := t.tables[rope]
	if r == nil {
		r = &ropeTable{rope: rope}
		t.tables[rope] = r
		t.add(&r.ordinary, t.model.RopeFrequencies(l, false))
		if cfg.LongContext > 0 {
			t.add(&r.long, t.model.RopeFrequencies(l, true))
		}
	}
	return r
}

// add adds frequencies to the memory list.
func (t *ropeTables) add(to *ptx.Address, freq []float64) {
	t.memory.AddFilled(memory.Tables, "RoPE frequencies", int64(8*len(freq)), to, func(u *upload.Uploader, at driver.Address) error {
		return upload.Values(u, at, freq)
	})
}
