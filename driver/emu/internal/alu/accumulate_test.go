package alu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// dot returns D[0][0] of an MMA whose first row of A and column of B have the given elements in
// bf16, and zeros elsewhere. bf16 holds every power of two used here.
func dot(m Accumulate, a, b map[int]float32, c float32) float32 {
	at := func(v map[int]float32, k int, first bool) uint16 {
		if !first {
			return 0
		}
		return F32ToBF16(v[k])
	}
	w := newWarp(true,
		func(row, col int) uint16 { return at(a, col, row == 0) },
		func(row, col int) uint16 { return at(b, row, col == 0) },
		func(_, _ int) float32 { return c })
	return w.multiply(m)[0][0]
}

// each maps every k to v.
func each(v float32) map[int]float32 {
	all := map[int]float32{}
	for k := range 16 {
		all[k] = v
	}
	return all
}

// The cases separate the ways to accumulate from each other.
func TestAccumulateTruncatesWhereTheHardwareDoes(t *testing.T) {
	type vec = map[int]float32
	negZero := float32(math.Copysign(0, -1))
	for _, c := range []struct {
		name                  string
		a, b                  vec
		c                     float32
		hopper, ampere, exact float32
	}{
		{"terms at Hopper's last bit", each(0x1p-25), each(1), 1, 1 + 0x1p-21, 1, 1 + 0x1p-21},
		{"terms at Ampere's last bit", each(0x1p-24), each(1), 1, 1 + 0x1p-20, 1 + 0x1p-20, 1 + 0x1p-20},
		{"terms below both", each(0x1p-26), each(1), 1, 1, 1, 1 + 0x1p-22},
		{"truncation goes toward zero for negative terms too", each(-0x1p-26), each(1), 1, 1, 1, 1 - 0x1p-22},
		{"the sum is rounded toward zero", vec{0: 0x1p-12, 1: 0x1p-24}, vec{0: 0x1p-12, 1: 0.5}, 1, 1, 1, 1 + 0x1p-23},
		{"also below zero", vec{0: -0x1p-12, 1: -0x1p-24}, vec{0: 0x1p-12, 1: 0.5}, -1, -1, -1, -1 - 0x1p-23},
		{"a product above 2 does not raise the exponent", vec{0: 1.5, 1: -1.5, 2: 0x1p-24}, vec{0: 1.5, 1: 1.5, 2: 1}, 0, 0x1p-24, 0x1p-24, 0x1p-24},
		{"a lost term after cancellation", vec{0: 0x1p20, 1: -0x1p20, 2: 0x1p-5}, each(1), 0, 0x1p-5, 0, 0x1p-5},
		{"Ampere's second group has its own exponent", vec{0: 0x1p20, 1: -0x1p20, 8: 0x1p-6}, each(1), 0, 0, 0x1p-6, 0x1p-6},
		{"the accumulator is aligned like a product", vec{0: 0x1p30}, vec{0: 1}, 1, 0x1p30, 0x1p30, 0x1p30},
		{"a large zero product is not aligned to", vec{0: 0x1p100, 1: 0x1p-20}, vec{1: 1}, 0, 0x1p-20, 0x1p-20, 0x1p-20},
		{"zeros of one sign are +0", each(negZero), each(1), negZero, 0, 0, negZero},
		{"a sum beyond all numbers is infinite", each(-0x1p127), each(1), 0, -inf32, -inf32, -inf32},
		{"2^128 is infinite", vec{0: 0x1p104}, vec{0: 1}, math.MaxFloat32, inf32, inf32, inf32},
		{"below 2^128 the sum is rounded toward zero", vec{0: 0x1p103}, vec{0: 1}, math.MaxFloat32, math.MaxFloat32, math.MaxFloat32, inf32},
		{"a product beyond f32 that the accumulator cancels", vec{0: 0x1p127}, vec{0: 2}, -0x1p127, 0x1p127, 0x1p127, 0x1p127},
		{"products far beyond f32 that cancel", vec{0: 0x1p127, 1: -0x1p127, 2: 1}, vec{0: 0x1p127, 1: 0x1p127, 2: 1}, 0, 0, 0, 1},
		{"a subnormal result", vec{0: 0x1p-100}, vec{0: 0x1p-49}, 0, 0x1p-149, 0x1p-149, 0x1p-149},
		{"half of the smallest result", vec{0: 0x1p-100, 1: 0x1p-100}, vec{0: 0x1p-50, 1: 0x1p-51}, 0, 0, 0, 0x1p-149},
		{"subnormal factor", vec{0: 0x1p-133}, vec{0: 0x1p20}, 0, 0x1p-113, 0x1p-113, 0x1p-113},
		{"a subnormal accumulator has the smallest exponent", each(0x1p-76), each(0x1p-76), 0x1p-149, 0x1p-149, 0x1p-149, 3 * 0x1p-149},
		{"subnormal accumulator", nil, nil, 0x1p-149, 0x1p-149, 0x1p-149, 0x1p-149},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range []struct {
				name string
				Accumulate
				want float32
			}{{"Hopper", Hopper, c.hopper}, {"Ampere", Ampere, c.ampere}, {"Exact", Exact, c.exact}} {
				if got := dot(m.Accumulate, c.a, c.b, c.c); !same(got, m.want) {
					t.Errorf("%s: %x, want %x", m.name, got, m.want)
				}
			}
		})
	}
}

