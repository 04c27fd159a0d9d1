package harness

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/quant"
)

// biasLimit is the largest |mean|·√n/σ of signed errors. By chance alone about one
// comparison in 16,000 is beyond it.
const biasLimit = 4

// biasLeast is how many errors there must be for their mean to say anything.
const biasLeast = 64

// gating is one comparison: it complains once of each gate, with the first element
// and the number of them.
type comparison struct {
	r      *Fixture
	what   string
	counts map[string]int
	first  map[string]string
}

func (r *Fixture) compare(what string) *comparison {
	return &comparison{r: r, what: what, counts: map[string]int{}, first: map[string]string{}}
}

func (g *comparison) fail(gate, format string, args ...any) {
	if g.counts[gate]++; g.counts[gate] == 1 {
		g.first[gate] = fmt.Sprintf(format, args...)
	}
}

// done reports what was found.
func (g *comparison) done() {
	g.r.Helper()
	for _, gate := range append(Bounds(), "class", "bias") {
		if n := g.counts[gate]; n > 0 {
			g.r.Errorf("%s: %s gate: %d beyond it, the first: %s", g.what, gate, n, g.first[gate])
		}
	}
}

// check holds one error to its bound; an error that is NaN is beyond any.
func (g *comparison) check(gate string, i int, got float32, want, e, bound float64) {
	ratio := math.Abs(e) / bound
	if e == 0 {
		ratio = 0
	}
	g.r.worst(gate, ratio)
	if !(math.Abs(e) <= bound) {
		g.fail(gate, "[%d] is %v, want %v: error %.3g, at most %.3g", i, got, want, e, bound)
	}
}

// finite demands NaN where the reference is NaN and the same infinity where it is
// beyond float32, and reports whether both are numbers.
func (g *comparison) finite(i int, got float32, want float64) bool {
	return g.finiteIn(quant.F32, i, got, want)
}

// finiteIn is finite for a result that is stored in a format: what the format
// rounds to an infinity must be one.
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

// row holds the root mean square error of a row to the mean square of what the
// sharp gate allows. Errors are random: of n of them the mean square strays by 2/√n
// at most, and it is the sharp gate's quarter that is typical.
func (g *comparison) row(t Tolerance, row int, got []float32, want []Ref) {
	var e2, s2, y2 float64
	for i, w := range want {
		e := float64(got[i]) - w.Y
		e2 += float64(e * e)
		s2 += float64(w.P * w.P)
		y2 += float64(w.Y * w.Y)
	}
	if math.IsInf(e2, 0) || e2 != e2 || math.IsInf(y2, 0) || y2 != y2 { // complained of, or not a number by right
		return
	}
	factor := 2 + 4/math.Sqrt(float64(len(want)))
	bound := factor*t.U*math.Sqrt(float64(t.L)*s2) + max(t.UOut*math.Sqrt(y2), halfSmallest*math.Sqrt(float64(len(want))))
	g.check(rowRMS, row, got[0], want[0].Y, math.Sqrt(e2), bound)
}

// bias judges the mean of signed errors, each relative to its bound, as it is and
// toward zero. Where most expected values are equal the errors are, too, and their
// mean says nothing.
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

// significance is |mean|·√n/σ; 0 where all are 0.
func biasOf(list []float64) float64 {
	var sum, sum2 float64
	for _, e := range list {
		sum += e
		sum2 += float64(e * e)
	}
	if sum == 0 {
		return 0
	}
	n := float64(len(list))
	mean := sum / n
	variance := max(0, sum2/n-float64(mean*mean))
	return math.Abs(mean) * math.Sqrt(n/variance)
}

// rounded is y in format F32, F16 or BF16.
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

// ulp is the distance between neighbors of a format around y.
func Spacing(f quant.Format, y float64) float64 {
	var fraction, least int // bits of the fraction, exponent of the smallest normal number
	switch f {
	case quant.F32:
		fraction, least = 23, -126
	case quant.F16:
		fraction, least = 10, -14
	case quant.BF16:
		fraction, least = 7, -126
	default:
		panic(fmt.Sprintf("conformance: %v has no last place", f))
	}
	_, e := math.Frexp(y)
	return math.Ldexp(1, max(e-1, least)-fraction)
}

// unit is u, half the distance from 1 to the next float32.
const UnitRoundoff = 0x1p-24

// halfLeast is half the smallest float32: what storing a subnormal number may lose.
const halfSmallest = 0x1p-150

// Ref is what an element should be, in float64, with the sizes that bound the error
// of computing it as a sum Σ aᵢ·bᵢ.
type Ref struct {
	Y float64
	S float64 // Σ|aᵢ·bᵢ|
	P float64 // the larger of ‖a∘b‖₂ and the largest |partial sum|
}

// Tolerance says how a kernel computes its sums.
type Tolerance struct {
	L    int     // longest serial accumulation, plus the depth of the tree that adds the parts
	U    float64 // the relative error of one addition; 0: that of float32
	UOut float64 // the relative error of storing the result; 0: that of float32
	// Correlated says that the errors of different elements are not independent, so
	// that their mean says nothing of a bias.
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
		panic(fmt.Sprintf("conformance: a tolerance of L = %d", t.L))
	}
	return t
}

