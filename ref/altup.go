package ref

import (
	"context"
	"math"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
)

// streams returns the residual streams of AltUp, each [tokens, hidden]. The first is x, the scaled embedding:
//
//	X[0] = x
//	X[j] = StreamIn[j−1]·x, scaled to the length of x
//
// Without AltUp x is the only one.
func (e *Engine) streams(ctx context.Context, x tensor) ([]tensor, error) {
	list := []tensor{x}
	for _, w := range e.model.Weights.StreamIn {
		y, err := e.linear(ctx, input{x: x}, model.Linear{W: w})
		if err != nil {
			return nil, err
		}
		y.scaleTo(x)
		list = append(list, y)
	}
	return list, nil
}

// merge returns what the final norm reads of the residual streams:
//
//	(X[0] + Σ_j StreamOut[j−1]·X[j])/streams      each product scaled to the length of X[0]
func (e *Engine) merge(ctx context.Context, streams []tensor) (tensor, error) {
	x := streams[0]
	if len(streams) == 1 {
		return x, nil
	}
	sum := x.clone()
	for j, w := range e.model.Weights.StreamOut {
		y, err := e.linear(ctx, input{x: streams[j+1]}, model.Linear{W: w})
		if err != nil {
			return tensor{}, err
		}
		y.scaleTo(x)
		sum.add(y)
	}
	sum.scale(1 / float64(len(streams)))
	return sum, nil
}

// scaleTo scales each row of t to the length of the same row of x.
func (t tensor) scaleTo(x tensor) {
	square := func(v float64) float64 { return float64(v * v) }
	for p := range t.rows {
		tensor{1, t.cols, t.row(p)}.scale(math.Sqrt(sum(x.row(p), square) / sum(t.row(p), square)))
	}
}

// coefficients computes m(x) = tanh(StreamRouter·StreamNorm(x)), [tokens, streams].
func (e *Engine) coefficients(ctx context.Context, x tensor, l *model.Layer) (tensor, error) {
	m, err := e.linear(ctx, e.normed(x, l.StreamNorm), model.Linear{W: l.StreamRouter})
	for i, v := range m.data {
		m.data[i] = portable.Tanh(v)
	}
	return m, err
}

// weighted computes row r of w·m for a row m of coefficients.
func weighted(w []float32, r int, m []float64) (s float64) {
	for k, v := range m {
		s += float64(float64(w[r*len(m)+k]) * v)
	}
	return s
}

// predict changes the streams before a layer:
//
//	X[j] ← X[j] + Σ_i (Predict·m(X[0]))[j·streams+i] · X[i]
func (e *Engine) predict(ctx context.Context, streams []tensor, l *model.Layer) error {
	m, err := e.coefficients(ctx, streams[0], l)
	if err != nil {
		return err
	}
	n := len(streams)
	for p := range m.rows {
		rows, mixed := make([][]float64, n), make([][]float64, n)
		for i, x := range streams {
			rows[i] = x.row(p)
		}
		for j := range mixed {
			mixed[j] = append([]float64(nil), rows[j]...)
			for i, row := range rows {
				c := weighted(l.Predict, j*n+i, m.row(p))
				for k, v := range row {
					mixed[j][k] += float64(c * v)
				}
			}
		}
		for j, row := range mixed {
			copy(rows[j], row)
		}
	}
	return nil
}

// correct changes the streams P after a layer that computed y of P[0]:
//
//	P[j] ← P[j] + (1 + (Correct·m(y))[j]) · (y − P[0])
func (e *Engine) correct(ctx context.Context, streams []tensor, y tensor, l *model.Layer) error {
	m, err := e.coefficients(ctx, y, l)
	if err != nil {
		return err
	}
	for p := range m.rows {
		change := make([]float64, y.cols)
		for i, v := range y.row(p) {
			change[i] = v - streams[0].row(p)[i]
		}
		for j, x := range streams {
			c := 1 + weighted(l.Correct, j, m.row(p))
			for i, v := range change {
				x.row(p)[i] += float64(c * v)
			}
		}
	}
	return nil
}

// addLaurel adds h + LaurelPostNorm(LaurelOut·LaurelIn·h) to x. h is AttnNorm(x), which the products read as in.
func (e *Engine) addLaurel(ctx context.Context, x tensor, in input, l *model.Layer) error {
	cfg := &e.model.Config
	y, err := e.linear(ctx, in, model.Linear{W: l.LaurelIn})
	if err != nil {
		return err
	}
	if y, err = e.linear(ctx, input{x: y}, model.Linear{W: l.LaurelOut}); err != nil {
		return err
	}
	x.add(norm(x, l.AttnNorm, cfg))
	x.add(norm(y, l.LaurelPostNorm, cfg))
	return nil
}
