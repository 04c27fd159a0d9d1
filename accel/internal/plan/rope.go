package plan

import (
	"github.com/lockstep-go/lockstep/accel/internal/memory"
	"github.com/lockstep-go/lockstep/accel/internal/upload"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// ropeTable holds the addresses of RoPE frequencies, f64 [rope dim/2] in radians per position.
// Sequences that use the factors for long contexts read long, all others ordinary.
type ropeTable struct{ ordinary, long ptx.Address }

// address returns the table of a sequence; 0 if the model has no RoPE.
func (r *ropeTable) address(long bool) ptx.Address {
	switch {
	case r == nil:
		return 0
	case long:
		return r.long
	default:
		return r.ordinary
	}
}

// ropeTables holds the tables of a model, one per base and scale.
type ropeTables struct {
	model  *model.Model
	memory *memory.List
	tables map[ropeBase]*ropeTable
}

type ropeBase struct{ theta, scale float64 }

// layer returns the table of a layer; nil if the model learned its positions.
func (t *ropeTables) layer(l int) *ropeTable {
	cfg := &t.model.Config
	if cfg.RopeDim == 0 {
		return nil
	}
	theta, scale := cfg.LayerRopeTheta(l)
	r := t.tables[ropeBase{theta, scale}]
	if r == nil {
		r = new(ropeTable)
		t.tables[ropeBase{theta, scale}] = r
		t.add(&r.ordinary, theta, scale, t.model.Weights.RopeFactors)
		if cfg.LongContext > 0 {
			t.add(&r.long, theta, scale, t.model.Weights.LongRopeFactors)
		}
	}
	return r
}

// add adds to the memory list the table
//
//	freq[i] = scale · theta^(−2i/dim) / factor[i]
//
// in float64, with the same bits on every machine.
func (t *ropeTables) add(to *ptx.Address, theta, scale float64, factors []float32) {
	dim := t.model.Config.RopeDim
	freq := make([]float64, dim/2)
	for i := range freq {
		freq[i] = portable.Pow(theta, -float64(2*i)/float64(dim)) * scale
		if factors != nil {
			freq[i] /= float64(factors[i])
		}
	}
	t.memory.AddFilled(memory.Tables, "RoPE frequencies", int64(8*len(freq)), to, func(u *upload.Uploader, at driver.Address) error {
		return upload.Values(u, at, freq)
	})
}
