package ref

import (
	"context"
	"iter"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// segment is the number of weights of a row that are dequantized at a time: whole blocks
// of every format, few enough that weights and inputs stay in the L1 cache.
const segment = 1024

// linear is a product of a layer, with operands rounded as Numerics says.
func (e *Engine) linear(ctx context.Context, x tensor, l model.Linear) (tensor, error) {
	n, f := &e.numerics, l.W.Format
	return e.product(ctx, n.Input.resolve(f).roundRows(x), l, n.Weights.resolve(f))
}

// product is y = x·round(W)ᵀ + b.
//
//	x [positions, in], W [out, in], b [out] or nil, y [positions, out]
func (e *Engine) product(ctx context.Context, x tensor, l model.Linear, r Rounding) (tensor, error) {
	y, err := e.matMul(ctx, x, l.W, r)
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
// with x [positions, cols], W [rows, cols] and y [positions, rows]. Rows of W run in
// parallel; each weight is dequantized once for all positions. The order of additions
// depends on cols alone: segments in turn, and within a segment the interleaved sums of
// portable.Dot.
func (e *Engine) matMul(ctx context.Context, x tensor, w model.Matrix, round Rounding) (tensor, error) {
	y := newTensor(x.rows, w.Rows)
	err := e.parallel(ctx, w.Rows, func(rows iter.Seq[int]) {
		weights := make([]float64, min(segment, w.Cols))
		for r := range rows {
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

// decode dequantizes len(dst) weights of row r of w, beginning at column from.
func decode(w model.Matrix, r, from int, dst []float64) {
	quant.Decode(w.Format, dst, blocks(w, r, from, from+len(dst)))
}

// blocks returns the bytes of columns [from, to) of row r, which are whole blocks.
func blocks(w model.Matrix, r, from, to int) []byte {
	n, size := w.Format.BlockLen(), w.Format.BlockBytes()
	return w.Data[(r*w.Cols+from)/n*size : (r*w.Cols+to)/n*size]
}
