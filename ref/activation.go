package ref

import (
	"math"

	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
)

// activate applies the feed-forward activation to every element of x in place.
//
//	SiLU  x / (1 + e^−x)
//	GELU  x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))
//	ClampedSwiGLU  z / (1 + e^(−1.702·z)), z = min(x, 7)
func (e *Engine) activate(x []float64) {
	f := map[model.Activation]func(float64) float64{model.SiLU: silu, model.GELU: gelu, model.ClampedSwiGLU: clampedSiLU}[e.model.Config.Activation]
	for i, v := range x {
		x[i] = f(v)
	}
}

func silu(x float64) float64 { return x / (1 + portable.Exp(-x)) }

// swigluLimit is the largest magnitude of the inputs of ClampedSwiGLU, of gate only above 0.
const swigluLimit = 7

func clampedSiLU(x float64) float64 {
	x = min(x, swigluLimit)
	return x / (1 + portable.Exp(-1.702*x))
}

func sigmoid(x float64) float64 { return 1 / (1 + portable.Exp(-x)) }

func gelu(x float64) float64 {
	cube := float64(0.044715 * x * x * x)
	return float64(0.5*x) * (1 + portable.Tanh(math.Sqrt(2/math.Pi)*(x+cube)))
}
