package conformance

import (
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// PrefillNumerics is what the accelerator rounds in fast prefill with a cache in a
// format: the products of layers are of 16 bits, and attention goes over blocks of keys.
func PrefillNumerics(kv model.KVFormat, headDim int) ref.Numerics {
	return ref.Numerics{KV: kv, Input: ref.To16, Weights: ref.To16, FlashBlock: flashBlock(headDim)}
}

// flashBlock is the keys of a block of FlashAttention, of its own choice.
func flashBlock(headDim int) int {
	if headDim > 128 {
		return 32
	}
	return 64
}
