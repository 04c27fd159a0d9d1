package ref

import (
	"context"
	"math"

	"github.com/lockstep-go/lockstep/model"
)

// feedForward computes layer l's dense network or its mixture of experts, [positions, hidden] → [positions,
// hidden]. x is the residual stream, h its norm.
func (e *Engine) feedForward(ctx context.Context, x tensor, h input, l int) (tensor, error) {
	layer := &e.model.Weights.Layers[l]
	if len(layer.Experts) > 0 {
		return e.mixture(ctx, x, h, layer)
	}
	sparsity := 0.0
	if all := e.model.Config.Sparsity; all != nil {
		sparsity = all[l]
	}
	return e.network(ctx, h, layer.Gate, layer.Up, layer.Down, sparsity)
}

// network computes one feed-forward network:
//
//	gated    Down·(act(Gate·x) ⊙ (Up·x))
//	plain    Down·act(Up·x)
//
// ClampedSwiGLU limits Up·x and adds 1 to it. A sparsity above 0 changes Gate·x first: see sparsify.
func (e *Engine) network(ctx context.Context, x input, gate, up, down model.Linear, sparsity float64) (tensor, error) {
	cfg := &e.model.Config
	u, err := e.linear(ctx, x, up)
	if err != nil {
		return tensor{}, err
	}
	if !cfg.Gated {
		e.activate(u.data)
		return e.linear(ctx, input{x: u}, down)
	}
	g, err := e.linear(ctx, x, gate)
	if err != nil {
		return tensor{}, err
	}
	if sparsity > 0 {
		g.sparsify(sparsity)
	}
	e.activate(g.data)
	for i, v := range u.data {
		if cfg.Activation == model.ClampedSwiGLU {
			v = 1 + min(max(v, -swigluLimit), swigluLimit)
		}
		g.data[i] *= v
	}
	return e.linear(ctx, input{x: g}, down)
}

// sparsify is the activation sparsity of Gemma 3n. It changes each row x of t:
//
//	x[i] ← max(x[i] − (mean(x) + sparsity·deviation(x)), 0)      deviation² = Σ (x[i] − mean(x))² / (n−1)
func (t tensor) sparsify(sparsity float64) {
	for p := range t.rows {
		x := t.row(p)
		mean := sum(x, func(v float64) float64 { return v }) / float64(len(x))
		squares := sum(x, func(v float64) float64 { return float64((v - mean) * (v - mean)) })
		cutoff := mean + float64(sparsity*math.Sqrt(squares/float64(len(x)-1)))
		for i, v := range x {
			x[i] = max(v-cutoff, 0)
		}
	}
}
