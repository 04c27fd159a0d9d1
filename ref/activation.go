package ref

import (
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
)

// activate applies the feed-forward non-linearity to every element in place.
//
//	SiLU  x / (1 + e^−x)
//	GELU  x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))
func (e *Engine) activate(x []float64) {
	f := silu
	if e.model.Config.Activation == model.GELU {
		f = gelu
	}
	for i, v := range x {
		x[i] = f(v)
	}
}

func silu(x float64) float64 { return x / (1 + portable.Exp(-x)) }

func gelu(x float64) float64 {
	cube := float64(0.044715 * x * x * x)
	return float64(0.5*x) * (1 + portable.Tanh(math.Sqrt(2/math.Pi)*(x+cube)))
}

// softcap squashes s into (−cap, cap): cap·tanh(s/cap). A cap of 0 means none.
func softcap(s, cap float64) float64 {
	if cap == 0 {
		return s
	}
	return cap * portable.Tanh(s/cap)
}

// softmax replaces x by e^(x−max) / Σ e^(x−max).
func softmax(x []float64) { blockSoftmax(x, len(x), len(x), Exact) }

// blockSoftmax is softmax with a running maximum over blocks: the first of so many
// elements, the others of block. Each e^(x−m) is rounded with the maximum m up to the
// end of its block, in the result, but not in the sum that divides it.
func blockSoftmax(x []float64, first, block int, r Rounding) {
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
	for i := range x {
		x[i] /= total
	}
}
