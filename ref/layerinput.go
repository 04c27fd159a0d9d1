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
// x is the scaled embedding [tokens, hidden]. The norm is of the input of each layer.
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
			e.lookUp(w.InputEmbedding, tokens[i], embedding)
			for j, v := range embedding {
				y.row(i)[j] = (y.row(i)[j] + float64(v*scale)) / math.Sqrt2
			}
		}
	})
	return y, err
}

// addedInput computes what the input of layer l adds to the residual stream x [tokens, hidden]:
//
//	norm(InputProjection·(act(InputGate·x) ⊙ input))
func (e *Engine) addedInput(ctx context.Context, x, inputs tensor, l int) (tensor, error) {
	cfg, layer := &e.model.Config, &e.model.Weights.Layers[l]
	g, err := e.linear(ctx, input{x: x}, model.Linear{W: layer.InputGate})
	if err != nil {
		return tensor{}, err
	}
	e.activate(g.data)
	for p := range g.rows {
		for i, v := range inputs.row(p)[l*cfg.LayerInput:][:cfg.LayerInput] {
			g.row(p)[i] *= v
		}
	}
	y, err := e.linear(ctx, input{x: g}, model.Linear{W: layer.InputProjection})
	return norm(y, layer.InputPostNorm, cfg), err
}
