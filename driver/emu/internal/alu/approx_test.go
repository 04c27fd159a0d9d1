package alu

import (
	"math"
	"math/rand/v2"
	"testing"
)

// approxOps describes the operations of Approx.
var approxOps = []struct {
	name  string
	f     func(Approx, float32) float32
	float func(float64) float64              // in float64, from the standard library
	bound func(x float32, y float64) float64 // error bound at y = f(x), from the PTX ISA
	draw  func(rng *rand.Rand) float32       // operands with an inexact, finite and nonzero result
}{
	{
		"ex2", Approx.Ex2, math.Exp2,
		func(_ float32, y float64) float64 { return 2 * ulp32(y) },
		func(rng *rand.Rand) float32 { return float32(rng.Float64()*277 - 149) },
	},
	{
		"ex2 near zero", Approx.Ex2, math.Exp2,
		func(_ float32, y float64) float64 { return 2 * ulp32(y) },
		func(rng *rand.Rand) float32 { return anyFloat32(rng, 80, 127) },
	},
	{
		"lg2", Approx.Lg2, math.Log2, lg2Permitted,
		func(rng *rand.Rand) float32 { return abs(anyFloat32(rng, 0, 254)) },
	},
	{
		"lg2 near one", Approx.Lg2, func(x float64) float64 { return math.Log1p(x-1) * math.Log2E }, lg2Permitted,
		func(rng *rand.Rand) float32 { return abs(anyFloat32(rng, 126, 127)) },
	},
	{
		"rcp", Approx.Rcp, func(x float64) float64 { return 1 / x },
		func(_ float32, y float64) float64 { return ulp32(y) },
		func(rng *rand.Rand) float32 { return anyFloat32(rng, 1, 254) },
	},
	{
		"rsqrt", Approx.Rsqrt, func(x float64) float64 { return 1 / math.Sqrt(x) },
		func(_ float32, y float64) float64 { return math.Exp2(-22.9) * y },
		func(rng *rand.Rand) float32 { return abs(anyFloat32(rng, 0, 254)) },
	},
	{
		"tanh", Approx.Tanh, math.Tanh,
		func(_ float32, y float64) float64 { return 0x1p-11 * math.Abs(y) },
		func(rng *rand.Rand) float32 { return anyFloat32(rng, 1, 129) },
	},
	{
		"tanh around one", Approx.Tanh, func(x float64) float64 { e := math.Expm1(2 * x); return e / (e + 2) },
		func(_ float32, y float64) float64 { return 0x1p-11 * math.Abs(y) },
		func(rng *rand.Rand) float32 { return anyFloat32(rng, 122, 129) },
	},
	{
		"sqrt", Approx.Sqrt, math.Sqrt,
		func(_ float32, y float64) float64 { return 0x1p-23 * y },
		func(rng *rand.Rand) float32 { return abs(anyFloat32(rng, 0, 254)) },
	},
}

func lg2Permitted(x float32, y float64) float64 {
	if x >= 0.5 && x <= 2 {
		return 0x1p-22
	}
	return 0x1p-22 * math.Abs(y)
}

func abs(f float32) float32 { return float32(math.Abs(float64(f))) }

// ulp32 is the ulp of an f32 of the magnitude of y.
func ulp32(y float64) float64 {
	_, e := math.Frexp(y)
	return math.Ldexp(1, max(e-24, -149))
}

// slack bounds the errors of the float64 functions of the standard library, which are about 2⁻⁵⁰.
const slack = 0x1p-49

func TestApproxDefaultRoundsCorrectly(t *testing.T) {
	for _, op := range approxOps {
		t.Run(op.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(13, 14))
			for range cases(200_000) {
				x := op.draw(rng)
				y := op.float(float64(x))
				got := op.f(Approx{Seed: 1}, x)
				if math.Abs(float64(got)-y) > ulp32(y)/2+slack*math.Abs(y) {
					t.Fatalf("f(%x) = %x is more than half an ulp from %x", x, got, y)
				}
			}
		})
	}
}

func TestApproxPerturbedStaysWithinBound(t *testing.T) {
	for _, op := range approxOps {
		t.Run(op.name, func(t *testing.T) {
			n := cases(200_000)
			for seed := range uint64(2) {
				rng := rand.New(rand.NewPCG(15, seed))
				moved, up, down := 0, 0, 0
				for range n {
					x := op.draw(rng)
					y := op.float(float64(x))
					got, plain := op.f(Approx{seed, true}, x), op.f(Approx{}, x)
					if !(math.Abs(float64(got)-y) <= op.bound(x, y)) {
						t.Fatalf("seed %d: f(%x) = %x is %.3g of the bound from %x", seed, x, got, math.Abs(float64(got)-y)/op.bound(x, y), y)
					}
					switch {
					case got > plain:
						up++
					case got < plain:
						down++
					}
					if got != plain {
						moved++
					}
				}
				if moved < n/4 || up < n/10 || down < n/10 {
					t.Errorf("seed %d moved %d of %d results, %d up and %d down: too few to disturb a test", seed, moved, n, up, down)
				}
			}
		})
	}
}

func TestPerturbationDependsOnSeedAndOperandOnly(t *testing.T) {
	for _, op := range approxOps {
		t.Run(op.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(17, 18))
			differ := 0
			for range 1000 {
				x := op.draw(rng)
				first := op.f(Approx{1, true}, x)
				if again := op.f(Approx{1, true}, x); !same(first, again) {
					t.Fatalf("f(%x) is %x and then %x", x, first, again)
				}
				if op.f(Approx{2, true}, x) != first {
					differ++
				}
			}
			if differ < 250 {
				t.Errorf("another seed changed %d of 1000 results", differ)
			}
		})
	}
}

