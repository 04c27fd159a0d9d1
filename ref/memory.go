package ref

import (
	"fmt"

	"github.com/lockstep-go/lockstep/model"
)

const (
	// maxChunk is the largest number of positions that are computed together. More share
	// the cost of dequantizing; fewer take less memory.
	maxChunk = 32
	// maxChunkBytes bounds the memory of a chunk. 32 positions of any published model need
	// less.
	maxChunkBytes = 256 << 20
	// maxCacheBytes bounds the keys and values of a session.
	maxCacheBytes = 64 << 30
)

// memory is what one position takes, in bytes.
type memory struct {
	activations int // all intermediate results of a layer
	logits      int
	cache       int // keys and values of all layers
}

func memoryOf(cfg *model.Config) memory {
	const f64, f32 = 8, 4
	queries, keys := cfg.Heads*cfg.HeadDim, cfg.KVHeads*cfg.HeadDim
	outputs, values := cfg.Heads*cfg.ValueDim, cfg.KVHeads*cfg.ValueDim
	widths := 6*cfg.Hidden + // the residual stream, its norm, that rounded, and a block's output, its norm, their sum
		3*queries + 2*keys + values + 2*outputs + // projected, normed, rounded
		3*max(cfg.FFN, cfg.ExpertFFN) + cfg.Experts + // up, gate, rounded; the router's scores
		2*cfg.RopeDim // sines and cosines of two bases
	return memory{
		activations: f64 * widths,
		logits:      (f64 + f32) * cfg.Vocab,
		cache:       f32 * cfg.Layers * (keys + values),
	}
}

// chunk returns the number of positions that are computed together, on which results do
// not depend. The error is a model.ErrUnsupported.
func (m memory) chunk() (int, error) {
	need := m.activations + m.logits + m.cache
	if need > maxChunkBytes {
		return 0, fmt.Errorf("%w: one position needs %d bytes (activations %d, logits %d, keys and values %d), more than %d",
			model.ErrUnsupported, need, m.activations, m.logits, m.cache, maxChunkBytes)
	}
	return min(maxChunk, maxChunkBytes/max(need, 1)), nil
}

// checkCache returns a model.ErrContextLimit if the keys and values of n positions are more
// than a session may have.
func (m memory) checkCache(n int) error {
	if need := n * m.cache; need > maxCacheBytes {
		return fmt.Errorf("%w: the keys and values of %d positions need %d bytes, more than %d",
			model.ErrContextLimit, n, need, maxCacheBytes)
	}
	return nil
}
