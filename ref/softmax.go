package ref

import (
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// softcap limits s to (−cap, cap): cap·tanh(s/cap). A cap of 0 is no limit.
func softcap(s, cap float64) float64 {
	if cap == 0 {
		return s
	}
	return cap * portable.Tanh(s/cap)
}

// softmax replaces x by e^(x−max) / Σ e^(x−max).
func softmax(x []float64) { blockSoftmax(x, math.Inf(-1), 0, len(x), Exact) }

// splitBlocks is the number of blocks per split of FlashAttention: see Numerics.FlashBlock.
const splitBlocks = 2

// blockSoftmax is softmax as FlashAttention computes it, block by block. Blocks, and splits of them, are counted from
// position 0; x begins at another one. An element's m is the largest element of its split
// up to the end of its block. The result is round(e^(x−m)), rescaled to the final
// maximum, divided by the sum of the unrounded e^(x−m) and e^(sink−m).
func blockSoftmax(x []float64, sink float64, begin, block int, r Rounding) {
	top, total := math.Inf(-1), 0.0
	for from := 0; from < len(x); {
		to := min(from+splitBlocks*block-(begin+from)%(splitBlocks*block), len(x))
		m, sum := splitSoftmax(x[from:to], begin+from, block, r)
		next := max(top, m)
		before, now := portable.Exp(top-next), portable.Exp(m-next)
		scale(x[:from], before)
		scale(x[from:to], now)
		top, total, from = next, float64(total*before)+float64(sum*now), to
	}
	total += portable.Exp(sink - top)
	for i := range x {
		x[i] /= total
	}
}

// splitSoftmax replaces the elements of a split by round(e^(x−m)), rescaled to the largest element. It returns that, and the sum of the
// unrounded e^(x−m).
func splitSoftmax(x []float64, begin, block int, r Rounding) (top, total float64) {
	top = math.Inf(-1)
	for from := 0; from < len(x); {
		to := min(from+block-(begin+from)%block, len(x))
		next := max(top, slices.Max(x[from:to]))
		shrink := portable.Exp(top - next)
		scale(x[:from], shrink)
		top, total = next, total*shrink
		for i, v := range x[from:to] {
			weight := portable.Exp(v - top)
			total += weight
			x[from+i] = r.round(weight)
		}
		from = to
	}
	return top, total
}

func scale(x []float64, factor float64) {
	for i := range x {
		x[i] *= factor
	}
}
