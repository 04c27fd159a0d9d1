package quant

import "math"

// e2m1 lists the 4-bit floats of MXFP4, doubled so that all are integers (kvalues_mxfp4
// in ggml-common.h). Code 8, −0 in the OCP format, is 0.
var e2m1 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// unpackMXFP4 unpacks {e uint8, q [16]byte}: weight = 2^(e−128)·e2m1[q]. A block has 32
// weights. Nibbles are as in Q4_0. Products may overflow float32; they are exact otherwise.
func (b *Block) unpackMXFP4(src *[17]byte) {
	b.levels(0, (*[16]byte)(src[1:]), &e2m1)
	b.single(powerOf2(int(src[0]) - 128))
}

// powerOf2 returns 2^n for −149 ≤ n ≤ 127. Below −126 the result is subnormal.
func powerOf2(n int) float32 {
	if n < -126 {
		return math.Float32frombits(1 << (n + 149))
	}
	return math.Float32frombits(uint32(n+127) << 23)
}

// encodeMXFP4 chooses the scale for which the largest |weight|/scale of a block is in [8, 16), as the OCP Microscaling
// specification does. Quotients above 12 become 12.
func encodeMXFP4(dst []byte, src []float32) {
	for ; len(src) >= 32; src, dst = src[32:], dst[17:] {
		var peak float64
		for _, x := range src[:32] {
			peak = max(peak, math.Abs(float64(x)))
		}
		e := max(0, math.Ilogb(peak)-3+128)
		dst[0] = byte(e)
		scale := float64(powerOf2(e - 128))
		for j := range 16 {
			dst[1+j] = nearestE2M1(float64(src[j])/scale) | nearestE2M1(float64(src[j+16])/scale)<<4
		}
	}
}

// nearestE2M1 returns the code of the level nearest to x; ties go toward 0.
func nearestE2M1(x float64) (q byte) {
	for q < 7 && math.Abs(x) > float64(e2m1[q]+e2m1[q+1])/2 {
		q++
	}
	if x < 0 && q > 0 {
		q |= 8
	}
	return q
}
