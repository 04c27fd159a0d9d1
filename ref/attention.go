package ref

import (
	"context"
	"iter"
	"math"

	"github.com/lockstep-go/lockstep/model"
)

// attention is the causal attention of layer l with grouped queries. The cache already holds the
// keys and values of q's own positions.
//
//	s[j] = softcap(scale · q·K[j])    j from Config.FirstVisible(l, position) to position
//	out  = Σ_j softmax(s)[j] · V[j]
//
// If heads have sinks, the sink of a head is one more element of s, without a V.
//
//	q   [positions, heads·head dim], beginning at position first
//	K   [length, kv heads·head dim]
//	V   [length, kv heads·value dim]
//	out [positions, heads·value dim]
//
// Query head h reads KV head h / (heads/kv heads). With Numerics.FlashBlock the queries and the
// softmax weights are rounded.
func (e *Engine) attention(ctx context.Context, l int, q tensor, c cacheLayer, first int) (tensor, error) {
	cfg, sinks := &e.model.Config, e.model.Weights.Layers[l].Sinks
	shape := cfg.LayerShape(l)
	out := newTensor(q.rows, cfg.Heads*shape.ValueDim)
	queries := e.numerics.flash().roundRows(tensor{q.rows * cfg.Heads, shape.HeadDim, q.data})
	group := cfg.Heads / shape.KVHeads
	err := e.parallel(ctx, queries.rows, func(rows iter.Seq[int]) {
		var scores []float64
		for i := range rows { // a head at a position
			p, h := i/cfg.Heads, i%cfg.Heads
			dst := out.row(p)[h*shape.ValueDim:][:shape.ValueDim]
			sink := math.Inf(-1)
			if sinks != nil {
				sink = float64(sinks[h])
			}
			begin := cfg.FirstVisible(l, first+p)
			scores = e.attend(dst, queries.row(i), c, shape, sink, h/group, begin, first+p, scores[:0])
		}
	})
	return out, err
}

// attend computes one query head over the positions begin to position. out [value dim] must be zero. A sink of -Inf
// is none. scores is scratch memory; attend returns it, maybe grown, for the next call.
func (e *Engine) attend(out, query []float64, c cacheLayer, shape model.LayerShape, sink float64, kvHead, begin, position int, scores []float64) []float64 {
	cfg := &e.model.Config
	for j := begin; j <= position; j++ {
		key := c.k[(j*shape.KVHeads+kvHead)*shape.HeadDim:][:len(query)]
		scores = append(scores, softcap(dotKey(query, key)*cfg.AttnScale, cfg.AttnSoftcap))
	}
	if block := e.numerics.FlashBlock; block > 0 {
		blockSoftmax(scores, sink, begin, block, e.numerics.flash())
	} else {
		blockSoftmax(scores, sink, 0, len(scores), Exact)
	}
	for i, weight := range scores {
		value := c.v[((begin+i)*shape.KVHeads+kvHead)*shape.ValueDim:][:len(out)]
		for d, v := range value {
			out[d] += float64(weight * float64(v))
		}
	}
	return scores
}

// dotKey is Σ q[i]·k[i] in four interleaved sums.
func dotKey(q []float64, k []float32) float64 {
	var s [4]float64
	for i, v := range k {
		s[i&3] += float64(q[i] * float64(v))
	}
	return (s[0] + s[2]) + (s[1] + s[3])
}
