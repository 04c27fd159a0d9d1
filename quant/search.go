package quant

import (
	"encoding/binary"
	"math"

	"github.com/lockstep-go/lockstep/internal/float16"
)

// The encoders compute in float64, where squares of the smallest weights do not
// vanish. Each product that meets a sum is rounded by an explicit conversion:
// Go may otherwise fuse the two on some platforms, and blocks would differ.

// nearest rounds to the nearest integer, ties to even, for |v| < 2⁵¹. Adding
// 1.5·2⁵² leaves no bits for a fraction.
func nearest(v float64) float64 {
	const shift = 3 << 51
	return v + shift - shift
}

// clamp limits v to [lo, hi].
func clamp(v, lo, hi float64) float64 {
	if v < lo {
		return lo
	}
	if v > hi {
		return hi
	}
	return v
}

// inverse is 1/v, or 0 for v = 0, so that everything quantizes to 0 and not NaN.
func inverse(v float64) float64 {
	if v == 0 {
		return 0
	}
	return 1 / v
}

// putScale stores v as a float16 and returns what was stored: the quants must
// fit the scale that the decoder will see. No scale becomes infinite, and none
// but 0 becomes 0: a scale that is too coarse loses less than none.
func putScale(dst []byte, v float64) float64 {
	h := float16.ToF16(float32(clamp(v, -halfMax, halfMax)))
	if h&0x7fff == 0 {
		switch {
		case v > 0:
			h = 1
		case v < 0:
			h = 0x8001
		default:
			h = 0 // −0 would decode to weights of −0
		}
	}
	binary.LittleEndian.PutUint16(dst, h)
	return float64(float16.FromF16(h))
}

// widen copies the first len(dst) weights.
func widen(dst []float64, src []float32) {
	for i, x := range src[:len(dst)] {
		dst[i] = float64(x)
	}
}

// fitScale finds s that makes Σ(x − s·q)² small for integers −n ≤ q < n. It tries
// scales that put the weight of largest magnitude at −n and near it; for each
// rounding to integers the best s is Σxq/Σq², and what it leaves of Σx² shrinks
// with (Σxq)²/Σq².
func fitScale(x []float64, n float64) float64 {
	var peak float64
	for _, v := range x {
		if math.Abs(v) > math.Abs(peak) {
			peak = v
		}
	}
	var best, most float64
	for step := range 21 {
		at := n - 2 + float64(step)/5
		inv := -at * inverse(peak)
		var xq, qq float64
		for _, v := range x {
			q := clamp(nearest(float64(v*inv)), -n, n-1)
			xq += float64(v * q)
			qq += float64(q * q)
		}
		if gain := float64(xq*xq) / qq; gain > most {
			best, most = xq/qq, gain
		}
	}
	return best
}

// line is x ≈ scale·q − low.
type line struct{ scale, low float64 }

// fitLine finds a line that makes Σ(x − scale·q + low)² small for integers 0 ≤ q ≤
// n and low ≥ 0, which is what the formats with minimums can express. It tries
// scales around the one that spreads q over the whole range of x, and for each
// rounding to integers takes the best line.
func fitLine(x []float64, n float64) line {
	lo, hi := 0.0, x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	best, least := line{low: -lo}, math.Inf(1)
	inv := inverse(hi - lo)
	for step := range 31 {
		at := n - 2 + float64(step)/5
		if fit, left := regress(x, -lo, float64(at*inv), n); left < least {
			best, least = fit, left
		}
	}
	return best
}

// regress rounds x to the integers q = (x + low)·inv within 0 to n, and returns
// the least-squares line through them with what it leaves of Σx², less Σx².
func regress(x []float64, low, inv, n float64) (fit line, left float64) {
	var sq, sqq, sx, sxq float64
	for _, v := range x {
		q := clamp(nearest(float64((v+low)*inv)), 0, n)
		sq += q
		sqq += float64(q * q)
		sx += v
		sxq += float64(v * q)
	}
	count := float64(len(x))
	det := float64(count*sqq) - float64(sq*sq) // of integers, so exact: 0 when all q are equal
	switch {
	case sqq == 0:
		fit.low = max(0, -sx/count)
		return fit, -float64(fit.low*fit.low) * count
	case det > 0:
		fit.scale = (float64(count*sxq) - float64(sx*sq)) / det
		fit.low = (float64(sq*sxq) - float64(sx*sqq)) / det
		if fit.low >= 0 {
			return fit, float64(fit.low*sx) - float64(fit.scale*sxq)
		}
	}
	fit = line{scale: sxq / sqq} // the best without a minimum
	return fit, -float64(fit.scale * sxq)
}

// distance is the sum Σ(x − scale·q + low)² for the best integers 0 ≤ q ≤ n.
func (l line) distance(x []float64, n float64) (sum float64) {
	inv := inverse(l.scale)
	for _, v := range x {
		y := v + l.low
		e := y - float64(l.scale*clamp(nearest(float64(y*inv)), 0, n))
		sum += float64(e * e)
	}
	return sum
}
