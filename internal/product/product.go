// Package product defines a matrix product with float16 operands: how they are rounded, and in
// which order products are added. Package ref computes it with sums in float64.
//
// Columns are cut into segments of Segment. With weights W [rows, cols] and activations x
// [tokens, cols], a segment s has for token t and row r the inner sum
//
//	i[t,r,s] = Σ_{k∈s} ŵ[r,k]·x̂[t,k] + Σ_{b∈s} o[r,b]·X[t,b]
//
// ŵ and x̂ are float16; for F32 weights, ŵ is the sum of two. The second sum is of formats with minimums
// only: a sub-block b of weights has an offset o, and X is the sum of its activations.
//
// Then the inner sums are added in the order of the segments. With f(v) for v rounded to float32:
//
//	y = f(y + f(D·E)·i)     in formats with blocks of 256, where a segment of a row has a D
//	y = D·f(y + E·i)        in all others, where a row has one D, multiplied after the last segment
//
// y begins with 0. D is a float32, and E is a power of two for each token and segment.
//
// Kernels compute an inner sum as one chain of tensor-core instructions with float32 accumulators, which
// begins with 0. Instruction j, from 0 to 15, takes columns 2j and 2j+1 of each 32 columns of the segment.
// Columns beyond the row are 0. For F32 weights there are two instructions: first with the high parts, then
// with the low ones. The offsets come last, each twice, with both parts of X: one instruction for eight
// sub-blocks, or one for the even and one for the odd of 16. Neither the number of tokens nor the shape of
// tiles has a part in this.
//
// # Activations
//
// x̂ = f16(x/E). E is 2^(16n-7), where n is the integer for which the largest finite |x/E| of the segment is in
// [1/2, 2^15), or 0 if no finite x differs from 0. E is limited to the range from 2^-103 to 2^113. So x̂ of a finite
// activation does not overflow, and no pass over the whole row is needed. D·E may overflow for activations from 2^104 on;
// then y is infinite or NaN. Kernels are faster where all tokens have the same E, which is most often so.
//
// X is the sum of two float16, f16(S/32) and f16 of the rest. S is the sum of the sub-block's x̂ in float32:
// neighbors are added in pairs, then neighboring pairs, and so on.
//
// # Norm
//
// With an RMS norm before the product, x[t,k]·n[k] takes the place of x[t,k], rounded to float32. n are the weights of
// the norm. A result y is multiplied by
//
//	1 / sqrt(S/cols + eps)
//
// S is the sum of the squares of the token's x in float32: those of eight neighbors in turn, then 32 such sums in a
// butterfly, which are a segment, then the segments in order. If S overflows, results are 0.
//
// # Weights
//
// A quantized weight is scale·q − minimum. q is a number from 0 on: the stored quant, or for a codebook its
// level plus 128. c is about the middle of its range, so that the weight is scale·(q − c) + (c·scale −
// minimum), and the second part is small. With scale and minimum divided by D,
//
//	ŵ = f16(scale·q + f16(−c·scale))
//
// is one fused multiply-add in float16, and o is 32·(c·scale − minimum), rounded.
//
// In formats with blocks of 256, a block is a segment, and scales and minimums are integers times d and dmin.
// D is d·2^16, so that scale/D is the integer n over 2^16. Then no weight of a format with minimums is
// rounded, but its offset is: with h + l for dmin/d·32/2^16 as the sum of two float16, and the integer m of
// the minimum,
//
//	o = f16(f16(c·n·32/2^16 − m·h) − m·l)
//
// If |dmin| is more than 2^20·|d|, D is dmin·2^16, and n is 0.
//
// In formats with blocks of 32 except MXFP4, D is the power of two for which the largest 128·|scale| + |c·scale − minimum|
// of the row is in [1/4, 1/2) after division, scale/D is rounded to f16(2^20·scale/D)/2^20, and o is
// f16(32·f(c·scale − minimum)/D).
//
// In MXFP4, q is the level with its sign, and c is 0. Scales are powers of two. D is the largest of the row, but at
// least 2^-126. So ŵ = f16(q·scale/D) is exact if the scale is at most 2^24 times smaller than D.
//
// F16 has D = 1. In BF16 and F32, D is the power of two that brings the largest magnitude of the row into
// [2^7, 2^8). A BF16 weight is exact if it is at most 2^24 times smaller than that. An F32 weight becomes
// f16(w/D) and f16 of the rest.
package product

