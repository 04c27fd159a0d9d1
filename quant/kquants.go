package quant

// K-quants: blocks of 256 weights in sub-blocks of 16 or 32. Each sub-block has an integer
// scale, and in some formats an integer minimum. The comment of each function gives the
// bytes of a block in order.

// unpackQ2_K unpacks {scales [16]byte, q [64]byte, d, dmin f16}: weight = (d·scale)·q −
// dmin·min. Sub-block s has 16 weights, its scale in the low nibble of scales[s] and its
// minimum in the high nibble. Bits 2k and 2k+1 of q[32h+i] are the quant of weight
// 128h + 32k + i.
func (b *Block) unpackQ2_K(src *[84]byte) {
	b.pairs((*[64]byte)(src[16:]))
	for s, sc := range src[:16] {
		b.Scales[s], b.Mins[s] = int8(sc&15), int8(sc>>4)
	}
	b.D, b.DMin = f16At(src[80:]), f16At(src[82:])
}

// pairs unpacks the 2-bit quants of Q2_K and Q3_K.
func (b *Block) pairs(packed *[64]byte) {
	for h := range 2 {
		q, packed := (*[128]byte)(b.Quants[128*h:]), (*[32]byte)(packed[32*h:])
		for i := 0; i < 32; i += 8 {
			w := load8(packed[i:])
			store8(q[i:], w&low2)
			store8(q[i+32:], w>>2&low2)
			store8(q[i+64:], w>>4&low2)
			store8(q[i+96:], w>>6&low2)
		}
	}
}

// unpackQ3_K unpacks {high [32]byte, low [64]byte, scales [12]byte, d f16}: weight =
// (d·(scale − 32))·(q − 4). The lower two bits of q are packed as in Q2_K; the third bit
// of weight 32k + i is bit k of high[i]. Sub-block s has 16 weights and a 6-bit scale:
// the low four bits are nibble s/8 of scales[s%8], the upper two are bits 2(s/4) and
// 2(s/4)+1 of scales[8 + s%4].
func (b *Block) unpackQ3_K(src *[110]byte) {
	b.pairs((*[64]byte)(src[32:]))
	for j := 0; j < 256; j += 8 {
		third := load8(src[j%32:]) >> (j / 32) & low1
		store8(b.Quants[j:], minus(load8(b.Quants[j:])|third<<2, 4))
	}
	packed := (*[12]byte)(src[96:])
	for s := range b.Scales {
		b.Scales[s] = int8(packed[s%8]>>(4*(s/8))&15|packed[8+s%4]>>(2*(s/4))&3<<4) - 32
	}
	b.D = f16At(src[108:])
}

// scaleMin unpacks the 6-bit scale and minimum of sub-block s. Q4_K and Q5_K pack eight
// of each into 12 bytes. Those of sub-blocks 0–3 are the low six bits of bytes 0–3 and
// 4–7. Those of sub-blocks 4–7 have their low four bits in the nibbles of bytes 8–11 and
// their upper two bits in the top bits of bytes 0–7.
func scaleMin(packed *[12]byte, s int) (scale, min byte) {
	if s < 4 {
		return packed[s] & 63, packed[s+4] & 63
	}
	return packed[s+4]&15 | packed[s-4]>>6<<4, packed[s+4]>>4 | packed[s]>>6<<4
}

// scaleMins unpacks the scales and minimums of Q4_K and Q5_K.
func (b *Block) scaleMins(head *[16]byte) {
	b.D, b.DMin = f16At(head[:]), f16At(head[2:])
	for s := range 8 {
		scale, min := scaleMin((*[12]byte)(head[4:]), s)
		b.Scales[s], b.Mins[s] = int8(scale), int8(min)
	}
}

// unpackQ4_K unpacks {d, dmin f16, scales [12]byte, q [128]byte}: weight = (d·scale)·q −
// dmin·min. Sub-block s has 32 weights, and a scale and a minimum as scaleMin unpacks
// them. The low nibbles of q[32p:32p+32] are sub-block 2p, the high nibbles 2p+1.
func (b *Block) unpackQ4_K(src *[144]byte) {
	b.scaleMins((*[16]byte)(src[:]))
	for p := range 4 {
		q, packed := (*[64]byte)(b.Quants[64*p:]), (*[32]byte)(src[16+32*p:])
		for i := 0; i < 32; i += 8 {
			w := load8(packed[i:])
			store8(q[i:], w&low4)
			store8(q[i+32:], w>>4&low4)
		}
	}
}

// unpackQ5_K unpacks {d, dmin f16, scales [12]byte, high [32]byte, low [128]byte}: as
// Q4_K with a fifth bit, which is bit s of high[i] for weight i of sub-block s.
func (b *Block) unpackQ5_K(src *[176]byte) {
	b.scaleMins((*[16]byte)(src[:]))
	high, low := (*[32]byte)(src[16:]), (*[128]byte)(src[48:])
	for j := 0; j < 256; j += 8 {
		s, i := j/32, j%32
		four := load8(low[32*(s/2)+i:]) >> (4 * (s % 2)) & low4
		store8(b.Quants[j:], four|load8(high[i:])>>s&low1<<4)
	}
}

// unpackQ6_K unpacks {low [128]byte, high [64]byte, scales [16]int8, d f16}: weight =
// (d·scale)·(q − 32). Sub-block s has 16 weights. The quant of weight 128h + 32k + i has
// its low four bits in nibble k/2 of low[64h + 32(k%2) + i], and its upper two bits in
// bits 2k and 2k+1 of high[32h + i].
func (b *Block) unpackQ6_K(src *[210]byte) {
	sixes(&b.Quants, (*[192]byte)(src[:]))
	for s, scale := range src[192:208] {
		b.Scales[s] = int8(scale)
	}
	b.D = f16At(src[208:])
}

// sixes unpacks the 6-bit quants of Q6_K and subtracts 32.
func sixes(q *[256]byte, packed *[192]byte) {
	for h := range 2 {
		q, low, high := (*[128]byte)(q[128*h:]), (*[64]byte)(packed[64*h:]), (*[32]byte)(packed[128+32*h:])
		for i := 0; i < 32; i += 8 {
			a, b, up := load8(low[i:]), load8(low[i+32:]), load8(high[i:])
			store8(q[i:], minus(a&low4|up&low2<<4, 32))
			store8(q[i+32:], minus(b&low4|up>>2&low2<<4, 32))
			store8(q[i+64:], minus(a>>4&low4|up>>4&low2<<4, 32))
			store8(q[i+96:], minus(b>>4&low4|up>>6&low2<<4, 32))
		}
	}
}
