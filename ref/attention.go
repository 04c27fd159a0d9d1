package ref

// attention is causal attention with grouped queries over the cache, which already
// holds the keys and values of the positions computed now.
//
//	s[j] = cap(scale · q·K[j])    j from max(0, position−window+1) to position
//	out  = Σ_j softmax(s)[j] · V[j]
//
// q [positions, heads·head dim], K [length, kv heads·head dim],
// V [length, kv heads·value dim], out [positions, heads·value dim]. Query head h
// reads KV head h / (heads/kv heads). first is the position of q's first row. With
// Numerics.FlashBlock q and the softmax are rounded.
func (e *Engine) attention(q tensor, c cacheLayer, first, window int) (tensor, error) {
	cfg := &e.model.Config
	out := newTensor(q.rows, cfg.Heads*cfg.ValueDim)
	heads := e.numerics.flash().rounded(tensor{q.rows * cfg.Heads, cfg.HeadDim, q.data})
	group := cfg.Heads / cfg.KVHeads
	err := e.parallel(q.rows*cfg.Heads, func(lo, hi int) {
		var scores []float64
		for item := lo; item < hi; item++ {
			p, h := item/cfg.Heads, item%cfg.Heads
			scores = e.attend(out.row(p)[h*cfg.ValueDim:][:cfg.ValueDim], heads.row(item), c, h/group, first+p, window, scores[:0])
		}
	})
	return out, err
}

// attend computes one head at one position into out; scores is scratch, returned
// for the next call.
func (e *Engine) attend(out, query []float64, c cacheLayer, kvHead, position, window int, scores []float64) []float64 {
	cfg, begin := &e.model.Config, 0
	if window > 0 {
		begin = max(0, position-window+1)
	}
	for j := begin; j <= position; j++ {
		key := c.k[(j*cfg.KVHeads+kvHead)*cfg.HeadDim:][:len(query)]
		scores = append(scores, softcap(dotCache(query, key)*cfg.AttnScale, cfg.AttnSoftcap))
	}
	if block := e.numerics.FlashBlock; block > 0 {
		blockSoftmax(scores, block-begin%block, block, e.numerics.flash())
	} else {
		softmax(scores)
	}
	for i, weight := range scores {
		value := c.v[((begin+i)*cfg.KVHeads+kvHead)*cfg.ValueDim:][:len(out)]
		for d, v := range value {
			out[d] += float64(weight * float64(v))
		}
	}
	return scores
}

// dotCache is Σ q[i]·k[i] with a key from the cache, in four interleaved sums.
func dotCache(q []float64, k []float32) float64 {
	var s [4]float64
	for i, v := range k {
		s[i&3] += float64(q[i] * float64(v))
	}
	return (s[0] + s[2]) + (s[1] + s[3])
}
