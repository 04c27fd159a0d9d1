package model

import (
	"math"

	"github.com/lockstep-go/lockstep/internal/portable"
)

// Rope is the rotary position embedding of a layer. At position p, pair i of each query and key turns by p·freq[i]
// radians:
//
//	freq[i] = Theta^(−2i/Dim) · Scale · yarn[i] / divisor[i]
//
// yarn[i] is 1 without YaRN. The divisors are Weights.RopeFactors or Weights.LongRopeFactors; without
// them they are 1.
type Rope struct {
	Dim       int     // rotated elements per head, even, ≤ HeadDim; 0: no rotation
	Theta     float64 // base of the frequencies
	Scale     float64 // multiplies positions (linear scaling); 1: none
	Magnitude float64 // multiplies sine and cosine (LongRoPE, YaRN); 1: none
	YaRN      YaRN
	NoFactors bool // all divisors are 1
}

// YaRN adapts frequencies to a context that is Factor times the original one (arXiv 2309.00071). Pairs that turn more
// than BetaFast times in the original context keep their frequency, those that turn less than BetaSlow times are
// divided by Factor, and the frequencies between are mixed:
//
//	yarn[i] = r + (1−r)/Factor,  r = 1 − clamp((i−lo)/max(hi−lo, 0.001), 0, 1)
//	lo = max(⌊pair(BetaFast)⌋, 0),  hi = min(⌈pair(BetaSlow)⌉, Dim−1),  pair(b) = Dim·ln(Context/(2π·b))/(2·ln Theta)
type YaRN struct {
	Factor             float64 // 0: no YaRN
	Context            int     // the original one, in positions
	BetaFast, BetaSlow float64
}

// frequencies returns freq [Dim/2]. divisors is nil if all are 1.
func (r Rope) frequencies(divisors []float32) []float64 {
	freq := make([]float64, r.Dim/2)
	for i := range freq {
		freq[i] = portable.Pow(r.Theta, -float64(2*i)/float64(r.Dim)) * r.Scale
		if y := r.YaRN; y.Factor > 0 {
			keep := 1 - y.ramp(i, r)
			freq[i] *= keep + float64((1-keep)/y.Factor)
		}
		if divisors != nil && !r.NoFactors {
			freq[i] /= float64(divisors[i])
		}
	}
	return freq
}

// ramp is 0 for the pairs that keep their frequency, and 1 for those that are divided by Factor.
func (y YaRN) ramp(i int, r Rope) float64 {
	pair := func(turns float64) float64 {
		return float64(r.Dim) * portable.Log(float64(y.Context)/(2*math.Pi*turns)) / (2 * portable.Log(r.Theta))
	}
	lo := max(0, math.Floor(pair(y.BetaFast)))
	hi := min(float64(r.Dim-1), math.Ceil(pair(y.BetaSlow)))
	return min(max((float64(i)-lo)/max(0.001, hi-lo), 0), 1)
}

// LayerRope returns the rotary position embedding of layer l. Its Dim is 0 if the layer has none.
func (c Config) LayerRope(l int) Rope {
	switch {
	case l < len(c.Unrotated) && c.Unrotated[l]:
		return Rope{}
	case c.LocalRope.Dim > 0 && c.LayerWindow(l) > 0:
		return c.LocalRope
	}
	return c.Rope
}

// RopeFrequencies returns the frequencies of layer l in radians per position, [LayerRope(l).Dim/2]. long selects
// the divisors for long contexts: see Config.LongRope. Results have the same bits on every machine.
func (m *Model) RopeFrequencies(l int, long bool) []float64 {
	divisors := m.Weights.RopeFactors
	if long {
		divisors = m.Weights.LongRopeFactors
	}
	return m.Config.LayerRope(l).frequencies(divisors)
}
