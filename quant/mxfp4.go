package quant

import "math"

// e2m1 lists the 4-bit floats of MXFP4, doubled so that all are integers (kvalues_mxfp4
// in ggml-common.h). The format has no −0.
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
