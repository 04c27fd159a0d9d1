package ref

import (
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

// cache is the KV cache of a sequence, one element per layer. Those of Gated DeltaNets are empty.
type cache []cacheLayer

// cacheLayer holds one layer's keys (after RoPE) [length, kv heads·head dim] and values
// [length, kv heads·value dim], rounded to Numerics.KV. It grows with the sequence. Both are nil if the layer uses the
// keys and values of another one.
type cacheLayer struct {
	k, v []float32
}

// append rounds and appends the keys and values of further positions.
func (c *cacheLayer) append(k, v tensor, r Rounding) {
	for _, x := range k.data {
		c.k = append(c.k, float32(r.round(x)))
	}
	for _, x := range v.data {
		c.v = append(c.v, float32(r.round(x)))
	}
}

// prefix returns the first n positions. They share memory with c until either grows.
func (c cache) prefix(n int, cfg *model.Config) cache {
	out := make(cache, len(c))
	for i, l := range c {
		if cfg.CacheLayer(i) != i || cfg.IsRecurrent(i) {
			continue
		}
		s := cfg.LayerShape(i)
		k, v := n*s.KVHeads*s.HeadDim, n*s.KVHeads*s.ValueDim
		out[i] = cacheLayer{slices.Clip(l.k[:k]), slices.Clip(l.v[:v])}
	}
	return out
}
