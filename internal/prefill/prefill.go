// Package prefill states what the accelerator rounds when it computes a prompt on
// tensor cores, so that the reference can round the same.
package prefill

import (
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// Numerics returns the roundings of a prompt on tensor cores: operands of products are float16, keys and
// values have format kv, and attention updates its softmax once per block of FlashBlock keys.
func Numerics(kv model.KVFormat, headDim int) ref.Numerics {
	return ref.Numerics{KV: kv, F16Products: true, FlashBlock: FlashBlock(headDim)}
}

// FlashBlock returns how many keys FlashAttention processes between two updates of its
// running maximum, for a head dimension.
func FlashBlock(headDim int) int {
	if headDim > 128 {
		return 32
	}
	return 64
}
