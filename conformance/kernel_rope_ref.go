package conformance

import (
	"math"

	"github.com/lockstep-go/lockstep/quant"
)

// ropeFrequencies is theta^(−2j/rot), in radians a position.
func ropeFrequencies(c ropeCase) []float64 {
	theta := c.theta
	if theta == 0 {
		theta = 10000
	}
	freq := make([]float64, c.rot/2)
	for j := range freq {
		freq[j] = math.Pow(theta, -float64(2*j)/float64(c.rot))
	}
	return freq
}

// rotated is a head vector after norm and rotation, and the bound 4u·‖(a, b)‖ of each
// of a pair, with 8u more for the norm.
func (t *ropeRun) rotated(x, w []float32, position int) (y, bound []float64) {
	y, bound = make([]float64, len(x)), make([]float64, len(x))
	units := 4.0
	for i, v := range x {
		y[i] = float64(v)
	}
	if t.norm {
		y, units = normRef(x, w, false, float64(float32(1e-6))), 12
		for i, v := range y {
			bound[i] = 8 * 0x1p-24 * math.Abs(v)
		}
	}
	factor := 1.0
	if t.factor != 0 {
		factor = float64(t.factor)
	}
	for j, f := range t.freq {
		a, b := 2*j, 2*j+1
		if t.neox {
			a, b = j, j+len(t.freq)
		}
		sin, cos := math.Sincos(float64(position) * f)
		u, v := y[a], y[b]
		y[a] = float64(factor*u*cos) - float64(factor*v*sin)
		y[b] = float64(factor*u*sin) + float64(factor*v*cos)
		bound[a] = float64(units * 0x1p-24 * factor * math.Hypot(u, v))
		bound[b] = bound[a]
	}
	return y, bound
}

// roundTo is x after a conversion to the format and back.
func roundTo(f quant.Format, x []float32) []float32 {
	cells := make([]byte, len(x)*f.BlockBytes())
	if err := f.Encode(cells, x); err != nil {
		panic(err)
	}
	return decodeFloats(f, cells)
}
