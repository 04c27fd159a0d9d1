package quant

// The functions below unpack weights and multiply them in one loop. They add the products
// in the order of portable.Dot, and so return the same bits.

func dotQ8_0(src []byte, x []float64) float64 {
	var s0, s1, s2, s3 float64
	for ; len(src) >= 34 && len(x) >= 32; src, x = src[34:], x[32:] {
		block, x := (*[34]byte)(src), (*[32]float64)(x)
		d := float64(f16At(block[:]))
		for j := 0; j < 32; j += 4 {
			q, x := (*[4]byte)(block[2+j:]), (*[4]float64)(x[j:])
			s0 += float64(d * int8s64[q[0]] * x[0])
			s1 += float64(d * int8s64[q[1]] * x[1])
			s2 += float64(d * int8s64[q[2]] * x[2])
			s3 += float64(d * int8s64[q[3]] * x[3])
		}
	}
	return (s0 + s2) + (s1 + s3)
}

func dotQ4_K(src []byte, x []float64) float64 {
	var s0, s1, s2, s3 float64
	for ; len(src) >= 144 && len(x) >= 256; src, x = src[144:], x[256:] {
		d, dmin, scales := f16At(src), f16At(src[2:]), (*[12]byte)(src[4:])
		for p := range 4 {
			sc, mn := scaleMin(scales, 2*p)
			dl, ml := float32(d*int8s32[sc]), float32(dmin*int8s32[mn])
			packed, x := (*[32]byte)(src[16+32*p:]), (*[64]float64)(x[64*p:])
			for j := 0; j < 32; j += 4 {
				q, x := (*[4]byte)(packed[j:]), (*[4]float64)(x[j:])
				s0 += float64(float64(float32(dl*int8s32[q[0]&15])-ml) * x[0])
				s1 += float64(float64(float32(dl*int8s32[q[1]&15])-ml) * x[1])
				s2 += float64(float64(float32(dl*int8s32[q[2]&15])-ml) * x[2])
				s3 += float64(float64(float32(dl*int8s32[q[3]&15])-ml) * x[3])
			}
			sc, mn = scaleMin(scales, 2*p+1)
			dl, ml = float32(d*int8s32[sc]), float32(dmin*int8s32[mn])
			for j := 0; j < 32; j += 4 {
				q, x := (*[4]byte)(packed[j:]), (*[4]float64)(x[32+j:])
				s0 += float64(float64(float32(dl*int8s32[q[0]>>4])-ml) * x[0])
				s1 += float64(float64(float32(dl*int8s32[q[1]>>4])-ml) * x[1])
				s2 += float64(float64(float32(dl*int8s32[q[2]>>4])-ml) * x[2])
				s3 += float64(float64(float32(dl*int8s32[q[3]>>4])-ml) * x[3])
			}
		}
	}
	return (s0 + s2) + (s1 + s3)
}

func dotQ6_K(src []byte, x []float64) float64 {
	var s0, s1, s2, s3 float64
	var q [256]byte
	for ; len(src) >= 210 && len(x) >= 256; src, x = src[210:], x[256:] {
		sixes(&q, (*[192]byte)(src))
		d, scales := float64(f16At(src[208:])), (*[16]byte)(src[192:])
		for s := range 16 {
			scale := d * int8s64[scales[s]]
			q, x := (*[16]byte)(q[16*s:]), (*[16]float64)(x[16*s:])
			for j := 0; j < 16; j += 4 {
				q, x := (*[4]byte)(q[j:]), (*[4]float64)(x[j:])
				s0 += float64(scale * int8s64[q[0]] * x[0])
				s1 += float64(scale * int8s64[q[1]] * x[1])
				s2 += float64(scale * int8s64[q[2]] * x[2])
				s3 += float64(scale * int8s64[q[3]] * x[3])
			}
		}
	}
	return (s0 + s2) + (s1 + s3)
}