import (
	"math"

	"github.com/lockstep-go/lockstep/internal/float16"
	"github.com/lockstep-go/lockstep/quant"
)

// Segment is the number of columns of a segment. The last one of a row may have fewer.
const Segment = 256

// f16 rounds once to float16, to nearest even. The float32 between is rounded to odd, so that the
// second rounding sees on which side of a tie x is.
func f16(x float64) float64 {
	f := float32(x)
	if rest := x - float64(f); rest != 0 && rest-rest == 0 && math.Float32bits(f)&1 == 0 {
		f = math.Nextafter32(f, float32(math.Inf(int(math.Copysign(1, rest)))))
	}
	return float64(float16.RoundF16(f))
}

// activationScale returns E of a segment of activations.
func activationScale(x []float64) float64 {
	top := largest(x)
	_, exponent := math.Frexp(top) // top is less than 2^exponent
	n := math.Floor(float64(exponent+7) / 16)
	if top == 0 {
		n = 0
	}
	return math.Exp2(min(max(float64(16*n)-7, -103), 113))
}

// scaleOf returns the smallest power of two p with |v|/p < 2^n for all finite v of x, as far as p is a normal
// float32. It returns 1 if no finite v differs from 0.
func scaleOf(x []float64, n int) float64 { return scaleFor(largest(x), n) }

// largest returns the largest finite magnitude, or 0 if there is none.
func largest(x []float64) float64 {
	top := 0.0
	for _, v := range x {
		top = larger(top, v)
	}
	return top
}

// larger returns the larger of top and |v|, or top if v is not finite.
func larger(top, v float64) float64 {
	if size := math.Abs(v); size > top && size <= math.MaxFloat64 {
		return size
	}
	return top
}

// scaleFor is scaleOf for the largest finite magnitude.
func scaleFor(top float64, n int) float64 {
	if top == 0 {
		return 1
	}
	_, exponent := math.Frexp(top)
	return math.Ldexp(1, min(max(exponent-n, -126), 127))
}

// segments is the number of segments of cols columns.
func segments(cols int) int { return (cols + Segment - 1) / Segment }

// SubBlock returns the number of weights that share a minimum in a format, or 0 if it has none.
func SubBlock(f quant.Format) int {
	switch f {
	case quant.Q4_1, quant.Q5_1, quant.Q4_K, quant.Q5_K:
		return 32
	case quant.Q2_K:
		return 16
	}
	return 0
}

// offsets is the number of offsets per segment.
func offsets(f quant.Format) int {
	if n := SubBlock(f); n > 0 {
		return Segment / n
	}
	return 0
}

// columns returns the length of the operands of a row of cols columns: the columns, and then the
// sub-blocks of all segments.
func columns(f quant.Format, cols int) int { return cols + segments(cols)*offsets(f) }

// Activations returns the operand of a row of activations, for weights in format f: x̂ times E, then X times E.
func Activations(f quant.Format, x []float64) []float64 {
	rounded, e := activations(f, x)
	return scaled(f, rounded, len(x), e)
}

// Norm multiplies a row of activations by the weights of an RMS norm. It returns the row and the factor 1/sqrt(S/cols + eps)
// of the results.
func Norm(x, weights []float64, eps float64) (weighted []float64, factor float64) {
	var squares float64
	for i, v := range x {
		squares += float64(v * v)
		weighted = append(weighted, float64(float32(v*weights[i])))
	}
	return weighted, 1 / math.Sqrt(squares/float64(len(x))+eps)
}

// Weights returns the operand of a row of cols weights in blocks of f: ŵ times D, then o times D.
func Weights(f quant.Format, row []byte, cols int) []float64 {
	rounded, d := weights(f, row, cols)
	return scaled(f, rounded, cols, d)
}

// Row decodes a row of cols weights in blocks of f. The weights are rounded as those of a product: each is D·(ŵ + o/32).
func Row(f quant.Format, row []byte, cols int) []float64 {
	operand := Weights(f, row, cols)
	w := operand[:cols]
	if n := SubBlock(f); n > 0 {
		for i := range w {
			w[i] += float64(operand[cols+i/n] / 32)
		}
	}
	return w
}

