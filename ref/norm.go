package ref

import (
	"math"

	"github.com/lockstep-go/lockstep/model"
)

// norm normalizes each run of n.Width elements of x. It returns a new tensor of x's shape, or x itself if the model
// has no such norm. If n has weights for several runs side by side, each run of a position has its own.
//
//	RMSNorm    y = x / √(mean(x²) + ε) · w
//	LayerNorm  y = (x − mean(x)) / √(var(x) + ε) · w + b
func norm(x tensor, n model.Norm, cfg *model.Config) tensor {
	if n.Weight == nil {
		return x
	}
	y := newTensor(x.rows, x.cols)
	width := n.Width
	for at := 0; at < len(x.data); at += width {
		src, dst := x.data[at:at+width], y.data[at:at+width]
		first := at % len(n.Weight)
		var mean float64
		if cfg.LayerNorm {
			mean = sum(src, func(v float64) float64 { return v }) / float64(width)
		}
		variance := sum(src, func(v float64) float64 { return float64((v - mean) * (v - mean)) }) / float64(width)
		scale := 1 / math.Sqrt(variance+float64(cfg.NormEps))
		for i, v := range src {
			dst[i] = float64(float64((v-mean)*scale) * float64(n.Weight[first+i]))
			if n.Bias != nil {
				dst[i] += float64(n.Bias[first+i])
			}
		}
	}
	return y
}

func sum(x []float64, f func(float64) float64) (s float64) {
	for _, v := range x {
		s += f(v)
	}
	return s
}
