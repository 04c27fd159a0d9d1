package emu

import (
	"math"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
)

// Arithmetic in f32. add, sub and mul without .rn are refused: ptxas may contract them into fma, so
// the text does not define their result.
var floatForms = []form{
	{pattern: "add.rn.f32", args: "T T T", vec: addFloat},
	{pattern: "sub.rn.f32", args: "T T T", vec: binaryF32(alu.Sub32)},
	{pattern: "mul.rn.f32", args: "T T T", vec: mulFloat},
	{pattern: "fma.rn.f32", needs: requirement{20, 20}, args: "T T T T", vec: fmaFloat},
	{pattern: "div.rn.f32", needs: requirement{14, 20}, args: "T T T", vec: binaryF32(alu.DivRN)},
	{pattern: "rcp.rn.f32", needs: requirement{14, 20}, args: "T T", vec: unaryF32(alu.RcpRN)},
	{pattern: "sqrt.rn.f32", needs: requirement{14, 20}, args: "T T", vec: unaryF32(alu.SqrtRN)},

	{pattern: "rcp.approx.f32", args: "T T", run: approximate(alu.Approx.Rcp)},
	{pattern: "rcp.approx.ftz.f32", args: "T T", run: approximate(alu.Approx.RcpFTZ)},
	{pattern: "sqrt.approx.f32", args: "T T", run: approximate(alu.Approx.Sqrt)},
	{pattern: "rsqrt.approx.f32", args: "T T", run: approximate(alu.Approx.Rsqrt)},
	{pattern: "ex2.approx.f32", args: "T T", run: approximate(alu.Approx.Ex2)},
	{pattern: "ex2.approx.ftz.f32", args: "T T", run: approximate(alu.Approx.Ex2FTZ)},
	{pattern: "lg2.approx.f32", args: "T T", run: approximate(alu.Approx.Lg2)},
	{pattern: "tanh.approx.f32", needs: requirement{70, 75}, args: "T T", run: approximate(alu.Approx.Tanh)},

	{pattern: "min.f32", args: "T T T", vec: binaryF32(minFloat)},
	{pattern: "max.f32", args: "T T T", vec: binaryF32(maxFloat)},
	{pattern: "abs.f32", args: "T T", vec: unaryU64(func(a uint64) uint64 { return a & 0x7fffffff })},
	{pattern: "neg.f32", args: "T T", vec: unaryU64(func(a uint64) uint64 { return a ^ 0x80000000 })},
	// copysign.f32 d, a, b is b with the sign of a.
	{pattern: "copysign.f32", needs: requirement{20, 20}, args: "T T T",
		vec: binaryU64(func(a, b uint64) uint64 { return a&0x80000000 | b&0x7fffffff })},
}

func addFloat(d, a, b, _ *vec) {
	for l := range d {
		s := float32Of(a[l]) + float32Of(b[l])
		if s != s {
			d[l] = 0x7fffffff
			continue
		}
		d[l] = bits32(s)
	}
}

func mulFloat(d, a, b, _ *vec) {
	for l := range d {
		p := float32Of(a[l]) * float32Of(b[l])
		if p != p {
			d[l] = 0x7fffffff
			continue
		}
		d[l] = bits32(p)
	}
}

// fmaFloat is fma.rn.f32. The product is exact in float64. Rounding the sum to float64 and then to
// float32 is right unless the first rounding is inexact and lands on the midpoint of two float32,
// or the result is subnormal, infinite or NaN. Those cases go to alu.FMA32.
func fmaFloat(d, a, b, c *vec) {
	const (
		low    = 1<<29 - 1  // the significand bits that a float32 lacks
		middle = 1 << 28    // of low, at a midpoint
		least  = 1023 - 126 // biased exponents of normal float32
		most   = 1023 + 127
	)
	for l := range d {
		x, y, z := float32Of(a[l]), float32Of(b[l]), float32Of(c[l])
		product, addend := float64(float64(x)*float64(y)), float64(z)
		s := product + addend
		v := math.Float64bits(s)
		if e := v >> 52 & 0x7ff; e-least <= most-least || s == 0 {
			part := s - product // the rounding error of s is (product-(s-part)) + (addend-part)
			if v&low != middle || product-(s-part) == part-addend {
				d[l] = bits32(float32(s))
				continue
			}
		}
		d[l] = bits32(alu.FMA32(x, y, z))
	}
}

