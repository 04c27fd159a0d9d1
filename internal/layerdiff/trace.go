// Package layerdiff compares what two engines computed for the same tokens, operation by
// operation, and reports the first element that is out of tolerance.
//
// It imports no engine: the taps of both engines fill a Trace each.
package layerdiff

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/quant"
)

// Op is an operation whose result an engine's tap receives. Layer is -1 outside of the
// layers.
type Op struct {
	Layer int
	Name  string
}

// String returns the name of the operation, with its layer if it has one.
func (o Op) String() string {
	if o.Layer < 0 {
		return o.Name
	}
	return fmt.Sprintf("layer %d, %s", o.Layer, o.Name)
}

// logitsOp is the last operation of a model.
var logitsOp = Op{-1, "logits"}

// Trace holds the rows that a tap received, by operation and position. Operations keep the
// order of their first row. If a position is computed twice, its last row counts. A Trace
// is not safe for concurrent use.
type Trace struct {
	order []Op
	rows  map[Op]map[int][]float64
}

// NewTrace returns an empty trace.
func NewTrace() *Trace { return &Trace{rows: map[Op]map[int][]float64{}} }

// Add copies values [rows, width]. The first row is at position.
// Its signature is that of a float64 tap.
func (t *Trace) Add(layer int, op string, position, width int, values []float64) {
	t.put(layer, op, position, width, slices.Clone(values))
}

// AddFloats is Add for a float32 tap.
func (t *Trace) AddFloats(layer int, op string, position, width int, values []float32) {
	converted := make([]float64, len(values))
	for i, v := range values {
		converted[i] = float64(v)
	}
	t.put(layer, op, position, width, converted)
}

// Follow returns a tap that records values and then overwrites them with those of other,
// where other has them. The following operation then has the same inputs as in the other
// engine, so a difference shows only at the operation that causes it.
func (t *Trace) Follow(other *Trace) func(layer int, op string, position, width int, values []float64) {
	return func(layer int, op string, position, width int, values []float64) {
		t.Add(layer, op, position, width, values)
		for i := 0; i < len(values); i += width {
			copy(values[i:i+width], other.rows[Op{layer, op}][position+i/width])
		}
	}
}

// put is Add without a copy: the trace owns values afterwards.
func (t *Trace) put(layer int, op string, position, width int, values []float64) {
	if width <= 0 || len(values)%width != 0 {
		panic(fmt.Sprintf("layerdiff: %d values in rows of %d", len(values), width))
	}
	o := Op{layer, op}
	if t.rows[o] == nil {
		t.rows[o] = map[int][]float64{}
		t.order = append(t.order, o)
	}
	for i := 0; i < len(values); i += width {
		t.rows[o][position+i/width] = values[i : i+width : i+width]
	}
}

// Round rounds the values of the named operations to F32, F16 or BF16, as the KV cache
// rounds keys and values.
func (t *Trace) Round(f quant.Format, names ...string) {
	for o, rows := range t.rows {
		if !slices.Contains(names, o.Name) {
			continue
		}
		for _, row := range rows {
			for i, v := range row {
				row[i] = rounded(f, v)
			}
		}
	}
}

func rounded(f quant.Format, x float64) float64 {
	switch y := float32(x); f {
	case quant.F32:
		return float64(y)
	case quant.F16:
		return float64(float16.RoundF16(y))
	case quant.BF16:
		return float64(float16.RoundBF16(y))
	default:
		panic("layerdiff: no KV cache stores " + f.String())
	}
}

func (t *Trace) positions(o Op) []int { return slices.Sorted(maps.Keys(t.rows[o])) }

// match returns an error unless both traces have the same operations, positions and widths.
func (t *Trace) match(got *Trace) error {
	for _, o := range t.order {
		if len(got.rows[o]) == 0 {
			return fmt.Errorf("%v: only one engine computes it", o)
		}
		if want, have := t.positions(o), got.positions(o); !slices.Equal(want, have) {
			return fmt.Errorf("%v: the engines compute different positions: %d and %d of them", o, len(want), len(have))
		}
		for _, p := range t.positions(o) {
			if want, have := len(t.rows[o][p]), len(got.rows[o][p]); want != have {
				return fmt.Errorf("%v, position %d: the engines compute %d and %d values", o, p, want, have)
			}
		}
	}
	for _, o := range got.order {
		if t.rows[o] == nil {
			return fmt.Errorf("%v: only one engine computes it", o)
		}
	}
	return nil
}
