package quant

import "math"

// encodeQ4_K searches each sub-block's scale and minimum for the least squared
// error, and once more among the 6-bit multiples that lie nearest to them.
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
		unit := line{putScale(dst, top.scale/63), putScale(dst[2:], top.low/63)}
		packed := (*[12]byte)(dst[4:])
		clear(packed[:])
		for s, fit := range fits {
			x, q := x[32*s:32*s+32], q[32*s:32*s+32]
			scale, low := roundLine(x, fit, unit)
			packScaleMin(packed, s, byte(scale), byte(low))
			l := line{float64(scale * unit.scale), float64(low * unit.low)}
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

// roundLine finds the multiples, 0 to 63, of unit's scale and low that fit x best,
// looking one step around those nearest to fit's.
func roundLine(x []float64, fit, unit line) (scale, low float64) {
	s0 := nearest(float64(fit.scale * inverse(unit.scale)))
	m0 := nearest(float64(fit.low * inverse(unit.low)))
	least := math.Inf(1)
	for s := clamp(s0-1, 0, 63); s <= min(s0+1, 63); s++ {
		for m := clamp(m0-1, 0, 63); m <= min(m0+1, 63); m++ {
			l := line{float64(s * unit.scale), float64(m * unit.low)}
			if sum := l.distance(x, 15); sum < least {
				least, scale, low = sum, s, m
			}
		}
	}
	return scale, low
}

// packScaleMin adds what scaleMin unpacks to bytes that are zero at first.
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

// encodeQ6_K searches each sub-block's scale for the least squared error, and
// once more among the 8-bit multiples that lie nearest to it.
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
		unit := putScale(dst[208:], peak/-128) // the only magnitude of 128 is −128
		for s, fit := range fits {
			x, q := x[16*s:16*s+16], q[16*s:16*s+16]
			scale := roundScale(x, fit, unit)
			dst[192+s] = byte(int8(scale))
			inv := inverse(float64(scale * unit))
			for j, v := range x {
				q[j] = byte(clamp(nearest(float64(v*inv)), -32, 31) + 32)
			}
		}
		packSixes((*[192]byte)(dst), &q)
	}
}

// roundScale finds the multiple, −128 to 127, of unit that fits x best, looking one
// step around the one nearest to fit. That one wins ties, so that zeros keep 0.
func roundScale(x []float64, fit, unit float64) float64 {
	least, best := math.Inf(1), 0.0
	nearby := nearest(float64(fit * inverse(unit)))
	for _, step := range [...]float64{0, -1, 1} {
		scale := clamp(nearby+step, -128, 127)
		d, sum := float64(scale*unit), 0.0
		inv := inverse(d)
		for _, v := range x {
			e := v - float64(d*clamp(nearest(float64(v*inv)), -32, 31))
			sum += float64(e * e)
		}
		if sum < least {
			least, best = sum, scale
		}
	}
	return best
}

// packSixes packs 6-bit quants as sixes unpacks them.
func packSixes(packed *[192]byte, q *[256]byte) {
	for j := range 64 {
		h, i := j/32, j%32
		a, b, c, d := q[128*h+i], q[128*h+32+i], q[128*h+64+i], q[128*h+96+i]
		packed[64*h+i] = a&15 | c<<4
		packed[64*h+32+i] = b&15 | d<<4
		packed[128+j] = a>>4 | b>>4<<2 | c>>4<<4 | d>>4<<6
	}
}