// minFloat is min.f32. −0 is less than +0.
func minFloat(a, b float32) float32 { return preferNumber(a, b, min(a, b)) }

// maxFloat is max.f32. +0 is greater than −0.
func maxFloat(a, b float32) float32 { return preferNumber(a, b, max(a, b)) }

// preferNumber returns chosen. If an operand is NaN, it returns the other one instead.
func preferNumber(a, b, chosen float32) float32 {
	switch {
	case a != a && b != b:
		return math.Float32frombits(0x7fffffff)
	case a != a:
		return b
	case b != b:
		return a
	}
	return chosen
}

// approximate returns the run function of an instruction for which PTX only bounds the error.
func approximate(f func(alu.Approx, float32) float32) func(*warp, *op, uint32) result {
	return func(w *warp, o *op, m uint32) result {
		if !w.reads(o, m, o.a) {
			return resultTrap
		}
		a := &w.regs[o.a]
		for l := range lanesOf(m) {
			w.set(o.d, l, bits32(f(w.cta.grid.approx, float32Of(a[l]))))
		}
		return resultNext
	}
}

// Arithmetic in f64.
var doubleForms = []form{
	{pattern: "add.rn.f64", args: "T T T", vec: ternaryF64(func(a, b, _ float64) float64 { return a + b })},
	{pattern: "sub.rn.f64", args: "T T T", vec: ternaryF64(func(a, b, _ float64) float64 { return a - b })},
	{pattern: "mul.rn.f64", args: "T T T", vec: ternaryF64(func(a, b, _ float64) float64 { return float64(a * b) })},
	{pattern: "fma.rn.f64", args: "T T T T", vec: ternaryF64(math.FMA)},
	{pattern: "div.rn.f64", args: "T T T", vec: ternaryF64(func(a, b, _ float64) float64 { return a / b })},
	{pattern: "rcp.rn.f64", args: "T T", vec: ternaryF64(func(a, _, _ float64) float64 { return 1 / a })},
	{pattern: "sqrt.rn.f64", args: "T T", vec: ternaryF64(func(a, _, _ float64) float64 { return math.Sqrt(a) })},
	{pattern: "abs.f64", args: "T T", vec: unaryU64(func(a uint64) uint64 { return a &^ (1 << 63) })},
	{pattern: "neg.f64", args: "T T", vec: unaryU64(func(a uint64) uint64 { return a ^ 1<<63 })},
}

// Packed arithmetic in f16 and bf16.
var halfForms = []form{
	{pattern: "add.rn.f16x2", needs: requirement{42, 53}, args: "b32 reg:b32 reg:b32", vec: half2(alu.AddF16)},
	{pattern: "sub.rn.f16x2", needs: requirement{42, 53}, args: "b32 reg:b32 reg:b32", vec: half2(alu.SubF16)},
	{pattern: "mul.rn.f16x2", needs: requirement{42, 53}, args: "b32 reg:b32 reg:b32", vec: half2(alu.MulF16)},
	{pattern: "fma.rn.f16x2", needs: requirement{42, 53}, args: "b32 reg:b32 reg:b32 reg:b32", vec: half3(alu.FMAF16)},
	{pattern: "fma.rn.bf16x2", needs: requirement{70, 80}, args: "b32 reg:b32 reg:b32 reg:b32", vec: half3(alu.FMABF16)},
}

func half2(f func(a, b uint16) uint16) func(d, a, b, c *vec) {
	return half3(func(a, b, _ uint16) uint16 { return f(a, b) })
}

func half3(f func(a, b, c uint16) uint16) func(d, a, b, c *vec) {
	return ternaryU32(func(a, b, c uint32) uint32 { return alu.F16x2(f, a, b, c) })
}
