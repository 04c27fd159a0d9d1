// Package layerdiff compares what two engines computed of the same tokens, operation by
// operation, and says where they part first. It knows no engine: it is given what their
// taps were shown.
package layerdiff

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockstep-go/lockstep/quant"
)

// Op is a result that taps are shown: of a layer, or of none (-1).
type Op struct {
	Layer int
	Name  string
}

func (o Op) String() string {
	if o.Layer < 0 {
		return o.Name
	}
	return fmt.Sprintf("layer %d, %s", o.Layer, o.Name)
}

// logitsOp is the operation that ends a model.
var logitsOp = Op{-1, "logits"}

// Trace holds what a tap was shown, by operation in the order in which they first came,
// and by position. Of a position that was computed twice it has the last values. It is
// not safe for concurrent use.
type Trace struct {
	order []Op
	rows  map[Op]map[int][]float64
}

// NewTrace is an empty trace.
func NewTrace() *Trace { return &Trace{rows: map[Op]map[int][]float64{}} }

// Add takes rows of so many values, the first at a position. It has the signature of a
// tap in float64.
func (t *Trace) Add(layer int, op string, position, width int, values []float64) {
	t.own(layer, op, position, width, slices.Clone(values))
}

// AddFloats is Add with the signature of a tap in float32.
func (t *Trace) AddFloats(layer int, op string, position, width int, values []float32) {
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	t.own(layer, op, position, width, wide)
}

// Follow is a tap in float64 that adds what it is shown and leaves another trace's values
// in its place, where there are some: each operation is then computed of what the other
// engine computed it of, and a difference shows where it arises, not behind.
func (t *Trace) Follow(other *Trace) func(layer int, op string, position, width int, values []float64) {
	return func(layer int, op string, position, width int, values []float64) {
		t.Add(layer, op, position, width, values)
		for i := 0; i < len(values); i += width {
			copy(values[i:i+width], other.rows[Op{layer, op}][position+i/width])
		}
	}
}

func (t *Trace) own(layer int, op string, position, width int, values []float64) {
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

// Store rounds the values of some operations to F32, F16 or BF16: keys and values to
// what a cache keeps of them.
func (t *Trace) Store(f quant.Format, names ...string) {
	for o, rows := range t.rows {
		if !slices.Contains(names, o.Name) {
			continue
		}
		for _, row := range rows {
			for i, v := range row {
				row[i] = stored(f, v)
			}
		}
	}
}

func stored(f quant.Format, x float64) float64 {
	switch y := float32(x); f {
	case quant.F32:
		return float64(y)
	case quant.F16:
		return float64(quant.F16ToF32(quant.F32ToF16(y)))
	case quant.BF16:
		return float64(quant.BF16ToF32(quant.F32ToBF16(y)))
	default:
		panic("layerdiff: nothing is stored as " + f.String())
	}
}

func (t *Trace) positions(o Op) []int { return slices.Sorted(maps.Keys(t.rows[o])) }

// match says in what two traces are not of the same operations, positions and widths.
func (t *Trace) match(got *Trace) error {
	for _, o := range t.order {
		if len(got.rows[o]) == 0 {
			return fmt.Errorf("%v: one engine shows it, the other does not", o)
		}
		if want, have := t.positions(o), got.positions(o); !slices.Equal(want, have) {
			return fmt.Errorf("%v: one engine shows %d positions, the other %d, or not the same", o, len(want), len(have))
		}
		for _, p := range t.positions(o) {
			if want, have := len(t.rows[o][p]), len(got.rows[o][p]); want != have {
				return fmt.Errorf("%v, position %d: one engine shows %d values, the other %d", o, p, want, have)
			}
		}
	}
	for _, o := range got.order {
		if t.rows[o] == nil {
			return fmt.Errorf("%v: one engine shows it, the other does not", o)
		}
	}
	return nil
}
