package alu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// warp holds the fragments of one m16n8k16, and the matrices that they represent.
type warp struct {
	a    [32][4]uint32
	b    [32][2]uint32
	c    [32][4]float32
	bf16 bool

	matA [16][16]float64
	matB [16][8]float64
	matC [16][8]float32
}

// placeA is the row and column in A of element i of a lane, from the PTX ISA. placeB and placeC are
// those in B and C.
func placeA(lane, i int) (row, col int) {
	row, col = lane>>2, lane&3*2+i&1
	if i == 2 || i == 3 || i == 6 || i == 7 {
		row += 8
	}
	if i >= 4 {
		col += 8
	}
	return row, col
}

func placeB(lane, i int) (row, col int) {
	row, col = lane&3*2+i&1, lane>>2
	if i >= 2 {
		row += 8
	}
	return row, col
}

func placeC(lane, i int) (row, col int) {
	row, col = lane>>2, lane&3*2+i&1
	if i >= 2 {
		row += 8
	}
	return row, col
}

// newWarp fills the fragments from functions of the elements. a and b return codes of f16 or bf16.
func newWarp(bf16 bool, a, b func(row, col int) uint16, c func(row, col int) float32) *warp {
	widen := F16ToF32
	if bf16 {
		widen = BF16ToF32
	}
	w := &warp{bf16: bf16}
	for lane := range 32 {
		for i := range 8 {
			row, col := placeA(lane, i)
			h := a(row, col)
			w.matA[row][col] = float64(widen(h))
			w.a[lane][i/2] |= uint32(h) << (16 * (i & 1))
		}
		for i := range 4 {
			row, col := placeB(lane, i)
			h := b(row, col)
			w.matB[row][col] = float64(widen(h))
			w.b[lane][i/2] |= uint32(h) << (16 * (i & 1))
		}
		for i := range 4 {
			row, col := placeC(lane, i)
			w.matC[row][col] = c(row, col)
			w.c[lane][i] = w.matC[row][col]
		}
	}
	return w
}

// normalWarp draws normally distributed elements.
func normalWarp(rng *rand.Rand, bf16 bool) *warp {
	code := func(_, _ int) uint16 {
		if bf16 {
			return F32ToBF16(float32(rng.NormFloat64()))
		}
		return F32ToF16(float32(rng.NormFloat64()))
	}
	return newWarp(bf16, code, code, func(_, _ int) float32 { return float32(4 * rng.NormFloat64()) })
}

// wildWarp draws any finite codes: every exponent, subnormal numbers and zeros.
func wildWarp(rng *rand.Rand, bf16 bool) *warp {
	n := binary16
	if bf16 {
		n = bfloat16
	}
	code := func(_, _ int) uint16 {
		r := rng.Uint32()
		if r>>28 == 0 {
			return uint16(r) & 0x8000
		}
		return uint16(r)&0x8000 | uint16(r>>8)%n.inf
	}
	return newWarp(bf16, code, code, func(_, _ int) float32 { return anyFloat32(rng, 0, 254) })
}

// multiply runs the instruction and returns D as a matrix. dst is c, as in most kernels.
func (w *warp) multiply(m Accumulate) (d [16][8]float32) {
	c := w.c
	m.MMA16816(&c, &w.a, &w.b, &c, w.bf16)
	for lane := range 32 {
		for i := range 4 {
			row, col := placeC(lane, i)
			d[row][col] = c[lane][i]
		}
	}
	return d
}

var accumulations = []struct {
	name string
	Accumulate
}{{"Hopper", Hopper}, {"Ampere", Ampere}, {"Exact", Exact}, {"23 bits by 4", Accumulate{23, 4}}}

func TestMMASmallIntegersAreExactInEveryMode(t *testing.T) {
	for _, m := range accumulations {
		for _, bf16 := range []bool{false, true} {
			rng := rand.New(rand.NewPCG(25, 26))
			toCode := F32ToF16
			if bf16 {
				toCode = F32ToBF16
			}
			code := func(_, _ int) uint16 { return toCode(float32(rng.IntN(33) - 16)) }
			w := newWarp(bf16, code, code, func(_, _ int) float32 { return float32(rng.IntN(2001) - 1000) })
			d := w.multiply(m.Accumulate)
			for row := range d {
				for col := range d[row] {
					want := float64(w.matC[row][col])
					for k := range 16 {
						want += w.matA[row][k] * w.matB[k][col]
					}
					if float64(d[row][col]) != want {
						t.Fatalf("%s, bf16 %v: D[%d][%d] = %v, want %v", m.name, bf16, row, col, d[row][col], want)
					}
				}
			}
		}
	}
}

