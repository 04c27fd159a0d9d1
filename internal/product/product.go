// Package product defines a matrix product with float16 operands: how they are rounded, and in
// which order products are added.
//
// Columns are cut into segments of Segment. With weights W [rows, cols] and activations x
// [tokens, cols], for token t, row r and segments s in order:
//
//	y[t,r] = Σ_s (D[r,s]·E[t,s])·Σ_{k∈s} ŵ[r,k]·x̂[t,k]
//
// ŵ and x̂ are float16, E is a power of two, and D is a float32. The outer sum begins with 0. Its
// products and additions are rounded to float32, one by one. If D is the same for a whole row, the
// outer sum is multiplied by D instead.
//
// On a GPU the inner sum is one chain of tensor-core instructions with float32 accumulators, which
// begins with 0. Each instruction takes 16 columns: the i-th of a group of 64 columns takes columns
// 8i to 8i+7 and 32+8i to 32+8i+7 of the group. F32 weights take two for each, the upper halves first. The
// number of tokens, the shape of tiles and the kind of instruction do not appear, so they change no bit.
//
// # Activations
//
// E[t,s] scales the largest finite magnitude of a segment of x into [2^14, 2^15), and
// x̂ = f16(x/E). So no activation overflows, and none needs a maximum over a whole row.
//
// # Weights
//
// A quantized weight is scale·q − minimum, with an integer q that counts from 0 here. c is the middle
// of the range of q. If the format has minimums,
//
//	ŵ = f16(scale·(q − c) + offset)    offset = f16(c·scale − minimum)
//
// The offset is small against the weights, because quants are centered. So its rounding error, which a
// whole sub-block shares, stays small, too. Without minimums,
//
//	ŵ = f16(scale·q + offset)    offset = f16(−c·scale)
//
// Both are one fused multiply-add.
//
// In formats with blocks of 256, a block is a segment. D is the block's d, so that scales are the
// block's integers. A block with a much larger dmin than d divides by dmin instead.
//
// In all other formats, D is one power of two per row. F16 has D = 1. In BF16 and F32, D brings the
// largest magnitude of the row into [2^7, 2^8). A BF16 weight is exact if it is at most 2^24 times
// smaller than that. An F32 weight is the sum of two float16: f16(w/D) and f16 of the rest. In
// formats with blocks of 32, D brings the largest 128·|d| + |offset| of the row into [1/4, 1/2), or with
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

// scaleOf returns the smallest power of two p, at least 2^-126, with |v|/p < 2^n for all finite v of x.
// It returns 1 if all are 0.
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

// Activations replaces a row of activations by x̂. It returns the E of each segment.
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

// centers has the middle of the range of each format's quants, counted from 0.
var centers = map[quant.Format]int{
	quant.Q4_0: 8, quant.Q4_1: 8, quant.Q5_0: 16, quant.Q5_1: 16, quant.Q8_0: 128,
	quant.Q2_K: 2, quant.Q3_K: 4, quant.Q4_K: 8, quant.Q5_K: 16, quant.Q6_K: 32,
	quant.IQ4_NL: 128, quant.IQ4_XS: 128, quant.MXFP4: 128,
}

// Center returns c of a quantized format.
func Center(f quant.Format) int { return centers[f] }

// HasMinimum reports whether weights of a format have a minimum. The quants of quant.Block count from 0
// then, else from -c.
func HasMinimum(f quant.Format) bool {
	switch f {
	case quant.Q4_1, quant.Q5_1, quant.Q2_K, quant.Q4_K, quant.Q5_K:
		return true
	}
	return false
}

// maxQuant is at least the magnitude of q − c in every format.
const maxQuant = 128

// Blocks returns the scale and the offset of each block of a row in blocks of 32, and the D of the row.
// With minimums, both are float16, and a scale is one after division by 16, too. Without, the scale times
// 2^20 is a float16, and so is it times 2^24.
func Blocks(f quant.Format, row []byte) (scales, offsets []float64, d float64) {
	c, minimum, top := float64(Center(f)), HasMinimum(f), -1
	if minimum {
		top = 15 // so that scales are not subnormal
	}
	var b quant.Block
	var sizes []float64
	for ; len(row) > 0; row = row[f.BlockBytes():] {
		b.Unpack(f, row[:f.BlockBytes()])
		var offset float64
		if minimum {
			offset = float64(float32(c*float64(b.D)) - float32(b.DMin*float32(b.Mins[0])))
		}
		scales, offsets = append(scales, float64(b.D)), append(offsets, offset)
		sizes = append(sizes, float64(maxQuant*math.Abs(float64(b.D)))+math.Abs(offset))
	}
	d = scaleOf(sizes, top)
	for i := range scales {
		if minimum {
			scales[i], offsets[i] = 16*f16(scales[i]/d/16), f16(offsets[i]/d)
		} else {
			scales[i] = f16(scales[i]/d*0x1p20) * 0x1p-20
			offsets[i] = f16(-c * scales[i])
		}
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
		round(f, w[i*n:(i+1)*n], b.Quants[:n], scales[i], offsets[i])
	}
	return repeat(d, len(w))
}

// MaxRatio is the largest |dmin/d| of a block for which D is d. Up to there, weights and offsets fit float16.
const MaxRatio = 1 << 9

// kBlock rounds a block of 256 and returns its D.
func kBlock(f quant.Format, w []float64, block []byte) float64 {
	var b quant.Block
	n, c := b.Unpack(f, block), float64(Center(f))
	d := b.D
	if math.Abs(float64(b.DMin)) > MaxRatio*math.Abs(float64(d)) {
		d = b.DMin / MaxRatio
	}
	unit, ratio := 1.0, 0.0 // d and dmin in units of D
	if d != 0 {
		unit, ratio = f16(float64(b.D/d)), float64(b.DMin/d)
	}
	high := f16(ratio)
	low := f16(ratio - high)
	for s := range Segment / n {
		scale := f16(float64(b.Scales[s]) * unit)
		offset := -c * scale
		if HasMinimum(f) {
			least := float64(b.Mins[s])
			offset = f16(f16(float64(c*scale)-float64(least*high)) - float64(least*low))
		}
		round(f, w[n*s:n*(s+1)], b.Quants[n*s:], scale, offset)
	}
	return float64(d)
}

// round sets w to ŵ.
func round(f quant.Format, w []float64, q []byte, scale, offset float64) {
	less := float64(Center(f)) // q less this counts as the formula says
	if !HasMinimum(f) {
		less = -less
	}
	for i := range w {
		w[i] = f16(float64(scale*(float64(int8(q[i]))-less)) + offset)
	}
}