func TestAccumulateSpecials(t *testing.T) {
	type vec = map[int]float32
	payload := math.Float32frombits(0xFFC12345)
	for _, c := range []struct {
		name string
		a, b vec
		c    float32
		want float32
	}{
		{"infinite factor", vec{3: inf32}, vec{3: -2}, 1, -inf32},
		{"infinite accumulator", vec{3: 1}, vec{3: 1}, -inf32, -inf32},
		{"infinity times zero", vec{15: inf32}, vec{}, 1, nan32},
		{"infinities of both signs", vec{0: inf32, 1: inf32}, vec{0: 1, 1: -1}, 0, nan32},
		{"infinities of one sign", vec{0: inf32, 1: inf32}, vec{0: 1, 1: 1}, inf32, inf32},
		{"a product against the accumulator", vec{0: inf32}, vec{0: 1}, -inf32, nan32},
		{"NaN factor", vec{7: nan32}, vec{7: 1}, 0, nan32},
		{"NaN times zero", vec{7: nan32}, vec{}, 0, nan32},
		{"NaN accumulator loses its payload", vec{}, vec{}, payload, nan32},
		{"NaN beside infinity", vec{0: inf32, 1: nan32}, vec{0: 1, 1: 1}, 0, nan32},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range accumulations {
				if got := dot(m.Accumulate, c.a, c.b, c.c); !same(got, c.want) {
					t.Errorf("%s: %x, want %x", m.name, got, c.want)
				}
			}
		})
	}
}

// A special value changes the results of its own row or column only.
func TestSpecialValuesStayInTheirRowAndColumn(t *testing.T) {
	for _, m := range accumulations {
		for _, bf16 := range []bool{false, true} {
			w := normalWarp(rand.New(rand.NewPCG(31, 32)), bf16)
			w.a[0][0] = w.a[0][0]&^0xFFFF | 0x7B00 // with the next line, sums beyond the largest f32 in row 0
			w.c[0][0], w.c[0][1] = math.MaxFloat32, -math.MaxFloat32
			clean := w.multiply(m.Accumulate)
			const lane, i = 13, 6 // row 11, column 10
			row, _ := placeA(lane, i)
			w.a[lane][i/2] |= 0xFFFF
			spoilt := w.multiply(m.Accumulate)
			for r := range clean {
				for c := range clean[r] {
					want := clean[r][c]
					if r == row {
						want = nan32
					}
					if !same(spoilt[r][c], want) {
						t.Fatalf("%s, bf16 %v: D[%d][%d] = %x, want %x", m.name, bf16, r, c, spoilt[r][c], want)
					}
				}
			}
		}
	}
}

func TestAccumulateRefusesWhatItCannotDo(t *testing.T) {
	for _, m := range []Accumulate{{25, 0}, {25, 3}, {25, 32}, {46, 16}, {-1, 16}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v did not panic", m)
				}
			}()
			normalWarp(rand.New(rand.NewPCG(1, 1)), false).multiply(m)
		}()
	}
}

// Some terms cancel, and some only break a tie of larger terms.
func TestSumOddAgainstBig(t *testing.T) {
	rng := rand.New(rand.NewPCG(35, 36))
	for range cases(100_000) {
		terms := make([]float64, 2+rng.IntN(16))
		for i := range terms {
			terms[i] = math.Ldexp(float64(rng.IntN(1<<24)-1<<23), rng.IntN(200)-100)
			if i > 0 && rng.IntN(3) == 0 {
				terms[i] = -terms[rng.IntN(i)]
			}
		}
		exact := new(big.Float).SetPrec(2000)
		for _, x := range terms {
			exact.Add(exact, big.NewFloat(x))
		}
		want, accuracy := new(big.Float).SetPrec(53).SetMode(big.ToZero).Set(exact).Float64()
		if want64 := bigOf(want); want64.Cmp(exact) != 0 || accuracy != big.Exact {
			want = math.Float64frombits(math.Float64bits(want) | 1)
		}
		if got := sumOdd(terms); got != want {
			t.Fatalf("sumOdd = %x, want %x", got, want)
		}
	}
}