// bigExponent is the exponent of x in a format with the given smallest normal exponent. It is very
// small for zero.
func bigExponent(x float64, smallest int) int {
	if x == 0 {
		return -1 << 20
	}
	_, e := math.Frexp(x)
	return max(e-1, smallest)
}

// define is the definition of Accumulate in rational arithmetic.
func (m Accumulate) define(a, b [16]float64, c float32, n format16) float32 {
	group := m.Group
	if m == Exact {
		group = 16
	}
	for k := 0; k < 16 && !math.IsInf(float64(c), 0); k += group {
		terms := []*big.Float{bigOf(float64(c))}
		largest := bigExponent(float64(c), -126)
		for i := k; i < k+group; i++ {
			terms = append(terms, bigOf(0).Mul(bigOf(a[i]), bigOf(b[i])))
			if a[i] != 0 && b[i] != 0 {
				largest = max(largest, bigExponent(a[i], n.minExp)+bigExponent(b[i], n.minExp))
			}
		}
		sum := bigOf(0)
		for _, term := range terms {
			if m != Exact {
				units, _ := bigOf(0).SetMantExp(term, m.FractionBits-largest).Int(nil)
				term = bigOf(0).SetMantExp(bigOf(0).SetInt(units), largest-m.FractionBits)
			}
			sum.Add(sum, term)
		}
		c, _ = sum.Float32()
		size := bigOf(0).Abs(sum)
		if m != Exact && size.Cmp(big.NewFloat(math.Abs(float64(c)))) < 0 && size.Cmp(big.NewFloat(0x1p128)) < 0 {
			c = math.Nextafter32(c, 0)
		}
	}
	return c
}

func TestMMAAgainstDefinition(t *testing.T) {
	for _, m := range accumulations {
		for _, bf16 := range []bool{false, true} {
			n := binary16
			if bf16 {
				n = bfloat16
			}
			rng := rand.New(rand.NewPCG(27, 28))
			for range cases(60) {
				for _, w := range []*warp{normalWarp(rng, bf16), wildWarp(rng, bf16)} {
					d := w.multiply(m.Accumulate)
					for row := range d {
						for col := range d[row] {
							var b [16]float64
							for k := range b {
								b[k] = w.matB[k][col]
							}
							want := m.define(w.matA[row], b, w.matC[row][col], n)
							if got := d[row][col]; got != want {
								t.Fatalf("%s, bf16 %v: D[%d][%d] = %x, want %x", m.name, bf16, row, col, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// Truncation changes each of 17 terms by less than 2^-FractionBits of the largest exponent, and
// rounding changes the result. For Hopper these are 17/4 ulp of the largest term, and 1 ulp of the
// result.
func TestMMADistanceFromExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(29, 30))
	var worst, worstBeforeRounding float64
	for range cases(4000) {
		w := normalWarp(rng, false)
		hopper, exact := w.multiply(Hopper), w.multiply(Exact)
		for row := range exact {
			for col := range exact[row] {
				largest := bigExponent(float64(w.matC[row][col]), -126)
				for k := range 16 {
					largest = max(largest, bigExponent(w.matA[row][k], -14)+bigExponent(w.matB[k][col], -14))
				}
				ulp := math.Ldexp(1, largest-23)
				diff := math.Abs(float64(hopper[row][col]) - float64(exact[row][col]))
				rounding := 1.5 * max(ulp32(float64(exact[row][col])), ulp32(float64(hopper[row][col])))
				if diff > 17.0/4*ulp+rounding {
					t.Fatalf("D[%d][%d]: %x and exactly %x, %.2f ulp of the largest term apart", row, col, hopper[row][col], exact[row][col], diff/ulp)
				}
				worst = max(worst, diff/ulp)
				worstBeforeRounding = max(worstBeforeRounding, (diff-rounding)/ulp)
			}
		}
	}
	t.Logf("largest difference: %.2f ulp of the largest term, at least %.2f of it by truncation", worst, worstBeforeRounding)
	if worst < 2 {
		t.Errorf("largest difference %.2f ulp: the two sums are hardly different", worst)
	}
}
