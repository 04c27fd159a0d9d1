package quant

import "math"

// e2m1 lists the 4-bit floats of MXFP4, doubled so that all are integers (kvalues_mxfp4
// in ggml-common.h). The format has no −0.
var e2m1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// decodeMXFP4 decodes {e uint8, q [16]byte}: weight = 2^(e−128)·e2m1[q]. A block has 32
// weights. Nibbles are as in Q4_0. Products may overflow float32; they are exact otherwise.
func decodeMXFP4[T float](dst []T, src []byte) {
	var w [16]T
	for ; len(src) >= 17; src, dst = src[17:], dst[32:] {
		d := powerOf2(int(src[0]) - 128)
		for q, level := range e2m1 {
			w[q] = T(float32(d * level))
		}
		low, high := (*[16]T)(dst), (*[16]T)(dst[16:])
		for i, b := range (*[16]byte)(src[1:]) {
			low[i], high[i] = w[b&15], w[b>>4]
		}
	}
}

// powerOf2 returns 2^n for −149 ≤ n ≤ 127. Below −126 the result is subnormal.
func powerOf2(n int) float32 {
	if n < -126 {
		return math.Float32frombits(1 << (n + 149))
	}
	return math.Float32frombits(uint32(n+127) << 23)
}
