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

// input is what weight matrices multiply: rows of x [positions, in]. If factors is not nil, the products of row
// p are multiplied by factors[p].
type input struct {
	x       tensor
	factors []float64
}

// normed is norm(x) as the input of products. F16Products has the factors of an RMS norm behind them.
func (e *Engine) normed(x tensor, n model.Norm) input {
	cfg := &e.model.Config
	if !e.numerics.F16Products || cfg.LayerNorm || n.Weight == nil {
		return input{x: norm(x, n, cfg)}
	}
	in := input{newTensor(x.rows, x.cols), make([]float64, x.rows)}
	weights := make([]float64, x.cols)
	for i, w := range n.Weight {
		weights[i] = float64(w)
	}
	for p := range x.rows {
		var row []float64
		row, in.factors[p] = product.Norm(x.row(p), weights, float64(cfg.NormEps))
		copy(in.x.row(p), row)
	}
	return in
}

// row returns one row of an input.
func (in input) row(p int) input {
	one := input{x: tensor{1, in.x.cols, in.x.row(p)}}
	if in.factors != nil {
		one.factors = in.factors[p : p+1]
	}
	return one
}

// scaled returns a row of an input, multiplied by a weight.
func (in input) scaled(weight float64) input {
	factor := weight
	if in.factors != nil {
		factor *= in.factors[0]
	}
	return input{in.x, []float64{factor}}
}

// linear is y = x·Wᵀ + b, with operands rounded as Numerics says.
//
//	x [positions, in], W [out, in], b [out] or nil, y [positions, out]
func (e *Engine) linear(ctx context.Context, in input, l model.Linear) (tensor, error) {
	multiply := e.matMul
	if e.numerics.F16Products {
		multiply = e.f16MatMul
	}
	y, err := multiply(ctx, in.x, l.W)
	if err != nil {
		return tensor{}, err
	}
	for p, f := range in.factors {
		for i := range y.row(p) {
			y.row(p)[i] *= f
		}
	}
	y.addBias(l.Bias)
	return y, nil
}

// matMul is
//
//	y[p,r] = Σ_s Σ_{j in stripe s} W[r,j]·x[p,j]
//
// with x [positions, cols], W [rows, cols] and y [positions, rows]. Rows of W run in
// parallel; each weight is dequantized once for all positions. The order of additions
// depends on cols alone: stripes in turn, and within a stripe the interleaved sums of
// portable.Dot.
func (e *Engine) matMul(ctx context.Context, x tensor, w model.Matrix) (tensor, error) {
	y := newTensor(x.rows, w.Rows)
	err := e.parallel(ctx, w.Rows, func(rows iter.Seq[int]) {
		weights := make([]float64, min(stripe, w.Cols))
		for r := range rows {
			for from := 0; from < w.Cols; from += stripe {
				to := min(from+stripe, w.Cols)
				if x.rows == 1 {
					y.data[r] += quant.Dot(w.Format, blocks(w, r, from, to), x.data[from:to], weights)
					continue
				}
				part := weights[:to-from]
				decode(w, r, from, part)
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