// bounds are the hard and the sharp bound of an element, and what they allow for
// storing it alone.
func (t Tolerance) bounds(w Ref) (hard, sharp float64) {
	l := float64(t.L)
	out := max(t.UOut*math.Abs(w.Y), halfSmallest)
	return l*t.U/(1-l*t.U)*w.S + out, 8*t.U*math.Sqrt(l)*w.P + out
}

// The gates, as the summary names them.
const (
	WorstCase     = "hard"  // |e| ≤ γ_L·S + u_out·|y|
	probabilistic = "sharp" // |e| ≤ 8·u·√L·P + u_out·|y|
	rowRMS        = "row"   // the same over a row, by its root mean square
	ULPs          = "ulp"
	derived       = "bound" // an operation's own
	exactBits     = "exact"
)

// Gates lists the gates in the order of the summary's columns.
func Bounds() []string {
	return []string{WorstCase, probabilistic, rowRMS, ULPs, derived, exactBits}
}

// Close holds sums to their reference, in rows of width: the hard bound and the
// sharp gate for every element, the relative error of every row, and no bias. NaN
// and infinities must be in the same places, with the same sign.
func (r *Fixture) Close(what string, got []float32, want []Ref, width int, t Tolerance) {
	r.Helper()
	t = t.filled()
	if !r.sized(what, len(got), len(want), width) {
		return
	}
	g := r.compare(what)
	errors := make([]float64, 0, len(got))
	for i, w := range want {
		hard, sharp := t.bounds(w)
		if !g.finite(i, got[i], w.Y) {
			continue
		}
		e := float64(got[i]) - w.Y
		g.check(WorstCase, i, got[i], w.Y, e, hard)
		g.check(probabilistic, i, got[i], w.Y, e, sharp)
		if sharp > 0 {
			errors = append(errors, e/sharp)
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

// ULP holds numbers to their reference: at most so many units in the last place of
// the reference, rounded to format F32, F16 or BF16.
func (r *Fixture) ULP(what string, f quant.Format, got []float32, want []float64, most float64) {
	r.Helper()
	if !r.sized(what, len(got), len(want), 1) {
		return
	}
	g := r.compare(what)
	for i, y := range want {
		if g.finiteIn(f, i, got[i], y) {
			g.check(ULPs, i, got[i], y, float64(got[i])-y, most*Spacing(f, y))
		}
	}
	g.done()
}

// Within holds each number to a bound of its own.
func (r *Fixture) Within(what string, got []float32, want, bound []float64) {
	r.Helper()
	if !r.sized(what, len(got), len(want), 1) || !r.sized(what, len(got), len(bound), 1) {
		return
	}
	g := r.compare(what)
	for i, y := range want {
		if g.finite(i, got[i], y) {
			g.check(derived, i, got[i], y, float64(got[i])-y, bound[i])
		}
	}
	g.done()
}

// NoWorse holds numbers, in rows of width, to twice the error of an honest
// computation in the same precision: the largest of a row and the root mean square.
func (r *Fixture) NoWorse(what string, got []float32, want []float64, honest []float32, width int) {
	r.Helper()
	if !r.sized(what, len(got), len(want), width) || !r.sized(what, len(got), len(honest), width) {
		return
	}
	g := r.compare(what)
	for row := 0; row < len(got); row += width {
		var mine, theirs, mineMax, theirsMax float64
		for i := row; i < row+width; i++ {
			if !g.finite(i, got[i], want[i]) {
				continue
			}
			e, h := math.Abs(float64(got[i])-want[i]), math.Abs(float64(honest[i])-want[i])
			mine, theirs = mine+float64(e*e), theirs+float64(h*h)
			mineMax, theirsMax = max(mineMax, e), max(theirsMax, h)
		}
		g.check(derived, row, got[row], want[row], mineMax, 2*theirsMax)
		g.check(derived, row, got[row], want[row], math.Sqrt(mine), 2*math.Sqrt(theirs))
	}
	g.done()
}

// SumsToOne holds each row of a softmax to a sum of 1 within 10⁻⁶.
func (r *Fixture) SumsToOne(what string, got []float32, width int) {
	r.Helper()
	if !r.sized(what, len(got), len(got), width) {
		return
	}
	g := r.compare(what)
	for row := 0; row < len(got); row += width {
		sum := 0.0
		for _, x := range got[row : row+width] {
			sum += float64(x)
		}
		g.check(derived, row, float32(sum), 1, sum-1, 1e-6)
	}
	g.done()
}

// Exact demands that two lists are equal, floats bit for bit, except that any NaN
// equals any other.
func Exact[E comparable](r *Fixture, what string, got, want []E) {
	r.Helper()
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

// sized demands that lists have one length, a multiple of width and not 0.
func (r *Fixture) sized(what string, got, want, width int) bool {
	r.Helper()
	if got == 0 || got != want || width < 1 || got%width != 0 {
		r.Errorf("%s: %d numbers to compare with %d, in rows of %d", what, got, want, width)
		return false
	}
	r.result.Compared += got
	return true
}

// worst keeps the largest error ÷ bound of a gate.
func (r *Fixture) worst(gate string, ratio float64) {
	if old, ok := r.result.Worst[gate]; !ok || !(ratio <= old) {
		r.result.Worst[gate] = ratio
	}
}
