package quant

import "math"

// encodeQ8_0 follows ggml's rule, so that the blocks are the usual ones: d =
// max|x|/127, and q = x/d to the nearest integer, halves away from zero. Only
// below 2⁻¹⁴, where float16 has no more than steps of 2⁻²⁴, d is rounded up
// first: rounded down it could cut off the largest weights.
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

// encodeQ4_0 searches each block's d for the least squared error.
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
