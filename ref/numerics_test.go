package ref

import (
	"math"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// Rows that are rounded to f16 keep 11 bits, however large or small their elements are.
func TestRoundRows(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	row := []float64{1, -0.3, 0.0123, 3e-7, 0}
	for _, size := range []float64{1, 0x1p-100, 0x1p100} {
		x := newTensor(2, len(row))
		for i, v := range row {
			x.row(0)[i], x.row(1)[i] = v, v*size
		}
		y := ToF16.roundRows(x)
		for i, v := range row {
			got := y.row(1)[i]
			if got != y.row(0)[i]*size {
				t.Errorf("%g times %g: %g, and %g alone", size, v, got, y.row(0)[i])
			}
			if off := math.Abs(got - v*size); off > 0x1p-11*math.Abs(v*size) || v != 1 && v != 0 && off == 0 {
				t.Errorf("%g times %g is off by %g", size, v, off)
			}
		}
	}
	for _, c := range []struct {
		name      string
		r         Rounding
		row, want []float64
	}{
		{"zeros", ToF16, []float64{0, 0}, []float64{0, 0}},
		{"infinity", ToF16, []float64{-inf, 1 + 0x1p-12}, []float64{-inf, 1}},
		{"NaN", ToF16, []float64{nan, 1 + 0x1p-12}, []float64{nan, 1}},
		{"nothing finite", ToF16, []float64{inf, nan}, []float64{inf, nan}},
		{"2^29 below the largest", ToF16, []float64{1, 0x1.004p-29}, []float64{1, 0x1p-29}},
		{"bfloat16", ToBF16, []float64{1 + 0x1p-9, 0x1p-100}, []float64{1, 0x1p-100}},
		{"exact", Exact, []float64{1 + 0x1p-50}, []float64{1 + 0x1p-50}},
	} {
		got := c.r.roundRows(tensor{1, len(c.row), c.row}).data
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// blockSoftmax differs from softmax only by its rounding: each e^(x−m) is rounded with the
// maximum of its split up to the end of its block.
func TestBlockSoftmax(t *testing.T) {
	scores := []float64{0.3, -1, 2.1, 0.7, 1.9, 4.4, -0.2, 3.3, 5.01, 1.1, -3, 0.2}
	const block, split = 3, 2 * 3
	for i, r := range []Rounding{Exact, ToF16, ToBF16, Exact, ToF16} {
		sink := []float64{math.Inf(-1), math.Inf(-1), math.Inf(-1), 4, 7}[i]
		for begin := range 7 {
			plain, got := slices.Clone(scores), slices.Clone(scores)
			blockSoftmax(plain, sink, 0, len(plain), Exact)
			blockSoftmax(got, sink, begin, block, r)
			total := portable.Exp(sink - 5.01)
			for _, s := range scores {
				total += portable.Exp(s - 5.01)
			}
			for i, s := range scores {
				position := begin + i
				from := max(position/split*split-begin, 0)
				to := min(position/block*block+block-begin, len(scores))
				top := slices.Max(scores[from:to])
				want := r.round(portable.Exp(s-top)) * portable.Exp(top-5.01) / total
				if !(math.Abs(got[i]-want) <= 1e-14*want) {
					t.Errorf("rounding %d from %d, score %d: %g, want %g", r, begin, i, got[i], want)
				}
				if off := math.Abs(got[i]/plain[i] - 1); r == Exact && off > 1e-14 || r != Exact && off == 0 && s != top {
					t.Errorf("rounding %d from %d, score %d: off by %g", r, begin, i, off)
				}
			}
		}
	}
}
