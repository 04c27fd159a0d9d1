package alu

import (
	"math"
	"math/rand/v2"
	"testing"
)

// fmaOperands draw operands that reach every part of FMA32.
var fmaOperands = []struct {
	name string
	draw func(rng *rand.Rand) (a, b, c float32)
	// doubleRounds requires that a float64 fma rounded to f32 fails for some of these operands.
	doubleRounds bool
}{
	{"any bits", func(rng *rand.Rand) (a, b, c float32) {
		return anyFloat32(rng, 0, 254), anyFloat32(rng, 0, 254), anyFloat32(rng, 0, 254)
	}, false},
	{"near one", func(rng *rand.Rand) (a, b, c float32) {
		return anyFloat32(rng, 120, 134), anyFloat32(rng, 120, 134), anyFloat32(rng, 120, 134)
	}, false},
	{"subnormal results", func(rng *rand.Rand) (a, b, c float32) {
		return anyFloat32(rng, 40, 64), anyFloat32(rng, 40, 64), anyFloat32(rng, 0, 2)
	}, false},
	{"overflow", func(rng *rand.Rand) (a, b, c float32) {
		return anyFloat32(rng, 185, 192), anyFloat32(rng, 185, 192), anyFloat32(rng, 250, 254)
	}, false},
	{"cancellation", func(rng *rand.Rand) (a, b, c float32) {
		a, b = anyFloat32(rng, 90, 160), anyFloat32(rng, 90, 160)
		c = -float32(a * b)
		return a, b, math.Float32frombits(math.Float32bits(c) + rng.Uint32N(3) - 1)
	}, false},
	// Almost ties: the product is near a midpoint of two neighbors of c.
	{"almost ties", func(rng *rand.Rand) (a, b, c float32) {
		a = math.Float32frombits(0x3F800000 | 1<<rng.Uint32N(12))
		b = math.Float32frombits(0x33800000 | 1<<rng.Uint32N(12)) // 2⁻²⁴·(1 + tiny)
		c = anyFloat32(rng, 127, 127)
		if rng.Uint32()&1 != 0 {
			b = -b
		}
		return a, b, c
	}, false},
	// The product is half an ulp of c minus a square that a float64 sum loses.
	{"beyond float64", func(rng *rand.Rand) (a, b, c float32) {
		tiny := float32(math.Ldexp(1, -int(10+rng.Uint32N(13))))
		a, b = 1+tiny, 1-tiny
		c = float32(math.Ldexp(float64(1<<23+rng.Uint32N(1<<23)), 1))
		if rng.Uint32()&1 != 0 {
			c = -c
		}
		return a, b, c
	}, true},
}

func TestFMA32AgainstBig(t *testing.T) {
	for _, kind := range fmaOperands {
		t.Run(kind.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			doubleRounded := 0
			for range cases(200_000) {
				a, b, c := kind.draw(rng)
				if !finite(a, b, c) {
					continue
				}
				want, _ := bigFMA(float64(a), float64(b), float64(c)).Float32()
				if got := FMA32(a, b, c); !same(got, want) {
					t.Fatalf("FMA32(%x, %x, %x) = %x, want %x", a, b, c, got, want)
				}
				if !same(float32(math.FMA(float64(a), float64(b), float64(c))), want) {
					doubleRounded++
				}
			}
			if kind.doubleRounds && doubleRounded == 0 {
				t.Error("no case tells one rounding from two")
			}
		})
	}
}

func TestFloat32Specials(t *testing.T) {
	const tiny = math.SmallestNonzeroFloat32
	zero := float32(0)
	negZero := float32(math.Copysign(0, -1))
	other := math.Float32frombits(0xFF812345) // a signalling NaN with a sign and a payload
	cases := []struct {
		name      string
		got, want float32
	}{
		{"infinity times zero", FMA32(inf32, 0, 1), nan32},
		{"infinities cancel", FMA32(inf32, 1, -inf32), nan32},
		{"infinite product", FMA32(inf32, -2, 3), -inf32},
		{"infinite addend", FMA32(1, 2, -inf32), -inf32},
		{"an overflowing product meets an infinity of the other sign", FMA32(math.MaxFloat32, math.MaxFloat32, -inf32), -inf32},
		{"NaN loses its payload: a", FMA32(other, 1, 1), nan32},
		{"NaN loses its payload: b", FMA32(1, other, 1), nan32},
		{"NaN loses its payload: c", FMA32(1, 1, other), nan32},
		{"NaN with infinity times zero", FMA32(inf32, 0, other), nan32},
		{"exact cancellation is +0", FMA32(3, 5, -15), 0},
		{"negative zeros stay", FMA32(negZero, 1, negZero), negZero},
		{"zeros of both signs are +0", FMA32(negZero, 1, 0), 0},
		{"an underflowing product keeps its sign", FMA32(-tiny, tiny, 0), negZero},
		{"an underflowing product does not touch the addend", FMA32(-tiny, tiny, tiny), tiny},
		{"a tiny product breaks a tie down", FMA32(-tiny, tiny, 1), 1},
		{"halfway to infinity is infinity", FMA32(math.MaxFloat32, 1, 0x1p103), inf32},
		{"just under halfway is not", FMA32(0x1p103, 1-0x1p-24, math.MaxFloat32), math.MaxFloat32},

		{"difference of equal infinities", Sub32(inf32, inf32), nan32},
		{"difference of equals", Sub32(2, 2), 0},
		{"0/0", DivRN(0, zero), nan32},
		{"1/-0", DivRN(1, negZero), -inf32},
		{"subnormal quotient", DivRN(0x1p-126, 8), 0x1p-129},
		{"reciprocal of -0", RcpRN(negZero), -inf32},
		{"reciprocal of -infinity", RcpRN(-inf32), negZero},
		{"reciprocal of the smallest overflows", RcpRN(tiny), inf32},
		{"root of -0", SqrtRN(negZero), negZero},
		{"root of a negative number", SqrtRN(-1), nan32},
		{"root of infinity", SqrtRN(inf32), inf32},
		{"root of the smallest", SqrtRN(tiny), 0x1.6a09e6p-75},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if !same(c.got, c.want) {
				t.Errorf("got %x, want %x", math.Float32bits(c.got), math.Float32bits(c.want))
			}
		})
	}
}

// math/big divides and takes roots in more bits, and rounds once to f32.
func TestDivisionAndRootAgainstBig(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range cases(100_000) {
		a, b := anyFloat32(rng, 0, 254), anyFloat32(rng, 0, 254)
		if b == 0 {
			continue
		}
		want, _ := bigOf(0).Quo(bigOf(float64(a)), bigOf(float64(b))).Float32()
		if got := DivRN(a, b); !same(got, want) {
			t.Fatalf("%x / %x = %x, want %x", a, b, got, want)
		}
		want, _ = bigOf(0).Quo(bigOf(1), bigOf(float64(b))).Float32()
		if got := RcpRN(b); !same(got, want) {
			t.Fatalf("1 / %x = %x, want %x", b, got, want)
		}
		a = float32(math.Abs(float64(a)))
		want, _ = bigOf(0).Sqrt(bigOf(float64(a))).Float32()
		if got := SqrtRN(a); !same(got, want) {
			t.Fatalf("√%x = %x, want %x", a, got, want)
		}
	}
}
