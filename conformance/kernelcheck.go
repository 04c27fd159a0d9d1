package conformance

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
type gating struct {
	r      *KernelRig
	what   string
	counts map[string]int
	first  map[string]string
}

func (r *KernelRig) gate(what string) *gating {
	return &gating{r: r, what: what, counts: map[string]int{}, first: map[string]string{}}
}

func (g *gating) complain(gate, format string, args ...any) {
	if g.counts[gate]++; g.counts[gate] == 1 {
		g.first[gate] = fmt.Sprintf(format, args...)
	}
}

// done reports what was found.
func (g *gating) done() {
	g.r.Helper()
	for _, gate := range append(Gates(), "class", "bias") {
		if n := g.counts[gate]; n > 0 {
			g.r.Errorf("%s: %s gate: %d beyond it, the first: %s", g.what, gate, n, g.first[gate])
		}
	}
}

// check holds one error to its bound; an error that is NaN is beyond any.
func (g *gating) check(gate string, i int, got float32, want, e, bound float64) {
	ratio := math.Abs(e) / bound
	if e == 0 {
		ratio = 0
	}
	g.r.worst(gate, ratio)
	if !(math.Abs(e) <= bound) {
		g.complain(gate, "[%d] is %v, want %v: error %.3g, at most %.3g", i, got, want, e, bound)
	}
}

// finite demands NaN where the reference is NaN and the same infinity where it is
// beyond float32, and reports whether both are numbers.
func (g *gating) finite(i int, got float32, want float64) bool {
	return g.finiteIn(quant.F32, i, got, want)
}

// finiteIn is finite for a result that is stored in a format: what the format
// rounds to an infinity must be one.
func (g *gating) finiteIn(f quant.Format, i int, got float32, want float64) bool {
	w := rounded(f, want)
	gotFinite, wantFinite := !math.IsInf(float64(got), 0) && got == got, !math.IsInf(w, 0) && w == w
	switch {
	case gotFinite && wantFinite:
		return true
	case got != got && w != w, !gotFinite && float64(got) == w:
		return false
	}
	g.complain("class", "[%d] is %v, want %v", i, got, want)
	return false
}

// row holds the root mean square error of a row to the mean square of what the
// sharp gate allows. Errors are random: of n of them the mean square strays by 2/√n
// at most, and it is the sharp gate's quarter that is typical.
func (g *gating) row(t Tolerance, row int, got []float32, want []Ref) {
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
	bound := factor*t.U*math.Sqrt(float64(t.L)*s2) + max(t.UOut*math.Sqrt(y2), halfLeast*math.Sqrt(float64(len(want))))
	g.check(gateRow, row, got[0], want[0].Y, math.Sqrt(e2), bound)
}

// bias judges the mean of signed errors, each relative to its bound, as it is and
// toward zero. Where most expected values are equal the errors are, too, and their
// mean says nothing.
func (g *gating) bias(errors []float64, want []Ref) {
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
		z := significance(list)
		g.r.result.Bias = max(g.r.result.Bias, z)
		if !(z <= biasLimit) {
			g.complain("bias", "the mean of %d errors is %.1fσ/√n from 0, at most %d", len(list), z, biasLimit)
		}
	}
}

// significance is |mean|·√n/σ; 0 where all are 0.
func significance(list []float64) float64 {
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
func rounded(f quant.Format, y float64) float64 {
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
func ulp(f quant.Format, y float64) float64 {
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
