package ref

import (
	"math"

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
		f = e.gelu
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

// roundedGELU is GELU as Numerics.GELU asks for it.
func roundedGELU(r Rounding) func(float64) float64 {
	return func(x float64) float64 {
		if math.Abs(x) < 10 {
			return r.round(gelu(r.round(x)))
		}
		return gelu(x)
	}
}

// softcap squashes s into (−cap, cap): cap·tanh(s/cap). A cap of 0 means none.
func softcap(s, cap float64) float64 {
	if cap == 0 {
		return s
	}
	return cap * portable.Tanh(s/cap)
}

// softmax replaces x by e^(x−max) / Σ e^(x−max).
func softmax(x []float64) {
	top := math.Inf(-1)
	for _, v := range x {
		top = math.Max(top, v)
	}
	var total float64
	for i, v := range x {
		x[i] = portable.Exp(v - top)
		total += x[i]
	}
	for i := range x {
		x[i] /= total
	}
}
