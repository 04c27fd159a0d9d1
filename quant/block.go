package quant

import "fmt"

// Block is a block of a quantized format in integers. Weight i, in sub-block s, is
//
//	D·Scales[s]·Quants[i] − DMin·Mins[s]
//
// rounded to float32 after each operation, from left to right. The products are exact, except that
// those of MXFP4 may overflow. Only the weights and sub-blocks of the format are set.
type Block struct {
	D, DMin      float32
	Scales, Mins [16]int8
	Quants       [256]byte // signed, in two's complement
}

// Unpack unpacks one block. It returns the number of weights per sub-block. It panics if f is
// invalid or one of F32, F16 and BF16, or if src has another length than BlockBytes.
func (b *Block) Unpack(f Format, src []byte) (subLen int) {
	l := f.layout()
	if l.subLen == 0 || len(src) != l.blockBytes {
		panic(fmt.Sprintf("quant: %d bytes are not a block of %v", len(src), f))
	}
	b.DMin, b.Mins = 0, [16]int8{}
	b.unpack(f, src)
	return l.subLen
}

// unpack sets what f has. Static calls keep b off the heap.
func (b *Block) unpack(f Format, src []byte) {
	switch f {
	case Q4_0:
		b.unpackQ4_0((*[18]byte)(src))
	case Q4_1:
		b.unpackQ4_1((*[20]byte)(src))
	case Q5_0:
		b.unpackQ5_0((*[22]byte)(src))
	case Q5_1:
		b.unpackQ5_1((*[24]byte)(src))
	case Q8_0:
		b.unpackQ8_0((*[34]byte)(src))
	case Q2_K:
		b.unpackQ2_K((*[84]byte)(src))
	case Q3_K:
		b.unpackQ3_K((*[110]byte)(src))
	case Q4_K:
		b.unpackQ4_K((*[144]byte)(src))
	case Q5_K:
		b.unpackQ5_K((*[176]byte)(src))
	case Q6_K:
		b.unpackQ6_K((*[210]byte)(src))
	case IQ4_NL:
		b.unpackIQ4_NL((*[18]byte)(src))
	case IQ4_XS:
		b.unpackIQ4_XS((*[136]byte)(src))
	case MXFP4:
		b.unpackMXFP4((*[17]byte)(src))
	}
}

// decodeBlocks decodes whole blocks.
func decodeBlocks[T float](f Format, dst []T, src []byte) {
	l := &layouts[f]
	var b Block
	for ; len(src) >= l.blockBytes; src, dst = src[l.blockBytes:], dst[l.blockLen:] {
		b.unpack(f, src)
		for s, y := 0, dst[:l.blockLen]; len(y) > 0; s, y = s+1, y[l.subLen:] {
			d, m := b.D*int8s32[byte(b.Scales[s])], b.DMin*int8s32[byte(b.Mins[s])]
			q := b.Quants[l.blockLen-len(y):][:l.subLen]
			for i := 0; i < l.subLen; i += 16 {
				affine((*[16]T)(y[i:]), (*[16]byte)(q[i:]), d, m)
			}
		}
	}
}

// affine computes y[j] = float32(d·q[j] − m) for 16 weights.
func affine[T float](y *[16]T, q *[16]byte, d, m float32) {
	for j := 0; j < 16; j += 8 {
		y, q := (*[8]T)(y[j:]), (*[8]byte)(q[j:])
		y[0] = T(float32(d*int8s32[q[0]]) - m)
		y[1] = T(float32(d*int8s32[q[1]]) - m)
		y[2] = T(float32(d*int8s32[q[2]]) - m)
		y[3] = T(float32(d*int8s32[q[3]]) - m)
		y[4] = T(float32(d*int8s32[q[4]]) - m)
		y[5] = T(float32(d*int8s32[q[5]]) - m)
		y[6] = T(float32(d*int8s32[q[6]]) - m)
		y[7] = T(float32(d*int8s32[q[7]]) - m)
	}
}

// single sets the only scale of a block.
func (b *Block) single(d float32) { b.D, b.Scales[0] = d, 1 }

// singleMin sets the only scale and the only minimum of a block: weight = d·q + m.
func (b *Block) singleMin(d, m float32) {
	b.single(d)
	b.DMin, b.Mins[0] = -m, 1
}

// nibbles unpacks 32 4-bit quants from weight i on: the low nibbles, then the high nibbles.
func (b *Block) nibbles(i int, packed *[16]byte) {
	q := (*[32]byte)(b.Quants[i:])
	for j := 0; j < 16; j += 8 {
		w := load8(packed[j:])
		store8(q[j:], w&low4)
		store8(q[j+16:], w>>4&low4)
	}
}

// levels is nibbles with each quant replaced by its level of a codebook.
func (b *Block) levels(i int, packed *[16]byte, codebook *[16]int8) {
	q := (*[32]byte)(b.Quants[i:])
	for j, v := range packed {
		q[j], q[j+16] = byte(codebook[v&15]), byte(codebook[v>>4])
	}
}

// center subtracts c from 32 quants below 128.
func (b *Block) center(c byte) {
	for j := 0; j < 32; j += 8 {
		store8(b.Quants[j:], minus(load8(b.Quants[j:]), c))
	}
}
