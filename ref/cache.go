package ref

import (
	"github.com/lockstep-go/lockstep/model"
)

// cache holds the keys (after RoPE) and values of every position so far.
type cache struct {
	layers []cacheLayer
}

// cacheLayer is one layer's keys [length, kv heads·head dim] and values [length,
// kv heads·value dim]. They are stored as float32, already rounded to the format
// that Numerics names, and grow with the sequence.
type cacheLayer struct {
	k, v []float32
}

// append rounds and stores the rows of k and v behind the others.
func (c *cacheLayer) append(k, v tensor, r Rounding) {
	for _, x := range k.data {
		c.k = append(c.k, float32(r.round(x)))
	}
	for _, x := range v.data {
		c.v = append(c.v, float32(r.round(x)))
	}
}

// prefix is the first n positions, in the same memory.
func (c cache) prefix(n int, cfg *model.Config) cache {
	k, v := n*cfg.KVHeads*cfg.HeadDim, n*cfg.KVHeads*cfg.ValueDim
	out := cache{make([]cacheLayer, len(c.layers))}
	for i, l := range c.layers {
		out.layers[i] = cacheLayer{l.k[:k], l.v[:v]}
	}
	return out
}

// snapshot is a copy of a cache's first positions. Nothing writes to it.
type snapshot struct {
	engine   *Engine
	longRope bool // see model.Config.LongRope
	cache    cache
	length   int
	closed   bool
}

func (s *snapshot) Len() int { return s.length }

func (s *snapshot) Bytes() (n int64) {
	for _, l := range s.cache.layers {
		n += 4 * int64(len(l.k)+len(l.v))
	}
	return n
}

func (s *snapshot) Close() error {
	s.cache, s.closed = cache{}, true
	return nil
}

// copyOf is the first n positions of c in memory of their own.
func copyOf(c cache, n int, cfg *model.Config) cache {
	out := c.prefix(n, cfg)
	for i, l := range out.layers {
		out.layers[i] = cacheLayer{append([]float32(nil), l.k...), append([]float32(nil), l.v...)}
	}
	return out
}
