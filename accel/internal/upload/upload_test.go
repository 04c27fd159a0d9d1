package upload

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/product"
	"github.com/lockstep-go/lockstep/quant"
)

// randomParts returns matrices of random blocks with the given rows, and their bytes together.
func randomParts(f quant.Format, cols int, rows ...int) (list []model.Matrix, file []byte) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range rows {
		data := make([]byte, n*cols/f.BlockLen()*f.BlockBytes())
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		list = append(list, model.Matrix{Format: f, Rows: n, Cols: cols, Data: data})
		file = append(file, data...)
	}
	return list, file
}

// TestPack compares packing parts in ranges of rows with packing one matrix at once.
func TestPack(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		format       quant.Format
		rows         []int
		atOnce       int // rows per call of pack
	}{
		{"one", "a single matrix", quant.Q8_0, []int{40}, 48},
		{"whole tiles", "each part begins at a tile", quant.Q4_0, []int{32, 16, 16}, 64},
		{"parts within a tile", "a tile has rows of two and of three parts", quant.Q8_0, []int{5, 20, 3, 2, 30}, 64},
		{"in ranges", "ranges of rows pack to the same bytes as the whole", quant.Q8_0, []int{5, 20, 3, 2, 30}, 16},
		{"float weights", "the last tile is not full", quant.F16, []int{3, 4, 26}, 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, file := randomParts(c.format, 64, c.rows...)
			p, rows := product.Packing{Format: c.format, K: 64}, Rows(list)
			want := make([]byte, p.TileBytes(rows))
			wantFactors := p.Pack(want, file, rows)
			var got []byte
			var factors []float32
			for from := 0; from < rows; from += c.atOnce {
				n := min(c.atOnce, rows-from)
				dst := make([]byte, p.TileBytes(n))
				of, err := pack(p, dst, list, from, n)
				if err != nil {
					t.Fatal(err)
				}
				got, factors = append(got, dst...), append(factors, of...)
			}
			if !bytes.Equal(got, want) || !slices.Equal(factors, wantFactors) {
				t.Errorf("%s: the packed bytes or the factors differ", c.reason)
			}
		})
	}
}
