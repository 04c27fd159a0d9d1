package ref

import (
	"context"
	"iter"
	"math"

	"github.com/lockstep-go/lockstep/model"
)

// layerInputs computes the inputs of all layers [tokens, layers·layer input], or an empty tensor if the model has none:
//
//	inputs[i] = (norm(InputProjection·x[i]/√hidden) + √(layer input)·InputEmbedding[token i])/√2
//
// x is the scaled embedding [tokens, hidden]. The norm is of the input of each layer. A token without a row of InputEmbedding has
// row 0.
func (e *Engine) layerInputs(ctx context.Context, tokens []int, x tensor) (tensor, error) {
	cfg, w := &e.model.Config, &e.model.Weights
	if cfg.LayerInput == 0 {
		return tensor{}, nil
	}
	y, err := e.linear(ctx, input{x: x}, model.Linear{W: w.InputProjection})
	if err != nil {
		return tensor{}, err
	}
	for i := range y.data {
		y.data[i] /= math.Sqrt(float64(cfg.Hidden))
	}
	y = norm(y, w.InputNorm, cfg)
	scale := math.Sqrt(float64(cfg.LayerInput))
	err = e.parallel(ctx, len(tokens), func(rows iter.Seq[int]) {
		embedding := make([]float64, y.cols)
		for i := range rows {
			row := tokens[i]
			if row >= w.InputEmbedding.Rows {
				row = 0
			}
			e.lookUp(w.InputEmbedding, row, embedding)
			for j, v := range embedding {
				y.row(i)[j] = (y.row(i)[j] + float64(v*scale)) / math.Sqrt2
			}
		}
	})
	return y, err
}

// addInput adds the input of layer l to the residual stream x [tokens, hidden]. With AltUp x is CorrectScale ⊙ stream 0, and
// addInput changes all streams but stream 0:
//
//	norm(InputProjection·(act(InputGate·x) ⊙ input))
func (e *Engine) addInput(ctx context.Context, streams []tensor, inputs tensor, l int) error {
	cfg, layer := &e.model.Config, &e.model.Weights.Layers[l]
	x, to := streams[0], streams
	if cfg.Streams > 0 {
		x, to = x.clone(), streams[1:]
		for i := range x.data {
			x.data[i] *= float64(layer.CorrectScale[i%x.cols])
		}
	}
	g, err := e.linear(ctx, input{x: x}, model.Linear{W: layer.InputGate})
	if err != nil {
		return err
	}
	e.activate(g.data)
	for p := range g.rows {
		for i, v := range inputs.row(p)[l*cfg.LayerInput:][:cfg.LayerInput] {
			g.row(p)[i] *= v
		}
	}
	y, err := e.linear(ctx, input{x: g}, model.Linear{W: layer.InputProjection})
	if err != nil {
		return err
	}
	y = norm(y, layer.InputPostNorm, cfg)
	for _, x := range to {
		x.add(y)
	}
	return nil
}
