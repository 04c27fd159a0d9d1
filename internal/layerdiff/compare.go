package layerdiff

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// Report holds the differences of two engines.
type Report struct {
	Ops    []Result  // in the order of computation
	First  *Mismatch // first out of tolerance; nil: none
	Logits *Logits   // nil: neither trace has logits
}

// Result is the difference in one operation.
type Result struct {
	Op        Op
	Error     float64 // largest relative L2 of a row; +Inf if a NaN or infinity has no counterpart
	Position  int     // of the row with that error
	Bound     float64 // tolerance of Error
	Positions int     // compared
	Exceeded  int     // positions out of tolerance
	Elements  float64 // fraction of all elements out of tolerance
}

// Mismatch is the element with the largest error, relative to its tolerance, in a row that
// is out of tolerance.
type Mismatch struct {
	Op         Op
	Position   int
	Element    int
	Got, Want  float64
	Error      float64 // absolute, of the element
	Bound      float64 // tolerance of Error
	RowError   float64 // relative L2 of the row
	RowBound   float64 // tolerance of RowError
	Comparable bool    // false: a NaN or infinity has no counterpart
}

// String gives the operation, the place and both values.
func (d *Mismatch) String() string {
	text := fmt.Sprintf("%v, position %d, element %d: got %.9g, want %.9g", d.Op, d.Position, d.Element, d.Got, d.Want)
	if !d.Comparable {
		return text
	}
	return fmt.Sprintf("%s, error %.3g (bound %.3g); relative L2 of the row %.3g (bound %.3g)", text, d.Error, d.Bound, d.RowError, d.RowBound)
}

// Logits is the difference in the predictions. Divergences are in nats.
//
// The top token of a position is compared only if its margin over the second is more than
// twice the tolerance of a logit. With a smaller margin, errors within tolerance can change
// the top token.
type Logits struct {
	Positions        int
	MeanKL, MaxKL    float64 // Kullback-Leibler divergence of got from want
	MaxKLPosition    int
	MeanBound        float64 // tolerance of MeanKL
	MaxBound         float64 // tolerance of MaxKL
	Decided          int     // positions whose top tokens are compared
	Disagree         int     // of those, positions with different top tokens
	DisagreePosition int     // the first of those
}

// Undecided returns the fraction of positions whose top tokens are not compared.
func (l *Logits) Undecided() float64 { return 1 - float64(l.Decided)/float64(l.Positions) }

