package ref

import (
	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// segment is how many weights of a row are dequantized at a time: whole blocks of
// every format, and small enough that weights and inputs stay in the first cache.
const segment = 1024

// linear is a layer's product, rounded as Numerics says.
func (e *Engine) linear(x tensor, l model.Linear) (tensor, error) {
	n, f := &e.numerics, l.W.Format
	return e.product(n.Input.beside(f).rounded(x), l, n.Weights.beside(f))
}

// product is y = x·round(W)ᵀ + b.
//
//	x [positions, in], W [out, in], b [out] or none, y [positions, out]
func (e *Engine) product(x tensor, l model.Linear, r Rounding) (tensor, error) {
	y, err := e.matMul(x, l.W, r)
	if err != nil {
		return tensor{}, err
	}
	y.addBias(l.Bias)
	return y, nil
}

// matMul is
//
//	y[p,r] = Σ_s Σ_{j in segment s} round(W[r,j])·x[p,j]
//
// with x [positions, cols], W [rows, cols], y [positions, rows]: rows in parallel,
// every weight dequantized once for all positions. The sum's order depends on cols
// alone: segments in turn, within each the interleaved sums of portable.Dot.
func (e *Engine) matMul(x tensor, w model.Matrix, round Rounding) (tensor, error) {
	y := newTensor(x.rows, w.Rows)
	err := e.parallel(w.Rows, func(lo, hi int) {
		weights := make([]float64, min(segment, w.Cols))
		for r := lo; r < hi; r++ {
			for from := 0; from < w.Cols; from += segment {
				to := min(from+segment, w.Cols)
				if x.rows == 1 && round == Exact {
					y.data[r] += quant.Dot(w.Format, blocks(w, r, from, to), x.data[from:to], weights)
					continue
				}
				part := weights[:to-from]
				decode(w, r, from, part)
				if round != Exact {
					for i, v := range part {
						part[i] = round.round(v)
					}
				}
				for p := range x.rows {
					y.data[p*w.Rows+r] += portable.Dot(part, x.row(p)[from:to])
				}
			}
		}
	})
	return y, err
}

// decode dequantizes weights from… of row r of w into dst.
func decode(w model.Matrix, r, from int, dst []float64) {
	quant.Decode(w.Format, dst, blocks(w, r, from, from+len(dst)))
}

// blocks is the bytes of weights from…to-1 of row r, both on the border of a block.
func blocks(w model.Matrix, r, from, to int) []byte {
	n, size := w.Format.BlockLen(), w.Format.BlockBytes()
	return w.Data[(r*w.Cols+from)/n*size : (r*w.Cols+to)/n*size]
}
