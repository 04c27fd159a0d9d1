package harness

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"

	"github.com/lockstep-go/lockstep/quant"
)

// UnitRoundoff is half the distance from 1 to the next float32.
const UnitRoundoff = 0x1p-24

// halfSmallest is half of the smallest subnormal float32: the largest error of rounding to
// a subnormal number.
const halfSmallest = 0x1p-150

// Tolerance describes the rounding errors of a sum.
type Tolerance struct {
	L    int     // length of the longest chain of additions, plus the depth of the tree that adds the partial sums
	U    float64 // relative error of one addition; 0: UnitRoundoff
	UOut float64 // relative error of storing the result; 0: UnitRoundoff
	// Correlated disables the bias check: errors of different elements are not independent.
	Correlated bool
}

func (t Tolerance) filled() Tolerance {
	if t.U == 0 {
		t.U = UnitRoundoff
	}
	if t.UOut == 0 {
		t.UOut = UnitRoundoff
	}
	if t.L < 1 {
		panic(fmt.Sprintf("harness: tolerance: L is %d, not positive", t.L))
	}
	return t
}

// bounds returns the worst-case and the probabilistic bound of an element's error. Both
// include the rounding of the stored result.
func (t Tolerance) bounds(w Ref) (worst, likely float64) {
	l := float64(t.L)
	out := max(t.UOut*math.Abs(w.Y), halfSmallest)
	return l*t.U/(1-l*t.U)*w.S + out, 8*t.U*math.Sqrt(l)*w.P + out
}

// The checks, as the report names them.
const (
	WorstCase     = "worst-case"    // |e| ≤ γ_L·S + u_out·|y|
	probabilistic = "probabilistic" // |e| ≤ 8·u·√L·P + u_out·|y|
	rowRMS        = "row-rms"       // the probabilistic bound for the root mean square error of a row
	ULPs          = "ulp"
	derived       = "derived" // a bound of the operation's own
	exactBits     = "exact"
)

// Checks lists the checks in the order of the report's columns.
func Checks() []string {
	return []string{WorstCase, probabilistic, rowRMS, ULPs, derived, exactBits}
}

// Close compares sums in rows of width with their reference: every element with the
// worst-case and the probabilistic bound, every row with the bound of its root mean square
// error, and all signed errors with the bias limit. NaN and infinities must match.
func (r *Fixture) Close(what string, got []float32, want []Ref, width int, t Tolerance) {
	r.T.Helper()
	t = t.filled()
	if !r.sized(what, len(got), len(want), width) {
		return
	}
	g := r.compare(what)
	errors := make([]float64, 0, len(got))
	for i, w := range want {
		worst, likely := t.bounds(w)
		if !g.isFinite(i, got[i], w.Y) {
			continue
		}
		e := float64(got[i]) - w.Y
		g.bounded(WorstCase, i, got[i], w.Y, e, worst)
		g.bounded(probabilistic, i, got[i], w.Y, e, likely)
		if likely > 0 {
			errors = append(errors, e/likely)
		}
	}
	for row := 0; row*width < len(got); row++ {
		g.row(t, row, got[row*width:(row+1)*width], want[row*width:(row+1)*width])
	}
	if !t.Correlated {
		g.bias(errors, want)
	}
	g.done()
}

// ULP compares numbers with want rounded to format f (F32, F16 or BF16). The error may be
// at most limit units in the last place of f.
func (r *Fixture) ULP(what string, f quant.Format, got []float32, want []float64, limit float64) {
	r.T.Helper()
	if !r.sized(what, len(got), len(want), 1) {
		return
	}
	g := r.compare(what)
	for i, y := range want {
		if g.finiteIn(f, i, got[i], y) {
			g.bounded(ULPs, i, got[i], y, float64(got[i])-y, limit*Spacing(f, y))
			g.tells = g.tells || RoundTo(f, y) == 0
		}
	}
	g.done()
}

// Within compares each number with its own error bound.
func (r *Fixture) Within(what string, got []float32, want, bound []float64) {
	r.T.Helper()
	if !r.sized(what, len(got), len(want), 1) || !r.sized(what, len(got), len(bound), 1) {
		return
	}
	g := r.compare(what)
	for i, y := range want {
		if g.isFinite(i, got[i], y) {
			g.bounded(derived, i, got[i], y, float64(got[i])-y, bound[i])
		}
	}
	g.done()
}

