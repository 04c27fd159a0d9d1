// Package accelnumerics states what the accelerator rounds, so that the reference can round the same.
package accelnumerics

import (
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ref"
)

// Of returns the roundings of the accelerator: operands of products are float16, keys and
// values have format kv, and attention has blocks of BlockK keys.
func Of(kv model.KVFormat, headDim int) ref.Numerics {
	return ref.Numerics{KV: kv, F16Products: true, FlashBlock: BlockK(headDim)}
}

// BlockK returns the number of keys per block of attention, for a head dimension.
func BlockK(headDim int) int {
	if headDim > 128 {
		return 32
	}
	return 64
}
