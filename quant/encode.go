package quant

import (
	"encoding/binary"
	"math"

	"github.com/lockstep-go/lockstep/internal/float16"
)

// The encoders compute in float64, so that squares of small weights do not underflow. Each
// product is converted to float64 before it is added. Without the conversion, Go may fuse
// multiplication and addition on some platforms, and the blocks would differ.

// nearest rounds v to the nearest integer, ties to even, for |v| < 2⁵¹. A float64 of
// 1.5·2⁵² has no bits for a fraction.
func nearest(v float64) float64 {
	const shift = 3 << 51
	return v + shift - shift
}

func clamp(v, lo, hi float64) float64 {
	if v < lo {
		return lo
	}
	if v > hi {
		return hi
	}
	return v
}

// inverse returns 1/v, or 0 if v is 0, so that a zero scale gives zero quants.
func inverse(v float64) float64 {
	if v == 0 {
		return 0
	}
	return 1 / v
}

// putScale stores v as a float16 and returns the stored value, which determines the quants.
// It clamps v to the finite numbers. If v is too small for a float16, it stores the smallest
// number instead of 0: an oversized scale loses less than a scale of 0.
func putScale(dst []byte, v float64) float64 {
	h := float16.ToF16(float32(clamp(v, -maxF16, maxF16)))
	if h&0x7fff == 0 {
		switch {
		case v > 0:
			h = 1
		case v < 0:
			h = 0x8001
		default:
			h = 0 // not −0
		}
	}
	binary.LittleEndian.PutUint16(dst, h)
	return float64(float16.FromF16(h))
}

// widen converts the first len(dst) weights to float64.
func widen(dst []float64, src []float32) {
	for i, x := range src[:len(dst)] {
		dst[i] = float64(x)
	}
}