// NoWorse compares rows of width numbers with a baseline that was computed in the same
// precision.
// The largest and the root mean square error of a row may be at most twice those of the
// baseline.
func (r *Fixture) NoWorse(what string, got []float32, want []float64, baseline []float32, width int) {
	r.T.Helper()
	if !r.sized(what, len(got), len(want), width) || !r.sized(what, len(got), len(baseline), width) {
		return
	}
	g := r.compare(what)
	for row := 0; row < len(got); row += width {
		var gotSum, baseSum, gotMax, baseMax float64
		for i := row; i < row+width; i++ {
			if !g.isFinite(i, got[i], want[i]) {
				continue
			}
			e, h := math.Abs(float64(got[i])-want[i]), math.Abs(float64(baseline[i])-want[i])
			gotSum, baseSum = gotSum+float64(e*e), baseSum+float64(h*h)
			gotMax, baseMax = max(gotMax, e), max(baseMax, h)
		}
		g.bounded(derived, row, got[row], want[row], gotMax, 2*baseMax)
		g.bounded(derived, row, got[row], want[row], math.Sqrt(gotSum), 2*math.Sqrt(baseSum))
	}
	g.done()
}

// Exact demands that two slices are equal. Floats are equal if their bits are equal or if
// both are NaN.
func Exact[E comparable](r *Fixture, what string, got, want []E) {
	r.T.Helper()
	if !r.sized(what, len(got), len(want), 1) {
		return
	}
	differ, first := 0, 0
	for i := range got {
		if !sameBits(got[i], want[i]) {
			if differ++; differ == 1 {
				first = i
			}
		}
	}
	r.worst(exactBits, float64(differ))
	if differ > 0 {
		r.Errorf("%s: %d of %d differ, the first at %d: got %v, want %v", what, differ, len(got), first, got[first], want[first])
	}
}

func sameBits(a, b any) bool {
	switch a := a.(type) {
	case float32:
		b := b.(float32)
		return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
	case float64:
		b := b.(float64)
		return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
	}
	return a == b
}

// sized demands that two slices have the same length, a positive multiple of width.
func (r *Fixture) sized(what string, got, want, width int) bool {
	r.T.Helper()
	if got == 0 || got != want || width < 1 || got%width != 0 {
		r.Errorf("%s: %d numbers, want %d, in rows of %d", what, got, want, width)
		return false
	}
	r.result.Compared += got
	return true
}

// worst records ratio, an error divided by its bound, if it is the largest one of its check.
func (r *Fixture) worst(check string, ratio float64) {
	if old, ok := r.result.Worst[check]; !ok || !(ratio <= old) {
		r.result.Worst[check] = ratio
	}
}

// biasLimit is the largest |mean|·√n/σ of signed errors. A standard normal variable exceeds
// it about once in 16,000 times.
const biasLimit = 4

// biasLeast is the smallest number of errors on which the bias check is meaningful.
const biasLeast = 64

// comparison collects the failures of one comparison. It reports each check once, with the
// number of failed elements and the first of them.
type comparison struct {
	r      *Fixture
	what   string
	counts map[string]int
	first  map[string]string
	zeros  bool // each finite reference is 0
	tells  bool // some bound excludes 0
}

func (r *Fixture) compare(what string) *comparison {
	r.bounds = true
	return &comparison{r: r, what: what, counts: map[string]int{}, first: map[string]string{}, zeros: true}
}

func (g *comparison) fail(check, format string, args ...any) {
	if g.counts[check]++; g.counts[check] == 1 {
		g.first[check] = fmt.Sprintf(format, args...)
	}
}

// done reports the failures. A comparison that zeros would pass is a failure too, unless it
// expects zeros.
func (g *comparison) done() {
	g.r.T.Helper()
	if !g.zeros && !g.tells {
		g.r.Errorf("%s: zeros are within all bounds", g.what)
	}
	for _, check := range append(Checks(), "class", "bias") {
		if n := g.counts[check]; n > 0 {
			g.r.Errorf("%s: %s check: %d failed, the first: %s", g.what, check, n, g.first[check])
		}
	}
}

