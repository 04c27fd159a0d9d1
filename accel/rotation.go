package accel

import (
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen"
)

// rotation is a table of frequencies, f64 [rope dim/2] in radians a position: that of
// ordinary sessions, and that of sessions which rotate by the factors for long contexts.
type rotation struct{ ordinary, long ptxgen.Address }

func (r *rotation) at(long bool) ptxgen.Address {
	switch {
	case r == nil:
		return 0
	case long:
		return r.long
	default:
		return r.ordinary
	}
}

// rotations are the tables of a model, one for each base.
type rotations struct {
	m    *model.Model
	v    *inventory
	have map[base]*rotation
}

type base struct{ theta, scale float64 }

func newRotations(m *model.Model, v *inventory) *rotations {
	return &rotations{m, v, map[base]*rotation{}}
}

// of is the table of a layer; nil where positions are learned.
func (t *rotations) of(l int) *rotation {
	cfg := &t.m.Config
	if cfg.Rope == model.RopeNone {
		return nil
	}
	theta, scale := cfg.LayerRopeTheta(l)
	r := t.have[base{theta, scale}]
	if r == nil {
		r = new(rotation)
		t.have[base{theta, scale}] = r
		t.add(&r.ordinary, theta, scale, t.m.Weights.RopeFactors)
		if cfg.LongContext > 0 {
			t.add(&r.long, theta, scale, t.m.Weights.LongRopeFactors)
		}
	}
	return r
}

// add lists the table
//
//	scale · theta^(−2i/dim) / factor[i]
//
// in float64; the same bits on every machine.
func (t *rotations) add(to *ptxgen.Address, theta, scale float64, factors []float32) {
	dim := t.m.Config.RopeDim
	freq := make([]float64, dim/2)
	for i := range freq {
		freq[i] = portable.Pow(theta, -float64(2*i)/float64(dim)) * scale
		if factors != nil {
			freq[i] /= float64(factors[i])
		}
	}
	t.v.fill(tableMemory, "rotation frequencies", int64(8*len(freq)), to, func(u *uploader, at driver.Address) error { return u.f64s(at, freq) })
}