// The special values are those of the PTX ISA. Perturbation must not change them.
func TestApproxSpecials(t *testing.T) {
	const tiny = math.SmallestNonzeroFloat32
	negZero := float32(math.Copysign(0, -1))
	payload := math.Float32frombits(0xFFC12345)
	cases := []struct {
		name    string
		f       func(Approx, float32) float32
		x, want float32
	}{
		{"2^-inf", Approx.Ex2, -inf32, 0},
		{"2^inf", Approx.Ex2, inf32, inf32},
		{"2^NaN", Approx.Ex2, payload, nan32},
		{"2^128 overflows", Approx.Ex2, 128, inf32},
		{"2^-150 ties to even", Approx.Ex2, -150, 0},
		{"2^+0", Approx.Ex2, 0, 1},
		{"2^-0", Approx.Ex2, negZero, 1},
		{"2^subnormal", Approx.Ex2, -tiny, 1},
		{"flushed 2^-0", Approx.Ex2FTZ, negZero, 1},
		{"a masked score", Approx.Ex2, -1e30, 0},
		{"log of +0", Approx.Lg2, 0, -inf32},
		{"log of -0", Approx.Lg2, negZero, -inf32},
		{"log of inf", Approx.Lg2, inf32, inf32},
		{"log of -inf", Approx.Lg2, -inf32, nan32},
		{"log of a negative number", Approx.Lg2, -1, nan32},
		{"log of a negative subnormal", Approx.Lg2, -tiny, nan32},
		{"log of NaN", Approx.Lg2, payload, nan32},
		{"1/+0", Approx.Rcp, 0, inf32},
		{"1/-0", Approx.Rcp, negZero, -inf32},
		{"1/inf", Approx.Rcp, inf32, 0},
		{"1/-inf", Approx.Rcp, -inf32, negZero},
		{"1/NaN", Approx.Rcp, payload, nan32},
		{"1/subnormal overflows", Approx.Rcp, -tiny, -inf32},
		{"flushed 1/subnormal", Approx.RcpFTZ, -tiny, -inf32},
		{"1/2^127 is subnormal and flushed", Approx.RcpFTZ, -0x1p127, negZero},
		{"flushed 1/NaN", Approx.RcpFTZ, payload, nan32},
		{"flushed 2^inf", Approx.Ex2FTZ, inf32, inf32},
		{"flushed 2^-inf", Approx.Ex2FTZ, -inf32, 0},
		{"flushed 2^NaN", Approx.Ex2FTZ, payload, nan32},
		{"rsqrt of +0", Approx.Rsqrt, 0, inf32},
		{"rsqrt of -0", Approx.Rsqrt, negZero, -inf32},
		{"rsqrt of inf", Approx.Rsqrt, inf32, 0},
		{"rsqrt of -inf", Approx.Rsqrt, -inf32, nan32},
		{"rsqrt of a negative number", Approx.Rsqrt, -2, nan32},
		{"rsqrt of NaN", Approx.Rsqrt, payload, nan32},
		{"tanh of +0", Approx.Tanh, 0, 0},
		{"tanh of -0", Approx.Tanh, negZero, negZero},
		{"tanh of inf", Approx.Tanh, inf32, 1},
		{"tanh of -inf", Approx.Tanh, -inf32, -1},
		{"tanh of NaN", Approx.Tanh, payload, nan32},
		{"root of +0", Approx.Sqrt, 0, 0},
		{"root of -0", Approx.Sqrt, negZero, negZero},
		{"root of inf", Approx.Sqrt, inf32, inf32},
		{"root of -inf", Approx.Sqrt, -inf32, nan32},
		{"root of a negative number", Approx.Sqrt, -1, nan32},
		{"root of NaN", Approx.Sqrt, payload, nan32},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range []Approx{{}, {Seed: 1, Perturb: true}, {Seed: 2, Perturb: true}} {
				if got := c.f(p, c.x); !same(got, c.want) {
					t.Errorf("%+v: got %x, want %x", p, got, c.want)
				}
			}
		})
	}
}

func TestApproxExactByDefault(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want float32
	}{
		{"2^0", Approx{}.Ex2(0), 1},
		{"2^-0", Approx{}.Ex2(float32(math.Copysign(0, -1))), 1},
		{"2^-149 is the smallest number", Approx{}.Ex2(-149), math.SmallestNonzeroFloat32},
		{"the last operand that does not overflow", Approx{}.Ex2(math.Nextafter32(128, 0)), 0x1.ffff4ep+127},
		{"just above a tie with zero", Approx{}.Ex2(math.Nextafter32(-150, 0)), math.SmallestNonzeroFloat32},
		{"log₂ 1 is +0", Approx{}.Lg2(1), 0},
		{"log₂ of the smallest number", Approx{}.Lg2(math.SmallestNonzeroFloat32), -149},
		{"2^-127 is subnormal and flushed", Approx{}.Ex2FTZ(-127), 0},
		{"2^-126 is not", Approx{}.Ex2FTZ(-126), 0x1p-126},
		{"2 to a subnormal number", Approx{}.Ex2FTZ(math.SmallestNonzeroFloat32), 1},
		{"1/1", Approx{}.Rcp(1), 1},
		{"1/2^126 is not flushed", Approx{}.RcpFTZ(0x1p126), 0x1p-126},
		{"1/√4", Approx{}.Rsqrt(4), 0.5},
		{"tanh of the smallest number", Approx{}.Tanh(math.SmallestNonzeroFloat32), math.SmallestNonzeroFloat32},
		{"tanh saturates", Approx{}.Tanh(-10), -1},
		{"√9", Approx{}.Sqrt(9), 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !same(c.got, c.want) {
				t.Errorf("got %x, want %x", c.got, c.want)
			}
		})
	}
}