// Compare compares got with want. Both engines round to the formats of n. effects comes
// from Effects; it may be nil if n.Rounds is false. A NaN matches a NaN, and an infinity
// one of the same sign. Compare returns an error if the traces have different operations,
// positions or widths. It panics if a format of n has no limits.
func Compare(want, got *Trace, n Numerics, effects map[Op]float64) (*Report, error) {
	if !n.valid() {
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

// Err describes the first difference out of tolerance, or is nil.
func (r *Report) Err() error {
	switch {
	case r.First != nil:
		return fmt.Errorf("%v", r.First)
	case r.Logits != nil:
		return r.Logits.Err()
	}
	return nil
}

// Err describes the first difference out of tolerance, or is nil.
func (l *Logits) Err() error {
	switch {
	case l.Disagree > 0:
		return fmt.Errorf("the top tokens differ at %d of %d positions with a sufficient margin, first at position %d", l.Disagree, l.Decided, l.DisagreePosition)
	case !(l.MeanKL <= l.MeanBound):
		return fmt.Errorf("the mean KL divergence of the logits is %.3g (bound %.3g)", l.MeanKL, l.MeanBound)
	case !(l.MaxKL <= l.MaxBound):
		return fmt.Errorf("the KL divergence of the logits is %.3g at position %d (bound %.3g)", l.MaxKL, l.MaxKLPosition, l.MaxBound)
	}
	return nil
}

// compareOp compares every position of an operation. first is the mismatch at the lowest
// position.
func compareOp(o Op, want, got *Trace, bound float64) (res Result, first *Mismatch) {
	res = Result{Op: o, Bound: bound, Error: -1}
	elements, apart := 0, 0
	for _, p := range want.positions(o) {
		row := want.rows[o][p]
		d, n := compareRow(row, got.rows[o][p], bound)
		elements, apart = elements+len(row), apart+n
		res.Positions++
		if d.RowError > res.Error {
			res.Error, res.Position = d.RowError, p
		}
		if d.Error <= d.Bound && d.RowError <= d.RowBound {
			continue
		}
		res.Exceeded++
		if first == nil {
			first, d.Op, d.Position = d, o, p
		}
	}
	res.Elements = float64(apart) / float64(max(elements, 1))
	return res, first
}

// compareRow finds the element with the largest error relative to its tolerance. exceeded is the number of elements out of tolerance.
func compareRow(want, got []float64, bound float64) (d *Mismatch, exceeded int) {
	errors, values := sumSquares(want, got)
	rms := math.Sqrt(values / float64(len(want)))
	d = &Mismatch{RowError: relative(errors, values), RowBound: bound}
	worst := -1.0
	for i, w := range want {
		off := difference(w, got[i])
		limit := elementBound(w, rms, bound)
		ratio := 0.0
		if off > 0 {
			ratio = off / limit
		}
		if !(ratio <= 1) {
			exceeded++
		}
		if !(ratio <= worst) {
			worst = ratio
			d.Element, d.Got, d.Want, d.Error, d.Bound = i, got[i], w, off, limit
		}
	}
	d.Comparable = !math.IsInf(d.Error, 1)
	return d, exceeded
}

// elementBound returns the tolerance of the element w of a row.
func elementBound(w, rms, bound float64) float64 {
	if math.IsNaN(w) || math.IsInf(w, 0) {
		return 0
	}
	return bound * (math.Abs(w) + elementSigmas*rms)
}

// difference returns |got - want|: 0 for two NaN or equal infinities, and +Inf if only one
// is a NaN or infinity. It never returns NaN, which would pass a comparison with a bound.
func difference(want, got float64) float64 {
	switch {
	case want == got || math.IsNaN(want) && math.IsNaN(got):
		return 0
	case math.IsNaN(want) || math.IsNaN(got) || math.IsInf(want, 0) || math.IsInf(got, 0):
		return math.Inf(1)
	}
	return math.Abs(got - want)
}

// sumSquares returns the sums of squares of the errors and of the finite values of a row.
func sumSquares(want, got []float64) (errors, values float64) {
	for i, w := range want {
		e := difference(w, got[i])
		errors += float64(e * e)
		if !math.IsNaN(w) && !math.IsInf(w, 0) {
			values += float64(w * w)
		}
	}
	return errors, values
}

// relative returns √(errors / values): 0 if errors is 0, +Inf if only values is 0.
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

func compareLogits(want, got *Trace, lim limits, bound float64) *Logits {
	l := &Logits{MeanBound: lim.meanKL, MaxBound: lim.maxKL, MaxKL: -1}
	var kls []float64
	for _, p := range want.positions(logitsOp) {
		w, g := want.rows[logitsOp][p], got.rows[logitsOp][p]
		l.Positions++
		kl := divergence(w, g)
		kls = append(kls, kl)
		if kl > l.MaxKL || math.IsNaN(kl) && !math.IsNaN(l.MaxKL) {
			l.MaxKL, l.MaxKLPosition = kl, p
		}
		best, margin := top(w)
		if !(margin > 2*maxElementBound(w, bound)) {
			continue
		}
		l.Decided++
		if other, _ := top(g); other != best {
			if l.Disagree == 0 {
				l.DisagreePosition = p
			}
			l.Disagree++
		}
	}
	l.MeanKL = stat.Mean(kls, nil)
	return l
}

func maxElementBound(row []float64, bound float64) float64 {
	_, values := sumSquares(row, row)
	rms := math.Sqrt(values / float64(len(row)))
	most := 0.0
	for _, w := range row {
		most = max(most, elementBound(w, rms, bound))
	}
	return most
}

// top returns the index of the largest value, the lowest one if values are equal, and its
// distance to the second largest. It ignores NaN; if all values are NaN, best is -1.
func top(x []float64) (best int, margin float64) {
	best = -1
	first, second := math.Inf(-1), math.Inf(-1)
	for i, v := range x {
		switch {
		case math.IsNaN(v):
		case best < 0 || v > first:
			best, first, second = i, v, first
		default:
			second = max(second, v)
		}
	}
	return best, first - second
}

// divergence returns the Kullback-Leibler divergence of softmax(got) from softmax(want).
// It is NaN if a logit is NaN.
func divergence(want, got []float64) (sum float64) {
	a, b := floats.LogSumExp(want), floats.LogSumExp(got)
	for i, w := range want {
		if p := math.Exp(w - a); p != 0 { // 0 × log 0 counts as 0
			sum += float64(p * ((w - a) - (got[i] - b)))
		} else if math.IsNaN(got[i]) {
			return math.NaN()
		}
	}
	return sum
}
