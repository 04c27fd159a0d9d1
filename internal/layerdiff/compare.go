package layerdiff

import (
	"fmt"
	"math"
)

// Report is how two engines differ.
type Report struct {
	Ops    []Result   // in the order of computation
	First  *Departure // the first that left its bound; nil: none did
	Logits *Logits    // nil: no engine shows any
}

// Result is how an operation differs.
type Result struct {
	Op        Op
	Error     float64 // relative L2 of the row that is off the most; infinite where a NaN or an infinity is alone
	Position  int     // of that row
	Bound     float64 // of the error
	Positions int
	Left      int // positions that left the bound
}

// Departure is where the engines part: an element that left its bound, or the one that
// is off the most in a row that did.
type Departure struct {
	Op         Op
	Position   int
	Element    int
	Got, Want  float64
	Error      float64 // of the element
	Bound      float64
	RowError   float64 // relative L2
	RowBound   float64
	Comparable bool // else a NaN or an infinity is where the other engine has none like it
}

func (d *Departure) String() string {
	text := fmt.Sprintf("%v, position %d, element %d: got %.9g, want %.9g", d.Op, d.Position, d.Element, d.Got, d.Want)
	if !d.Comparable {
		return text
	}
	return fmt.Sprintf("%s, off by %.3g (bound %.3g); the row is off by %.3g of its length (bound %.3g)", text, d.Error, d.Bound, d.RowError, d.RowBound)
}

// Compare holds what one engine computed to what the other did, which rounds alike.
// Effects are what the roundings do, from Effects; nil if Numerics has none. NaN, and an
// infinity of the same sign, must be in the same places. The error says in what the two
// traces cannot be compared.
func Compare(want, got *Trace, n Numerics, effects map[Op]float64) (*Report, error) {
	if !n.known() {
		panic(fmt.Sprintf("layerdiff: cache %v, input %v", n.KV, n.Input))
	}
	if err := want.match(got); err != nil {
		return nil, err
	}
	bounds := n.bounds(want, effects)
	r := &Report{}
	for _, o := range want.order {
		res, first := compareOp(o, want, got, bounds[o])
		if r.First == nil {
			r.First = first
		}
		r.Ops = append(r.Ops, res)
	}
	if len(want.rows[logitsOp]) > 0 {
		r.Logits = compareLogits(want, got, n.limits(), bounds[logitsOp])
	}
	return r, nil
}

// compareOp compares all positions of an operation; first is the one of the lowest
// position that left the bound.
func compareOp(o Op, want, got *Trace, bound float64) (res Result, first *Departure) {
	res = Result{Op: o, Bound: bound, Error: -1}
	for _, p := range want.positions(o) {
		d := compareRow(want.rows[o][p], got.rows[o][p], bound)
		res.Positions++
		if d.RowError > res.Error {
			res.Error, res.Position = d.RowError, p
		}
		if d.Error <= d.Bound && d.RowError <= d.RowBound {
			continue
		}
		res.Left++
		if first == nil {
			first, d.Op, d.Position = d, o, p
		}
	}
	return res, first
}

// compareRow finds the element of a row that is off the most, measured by its bound.
func compareRow(want, got []float64, bound float64) *Departure {
	e, v := errorsOf(want, got)
	rms := math.Sqrt(v / float64(len(want)))
	d := &Departure{RowError: relative(e, v), RowBound: bound}
	most := -1.0
	for i, w := range want {
		off := difference(w, got[i])
		limit := elementBound(w, rms, bound)
		share := 0.0
		if off > 0 {
			share = off / limit
		}
		if !(share <= most) {
			most = share
			d.Element, d.Got, d.Want, d.Error, d.Bound = i, got[i], w, off, limit
		}
	}
	d.Comparable = !math.IsInf(d.Error, 1)
	return d
}

// elementBound is how far an element of a row may be off.
func elementBound(w, rms, bound float64) float64 {
	if math.IsNaN(w) || math.IsInf(w, 0) {
		return 0
	}
	return bound * (math.Abs(w) + spread*rms)
}

// difference is how far two numbers are apart: 0 of two NaN or of the same infinity,
// infinite where only one is a NaN or an infinity. It is never a NaN, so that no
// comparison with a bound lets one pass.
func difference(want, got float64) float64 {
	switch {
	case want == got || math.IsNaN(want) && math.IsNaN(got):
		return 0
	case math.IsNaN(want) || math.IsNaN(got) || math.IsInf(want, 0) || math.IsInf(got, 0):
		return math.Inf(1)
	}
	return math.Abs(got - want)
}

// errorsOf is the sums of the squares of a row's errors and of its finite values.
func errorsOf(want, got []float64) (errors, values float64) {
	for i, w := range want {
		e := difference(w, got[i])
		errors += float64(e * e)
		if !math.IsNaN(w) && !math.IsInf(w, 0) {
			values += float64(w * w)
		}
	}
	return errors, values
}

// relative is the root of errors by values: 0 of no errors, infinite of errors in nothing.
func relative(errors, values float64) float64 {
	switch {
	case errors == 0:
		return 0
	case values == 0:
		return math.Inf(1)
	}
	if r := math.Sqrt(errors / values); !math.IsNaN(r) {
		return r
	}
	return math.Inf(1)
}