// scaled multiplies an operand by the scales of its segments.
func scaled(f quant.Format, operand []float64, cols int, scales []float64) []float64 {
	for i := range operand {
		s := i / Segment
		if i >= cols {
			s = (i - cols) / offsets(f)
		}
		operand[i] *= scales[s]
	}
	return operand
}

// activations returns x̂ and X, and the E of each segment.
func activations(f quant.Format, x []float64) (operand, e []float64) {
	operand = make([]float64, len(x), columns(f, len(x)))
	for at := 0; at < len(x); at += Segment {
		s := x[at:min(at+Segment, len(x))]
		scale := activationScale(s)
		for i, v := range s {
			operand[at+i] = f16(v / scale)
		}
		e = append(e, scale)
	}
	if n := SubBlock(f); n > 0 {
		for at := 0; at < len(e)*Segment; at += n {
			block := make([]float64, n)
			if at < len(x) {
				copy(block, operand[at:len(x)])
			}
			sum := float64(pairwise(block) / 32)
			high := f16(sum)
			operand = append(operand, high+f16(sum-high))
		}
	}
	return operand, e
}

// pairwise adds neighbors in float32 until one number is left.
func pairwise(x []float64) float64 {
	for ; len(x) > 1; x = x[:len(x)/2] {
		for i := range len(x) / 2 {
			x[i] = float64(float32(x[2*i] + x[2*i+1]))
		}
	}
	return x[0]
}

// weights returns ŵ and o, and the D of each segment.
func weights(f quant.Format, row []byte, cols int) (operand, d []float64) {
	operand = make([]float64, columns(f, cols))
	w, o := operand[:cols], operand[cols:]
	switch {
	case f.BlockLen() == 1:
		return operand, repeat(Single(f, w, row), cols)
	case f.BlockLen() < Segment:
		return operand, blocks(f, w, o, row)
	}
	for n := offsets(f); len(w) > 0; w, o, row = w[Segment:], o[n:], row[f.BlockBytes():] {
		d = append(d, kBlock(f, w[:Segment], o[:n], row[:f.BlockBytes()]))
	}
	return operand, d
}

// Single rounds a row of F32, F16 or BF16: it sets w to ŵ and returns D.
func Single(f quant.Format, w []float64, row []byte) float64 {
	quant.Decode(f, w, row)
	scale := 1.0
	if f != quant.F16 {
		scale = scaleOf(w, 8)
	}
	for i, v := range w {
		w[i] = f16(v / scale)
		if rest := v/scale - w[i]; f == quant.F32 && rest-rest == 0 {
			w[i] += f16(rest)
		}
	}
	return scale
}

// repeat returns the D of a row that has one for all segments.
func repeat(scale float64, cols int) []float64 {
	d := make([]float64, segments(cols))
	for i := range d {
		d[i] = scale
	}
	return d
}

// centers has c of each format: about the middle of the range of q.
var centers = map[quant.Format]int{
	quant.Q4_0: 8, quant.Q4_1: 8, quant.Q5_0: 16, quant.Q5_1: 16, quant.Q8_0: 128,
	quant.Q2_K: 2, quant.Q3_K: 4, quant.Q4_K: 8, quant.Q5_K: 16, quant.Q6_K: 32,
	quant.IQ4_NL: 128, quant.IQ4_XS: 128, quant.MXFP4: 0,
}

// Center returns c of a quantized format.
func Center(f quant.Format) int { return centers[f] }

// counted returns q. A quant.Block has q − c in formats without minimums.
func counted(f quant.Format, q byte) int {
	if SubBlock(f) > 0 {
		return int(q)
	}
	return int(int8(q)) + Center(f)
}

// maxQuant is at least the magnitude of q − c in every format.
const maxQuant = 128

// Scale has the scale and the minimum of a block of 32 weights. Blocks computes the numbers of the product.
type Scale struct {
	Scale, Minimum float32 // as in the file
	OverD          float64 // the scale over the D of the row
	Offset         float64 // o, or 0 in formats without minimums
}

