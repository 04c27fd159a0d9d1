package conformance

import (
	"fmt"
	"math"
)

// Operation is a result that taps are shown: of a layer, or of none (-1).
type Operation struct {
	Layer int
	Op    string
}

func (o Operation) String() string {
	if o.Layer < 0 {
		return o.Op
	}
	return fmt.Sprintf("layer %d, %s", o.Layer, o.Op)
}

// Trace holds what taps were shown, by operation in the order in which they first came,
// and by position. Of a position that was computed twice it has the last values.
type Trace struct {
	Order []Operation
	rows  map[Operation]map[int][]float64
}

// NewTrace is an empty trace.
func NewTrace() *Trace { return &Trace{rows: map[Operation]map[int][]float64{}} }

// AddRows takes rows of so many values, the first at a position: what ref.Tap is shown.
func (t *Trace) AddRows(layer int, op string, position, width int, values []float64) {
	o := Operation{layer, op}
	if t.rows[o] == nil {
		t.rows[o] = map[int][]float64{}
		t.Order = append(t.Order, o)
	}
	for i := 0; i < len(values); i += width {
		t.rows[o][position+i/width] = append([]float64(nil), values[i:i+width]...)
	}
}

// AddFloats is AddRows for what accel.Tap is shown.
func (t *Trace) AddFloats(layer int, op string, position, width int, values []float32) {
	wide := make([]float64, len(values))
	for i, v := range values {
		wide[i] = float64(v)
	}
	t.AddRows(layer, op, position, width, wide)
}

// Round replaces the values of some operations, such as keys by what a cache keeps of them.
func (t *Trace) Round(round func(float64) float64, ops ...string) {
	for o, rows := range t.rows {
		for _, op := range ops {
			if o.Op != op {
				continue
			}
			for _, row := range rows {
				for i, v := range row {
					row[i] = round(v)
				}
			}
		}
	}
}

// Difference is how far an operation is off.
type Difference struct {
	Operation
	Relative float64 // L2 of the error by that of the values, over all positions
	Worst    float64 // the same of the worst position
	Position int     // that position
	Element  int     // its element that is off the most
	Rows     int     // positions compared
}

// Compare gives the difference of every operation, in the order of computation. The
// traces must have the same operations, positions and widths.
func (t *Trace) Compare(got *Trace) ([]Difference, error) {
	var list []Difference
	for _, o := range t.Order {
		if len(got.rows[o]) != len(t.rows[o]) {
			return nil, fmt.Errorf("%v: %d positions and %d", o, len(t.rows[o]), len(got.rows[o]))
		}
		d := Difference{Operation: o, Worst: -1}
		var errors, values float64
		for p, want := range t.rows[o] {
			row := got.rows[o][p]
			if len(row) != len(want) {
				return nil, fmt.Errorf("%v: rows of %d and of %d at position %d", o, len(want), len(row), p)
			}
			e, v, element := rowError(want, row)
			errors, values, d.Rows = errors+e, values+v, d.Rows+1
			if r := ratio(e, v); r > d.Worst || r == d.Worst && p < d.Position {
				d.Worst, d.Position, d.Element = r, p, element
			}
		}
		d.Relative = ratio(errors, values)
		list = append(list, d)
	}
	for _, o := range got.Order {
		if t.rows[o] == nil {
			return nil, fmt.Errorf("%v: there is none to compare with", o)
		}
	}
	return list, nil
}

// rowError is the squares of errors and values, and where the largest error is.
func rowError(want, got []float64) (errors, values float64, element int) {
	largest := -1.0
	for i, w := range want {
		e := math.Abs(got[i] - w)
		errors, values = errors+float64(e*e), values+float64(w*w)
		if !(e <= largest) {
			largest, element = e, i
		}
	}
	return errors, values, element
}

// ratio is the root of errors by values: 0 of nothing, infinite where there is a NaN.
func ratio(errors, values float64) float64 {
	if errors == 0 && values == 0 {
		return 0
	}
	if r := math.Sqrt(errors / values); !math.IsNaN(r) {
		return r
	}
	return math.Inf(1)
}
