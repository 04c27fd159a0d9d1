package product

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/quant"
)

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 16)) }

// randomRow returns a row of n weights in random blocks with the scales of a trained matrix. A
// K-quant's scales of sub-blocks are arbitrary.
func randomRow(r *rand.Rand, f quant.Format, n int) []byte {
	size, err := f.RowBytes(n)
	if err != nil {
		panic(err)
	}
	row := make([]byte, size)
	for i := range row {
		row[i] = byte(r.Uint32())
	}
	for block := row; len(block) > 0; block = block[f.BlockBytes():] {
		for _, at := range halves[f] {
			binary.LittleEndian.PutUint16(block[at:], float16.ToF16(float32(0.001*(1+r.Float64()))))
		}
		switch f {
		case quant.MXFP4:
			block[0] = byte(115 + r.IntN(8))
		case quant.F16, quant.BF16, quant.F32:
			if err := f.Encode(block[:f.BlockBytes()], []float32{float32(0.02 * r.NormFloat64())}); err != nil {
				panic(err)
			}
		}
	}
	return row
}

// halves has the offsets of a block's float16 scales: d, and then the minimum's.
var halves = map[quant.Format][]int{
	quant.Q4_0: {0}, quant.Q4_1: {0, 2}, quant.Q5_0: {0}, quant.Q5_1: {0, 2}, quant.Q8_0: {0},
	quant.Q2_K: {80, 82}, quant.Q3_K: {108}, quant.Q4_K: {0, 2}, quant.Q5_K: {0, 2}, quant.Q6_K: {208}, quant.IQ4_NL: {0}, quant.IQ4_XS: {0},
}

func eachFormat(t *testing.T, test func(t *testing.T, f quant.Format)) {
	for _, f := range quant.Formats() {
		t.Run(f.String(), func(t *testing.T) { test(t, f) })
	}
}

// decode returns the weights of a row, and what they are after rounding.
func decode(f quant.Format, n int, row []byte) (w, rounded []float64) {
	w = make([]float64, n)
	quant.Decode(f, w, row)
	operand := Weights(f, row, n)
	rounded = operand[:n]
	for i := range rounded {
		if b := SubBlock(f); b > 0 {
			rounded[i] += operand[n+i/b] / 32
		}
	}
	return w, rounded
}

// isF16 reports whether x is a finite float16, or with F32 weights the sum of two.
func isF16(f quant.Format, x float64) bool {
	high := f16(x)
	return math.Abs(x) <= 65504 && (high == x || f == quant.F32 && f16(x-high) == x-high)
}

// TestWeights: rounded weights are float16 and close to the weights. A weight's error is at most half
// a float16 spacing of it and of its offset. The bound takes the largest offset of the format.
func TestWeights(t *testing.T) {
	const n = 2*Segment + 64
	eachFormat(t, func(t *testing.T, f quant.Format) {
		n := n / f.BlockLen() * f.BlockLen()
		for seed := range uint64(50) {
			row := randomRow(random(seed), f, n)
			operand, d := weights(f, row, n)
			if len(d) != (n+Segment-1)/Segment {
				t.Fatalf("%d factors for %d weights", len(d), n)
			}
			for i, v := range operand {
				if !isF16(f, v) {
					t.Fatalf("seed %d, weight %d: %v is no float16", seed, i, v)
				}
			}
			w, rounded := decode(f, n, row)
			for from := 0; from < n; from += Segment {
				part := w[from:min(from+Segment, n)]
				top := 0.0
				for _, v := range part {
					top = max(top, math.Abs(v))
				}
				for i, v := range part {
					got := rounded[from+i]
					if off := math.Abs(got - v); off > bounds[f]*top {
						t.Fatalf("seed %d, weight %d: %v for %v, off by %.3g of the segment's largest", seed, from+i, got, v, off/top)
					}
				}
			}
		}
	})
}

// bounds has the largest error of a weight relative to the largest weight of its segment. Half a spacing
// of float16 is at most 2^-12 of the next power of two.
var bounds = map[quant.Format]float64{
	quant.F32: 0x1p-22, quant.F16: 0, quant.BF16: 0,
	quant.Q4_0: 0x1p-11, quant.Q4_1: 0x1.8p-11, quant.Q5_0: 0x1p-11, quant.Q5_1: 0x1.8p-11, quant.Q8_0: 0x1p-11,
	quant.Q2_K: 0x1.8p-11, quant.Q3_K: 0, quant.Q4_K: 0x1.8p-11, quant.Q5_K: 0x1.8p-11, quant.Q6_K: 0x1p-11,
	quant.IQ4_NL: 0x1p-11, quant.IQ4_XS: 0x1p-11, quant.MXFP4: 0,
}

