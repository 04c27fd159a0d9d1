package accelnumerics_test

import (
	"testing"

	"github.com/lockstep-go/lockstep/internal/accelnumerics"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/quant"
)

// Kernels of decode steps store a sum, a maximum and the values of each split of two blocks. So the size of their scratch
// memory tells the size of a block.
func TestBlockK(t *testing.T) {
	const pages = 64
	for dim := 8; dim <= 512; dim += 8 {
		if dim > 128 && dim%32 != 0 {
			continue
		}
		splits := pages * attention.PageTokens / (2 * accelnumerics.BlockK(dim))
		want := int64(splits) * int64(8+4*dim)
		if got := (attention.Shape{KV: quant.F16, HeadDim: dim}).ScratchBytes(1, 1, pages); got != want {
			t.Errorf("head dim %d: scratch memory of %d bytes, want %d for blocks of %d keys", dim, got, want, accelnumerics.BlockK(dim))
		}
	}
}