// fitScale searches for the scale s that minimizes Σ(x − s·q)² for integers −n ≤ q < n. It
// tries scales that map the weight of largest magnitude to −n and nearby values, and rounds
// the weights to q. For these q the best s is Σxq/Σq². It reduces the error by (Σxq)²/Σq².
func fitScale(x []float64, n float64) float64 {
	var peak float64
	for _, v := range x {
		if math.Abs(v) > math.Abs(peak) {
			peak = v
		}
	}
	var best, most float64
	for i := range 21 {
		at := n - 2 + float64(i)/5
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

// line is the approximation x ≈ scale·q − low.
type line struct{ scale, low float64 }

// fitLine searches for the line that minimizes Σ(x − scale·q + low)² for integers 0 ≤ q ≤ n
// and low ≥ 0. It tries scales around the one that spreads q over the range of x, and
// computes the least-squares line for each resulting q.
func fitLine(x []float64, n float64) line {
	lo, hi := 0.0, x[0]
	for _, v := range x {
		lo, hi = min(lo, v), max(hi, v)
	}
	best, least := line{low: -lo}, math.Inf(1)
	inv := inverse(hi - lo)
	for i := range 31 {
		at := n - 2 + float64(i)/5
		if fit, left := regress(x, -lo, float64(at*inv), n); left < least {
			best, least = fit, left
		}
	}
	return best
}

// regress rounds x to integers q = (x + low)·inv in [0, n]. It returns the least-squares
// line for these q, and its squared error minus Σx².
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
	det := float64(count*sqq) - float64(sq*sq) // exact: 0 if all q are equal
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
	fit = line{scale: sxq / sqq} // the best line with low = 0
	return fit, -float64(fit.scale * sxq)
}

// distance returns Σ(x − scale·q + low)² for the best integers 0 ≤ q ≤ n.
func (l line) distance(x []float64, n float64) (sum float64) {
	inv := inverse(l.scale)
	for _, v := range x {
		y := v + l.low
		e := y - float64(l.scale*clamp(nearest(float64(y*inv)), 0, n))
		sum += float64(e * e)
	}
	return sum
}

// encodeQ8_0 writes d = max|x|/127, and q = x/d rounded to the nearest integer, ties away from zero. These are the blocks of
// ggml unless d is below 2⁻¹⁴, where float16 is subnormal: there d is rounded up, because a smaller d could clip the largest
// weights.
func encodeQ8_0(dst []byte, src []float32) {
	for ; len(src) >= 32; src, dst = src[32:], dst[34:] {
		var peak float64
		for _, x := range src[:32] {
			if a := math.Abs(float64(x)); a > peak {
				peak = a
			}
		}
		d := float64(float32(peak) / 127)
		if d < 0x1p-14 {
			d = math.Ceil(d*0x1p24) * 0x1p-24
		}
		putScale(dst, d)
		inv := float32(inverse(d))
		for j, x := range src[:32] {
			y := float64(float32(x * inv))
			dst[2+j] = byte(int(y + math.Copysign(0.5, y)))
		}
	}
}

// encodeQ4_0 searches for the d of each block with the least squared error.
func encodeQ4_0(dst []byte, src []float32) {
	var x [32]float64
	var q [32]byte
	for ; len(src) >= 32; src, dst = src[32:], dst[18:] {
		widen(x[:], src)
		inv := inverse(putScale(dst, fitScale(x[:], 8)))
		for j, v := range x {
			q[j] = byte(clamp(nearest(float64(v*inv)), -8, 7) + 8)
		}
		for j := range 16 {
			dst[2+j] = q[j] | q[j+16]<<4
		}
	}
}

// encodeQ4_K searches the scale and minimum of each sub-block for the least squared
// error, then the nearest 6-bit multiples of d and dmin.
func encodeQ4_K(dst []byte, src []float32) {
	var x [256]float64
	var q [256]byte
	for ; len(src) >= 256; src, dst = src[256:], dst[144:] {
		widen(x[:], src)
		var fits [8]line
		var top line
		for s := range fits {
			fits[s] = fitLine(x[32*s:32*s+32], 15)
			top.scale, top.low = max(top.scale, fits[s].scale), max(top.low, fits[s].low)
		}
		d := line{putScale(dst, top.scale/63), putScale(dst[2:], top.low/63)}
		packed := (*[12]byte)(dst[4:])
		clear(packed[:])
		for s, fit := range fits {
			x, q := x[32*s:32*s+32], q[32*s:32*s+32]
			scale, low := roundLine(x, fit, d)
			packScaleMin(packed, s, byte(scale), byte(low))
			l := line{float64(scale * d.scale), float64(low * d.low)}
			inv := inverse(l.scale)
			for j, v := range x {
				q[j] = byte(clamp(nearest(float64((v+l.low)*inv)), 0, 15))
			}
		}
		for j := range 128 {
			p, i := j/32, j%32
			dst[16+j] = q[64*p+i] | q[64*p+32+i]<<4
		}
	}
}

// roundLine returns the integer scale and minimum in [0, 63], in units of d.scale and
// d.low, that fit x best. It tries the neighbors of fit.
func roundLine(x []float64, fit, d line) (scale, low float64) {
	s0 := nearest(float64(fit.scale * inverse(d.scale)))
	m0 := nearest(float64(fit.low * inverse(d.low)))
	least := math.Inf(1)
	for s := clamp(s0-1, 0, 63); s <= min(s0+1, 63); s++ {
		for m := clamp(m0-1, 0, 63); m <= min(m0+1, 63); m++ {
			l := line{float64(s * d.scale), float64(m * d.low)}
			if sum := l.distance(x, 15); sum < least {
				least, scale, low = sum, s, m
			}
		}
	}
	return scale, low
}

// packScaleMin is the inverse of scaleMin. The bytes must be zero before the first call.
func packScaleMin(packed *[12]byte, s int, scale, low byte) {
	if s < 4 {
		packed[s] |= scale
		packed[s+4] |= low
		return
	}
	packed[s+4] |= scale&15 | low<<4
	packed[s-4] |= scale >> 4 << 6
	packed[s] |= low >> 4 << 6
}

// encodeQ6_K searches the scale of each sub-block for the least squared error, then the
// nearest 8-bit multiples of d.
func encodeQ6_K(dst []byte, src []float32) {
	var x [256]float64
	var q [256]byte
	for ; len(src) >= 256; src, dst = src[256:], dst[210:] {
		widen(x[:], src)
		var fits [16]float64
		var peak float64
		for s := range fits {
			fits[s] = fitScale(x[16*s:16*s+16], 32)
			if math.Abs(fits[s]) > math.Abs(peak) {
				peak = fits[s]
			}
		}
		d := putScale(dst[208:], peak/-128) // the largest magnitude is −128
		for s, fit := range fits {
			x, q := x[16*s:16*s+16], q[16*s:16*s+16]
			scale := roundScale(x, fit, d)
			dst[192+s] = byte(int8(scale))
			inv := inverse(float64(scale * d))
			for j, v := range x {
				q[j] = byte(clamp(nearest(float64(v*inv)), -32, 31) + 32)
			}
		}
		packSixes((*[192]byte)(dst), &q)
	}
}

// roundScale returns the integer scale in [−128, 127], in units of d, that fits x best.
// It tries the neighbors of fit. The nearest one wins ties, so that zeros keep scale 0.
func roundScale(x []float64, fit, d float64) float64 {
	least, best := math.Inf(1), 0.0
	nearby := nearest(float64(fit * inverse(d)))
	for _, offset := range [...]float64{0, -1, 1} {
		scale := clamp(nearby+offset, -128, 127)
		product, sum := float64(scale*d), 0.0
		inv := inverse(product)
		for _, v := range x {
			e := v - float64(product*clamp(nearest(float64(v*inv)), -32, 31))
			sum += float64(e * e)
		}
		if sum < least {
			least, best = sum, scale
		}
	}
	return best
}

// packSixes is the inverse of sixes, for quants without the subtraction.
func packSixes(packed *[192]byte, q *[256]byte) {
	for j := range 64 {
		h, i := j/32, j%32
		a, b, c, d := q[128*h+i], q[128*h+32+i], q[128*h+64+i], q[128*h+96+i]
		packed[64*h+i] = a&15 | c<<4
		packed[64*h+32+i] = b&15 | d<<4
		packed[128+j] = a>>4 | b>>4<<2 | c>>4<<4 | d>>4<<6
	}
}
