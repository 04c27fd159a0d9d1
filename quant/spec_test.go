package quant

import "math"

// The definitions below follow the layouts bit by bit and share no code with the decoders.
// Bits are numbered from the lowest bit of byte 0. Each operation rounds to float32.

// field reads the n bits that start at bit at.
func field(b []byte, at, n int) int {
	v := 0
	for i := range n {
		v |= int(b[(at+i)/8]>>((at+i)%8)&1) << i
	}
	return v
}

// signed reads 8 bits in two's complement.
func signed(b []byte, at int) int { return field(b, at, 7) - 128*field(b, at+7, 1) }

// halfSpec returns the value of a binary16 number by the definition of IEEE 754.
func halfSpec(bits int) float32 {
	sign, exponent, fraction := 1-2*(bits>>15), bits>>10&31, bits&1023
	switch {
	case exponent == 31 && fraction != 0:
		return float32(math.NaN())
	case exponent == 31:
		return float32(math.Inf(sign))
	case bits == 0x8000:
		return float32(math.Copysign(0, -1))
	case exponent == 0:
		return float32(float64(sign) * math.Ldexp(float64(fraction), -24))
	}
	return float32(float64(sign) * math.Ldexp(float64(1024+fraction), exponent-25))
}

func halfField(b []byte, at int) float32 { return halfSpec(field(b, at, 16)) }

func times(d float32, q int) float32 { return float32(d * float32(q)) }

// specs returns weight j of a block, per format.
var specs = map[Format]func(b []byte, j int) float32{
	F32:  func(b []byte, _ int) float32 { return math.Float32frombits(uint32(field(b, 0, 32))) },
	F16:  func(b []byte, _ int) float32 { return halfField(b, 0) },
	BF16: func(b []byte, _ int) float32 { return math.Float32frombits(uint32(field(b, 0, 16)) << 16) },

	Q4_0: func(b []byte, j int) float32 { return times(halfField(b, 0), nibble(b, 2, j)-8) },
	Q4_1: func(b []byte, j int) float32 { return times(halfField(b, 0), nibble(b, 4, j)) + halfField(b, 16) },
	Q5_0: func(b []byte, j int) float32 {
		return times(halfField(b, 0), nibble(b, 6, j)+16*field(b, 16+j, 1)-16)
	},
	Q5_1: func(b []byte, j int) float32 {
		return times(halfField(b, 0), nibble(b, 8, j)+16*field(b, 32+j, 1)) + halfField(b, 16)
	},
	Q8_0: func(b []byte, j int) float32 { return times(halfField(b, 0), signed(b, 16+8*j)) },

	Q2_K: func(b []byte, j int) float32 {
		s := j / 16
		d := times(halfField(b, 8*80), field(b, 8*s, 4))
		m := times(halfField(b, 8*82), field(b, 8*s+4, 4))
		return times(d, pair(b, 16, j)) - m
	},
	Q3_K: func(b []byte, j int) float32 {
		s := j / 16
		scale := field(b, 8*(96+s%8)+4*(s/8), 4) + 16*field(b, 8*(104+s%4)+2*(s/4), 2)
		q := pair(b, 32, j)
		if field(b, 8*(j%32)+j/32, 1) == 0 {
			q -= 4
		}
		return times(times(halfField(b, 8*108), scale-32), q)
	},
	Q4_K: func(b []byte, j int) float32 {
		d, m := scaleMinSpec(b, j/32)
		return times(d, field(b, 8*(16+j/64*32+j%32)+j/32%2*4, 4)) - m
	},
	Q5_K: func(b []byte, j int) float32 {
		d, m := scaleMinSpec(b, j/32)
		q := field(b, 8*(48+j/64*32+j%32)+j/32%2*4, 4) + 16*field(b, 8*(16+j%32)+j/32, 1)
		return times(d, q) - m
	},
	Q6_K: func(b []byte, j int) float32 {
		half, quarter, i := j/128, j/32%4, j%32
		low := field(b, 8*(64*half+quarter%2*32+i)+quarter/2*4, 4)
		high := field(b, 8*(128+32*half+i)+2*quarter, 2)
		return times(times(halfField(b, 8*208), signed(b, 8*(192+j/16))), low+16*high-32)
	},

	IQ4_NL: func(b []byte, j int) float32 { return times(halfField(b, 0), levelSpec(nibble(b, 2, j))) },
	IQ4_XS: func(b []byte, j int) float32 {
		s := j / 32
		scale := field(b, 32+4*s, 4) + 16*field(b, 16+2*s, 2)
		return times(times(halfField(b, 0), scale-32), levelSpec(nibble(b, 8+16*s, j%32)))
	},
	MXFP4: func(b []byte, j int) float32 {
		at := 8*(1+j%16) + j/16*4
		sign, exponent, level := 1-2*field(b, at+3, 1), field(b, at+1, 2), field(b, at, 1)
		if exponent > 0 {
			level = (2 + level) << (exponent - 1)
		}
		return times(float32(math.Ldexp(1, field(b, 0, 8)-128)), sign*level)
	},
}

// nibble returns the 4-bit quant of weight j < 32. The 16 bytes start at byte at.
func nibble(b []byte, at, j int) int { return field(b, 8*(at+j%16)+j/16*4, 4) }

// pair returns the 2-bit quant of weight j < 256. The 64 bytes start at byte at.
func pair(b []byte, at, j int) int { return field(b, 8*(at+j/128*32+j%32)+j/32%4*2, 2) }

// scaleMinSpec returns d·scale and dmin·min of sub-block s of Q4_K and Q5_K.
func scaleMinSpec(b []byte, s int) (d, m float32) {
	scale, low := field(b, 32+8*s, 6), field(b, 64+8*s, 6)
	if s >= 4 {
		scale = field(b, 96+8*(s-4), 4) + 16*field(b, 32+8*(s-4)+6, 2)
		low = field(b, 96+8*(s-4)+4, 4) + 16*field(b, 64+8*(s-4)+6, 2)
	}
	return times(halfField(b, 0), scale), times(halfField(b, 16), low)
}

// levelSpec returns a level of the IQ4 codebook, from the differences between levels.
func levelSpec(q int) int {
	level := -127
	for _, step := range []int{23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24}[:q] {
		level += step
	}
	return level
}