// TestExtremeScales: whatever scales a block has, its rounded weights are those of its weights.
func TestExtremeScales(t *testing.T) {
	largest, smallest := uint16(0x7bff), uint16(1)
	for f, at := range halves {
		for _, values := range [][2]uint16{
			{0, 0}, {0, 0x2000}, {smallest, 0x2000}, {smallest, largest}, {0x2000, largest}, {largest, smallest}, {largest, largest},
			{smallest, smallest}, {0x8000 | largest, largest}, {0x3c00, 0xe400}, {0x3c00, 0xe000}, {0x3c00, 0xdfff}, {0x8000, 0x8000 | 0x2000}, {0x0400, 0x1400 + 0x400}, {0x2000, 0},
		} {
			n := 2 * Segment
			row := randomRow(random(3), f, n)
			for i := range row[:len(row)/2] { // the largest scales, minimums and quants in the first half
				row[i] = 0xff
			}
			for block := row; len(block) > 0; block = block[f.BlockBytes():] {
				for i, at := range at {
					binary.LittleEndian.PutUint16(block[at:], values[i])
				}
			}
			w, rounded := decode(f, n, row)
			top := 0.0
			for _, v := range w {
				top = max(top, math.Abs(v))
			}
			for i, v := range w {
				if got := rounded[i]; !(math.Abs(got-v) <= 0x1p-10*top) {
					t.Fatalf("%v, scales %#04x: weight %d is %v, want %v", f, values[:len(at)], i, got, v)
				}
			}
		}
	}
}

// TestPowerScales combines all pairs of scales of MXFP4. Weights are exact if their scale is at most 2^24 times smaller
// than D, and else within half the smallest float16 times D.
func TestPowerScales(t *testing.T) {
	var row [2 * 17]byte
	for i := range 16 { // all levels, in the low nibbles and in the high ones
		row[1+i], row[18+i] = byte(i|i<<4), byte(i|i<<4)
	}
	var b quant.Block
	b.Unpack(quant.MXFP4, row[:17])
	for scales := range 1 << 16 {
		e := [2]int{scales & 255, scales >> 8}
		row[0], row[17] = byte(e[0]), byte(e[1])
		top := max(e[0], e[1], 2) - 128
		for i, got := range Weights(quant.MXFP4, row[:], 64) {
			exponent, bound := e[i/32]-128, 0.0
			if exponent < top-24 {
				bound = math.Ldexp(1, top-25)
			}
			if want := math.Ldexp(float64(int8(b.Quants[i%32])), exponent); !(math.Abs(got-want) <= bound) {
				t.Fatalf("scales 2^%d and 2^%d: weight %d is %v, want %v", e[0]-128, e[1]-128, i, got, want)
			}
		}
	}
}

// TestNonFiniteWeights: an infinite or NaN weight stays infinite or NaN. It may spoil its segment, and no other.
func TestNonFiniteWeights(t *testing.T) {
	for f, at := range halves {
		for _, bad := range []uint16{0x7c00, 0xfc00, 0x7e00} {
			for _, at := range at {
				const n = 2 * Segment
				row := randomRow(random(4), f, n)
				binary.LittleEndian.PutUint16(row[at:], bad)
				w, rounded := decode(f, n, row)
				for i, v := range w {
					got := rounded[i]
					if v-v != 0 && got-got == 0 || i >= Segment && got-got != 0 {
						t.Fatalf("%v, scale %#04x: weight %d is %v, want %v", f, bad, i, got, v)
					}
				}
			}
		}
	}
}

// TestProductError holds the relative L2 of a product to the level that the project promises, for Gaussian
// and for heavy-tailed activations, and for some with the largest E for their size.
func TestProductError(t *testing.T) {
	const cols, vectors, rows, level = 4096, 64, 4, 4e-4
	eachFormat(t, func(t *testing.T, f quant.Format) {
		for _, c := range []struct{ size, tail float64 }{{1, 0}, {1, 1}, {0x1p-9, 0}, {0x1p-11, 1}} {
			r := random(5)
			var wrong, wrong8, wrongBF16, size float64
			for range vectors {
				x := make([]float64, cols)
				for i := range x {
					x[i] = float64(float32(c.size * r.NormFloat64() * math.Exp(c.tail*r.NormFloat64())))
				}
				rounded, int8s := Activations(f, x), eightBits(x)
				for range rows {
					row := trainedRow(r, f, cols)
					w := make([]float64, cols)
					quant.Decode(f, w, row)
					var want, got, got8, gotBF16 float64
					for i := range w {
						want += w[i] * x[i]
						got8 += w[i] * int8s[i]
						gotBF16 += bf16(w[i]) * bf16(x[i])
					}
					for i, v := range Weights(f, row, cols) {
						got += v * rounded[i]
					}
					wrong, size = wrong+(got-want)*(got-want), size+want*want
					wrong8, wrongBF16 = wrong8+(got8-want)*(got8-want), wrongBF16+(gotBF16-want)*(gotBF16-want)
				}
			}
			l2, int8s, bf16 := math.Sqrt(wrong/size), math.Sqrt(wrong8/size), math.Sqrt(wrongBF16/size)
			if !(l2 <= level && l2 >= 1e-5) {
				t.Errorf("%+v: relative L2 %.2e, want 1e-05 to %.0e", c, l2, level)
			}
			if !(4*l2 < bf16 && bf16 < int8s) {
				t.Errorf("%+v: relative L2 %.2e, in BF16 %.2e, with activations of 8 bits %.2e: want less than a quarter, and less", c, l2, bf16, int8s)
			}
			t.Logf("%+v: relative L2 %.2e; with activations of 8 bits %.2e, with all operands in BF16 %.2e", c, l2, int8s, bf16)
		}
	})
}

