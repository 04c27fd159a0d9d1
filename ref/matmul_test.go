package ref

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// randomMatrix returns a matrix [rows, cols] of about unit variance in a format that quant
// can encode.
func randomMatrix(tb testing.TB, f quant.Format, rows, cols int) (model.Matrix, []float64) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(uint64(rows), uint64(cols)))
	rowBytes, err := f.RowBytes(cols)
	if err != nil {
		tb.Fatal(err)
	}
	w := model.Matrix{Name: "w", Format: f, Rows: rows, Cols: cols, Data: make([]byte, rows*rowBytes)}
	exact := make([]float64, rows*cols)
	row := make([]float32, cols)
	for r := range rows {
		for i := range row {
			row[i] = float32(rng.NormFloat64())
		}
		if err := f.Encode(w.Data[r*rowBytes:(r+1)*rowBytes], row); err != nil {
			tb.Fatal(err)
		}
		quant.Decode(f, exact[r*cols:(r+1)*cols], w.Data[r*rowBytes:(r+1)*rowBytes])
	}
	return w, exact
}

func randomTensor(rows, cols int) tensor {
	rng := rand.New(rand.NewPCG(7, uint64(rows*cols)))
	x := newTensor(rows, cols)
	for i := range x.data {
		x.data[i] = rng.NormFloat64()
	}
	return x
}

// TestMatMul compares matMul with a plain sum: widths around the four interleaved sums and
// the stripe, and numbers of rows that do not divide evenly among workers.
func TestMatMul(t *testing.T) {
	cases := []struct {
		name       string
		format     quant.Format
		rows, cols int
		positions  int
	}{
		{"one weight", quant.F32, 1, 1, 1},
		{"fewer than the four sums", quant.F32, 3, 3, 2},
		{"a tail after the four sums", quant.F32, 5, 33, 3},
		{"just below a stripe", quant.F32, 3, stripe - 1, 2},
		{"just above a stripe", quant.F32, 3, stripe + 1, 2},
		{"several stripes and a tail", quant.F32, 3, 2880, 2},
		{"block format, a whole stripe", quant.Q8_0, 7, stripe, 1},
		{"block format, a partial stripe", quant.Q8_0, 7, stripe + 32, 3},
		{"blocks of 256 across stripes", quant.Q4_K, 2, 4096 + 256, 2},
		{"f16", quant.F16, 4, 255, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, exact := randomMatrix(t, c.format, c.rows, c.cols)
			x := randomTensor(c.positions, c.cols)
			y, err := (&Engine{workers: 4}).matMul(t.Context(), x, w)
			if err != nil {
				t.Fatal(err)
			}
			for p := range c.positions {
				for r := range c.rows {
					var want, size float64
					for i, v := range x.row(p) {
						want += exact[r*c.cols+i] * v
						size += math.Abs(exact[r*c.cols+i] * v)
					}
					if got := y.row(p)[r]; !(math.Abs(got-want) <= 1e-15*float64(c.cols)*size) {
						t.Fatalf("y[%d,%d] = %v, want %v", p, r, got, want)
					}
				}
			}
		})
	}
}

// BenchmarkMatMul times the loop that decides the speed of the reference, on one core,
// with a matrix of an 8B model's feed-forward network.
func BenchmarkMatMul(b *testing.B) {
	for _, f := range []quant.Format{quant.F32, quant.BF16, quant.Q8_0, quant.Q4_K, quant.Q6_K} {
		w, _ := randomMatrix(b, f, 256, 4096)
		for _, positions := range []int{1, maxChunk} {
			b.Run(fmt.Sprintf("%v/positions=%d", f, positions), func(b *testing.B) {
				x := randomTensor(positions, w.Cols)
				e := &Engine{workers: 1}
				for b.Loop() {
					if _, err := e.matMul(b.Context(), x, w); err != nil {
						b.Fatal(err)
					}
				}
				products := float64(b.N) * float64(w.Rows*w.Cols*positions)
				b.ReportMetric(products/b.Elapsed().Seconds()/1e9, "Gproduct/s")
			})
		}
	}
}
