package ref

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/lockstep-go/lockstep/internal/product"
	"github.com/lockstep-go/lockstep/model"
)

// forward is the whole transformer. It computes tokens at positions length, length+1, …,
// appends their keys and values to the cache and returns the wanted logits, [1, vocab]
// or [tokens, vocab], or states, [tokens, hidden]. Activations are tensors with one row per
// position.
//
// After an error the cache may hold positions beyond length, which truncate drops, and the states are of no position.
func (s *sequence) forward(ctx context.Context, tokens []int, want model.Want) ([]float32, error) {
	e, w := s.engine, &s.engine.model.Weights

	x, err := e.embed(ctx, tokens, s.length) // the residual stream [tokens, hidden]
	if err != nil {
		return nil, err
	}
	e.tapped(-1, "embed", s.length, x)
	inputs, err := e.layerInputs(ctx, tokens, x)
	if err != nil {
		return nil, err
	}
	streams, err := e.streams(ctx, x)
	if err != nil {
		return nil, err
	}
	rotations := s.rotations(len(tokens))
	s.statesAt = unknownPosition

	for l := range w.Layers {
		if err := s.block(ctx, l, streams, inputs, rotations[l]); err != nil {
			return nil, err
		}
	}

	if x, err = e.merge(ctx, streams); err != nil {
		return nil, err
	}
	out, err := e.head(ctx, x, s.length, want)
	if err != nil {
		return nil, err
	}
	s.length += len(tokens)
	s.tokens, s.statesAt = append(s.tokens, tokens...), s.length
	return out, nil
}

// block computes layer l of the residual streams, which it changes. There is one, unless the model has AltUp.
func (s *sequence) block(ctx context.Context, l int, streams []tensor, inputs tensor, r rotation) error {
	e, cfg, layer := s.engine, &s.engine.model.Config, &s.engine.model.Weights.Layers[l]
	x := streams[0] // to which the layer adds
	if cfg.Streams > 0 {
		if err := e.predict(ctx, streams, layer); err != nil {
			return err
		}
		x = x.clone()
	}

	h := e.normed(x, layer.AttnNorm)
	var a tensor
	var err error
	if layer.DeltaNet != nil {
		a, err = s.deltaNetBlock(ctx, l, h)
	} else {
		a, err = s.attentionBlock(ctx, l, h, r)
	}
	if err != nil {
		return err
	}
	if cfg.LaurelRank > 0 {
		if err := e.addLaurel(ctx, x, h, layer); err != nil {
			return err
		}
	}
	x.add(a)
	if cfg.LaurelRank > 0 {
		x.scale(1 / math.Sqrt2)
	}

	if !cfg.ParallelFFN { // a parallel FFN reads the same h as attention
		h = e.normed(x, layer.FFNNorm)
	}
	f, err := e.feedForward(ctx, x, h, l)
	if err != nil {
		return err
	}
	x.add(norm(f, layer.FFNPostNorm, cfg))

	if cfg.Streams > 0 {
		if err := e.correct(ctx, streams, x, layer); err != nil {
			return err
		}
	}
	if cfg.LayerInput > 0 {
		if err := e.addInput(ctx, streams, inputs, l); err != nil {
			return err
		}
	}
	streams[0].scale(float64(layer.OutputScale))
	e.tapped(l, "layer", s.length, streams[0])
	for j, x := range streams[1:] {
		e.tapped(l, fmt.Sprintf("stream %d", j+1), s.length, x)
	}
	return nil
}

