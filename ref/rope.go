package ref

import (
	"github.com/lockstep-go/lockstep/internal/portable"
)

// rotation holds the sines and cosines of one RoPE for consecutive positions, each [positions, rope dim/2].
type rotation struct {
	sin, cos tensor
}

// newRotation computes the sine and cosine of position · freq[i] for positions first … first+n-1, times magnitude.
func newRotation(freq []float64, magnitude float64, first, n int) rotation {
	r := rotation{newTensor(n, len(freq)), newTensor(n, len(freq))}
	for i, f := range freq {
		for p := range n {
			sin, cos := portable.SinCos(float64(float64(first+p) * f))
			r.sin.row(p)[i] = sin * magnitude
			r.cos.row(p)[i] = cos * magnitude
		}
	}
	return r
}

// apply rotates the first rope dim elements of every head of x [positions, heads·head
// dim] in place, or none if r is empty:
//
//	(a, b) ← (a·cos − b·sin, a·sin + b·cos)
//
// Pair i is elements (2i, 2i+1) if interleaved, else (i, i+dim/2).
func (r rotation) apply(x tensor, headDim int, interleaved bool) {
	for p := range x.rows {
		sin, cos := r.sin.row(p), r.cos.row(p)
		for head := 0; head < x.cols; head += headDim {
			v := x.row(p)[head : head+headDim]
			for i := range sin {
				ia, ib := i, i+len(sin)
				if interleaved {
					ia, ib = 2*i, 2*i+1
				}
				a, b := v[ia], v[ib]
				v[ia] = float64(a*cos[i]) - float64(b*sin[i])
				v[ib] = float64(a*sin[i]) + float64(b*cos[i])
			}
		}
	}
}
