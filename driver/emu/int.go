package emu

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

var intForms = []form{
	{pattern: "add.u32|s32", args: "T T T", vec: add32},
	{pattern: "add.u64|s64", args: "T T T", vec: add64},
	{pattern: "sub.u32|s32", args: "T T T", vec: sub32},
	{pattern: "sub.u64|s64", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { return a - b })},
	{pattern: "mul.lo.u32|s32", args: "T T T",
		vec: words2(func(a, b uint32) uint32 { return a * b })},
	{pattern: "mul.lo.u64|s64", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { return a * b })},
	{pattern: "mul.hi.u32", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { return a * b >> 32 })},
	{pattern: "mul.hi.s32", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { return uint64(signed32(a)*signed32(b)) >> 32 })},
	{pattern: "mul.hi.u64", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi })},
	{pattern: "mul.hi.s64", args: "T T T", vec: lanes2(mulHighSigned)},
	{pattern: "mul.wide.u32", args: "u64 T T",
		vec: lanes2(func(a, b uint64) uint64 { return a * b })},
	{pattern: "mul.wide.s32", args: "s64 T T",
		vec: lanes2(func(a, b uint64) uint64 { return uint64(signed32(a) * signed32(b)) })},
	{pattern: "mad.lo.u32|s32", args: "T T T T", vec: mad32},
	{pattern: "mad.lo.u64|s64", args: "T T T T", vec: madWide},
	{pattern: "mad.wide.u32", args: "u64 T T u64", vec: madWide},
	{pattern: "mad.wide.s32", args: "s64 T T s64", vec: func(d, a, b, c *vec) {
		for l := range d {
			d[l] = uint64(signed32(a[l])*signed32(b[l])) + c[l]
		}
	}},

	{pattern: "div.u32|s32|u64|s64", args: "T T T", build: buildDivision},
	{pattern: "rem.u32|s32|u64|s64", args: "T T T", build: buildDivision},

	// Values are zero-extended, so one comparison serves both unsigned widths.
	{pattern: "min.u32|u64", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { return min(a, b) })},
	{pattern: "max.u32|u64", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { return max(a, b) })},
	{pattern: "min.s32", args: "T T T",
		vec: words2(func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) })},
	{pattern: "max.s32", args: "T T T",
		vec: words2(func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) })},
	{pattern: "min.s64", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) })},
	{pattern: "max.s64", args: "T T T",
		vec: lanes2(func(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) })},
	{pattern: "neg.s32", args: "T T", vec: words1(func(a uint32) uint32 { return -a })},
	{pattern: "neg.s64", args: "T T", vec: lanes1(func(a uint64) uint64 { return -a })},
	{pattern: "abs.s32", args: "T T",
		vec: words1(func(a uint32) uint32 { return uint32(max(int32(a), -int32(a))) })},
	{pattern: "abs.s64", args: "T T",
		vec: lanes1(func(a uint64) uint64 { return uint64(max(int64(a), -int64(a))) })},

	{pattern: "dp4a.u32|s32.u32|s32", since: gate{50, 61}, build: buildDP4A},
}

// signed32 is a 32-bit register's value as a signed number.
func signed32(v uint64) int64 { return int64(int32(v)) }

func add32(d, a, b, _ *vec) {
	for l := range d {
		d[l] = uint64(uint32(a[l] + b[l]))
	}
}

func add64(d, a, b, _ *vec) {
	for l := range d {
		d[l] = a[l] + b[l]
	}
}

func sub32(d, a, b, _ *vec) {
	for l := range d {
		d[l] = uint64(uint32(a[l] - b[l]))
	}
}

func mad32(d, a, b, c *vec) {
	for l := range d {
		d[l] = uint64(uint32(a[l]*b[l] + c[l]))
	}
}

// madWide is mad.lo of 64 bits and, as 32-bit values are zero-extended, mad.wide.u32.
func madWide(d, a, b, c *vec) {
	for l := range d {
		d[l] = a[l]*b[l] + c[l]
	}
}

func mulHighSigned(a, b uint64) uint64 {
	hi, _ := bits.Mul64(a, b)
	// The unsigned product counts a negative factor 2⁶⁴ too high.
	return hi - b&uint64(int64(a)>>63) - a&uint64(int64(b)>>63)
}

// divisions are the quotient and the remainder of one lane, the divisor not zero.
var divisions = map[string]func(a, b uint64) uint64{
	"div.u32": func(a, b uint64) uint64 { return a / b },
	"div.u64": func(a, b uint64) uint64 { return a / b },
	"rem.u32": func(a, b uint64) uint64 { return a % b },
	"rem.u64": func(a, b uint64) uint64 { return a % b },
	"div.s32": func(a, b uint64) uint64 { return uint64(uint32(signed32(a) / signed32(b))) },
	"rem.s32": func(a, b uint64) uint64 { return uint64(uint32(signed32(a) % signed32(b))) },
	"div.s64": func(a, b uint64) uint64 { return uint64(int64(a) / int64(b)) },
	"rem.s64": func(a, b uint64) uint64 { return uint64(int64(a) % int64(b)) },
}

func buildDivision(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	divide := divisions[in.Opcode]
	return d.plain(&form{args: "T T T", run: func(w *warp, o *op, m uint32) step {
		if !w.reads(o, m, o.a, o.b) {
			return stepFault
		}
		a, b := &w.regs[o.a], &w.regs[o.b]
		for l := range lanesOf(m) {
			if b[l] == 0 {
				return w.trap(TrapDivision, o, l, "%d divided by zero", a[l])
			}
			w.set(o.d, l, divide(a[l], b[l]))
		}
		return stepNext
	}}, in, q)
}

func buildDP4A(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	aSigned, bSigned := q[1] == "s32", q[2] == "s32"
	result := "u32"
	if aSigned || bSigned {
		result = "s32"
	}
	f := form{args: result + " " + q[1] + " " + q[2] + " " + result}
	f.vec = words3(func(a, b, c uint32) uint32 { return alu.DP4A(a, b, c, aSigned, bSigned) })
	return d.plain(&f, in, q)
}
