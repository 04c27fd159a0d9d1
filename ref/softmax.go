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
func softmax(x []float64) { blockSoftmax(x, math.Inf(-1), len(x), len(x), Exact) }

// blockSoftmax is softmax as FlashAttention computes it, block by block. The first block
// has first elements, each other one has block elements. An element's m is the largest
// element up to the end of its block. The result is round(e^(x−m)), rescaled to the final
// maximum, divided by the sum of the unrounded e^(x−m) and e^(sink−m).
func blockSoftmax(x []float64, sink float64, first, block int, r Rounding) {
	top, total := math.Inf(-1), 0.0
	for from, to := 0, first; from < len(x); from, to = to, to+block {
		to = min(to, len(x))
		next := max(top, slices.Max(x[from:to]))
		shrink := portable.Exp(top - next)
		top, total = next, total*shrink
		for i := range x[:from] {
			x[i] *= shrink
		}
		for i, v := range x[from:to] {
			weight := portable.Exp(v - top)
			total += weight
			x[from+i] = r.round(weight)
		}
	}
	total += portable.Exp(sink - top)
	for i := range x {
		x[i] /= total
	}
}