// eightBits rounds activations to 8 bits with a scale per 32, as block_q8_1 of llama.cpp has them.
func eightBits(x []float64) []float64 {
	y := make([]float64, len(x))
	for begin := 0; begin < len(x); begin += 32 {
		block := x[begin : begin+32]
		scale := max(slices.Max(block), -slices.Min(block)) / 127
		for i, v := range block {
			y[begin+i] = scale * math.Round(v/scale)
		}
	}
	return y
}

// bf16 rounds to BF16.
func bf16(x float64) float64 { return float64(float16.RoundBF16(float32(x))) }

// trainedRow returns a row of Gaussian weights, or of random blocks if f cannot be encoded.
func trainedRow(r *rand.Rand, f quant.Format, n int) []byte {
	if !f.CanEncode() {
		return randomRow(r, f, n)
	}
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(0.02 * r.NormFloat64())
	}
	size, err := f.RowBytes(n)
	if err != nil {
		panic(err)
	}
	row := make([]byte, size)
	if err := f.Encode(row, w); err != nil {
		panic(err)
	}
	return row
}

// TestActivations checks the scale of each segment and the rounding of its elements.
func TestActivations(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name    string
		x, want []float64 // want times its scale
		scale   float64
	}{
		{"from 2^-8 on", []float64{0x1p-8, 0x1.ffcp-11}, []float64{0x1p-8, 0x1.ffcp-11}, 0x1p-7},
		{"less than 2^-8", []float64{-0x1.fffp-9}, []float64{-0x1p-8}, 0x1p-23},
		{"less than 2^8", []float64{0x1.fffp7, 1}, []float64{0x1p8, 1}, 0x1p-7},
		{"from 2^8 on", []float64{1, -0x1p8}, []float64{1, -0x1p8}, 0x1p9},
		{"11 bits", []float64{1 + 0x1p-10, 1 + 0x1p-11}, []float64{1 + 0x1p-10, 1}, 0x1p-7},
		{"subnormal", []float64{1, 0x1.8p-31, 0x1p-32}, []float64{1, 0x1p-30, 0}, 0x1p-7},
		{"large", []float64{0x1p127, -0x1p100}, []float64{0x1p127, -0x1p100}, 0x1p113},
		{"small", []float64{0x1p-127, 0x1p-128}, []float64{0x1p-127, 0}, 0x1p-103},
		{"zeros", []float64{0, 0}, []float64{0, 0}, 0x1p-7},
		{"infinity", []float64{-inf, 1 + 0x1p-12}, []float64{-inf, 1}, 0x1p-7},
		{"NaN", []float64{nan, 1 + 0x1p-12}, []float64{nan, 1}, 0x1p-7},
	} {
		x, e := activations(quant.F16, c.x)
		if len(e) != 1 || e[0] != c.scale {
			t.Errorf("%s: scales %v, want %v", c.name, e, c.scale)
			continue
		}
		for i, v := range x {
			if got := v * e[0]; got != c.want[i] && !(got != got && c.want[i] != c.want[i]) {
				t.Errorf("%s: element %d is %v, want %v", c.name, i, got, c.want[i])
			}
		}
	}
	x := make([]float64, Segment+1)
	x[0], x[Segment] = 1, 0x1p20
	if _, e := activations(quant.F16, x); len(e) != 2 || e[0] != 0x1p-7 || e[1] != 0x1p9 {
		t.Errorf("scales %v of segments with the largest elements 1 and 2^20", e)
	}
}

func TestNorm(t *testing.T) {
	weighted, factor := Norm([]float64{3, -4}, []float64{1 + 0x1p-25, 0.5}, 3.5)
	if want := []float64{3, -2}; !slices.Equal(weighted, want) || factor != 0.25 {
		t.Errorf("%v, factor %v; want %v, factor 0.25", weighted, factor, want)
	}
}

// TestF16RoundsOnce compares with an arbitrary-precision rounding, near ties above all.
func TestF16RoundsOnce(t *testing.T) {
	r := random(6)
	for range 200000 {
		x := math.Ldexp(1+float64(r.IntN(2048))/2048, r.IntN(46)-30)
		x += math.Ldexp(float64(r.IntN(3)-1), -20-r.IntN(30)) * x
		if r.IntN(2) == 0 {
			x = -x
		}
		// The spacing of float16 at x.
		_, exponent := math.Frexp(x)
		spacing := math.Ldexp(1, max(exponent-11, -24))
		steps, _ := new(big.Float).SetPrec(200).Quo(big.NewFloat(x), big.NewFloat(spacing)).Float64()
		want := math.RoundToEven(steps) * spacing
		if math.Abs(want) > 65504 {
			want = math.Inf(int(math.Copysign(1, x)))
		}
		if got := f16(x); got != want {
			t.Fatalf("%v (%x) rounds to %v, want %v", x, x, got, want)
		}
	}
}
