package ref

import (
	"github.com/lockstep-go/lockstep/internal/portable"
	"github.com/lockstep-go/lockstep/model"
)

// rotation holds the sines and cosines of one RoPE base for consecutive positions, each
// [positions, rope dim/2].
type rotation struct {
	sin, cos tensor
}

// newRotation computes, for positions first … first+n-1 and pairs i,
//
//	angle = position · scale · theta^(−2i/dim) / factor[i]
//
// Sine and cosine are multiplied by the model's RoPE attention factor (LongRoPE).
func newRotation(cfg *model.Config, factors []float32, theta, scale float64, first, n int) rotation {
	half := cfg.RopeDim / 2
	r := rotation{newTensor(n, half), newTensor(n, half)}
	for i := range half {
		freq := portable.Pow(theta, -float64(2*i)/float64(cfg.RopeDim)) * scale
		if factors != nil {
			freq /= float64(factors[i])
		}
		for p := range n {
			sin, cos := portable.SinCos(float64(float64(first+p) * freq))
			r.sin.row(p)[i] = sin * cfg.RopeAttnFactor
			r.cos.row(p)[i] = cos * cfg.RopeAttnFactor
		}
	}
	return r
}

// apply rotates the first rope dim elements of every head of x [positions, heads·head
// dim] in place:
//
//	(a, b) ← (a·cos − b·sin, a·sin + b·cos)
//
// Pair i is elements (2i, 2i+1) if Config.RopeInterleaved, else (i, i+dim/2).
func (r rotation) apply(x tensor, cfg *model.Config) {
	for p := range x.rows {
		sin, cos := r.sin.row(p), r.cos.row(p)
		for head := 0; head < x.cols; head += cfg.HeadDim {
			v := x.row(p)[head : head+cfg.HeadDim]
			for i := range sin {
				ia, ib := i, i+len(sin)
				if cfg.RopeInterleaved {
					ia, ib = 2*i, 2*i+1
				}
				a, b := v[ia], v[ib]
				v[ia] = float64(a*cos[i]) - float64(b*sin[i])
				v[ib] = float64(a*sin[i]) + float64(b*cos[i])
			}
		}
	}
}
