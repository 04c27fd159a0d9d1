package ref

import (
	"context"
	"iter"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/internal/product"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/quant"
)

// stripe is the number of weights of a row that are dequantized at a time: whole blocks
// of every format, few enough that weights and inputs stay in the L1 cache.
const stripe = 1024

// linear is y = x·Wᵀ + b, with operands rounded as Numerics says.
//
//	x [positions, in], W [out, in], b [out] or nil, y [positions, out]
func (e *Engine) linear(ctx context.Context, x tensor, l model.Linear) (y tensor, err error) {
	n, f := &e.numerics, l.W.Format
	if n.F16Products {
		y, err = e.f16MatMul(ctx, x, l.W)
	} else {
		y, err = e.matMul(ctx, n.Input.resolve(f).roundRows(x), l.W, n.Weights.resolve(f))
	}
	if err != nil {
		return tensor{}, err
	}
	y.addBias(l.Bias)
	return y, nil
}

// output is linear for the output matrix, which F16Products rounds, but Input and Weights do not.
func (e *Engine) output(ctx context.Context, x tensor, l model.Linear) (tensor, error) {
	if e.numerics.F16Products {
		return e.linear(ctx, x, l)
	}
	y, err := e.matMul(ctx, x, l.W, Exact)
	if err != nil {
		return tensor{}, err
	}
	y.addBias(l.Bias)
	return y, nil
}

// router is linear for a router, which F16Products does not round, but Input and Weights do.
func (e *Engine) router(ctx context.Context, x tensor, w model.Matrix) (tensor, error) {
	if e.numerics.F16Products {
		return e.matMul(ctx, x, w, Exact)
	}
	return e.linear(ctx, x, model.Linear{W: w})
}

// matMul is
//
//	y[p,r] = Σ_s Σ_{j in stripe s} round(W[r,j])·x[p,j]
//
// with x [positions, cols], W [rows, cols] and y [positions, rows]. Rows of W run in
// parallel; each weight is dequantized once for all positions. The order of additions
// depends on cols alone: stripes in turn, and within a stripe the interleaved sums of
// portable.Dot.
func (e *Engine) matMul(ctx context.Context, x tensor, w model.Matrix, round Rounding) (tensor, error) {
	y := newTensor(x.rows, w.Rows)
	err := e.parallel(ctx, w.Rows, func(rows iter.Seq[int]) {
		weights := make([]float64, min(stripe, w.Cols))
		for r := range rows {
			for from := 0; from < w.Cols; from += stripe {
				to := min(from+stripe, w.Cols)
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

// f16MatMul is x·Wᵀ with operands that are rounded as package product defines, and sums in float64.
func (e *Engine) f16MatMul(ctx context.Context, x tensor, w model.Matrix) (tensor, error) {
	rounded := make([][]float64, x.rows)
	for p := range rounded {
		rounded[p] = product.Activations(w.Format, x.row(p))
	}
	y := newTensor(x.rows, w.Rows)
	err := e.parallel(ctx, w.Rows, func(rows iter.Seq[int]) {
		for r := range rows {
			weights := product.Weights(w.Format, blocks(w, r, 0, w.Cols), w.Cols)
			for p := range x.rows {
				y.data[p*w.Rows+r] = portable.Dot(weights, rounded[p])
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
