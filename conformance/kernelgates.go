package conformance

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/quant"
)

// unit is u, half the distance from 1 to the next float32.
const unit = 0x1p-24

// halfLeast is half the smallest float32: what storing a subnormal number may lose.
const halfLeast = 0x1p-150

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
		t.U = unit
	}
	if t.UOut == 0 {
		t.UOut = unit
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
	out := max(t.UOut*math.Abs(w.Y), halfLeast)
	return l*t.U/(1-l*t.U)*w.S + out, 8*t.U*math.Sqrt(l)*w.P + out
}

// The gates, as the summary names them.
const (
	gateHard  = "hard"  // |e| ≤ γ_L·S + u_out·|y|
	gateSharp = "sharp" // |e| ≤ 8·u·√L·P + u_out·|y|
	gateRow   = "row"   // the same over a row, by its root mean square
	gateULP   = "ulp"
	gateBound = "bound" // an operation's own
	gateExact = "exact"
)

// Gates lists the gates in the order of the summary's columns.
func Gates() []string {
	return []string{gateHard, gateSharp, gateRow, gateULP, gateBound, gateExact}
}

// Close holds sums to their reference, in rows of width: the hard bound and the
// sharp gate for every element, the relative error of every row, and no bias. NaN
// and infinities must be in the same places, with the same sign.
func (r *KernelRig) Close(what string, got []float32, want []Ref, width int, t Tolerance) {
	r.Helper()
	t = t.filled()
	if !r.sized(what, len(got), len(want), width) {
		return
	}
	g := r.gate(what)
	errors := make([]float64, 0, len(got))
	for i, w := range want {
		hard, sharp := t.bounds(w)
		if !g.finite(i, got[i], w.Y) {
			continue
		}
		e := float64(got[i]) - w.Y
		g.check(gateHard, i, got[i], w.Y, e, hard)
		g.check(gateSharp, i, got[i], w.Y, e, sharp)
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
func (r *KernelRig) ULP(what string, f quant.Format, got []float32, want []float64, most float64) {
	r.Helper()
	if !r.sized(what, len(got), len(want), 1) {
		return
	}
	g := r.gate(what)
	for i, y := range want {
		if g.finiteIn(f, i, got[i], y) {
			g.check(gateULP, i, got[i], y, float64(got[i])-y, most*ulp(f, y))
		}
	}
	g.done()
}

// Within holds each number to a bound of its own.
func (r *KernelRig) Within(what string, got []float32, want, bound []float64) {
	r.Helper()
	if !r.sized(what, len(got), len(want), 1) || !r.sized(what, len(got), len(bound), 1) {
		return
	}
	g := r.gate(what)
	for i, y := range want {
		if g.finite(i, got[i], y) {
			g.check(gateBound, i, got[i], y, float64(got[i])-y, bound[i])
		}
	}
	g.done()
}

// NoWorse holds numbers, in rows of width, to twice the error of an honest
// computation in the same precision: the largest of a row and the root mean square.
func (r *KernelRig) NoWorse(what string, got []float32, want []float64, honest []float32, width int) {
	r.Helper()
	if !r.sized(what, len(got), len(want), width) || !r.sized(what, len(got), len(honest), width) {
		return
	}
	g := r.gate(what)
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
		g.check(gateBound, row, got[row], want[row], mineMax, 2*theirsMax)
		g.check(gateBound, row, got[row], want[row], math.Sqrt(mine), 2*math.Sqrt(theirs))
	}
	g.done()
}

// SumsToOne holds each row of a softmax to a sum of 1 within 10⁻⁶.
func (r *KernelRig) SumsToOne(what string, got []float32, width int) {
	r.Helper()
	if !r.sized(what, len(got), len(got), width) {
		return
	}
	g := r.gate(what)
	for row := 0; row < len(got); row += width {
		sum := 0.0
		for _, x := range got[row : row+width] {
			sum += float64(x)
		}
		g.check(gateBound, row, float32(sum), 1, sum-1, 1e-6)
	}
	g.done()
}

// Exact demands that two lists are equal, floats bit for bit, except that any NaN
// equals any other.
func Exact[E comparable](r *KernelRig, what string, got, want []E) {
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
	r.worst(gateExact, float64(differ))
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
func (r *KernelRig) sized(what string, got, want, width int) bool {
	r.Helper()
	if got == 0 || got != want || width < 1 || got%width != 0 {
		r.Errorf("%s: %d numbers to compare with %d, in rows of %d", what, got, want, width)
		return false
	}
	r.result.Compared += got
	return true
}

// worst keeps the largest error ÷ bound of a gate.
func (r *KernelRig) worst(gate string, ratio float64) {
	if old, ok := r.result.Worst[gate]; !ok || !(ratio <= old) {
		r.result.Worst[gate] = ratio
	}
}
