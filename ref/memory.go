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
	// maxStateBytes bounds the states of a sequence after one position.
	maxStateBytes = 4 << 30
	// maxCacheBytes bounds the keys and values of a sequence.
	maxCacheBytes = 64 << 30
)

// memory is sizes in bytes: activations, logits and cache per position, states per sequence.
type memory struct {
	activations int64 // all intermediate results of a layer
	logits      int64
	cache       int64 // keys and values of all layers
	states      int64 // of all Gated DeltaNets
}

func memoryOf(cfg *model.Config) memory {
	const f64, f32 = 8, 4
	heads, kvHeads := int64(cfg.Heads), int64(cfg.KVHeads)
	key, value := int64(cfg.HeadDim), int64(cfg.ValueDim)
	recurrent, delta := int64(0), &cfg.DeltaNet
	for l := range cfg.Layers {
		if cfg.IsRecurrent(l) {
			recurrent++
		}
	}
	widths := 6*int64(cfg.Hidden) + // the residual stream, its norm, that rounded, a block's output, its norm, their sum
		heads*(3*key+2*value) + // queries: projected, normed, rounded; outputs: rounded, too
		kvHeads*(2*key+value) + // keys: projected, normed; values
		3*int64(max(cfg.FFN, cfg.ExpertFFN, cfg.SharedFFN)) + int64(cfg.Experts) + // up, gate, rounded; the router's scores
		2*int64(cfg.Rope.Dim) + // sines and cosines of two bases
		int64(cfg.Layers+3)*int64(cfg.LayerInput) + // the inputs of all layers; of one: projected, gated, rounded
		int64(cfg.Streams)*int64(cfg.Hidden+1) + int64(cfg.LaurelRank) // streams and coefficients; between the matrices of LAuReL
	if len(cfg.Recurrent) > 0 {
		// Of a convolution: inputs, twice, and outputs. Of values: z, results, their norms, rounded. Gates of attention.
		widths += 3*int64(delta.Channels()) + 4*int64(delta.Values()) + heads*value
	}
	return memory{
		activations: f64 * widths,
		logits:      (f64 + f32) * int64(cfg.Vocab),
		cache:       f32 * int64(cfg.CacheWidth()),
		states:      f64 * recurrent * (int64(delta.Values())*int64(delta.Dim) + int64(delta.Taps)*int64(delta.Channels())),
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
	if m.states > maxStateBytes {
		return 0, fmt.Errorf("%w: the states of a sequence need %d bytes, more than %d", model.ErrUnsupported, m.states, int64(maxStateBytes))
	}
	return int(min(maxChunk, maxChunkBytes/max(need, 1))), nil
}

// checkCache returns a model.ErrContextLimit if the keys and values of n positions are more
// than a sequence may have.
func (m memory) checkCache(n int) error {
	if need := int64(n) * m.cache; need > maxCacheBytes {
		return fmt.Errorf("%w: the keys and values of %d positions need %d bytes, more than %d",
			model.ErrContextLimit, n, need, int64(maxCacheBytes))
	}
	return nil
}
