package ref

import (
	"context"

	"github.com/lockstep-go/lockstep/model"
)

// feedForward computes a layer's dense network or its mixture of experts, [positions, hidden] → [positions,
// hidden]. x is the residual stream, h its norm.
func (e *Engine) feedForward(ctx context.Context, x tensor, h input, l *model.Layer) (tensor, error) {
	if len(l.Experts) > 0 {
		return e.mixture(ctx, x, h, l)
	}
	return e.network(ctx, h, l.Gate, l.Up, l.Down)
}

// network computes one feed-forward network:
//
//	gated    Down·(act(Gate·x) ⊙ (Up·x))
//	plain    Down·act(Up·x)
//
// ClampedSwiGLU limits Up·x and adds 1 to it.
func (e *Engine) network(ctx context.Context, x input, gate, up, down model.Linear) (tensor, error) {
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
	e.activate(g.data)
	for i, v := range u.data {
		if cfg.Activation == model.ClampedSwiGLU {
			v = 1 + min(max(v, -swigluLimit), swigluLimit)
		}
		g.data[i] *= v
	}
	return e.linear(ctx, input{x: g}, down)
}
