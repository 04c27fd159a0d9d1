package alu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// formats16 lists the formats with their conversions and fma.
var formats16 = []struct {
	name  string
	n     format16
	widen func(uint16) float32
	round func(float32) uint16
	fma   func(a, b, c uint16) uint16
}{
	{"f16", binary16, F16ToF32, F32ToF16, FMAF16},
	{"bf16", bfloat16, BF16ToF32, F32ToBF16, FMABF16},
}

func TestWidenEveryCode(t *testing.T) {
	for _, f := range formats16 {
		t.Run(f.name, func(t *testing.T) {
			for code := range 1 << 16 {
				h := uint16(code)
				got, magnitude := f.widen(h), h&0x7FFF
				switch {
				case magnitude > f.n.inf:
					if got == got || f.round(got) != nan16 {
						t.Fatalf("%#04x is NaN, got %v and back %#04x", h, got, f.round(got))
					}
					continue
				case magnitude == f.n.inf:
					if !math.IsInf(float64(got), 1-2*int(h>>15)) {
						t.Fatalf("%#04x is infinite, got %v", h, got)
					}
				case math.Abs(float64(got)) != value(f.n, magnitude) || math.Signbit(float64(got)) != (h>>15 != 0):
					t.Fatalf("%#04x gave %v, want magnitude %v", h, got, value(f.n, magnitude))
				}
				if back := f.round(got); back != h {
					t.Fatalf("%#04x came back as %#04x", h, back)
				}
			}
		})
	}
	if got := math.Float32bits(F16ToF32(0xFC01)); got != 0x7FFFFFFF {
		t.Errorf("NaN of f16 widens to %#x, want the canonical one", got)
	}
}

// TestRoundF32 rounds every midpoint of two neighbors, the f32 on both sides of it, and random
// bits.
func TestRoundF32(t *testing.T) {
	for _, f := range formats16 {
		t.Run(f.name, func(t *testing.T) {
			check := func(x float32) {
				t.Helper()
				magnitude := math.Abs(float64(x))
				want := nearest(f.n, math.Signbit(float64(x)), func(v float64) int { return compareFloat(magnitude, v) })
				if x != x {
					want = nan16
				}
				if got := f.round(x); got != want {
					t.Fatalf("%x rounds to %#04x, want %#04x", x, got, want)
				}
			}
			for code := range f.n.inf {
				mid := float32((value(f.n, code) + value(f.n, code+1)) / 2)
				for _, x := range []float32{mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, inf32)} {
					check(x)
					check(-x)
				}
			}
			rng := rand.New(rand.NewPCG(7, 8))
			for range cases(500_000) {
				check(math.Float32frombits(rng.Uint32()))
			}
			for _, x := range []float32{0, float32(math.Copysign(0, -1)), inf32, -inf32, nan32, -nan32, math.MaxFloat32, math.SmallestNonzeroFloat32} {
				check(x)
			}
		})
	}
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// specials16 returns codes at the edges of a format.
func specials16(n format16) []uint16 {
	one := uint16(-n.minExp+1) << n.fraction
	s := []uint16{0, 1, 2, 1<<n.fraction - 1, 1 << n.fraction, 1<<n.fraction + 1, one - 1, one, one + 1, n.inf - 1, n.inf, n.inf + 1, 0x7FFF}
	for _, h := range s {
		s = append(s, h|0x8000)
	}
	return s
}

// op16 is an operation with its exact definition. Operations of two operands ignore the third.
type op16 struct {
	name  string
	n     format16
	widen func(uint16) float32
	f     func(a, b, c uint16) uint16
	exact func(a, b, c float64) *big.Float
	plain func(a, b, c float64) float64 // for infinities and NaN
}

func ops16() []op16 {
	two := func(f func(a, b uint16) uint16) func(a, b, c uint16) uint16 {
		return func(a, b, _ uint16) uint16 { return f(a, b) }
	}
	fma := func(a, b, c float64) float64 { return float64(a*b) + c }
	return []op16{
		{"fma f16", binary16, F16ToF32, FMAF16, bigFMA, fma},
		{"fma bf16", bfloat16, BF16ToF32, FMABF16, bigFMA, fma},
		{"add f16", binary16, F16ToF32, two(AddF16),
			func(a, b, _ float64) *big.Float { return bigFMA(a, 1, b) }, func(a, b, _ float64) float64 { return a + b }},
		{"sub f16", binary16, F16ToF32, two(SubF16),
			func(a, b, _ float64) *big.Float { return bigFMA(a, 1, -b) }, func(a, b, _ float64) float64 { return a - b }},
		{"mul f16", binary16, F16ToF32, two(MulF16),
			func(a, b, _ float64) *big.Float { return bigOf(0).Mul(bigOf(a), bigOf(b)) }, func(a, b, _ float64) float64 { return a * b }},
	}
}

func (op op16) check(t *testing.T, a, b, c uint16) {
	t.Helper()
	x, y, z := float64(op.widen(a)), float64(op.widen(b)), float64(op.widen(c))
	var want uint16
	switch s := op.plain(x, y, z); {
	case s != s:
		want = nan16
	case math.IsInf(s, 1):
		want = op.n.inf
	case math.IsInf(s, -1):
		want = op.n.inf | 0x8000
	default:
		want = nearestBig(op.n, op.exact(x, y, z))
	}
	if got := op.f(a, b, c); got != want {
		t.Fatalf("%#04x %#04x %#04x: got %#04x, want %#04x", a, b, c, got, want)
	}
}

func TestArithmetic16AgainstBig(t *testing.T) {
	for _, op := range ops16() {
		t.Run(op.name, func(t *testing.T) {
			s := specials16(op.n)
			for _, a := range s {
				for _, b := range s {
					for _, c := range s {
						op.check(t, a, b, c)
					}
				}
			}
			rng := rand.New(rand.NewPCG(9, 10))
			for range cases(60_000) {
				r := rng.Uint64()
				op.check(t, uint16(r), uint16(r>>16), uint16(r>>32))
			}
			// Close exponents, where additions round.
			near := uint16(-op.n.minExp-2) << op.n.fraction
			for range cases(60_000) {
				r := rng.Uint64()
				draw := func(r uint64) uint16 { return near + uint16(r)%(6<<op.n.fraction) | uint16(r>>15&1)<<15 }
				op.check(t, draw(r), draw(r>>16), draw(r>>32))
			}
		})
	}
}

func TestF16x2KeepsHalvesApart(t *testing.T) {
	half := func(f float32) uint32 { return uint32(F32ToF16(f)) }
	a, b, c := half(2)|half(3)<<16, half(5)|half(7)<<16, half(1)|half(-1)<<16
	if got, want := F16x2(FMAF16, a, b, c), half(11)|half(20)<<16; got != want {
		t.Errorf("got %#08x, want %#08x", got, want)
	}
}
