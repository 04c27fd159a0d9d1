// Package product defines a matrix product with float16 operands: how they are rounded, and in
// which order products are added.
//
// Columns are cut into segments of Segment. With weights W [rows, cols] and activations x
// [tokens, cols], for token t, row r and segments s in order:
//
//	y[t,r] = Σ_s D[r,s]·E[t,s]·Σ_{k∈s} ŵ[r,k]·x̂[t,k]
//
// ŵ and x̂ are float16, E is a power of two, and D is a float32. On a GPU the inner sum is one
// chain of tensor-core instructions that starts from zero. Each takes 16 columns and has float32
// accumulators. D·E times that sum is rounded to float32 and added to the segments before it in
// float32. A D that is one power of two for the whole row multiplies the result instead. Every
// number of tokens, every tile and every instruction gives the same bits, since none of them
// appears in the definition.
//
// # Activations
//
// E[t,s] scales the largest finite magnitude of a segment of x into [2^14, 2^15), and
// x̂ = f16(x/E). So no activation overflows, and none needs a maximum over a whole row.
//
// # Weights
//
// A quantized weight is scale·q − minimum, with an integer q. Its formula here is
//
//	ŵ = f16(scale·(q − c) + offset)    offset = c·scale − minimum
//
// which is one fused multiply-add. c is the middle of the range of q, so that the offset is small
// against the weights: its own rounding, which a whole sub-block shares, then hardly counts.
//
// A K-quant's block is a segment. D is the block's d, so that scales are the block's integers.
// Its weights are exact except for the offset and, where a scale times a quant has more than 11
// bits, for that product. A block with a much larger dmin than d divides by dmin instead.
//
// In all other formats, D is one power of two per row. F16 has D = 1. In BF16 and F32, D brings the
// largest magnitude of the row into [2^7, 2^8). A BF16 weight is exact if it is at most 2^24 times
// smaller than that. An F32 weight is the sum of two float16: f16(w/D) and f16 of the rest. In
// blocks of 32 weights, D brings the largest 128·d + |offset| of the row into [1/4, 1/2), or with
// minimums into [2^14, 2^15).
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

// scaleOf returns the power of two that brings the largest finite magnitude of x below 2^n, and no
// further, when it divides: at least the smallest normal float32, and 1 if there is none.
func scaleOf(x []float64, n int) float64 {
	top := 0.0
	for _, v := range x {
		if size := math.Abs(v); size <= math.MaxFloat64 {
			top = max(top, size)
		}
	}
	if top == 0 {
		return 1
	}
	_, exponent := math.Frexp(top)
	return math.Ldexp(1, max(exponent-n, -126))
}

// Activations rounds a row of activations: x[k] becomes x̂[k], and the E of each segment is
// returned.
func Activations(x []float64) (e []float64) {
	for len(x) > 0 {
		s := x[:min(Segment, len(x))]
		scale := scaleOf(s, 15)
		for i, v := range s {
			s[i] = f16(v / scale)
		}
		e, x = append(e, scale), x[len(s):]
	}
	return e
}

// Weights rounds a row of len(w) weights in blocks of f. It sets w to ŵ, or for F32 to the sum of
// both, and returns the D of each segment.
func Weights(f quant.Format, w []float64, row []byte) (d []float64) {
	if f.BlockLen() == 1 {
		return single(f, w, row)
	}
	if f.BlockLen() < Segment {
		return blocks(f, w, row)
	}
	for ; len(w) > 0; w, row = w[Segment:], row[f.BlockBytes():] {
		d = append(d, kBlock(f, w[:Segment], row[:f.BlockBytes()]))
	}
	return d
}

// single rounds a row of F32, F16 or BF16.
func single(f quant.Format, w []float64, row []byte) []float64 {
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
	return repeat(scale, len(w))
}

// repeat returns the D of a row that has one for all segments.
func repeat(scale float64, cols int) []float64 {
	d := make([]float64, (cols+Segment-1)/Segment)
	for i := range d {
		d[i] = scale
	}
	return d
}

// centers has c of the formats with minimums. The quants of the others are signed, and their c is 0.
var centers = map[quant.Format]float64{quant.Q4_1: 8, quant.Q5_1: 16, quant.Q2_K: 2, quant.Q4_K: 8, quant.Q5_K: 16}

// maxQuant is at least the magnitude of q − c in every format.
const maxQuant = 128

// Blocks returns the scale and the offset of each block of a row in blocks of 32, and the D of the row.
// Scales are those of the blocks divided by D, without rounding. Offsets are float16.
func Blocks(f quant.Format, row []byte) (scales, offsets []float64, d float64) {
	c, top := centers[f], -1
	if c > 0 { // scales are float16 beside the offsets, so they should not be subnormal
		top = 15
	}
	var b quant.Block
	var sizes []float64
	for ; len(row) > 0; row = row[f.BlockBytes():] {
		b.Unpack(f, row[:f.BlockBytes()])
		offset := float64(float32(c*float64(b.D)) - float32(b.DMin*float32(b.Mins[0])))
		scales, offsets = append(scales, float64(b.D)), append(offsets, offset)
		sizes = append(sizes, float64(maxQuant*math.Abs(float64(b.D)))+math.Abs(offset))
	}
	d = scaleOf(sizes, top)
	for i := range scales {
		scales[i], offsets[i] = scales[i]/d, f16(offsets[i]/d)
	}
	return scales, offsets, d
}

// blocks rounds a row of blocks of 32.
func blocks(f quant.Format, w []float64, row []byte) []float64 {
	scales, offsets, d := Blocks(f, row)
	n, size := f.BlockLen(), f.BlockBytes()
	var b quant.Block
	for i := range scales {
		b.Unpack(f, row[i*size:(i+1)*size])
		round(w[i*n:(i+1)*n], b.Quants[:n], centers[f], scales[i], offsets[i])
	}
	return repeat(d, len(w))
}

// maxRatio is the largest dmin/d of a block that D = d allows. The offsets fit float16 up to there.
const maxRatio = 1 << 10

// kBlock rounds a block of a K-quant and returns its D.
func kBlock(f quant.Format, w []float64, block []byte) float64 {
	var b quant.Block
	n, c := b.Unpack(f, block), centers[f]
	d := b.D
	if math.Abs(float64(b.DMin)) > maxRatio*math.Abs(float64(d)) {
		d = b.DMin / maxRatio
	}
	unit, ratio := 1.0, 0.0 // d and dmin in units of D
	if d != 0 {
		unit, ratio = f16(float64(b.D/d)), float64(b.DMin/d)
	}
	high := f16(ratio)
	low := f16(ratio - high)
	for s := range Segment / n {
		scale, least := f16(float64(b.Scales[s])*unit), float64(b.Mins[s])
		offset := f16(f16(float64(c*scale)-float64(least*high)) - float64(least*low))
		round(w[n*s:n*(s+1)], b.Quants[n*s:], c, scale, offset)
	}
	return float64(d)
}

// round sets w to f16(scale·(q − c) + offset).
func round(w []float64, q []byte, c, scale, offset float64) {
	for i := range w {
		w[i] = f16(float64(scale*(float64(int8(q[i]))-c)) + offset)
	}
}
