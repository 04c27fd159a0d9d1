package alu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

const oracleBits = 700 // tanh of 2⁻¹⁴⁹ loses 150 of them

func newBig(f float64) *big.Float { return new(big.Float).SetPrec(oracleBits).SetFloat64(f) }

// bigExp is e^x: the Taylor series at x/2^k, squared k times.
func bigExp(x *big.Float) *big.Float {
	const halvings = 40
	r := newBig(0).SetMantExp(x, -halvings)
	sum, term := newBig(1), newBig(1)
	for n := 1; n < 24; n++ {
		term.Mul(term, r)
		term.Quo(term, newBig(float64(n)))
		sum.Add(sum, term)
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigLog is ln x, by Halley's iteration for e^y = x.
func bigLog(x *big.Float) *big.Float {
	f, _ := x.Float64()
	y := newBig(math.Log(f))
	for range 4 {
		e := bigExp(y)
		up, down := newBig(0).Sub(x, e), newBig(0).Add(x, e)
		step := newBig(2)
		y.Add(y, step.Mul(step, up.Quo(up, down)))
	}
	return y
}

var bigLn2 = bigLog(newBig(2))

// elementaryFunctions lists the fast and the slow form of each function, and its definition.
var elementaryFunctions = []struct {
	name string
	fast func(float64) float64
	pair func(float64) double
	big  func(x *big.Float) *big.Float
	draw func(rng *rand.Rand) float32
}{
	{
		"exp2", exp2, exp2Pair,
		func(x *big.Float) *big.Float { return bigExp(newBig(0).Mul(x, bigLn2)) },
		func(rng *rand.Rand) float32 { return float32(rng.Float64()*278 - 150) },
	},
	{
		"exp2 near zero", exp2, exp2Pair,
		func(x *big.Float) *big.Float { return bigExp(newBig(0).Mul(x, bigLn2)) },
		func(rng *rand.Rand) float32 { return anyFloat32(rng, 0, 127) },
	},
	{
		"log2", log2, log2Pair,
		func(x *big.Float) *big.Float { y := bigLog(x); return y.Quo(y, bigLn2) },
		func(rng *rand.Rand) float32 { return abs(anyFloat32(rng, 0, 254)) },
	},
	{
		"log2 near one", log2, log2Pair,
		func(x *big.Float) *big.Float { y := bigLog(x); return y.Quo(y, bigLn2) },
		func(rng *rand.Rand) float32 { return 1 + float32(rng.NormFloat64()*0x1p-10) },
	},
	{
		"tanh", tanh, tanhPair, bigTanh,
		func(rng *rand.Rand) float32 { return anyFloat32(rng, 100, 130) },
	},
	{
		"tanh of small numbers", tanh, tanhPair, bigTanh,
		func(rng *rand.Rand) float32 { return anyFloat32(rng, 0, 123) },
	},
	{
		"rsqrt", func(x float64) float64 { return 1 / math.Sqrt(x) }, rsqrtPair,
		func(x *big.Float) *big.Float { r := newBig(0).Sqrt(x); return r.Quo(newBig(1), r) },
		func(rng *rand.Rand) float32 { return abs(anyFloat32(rng, 0, 254)) },
	},
}

func bigTanh(x *big.Float) *big.Float {
	e := bigExp(newBig(0).SetMantExp(x, 1))
	up := newBig(0).Sub(e, newBig(1))
	return up.Quo(up, e.Add(e, newBig(1)))
}

// relative is |got − want| / |want|.
func relative(got, want *big.Float) float64 {
	d := newBig(0).Sub(got, want)
	if d.Sign() == 0 {
		return 0
	}
	f, _ := d.Quo(d, want).Float64()
	return math.Abs(f)
}

// roundCorrectly relies on the error bounds of both forms.
func TestElementaryFunctionsAgainstBig(t *testing.T) {
	for _, fn := range elementaryFunctions {
		t.Run(fn.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(19, 20))
			var worstFast, worstPair float64
			for range cases(400) {
				x := fn.draw(rng)
				want := fn.big(newBig(float64(x)))
				pair := fn.pair(float64(x))
				worstFast = max(worstFast, relative(newBig(fn.fast(float64(x))), want))
				worstPair = max(worstPair, relative(newBig(0).Add(newBig(pair.hi), newBig(pair.lo)), want))
			}
			t.Logf("relative error: fast 2^%.1f, slow 2^%.1f", math.Log2(worstFast), math.Log2(worstPair))
			if worstFast > elementaryError/2 {
				t.Errorf("fast: relative error 2^%.1f, more than half of what settle allows", math.Log2(worstFast))
			}
			if worstPair > 0x1p-90 {
				t.Errorf("slow: relative error 2^%.1f, want 2^-90", math.Log2(worstPair))
			}
		})
	}
}

// The slow form is the reference here, which allows more operands.
func TestFastAgainstSlow(t *testing.T) {
	for _, fn := range elementaryFunctions {
		t.Run(fn.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(21, 22))
			for range cases(40_000) {
				x := fn.draw(rng)
				fast, slow := fn.fast(float64(x)), fn.pair(float64(x))
				if math.Abs(fast-slow.hi) > elementaryError/2*math.Abs(slow.hi) {
					t.Fatalf("at %x: %x, want %x", x, fast, slow.hi)
				}
			}
		})
	}
}

// If the fast form leaves the rounding open, roundCorrectly must use the slow form.
func TestRoundCorrectlyInDoubt(t *testing.T) {
	midpoint := 1 + 0x1p-24
	for _, c := range []struct {
		name string
		fast float64
		pair double
		want float32
	}{
		{"just above a midpoint", midpoint, double{midpoint, 0x1p-80}, 1 + 0x1p-23},
		{"just below it", midpoint, double{midpoint, -0x1p-80}, 1},
		{"on it, to even", midpoint, double{midpoint, 0}, 1},
		{"fast is on the wrong side by its error", midpoint + 0x1p-51, double{midpoint, -0x1p-80}, 1},
		{"no doubt, so the slow form is not used", 1.25, double{3, 0}, 1.25},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := roundCorrectly(0, c.fast, func(float64) double { return c.pair }); got != c.want {
				t.Errorf("got %x, want %x", got, c.want)
			}
		})
	}
}

func TestDoubleAgainstBig(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	draw := func() double {
		hi := rng.NormFloat64()
		return newDouble(hi, hi*rng.NormFloat64()*0x1p-54)
	}
	exact := func(d double) *big.Float { return newBig(0).Add(newBig(d.hi), newBig(d.lo)) }
	for range cases(20_000) {
		a, b := draw(), draw()
		for _, c := range []struct {
			name string
			got  double
			want *big.Float
		}{
			{"product", a.mul(b), newBig(0).Mul(exact(a), exact(b))},
			{"quotient", a.div(b), newBig(0).Quo(exact(a), exact(b))},
			{"sum", double{math.Abs(a.hi), math.Copysign(a.lo, a.hi*a.lo)}.add(double{math.Abs(b.hi), 0}), nil},
		} {
			if c.want == nil {
				c.want = newBig(0).Add(exact(double{math.Abs(a.hi), math.Copysign(a.lo, a.hi*a.lo)}), newBig(math.Abs(b.hi)))
			}
			if e := relative(exact(c.got), c.want); e > 0x1p-100 {
				t.Fatalf("%s of %v and %v: relative error 2^%.1f", c.name, a, b, math.Log2(e))
			}
		}
	}
}
