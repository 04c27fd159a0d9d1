package portable_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// ulps returns |a-b| in units of the last place of b.
func ulps(a, b float64) float64 {
	if a == b || math.IsNaN(a) && math.IsNaN(b) {
		return 0
	}
	return math.Abs(a-b) / (math.Nextafter(math.Abs(b), math.Inf(1)) - math.Abs(b))
}

func sin(x float64) float64 { s, _ := portable.SinCos(x); return s }
func cos(x float64) float64 { _, c := portable.SinCos(x); return c }

func TestAgainstStandardLibrary(t *testing.T) {
	cases := []struct {
		name      string
		got, want func(float64) float64
		lo, hi    float64
		bound     float64 // ulp; or 1e-16 near zeros of sin and cos
	}{
		{"exp, softmax range", portable.Exp, math.Exp, -745, 709, 2},
		{"exp near zero", portable.Exp, math.Exp, -1e-3, 1e-3, 2},
		{"log of rope bases", portable.Log, math.Log, 1e-3, 1e7, 2},
		{"log near one", portable.Log, math.Log, 0.9, 1.1, 2},
		{"tanh", portable.Tanh, math.Tanh, -25, 25, 6},
		{"tanh near zero", portable.Tanh, math.Tanh, -0.3, 0.3, 6},
		{"sin, first turns", sin, math.Sin, -10, 10, 2},
		{"cos, first turns", cos, math.Cos, -10, 10, 2},
		{"sin at the longest context", sin, math.Sin, 0, 1 << 20, 2},
		{"cos at the longest context", cos, math.Cos, 0, 1 << 20, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			for range 200_000 {
				x := c.lo + rng.Float64()*(c.hi-c.lo)
				got, want := c.got(x), c.want(x)
				if !(ulps(got, want) <= c.bound || math.Abs(got-want) <= 1e-16) {
					t.Fatalf("f(%v) = %v, want %v: %.1f ulp", x, got, want, ulps(got, want))
				}
			}
		})
	}
}

func TestSpecialValues(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	cases := []struct {
		name      string
		got, want float64
	}{
		{"exp overflows to infinity", portable.Exp(710), inf},
		{"exp of infinity", portable.Exp(inf), inf},
		{"exp of -infinity: a masked score", portable.Exp(-inf), 0},
		{"exp underflows to zero", portable.Exp(-746), 0},
		{"exp of zero is exact", portable.Exp(0), 1},
		{"exp of NaN", portable.Exp(nan), nan},
		{"tanh saturates", portable.Tanh(inf), 1},
		{"tanh saturates below", portable.Tanh(-inf), -1},
		{"tanh of NaN", portable.Tanh(nan), nan},
		{"log of one is exact", portable.Log(1), 0},
		{"sin of zero is exact", sin(0), 0},
		{"cos of zero is exact", cos(0), 1},
	}
	for _, c := range cases {
		if c.got != c.want && !(math.IsNaN(c.got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

// The results have the same bits on every machine.
func TestBitsAreFrozen(t *testing.T) {
	h := uint64(14695981039346656037)
	mix := func(v float64) { h = (h ^ math.Float64bits(v)) * 1099511628211 }
	rng := rand.New(rand.NewPCG(3, 4))
	for range 10_000 {
		u := rng.Float64()
		mix(portable.Exp(float64(40*u) - 30))
		mix(portable.Log(float64(1e6*u) + 1e-9))
		mix(portable.Tanh(float64(6*u) - 3))
		mix(sin(131072 * u))
		mix(cos(131072 * u))
	}
	const want = 0xe296c0f5b9ef8425
	if h != want {
		t.Errorf("hash of 50,000 results %#x, want %#x", h, uint64(want))
	}
}

func TestDotTail(t *testing.T) {
	w := []float64{1, 2, 3, 4, 5, 6, 7}
	x := []float64{1, 10, 100, 1e3, 1e4, 1e5, 1e6}
	for n, want := range []float64{0, 1, 21, 321, 4321, 54321, 654321, 7654321} {
		if got := portable.Dot(w[:n], x[:n]); got != want {
			t.Errorf("%d weights: %v, want %v", n, got, want)
		}
	}
}