// ScaleOf returns the Scale of a block before Blocks.
func ScaleOf(b *quant.Block) Scale { return Scale{Scale: b.D, Minimum: b.DMin * float32(b.Mins[0])} }

// Blocks sets OverD and Offset of the blocks of a row in blocks of 32, and returns the D of the row. In MXFP4, OverD is a
// power of two. In other formats, both OverD times 2^20 and OverD times 2^24 are float16, so that kernels can multiply it
// by quants that are subnormal float16.
func Blocks(f quant.Format, row []Scale) (d float64) {
	if f == quant.MXFP4 {
		return powers(row)
	}
	c, minimums := float64(Center(f)), SubBlock(f) > 0
	top := 0.0
	for i := range row {
		b := &row[i]
		scale := float64(b.Scale)
		if minimums {
			b.Offset = float64(float32(c*scale) - b.Minimum)
		}
		top = larger(top, float64(maxQuant*math.Abs(scale))+math.Abs(b.Offset))
	}
	d = scaleFor(top, -1)
	inverse := 1 / d
	for i := range row {
		b := &row[i]
		b.OverD = f16(float64(b.Scale)*inverse*0x1p20) * 0x1p-20
		if minimums {
			b.Offset = f16(b.Offset * inverse * 32)
		}
	}
	return d
}

// powers is Blocks for scales that are powers of two.
func powers(row []Scale) (d float64) {
	top := 0.0
	for _, b := range row {
		top = max(top, float64(b.Scale))
	}
	d = scaleFor(top, 1)
	for i := range row {
		row[i].OverD = float64(row[i].Scale) / d
	}
	return d
}

// blocks rounds a row of blocks of 32.
func blocks(f quant.Format, w, o []float64, row []byte) []float64 {
	n, size := f.BlockLen(), f.BlockBytes()
	all, scales := make([]quant.Block, len(w)/n), make([]Scale, len(w)/n)
	for i := range all {
		all[i].Unpack(f, row[i*size:(i+1)*size])
		scales[i] = ScaleOf(&all[i])
	}
	d := Blocks(f, scales)
	for i, b := range scales {
		round(f, w[i*n:(i+1)*n], all[i].Quants[:n], b.OverD)
		if len(o) > 0 {
			o[i] = b.Offset
		}
	}
	return repeat(d, len(w))
}

// maxRatio is the largest |dmin/d| with which a block keeps its quants. Offsets fit float16 up to there.
const maxRatio = 1 << 20

// integerScale is what the integers of blocks of 256 are multiplied by. D is divided by it.
const integerScale = 0x1p-16

// Ratio returns D/2^16 of a block of 256, and the quotient of dmin and that. It is d, or dmin if |dmin| is more
// than 2^20·|d|. Then the block's scales are to be taken as 0.
func Ratio(d, dmin float32) (unit float32, ratio float64) {
	switch {
	case dmin == 0:
		return d, 0
	case math.Abs(float64(dmin)) > maxRatio*math.Abs(float64(d)):
		return dmin, 1
	}
	return d, float64(dmin / d)
}

// kBlock rounds a block of 256 and returns its D.
func kBlock(f quant.Format, w, o []float64, block []byte) float64 {
	var b quant.Block
	n := b.Unpack(f, block)
	unit, ratio := Ratio(b.D, b.DMin)
	ratio = float64(ratio * (32 * integerScale))
	high := f16(ratio)
	low := f16(ratio - high)
	for s := range Segment / n {
		scale := float64(b.Scales[s])
		if unit != b.D {
			scale = 0
		}
		round(f, w[n*s:n*(s+1)], b.Quants[n*s:], scale*integerScale)
		if SubBlock(f) > 0 {
			centered, least := float64(float64(Center(f))*scale*(32*integerScale)), float64(b.Mins[s])
			o[s] = f16(f16(centered-float64(least*high)) - float64(least*low))
		}
	}
	return float64(unit) / integerScale
}

// round sets w to ŵ.
func round(f quant.Format, w []float64, q []byte, scale float64) {
	center := f16(-float64(Center(f)) * scale)
	for i := range w {
		w[i] = f16(float64(scale*float64(counted(f, q[i]))) + center)
	}
}