// bounded checks that an error is within its bound. It fails if either is NaN or infinite.
func (g *comparison) bounded(check string, i int, got float32, want, e, bound float64) {
	g.r.finite = true
	g.zeros, g.tells = g.zeros && want == 0, g.tells || math.Abs(want) > bound
	ratio := math.Abs(e) / bound
	if e == 0 {
		ratio = 0
	}
	g.r.worst(check, ratio)
	if !(math.Abs(e) <= bound && bound <= math.MaxFloat64) {
		g.fail(check, "[%d] is %v, want %v: error %.3g, at most %.3g", i, got, want, e, bound)
	}
}

// isFinite is finiteIn for results in float32.
func (g *comparison) isFinite(i int, got float32, want float64) bool {
	return g.finiteIn(quant.F32, i, got, want)
}

// finiteIn reports whether result and reference are both finite. Otherwise it demands that
// both are NaN or, once the reference is rounded to format f, the same infinity.
func (g *comparison) finiteIn(f quant.Format, i int, got float32, want float64) bool {
	w := RoundTo(f, want)
	gotFinite, wantFinite := !math.IsInf(float64(got), 0) && got == got, !math.IsInf(w, 0) && w == w
	switch {
	case gotFinite && wantFinite:
		return true
	case got != got && w != w, !gotFinite && float64(got) == w:
		return false
	}
	g.fail("class", "[%d] is %v, want %v", i, got, want)
	return false
}

// row compares the root mean square error of a row with that of the probabilistic bound.
// The typical error is a quarter of the bound, and a mean square over n elements deviates
// by at most 2/√n.
func (g *comparison) row(t Tolerance, row int, got []float32, want []Ref) {
	var e2, s2, y2 float64
	for i, w := range want {
		e := float64(got[i]) - w.Y
		e2 += float64(e * e)
		s2 += float64(w.P * w.P)
		y2 += float64(w.Y * w.Y)
	}
	if math.IsInf(e2, 0) || e2 != e2 || math.IsInf(y2, 0) || y2 != y2 { // reported before, or NaN in the reference too
		return
	}
	factor := 2 + 4/math.Sqrt(float64(len(want)))
	bound := factor*t.U*math.Sqrt(float64(t.L)*s2) + max(t.UOut*math.Sqrt(y2), halfSmallest*math.Sqrt(float64(len(want))))
	g.bounded(rowRMS, row, got[0], want[0].Y, math.Sqrt(e2), bound)
}

// bias checks the mean of signed errors, each divided by its bound, once as it is and once
// with the sign of the expected value. It skips inputs whose expected values are mostly
// equal, since their errors are equal too.
func (g *comparison) bias(errors []float64, want []Ref) {
	distinct := map[float64]bool{}
	for _, w := range want {
		distinct[w.Y] = true
	}
	if len(errors) < biasLeast || 2*len(distinct) < len(want) {
		return
	}
	var toward []float64
	if len(errors) == len(want) {
		for i, e := range errors {
			toward = append(toward, math.Copysign(1, want[i].Y)*e)
		}
	}
	for _, list := range [][]float64{errors, toward} {
		z := biasOf(list)
		g.r.result.Bias = max(g.r.result.Bias, z)
		if !(z <= biasLimit) {
			g.fail("bias", "the mean of %d errors is %.1fσ/√n from 0, at most %d", len(list), z, biasLimit)
		}
	}
}

// biasOf returns |mean|·√n/σ, or 0 if the list is empty or its mean is 0.
func biasOf(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	mean, deviation := stat.PopMeanStdDev(list, nil)
	if mean == 0 {
		return 0
	}
	return math.Abs(mean) * math.Sqrt(float64(len(list))) / deviation
}

// RoundTo returns y rounded to format f: F32, F16 or BF16.
func RoundTo(f quant.Format, y float64) float64 {
	var b [4]byte
	var out [1]float64
	x := []float32{float32(y)}
	cell := b[:f.BlockBytes()]
	if err := f.Encode(cell, x); err != nil {
		panic(err)
	}
	quant.Decode(f, out[:], cell)
	return out[0]
}

// Spacing returns the distance between neighboring numbers of format f around y.
func Spacing(f quant.Format, y float64) float64 {
	var fraction, least int // fraction bits; exponent of the smallest normal number
	switch f {
	case quant.F32:
		fraction, least = 23, -126
	case quant.F16:
		fraction, least = 10, -14
	case quant.BF16:
		fraction, least = 7, -126
	default:
		panic(fmt.Sprintf("harness: spacing: %v is no float format", f))
	}
	_, e := math.Frexp(y)
	return math.Ldexp(1, max(e-1, least)-fraction)
}