// attentionBlock computes postnorm(O·(attention(q, K, V) ⊙ σ(AttnGate·h))) of h [tokens, hidden], after it
// appended the keys and values of these tokens to the cache, if the layer has its own.
func (s *sequence) attentionBlock(ctx context.Context, l int, h input, r rotation) (tensor, error) {
	e, cfg := s.engine, &s.engine.model.Config
	layer, c := &e.model.Weights.Layers[l], &s.cache[cfg.CacheLayer(l)]
	shape := cfg.LayerShape(l)

	var qkv [3]tensor
	for i, w := range []model.Linear{layer.Q, layer.K, layer.V} {
		var err error
		if qkv[i], err = e.linear(ctx, h, w); err != nil {
			return tensor{}, err
		}
	}
	q, k, v := norm(qkv[0], layer.QNorm, cfg), norm(qkv[1], layer.KNorm, cfg), norm(qkv[2], layer.VNorm, cfg)
	r.apply(q, shape.HeadDim, cfg.RopeInterleaved)
	r.apply(k, shape.HeadDim, cfg.RopeInterleaved)
	for p := range q.rows {
		scale := cfg.LayerQueryScale(l).At(s.length + p)
		for i := range q.row(p) {
			q.row(p)[i] *= scale
		}
	}
	e.tapped(l, "query", s.length, q)
	if cfg.CacheLayer(l) == l {
		e.tapped(l, "key", s.length, k)
		e.tapped(l, "value", s.length, v)
		c.append(k, v, e.numerics.cache())
	}

	a, err := e.attention(ctx, l, q, *c, s.length)
	if err != nil {
		return tensor{}, err
	}
	e.tapped(l, "attention", s.length, a)
	if layer.AttnGate.W.Rows > 0 {
		gate, err := e.linear(ctx, h, layer.AttnGate)
		if err != nil {
			return tensor{}, err
		}
		for i, v := range gate.data {
			a.data[i] *= sigmoid(v)
		}
	}
	o, err := e.linear(ctx, input{x: a}, layer.O)
	if err != nil {
		return tensor{}, err
	}
	return norm(o, layer.AttnPostNorm, cfg), nil
}

// embed looks up the tokens at positions first, first+1, …:
//
//	x[i] = scale · Embedding[token i] + Position[first+i]    [tokens, hidden]
//
// Position is present only if the model learned its positions.
func (e *Engine) embed(ctx context.Context, tokens []int, first int) (tensor, error) {
	w, cfg := &e.model.Weights, &e.model.Config
	x := newTensor(len(tokens), cfg.Hidden)
	err := e.parallel(ctx, len(tokens), func(rows iter.Seq[int]) {
		position := make([]float64, cfg.Hidden)
		for i := range rows {
			row := x.row(i)
			e.lookUp(w.Embedding, tokens[i], row)
			for j := range row {
				row[j] *= float64(cfg.EmbedScale)
			}
			if w.Position.Rows > 0 {
				e.lookUp(w.Position, first+i, position)
				for j, v := range position {
					row[j] += v
				}
			}
		}
	})
	return x, err
}

// lookUp dequantizes a row of w into dst. F16Products rounds its weights as those of a product.
func (e *Engine) lookUp(w model.Matrix, row int, dst []float64) {
	if e.numerics.F16Products {
		copy(dst, product.Row(w.Format, blocks(w, row, 0, w.Cols), w.Cols))
		return
	}
	decode(w, row, 0, dst)
}

// head returns what is wanted of the residual stream x, in float32: the states norm(x), or the
// logits softcap(scale · Output·norm(x)) of the last position or of all of them. first is the position
// of x's first row.
func (e *Engine) head(ctx context.Context, x tensor, first int, want model.Want) ([]float32, error) {
	cfg, w := &e.model.Config, &e.model.Weights
	switch want {
	case model.WantNothing:
		return nil, nil
	case model.WantHidden:
		return norm(x, w.OutputNorm, cfg).float32s(), nil
	case model.WantToken, model.WantLogits:
		first, x = first+x.rows-1, x.last()
	}
	y, err := e.linear(ctx, e.normed(x, w.OutputNorm), w.Output)
	if err != nil {
		return nil, err
	}
	for i, v := range y.data {
		y.data[i] = softcap(v*float64(cfg.OutputScale), cfg.OutputSoftcap)
	}
	out := y.float32s()
	e.tapped(-1, "logits", first, y)
	return out, nil
}

// rotations returns each layer's sines and cosines for the next n positions. Layers with the same RoPE share them.
func (s *sequence) rotations(n int) []rotation {
	m := s.engine.model
	out := make([]rotation, m.Config.Layers)
	tables := map[model.Rope]rotation{}
	for l := range out {
		rope := m.Config.LayerRope(l)
		r, ok := tables[rope]
		if !ok {
			r = newRotation(m.RopeFrequencies(l, m.Config.LongRope(s.capacity)), rope.Magnitude, s.length, n)
			tables[rope] = r
		}
		out[l] = r
	}
	return out
}

func (e *Engine) tapped(layer int, op string, position int, t tensor) {
	if e.tap != nil {
		e.tap(layer, op, position, t.cols, t.data)
	}
}
