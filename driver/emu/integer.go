package emu

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Integer arithmetic.
var intForms = []form{
	{pattern: "add.u32|s32", args: "T T T", vec: add32},
	{pattern: "add.u64|s64", args: "T T T", vec: add64},
	{pattern: "sub.u32|s32", args: "T T T", vec: sub32},
	{pattern: "sub.u64|s64", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { return a - b })},
	{pattern: "mul.lo.u32|s32", args: "T T T", vec: binaryU32(func(a, b uint32) uint32 { return a * b })},
	{pattern: "mul.lo.u64|s64", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { return a * b })},
	{pattern: "mul.hi.u32", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { return a * b >> 32 })},
	{pattern: "mul.hi.s32", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { return uint64(signed32(a)*signed32(b)) >> 32 })},
	{pattern: "mul.hi.u64", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi })},
	{pattern: "mul.hi.s64", args: "T T T", vec: binaryU64(mulHighSigned)},
	{pattern: "mul.wide.u32", args: "u64 T T", vec: binaryU64(func(a, b uint64) uint64 { return a * b })},
	{pattern: "mul.wide.s32", args: "s64 T T", vec: binaryU64(func(a, b uint64) uint64 { return uint64(signed32(a) * signed32(b)) })},
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

	// Registers are zero-extended, so both unsigned widths compare alike.
	{pattern: "min.u32|u64", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { return min(a, b) })},
	{pattern: "max.u32|u64", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { return max(a, b) })},
	{pattern: "min.s32", args: "T T T", vec: binaryU32(func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) })},
	{pattern: "max.s32", args: "T T T", vec: binaryU32(func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) })},
	{pattern: "min.s64", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) })},
	{pattern: "max.s64", args: "T T T", vec: binaryU64(func(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) })},
	{pattern: "neg.s32", args: "T T", vec: unaryU32(func(a uint32) uint32 { return -a })},
	{pattern: "neg.s64", args: "T T", vec: unaryU64(func(a uint64) uint64 { return -a })},
	{pattern: "abs.s32", args: "T T", vec: unaryU32(func(a uint32) uint32 { return uint32(max(int32(a), -int32(a))) })},
	{pattern: "abs.s64", args: "T T", vec: unaryU64(func(a uint64) uint64 { return uint64(max(int64(a), -int64(a))) })},

	{pattern: "dp4a.u32|s32.u32|s32", needs: requirement{50, 61}, build: buildDP4A},
}

// signed32 reads a 32-bit register as a signed number.
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

// madWide is mad.lo of 64 bits. It is mad.wide.u32, too, because registers are zero-extended.
func madWide(d, a, b, c *vec) {
	for l := range d {
		d[l] = a[l]*b[l] + c[l]
	}
}

func mulHighSigned(a, b uint64) uint64 {
	hi, _ := bits.Mul64(a, b)
	// The unsigned product takes a negative factor for one that is larger by 2⁶⁴.
	return hi - b&uint64(int64(a)>>63) - a&uint64(int64(b)>>63)
}

// divisions are the operations on operands of a lane. b is not zero.
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

func buildDivision(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	divide := divisions[in.Opcode]
	return d.fromArgs(&form{args: "T T T", run: func(w *warp, o *op, m uint32) result {
		if !w.reads(o, m, o.a, o.b) {
			return resultTrap
		}
		a, b := &w.regs[o.a], &w.regs[o.b]
		for l := range lanesOf(m) {
			if b[l] == 0 {
				return w.trap(TrapDivision, o, l, "%d divided by zero", a[l])
			}
			w.set(o.d, l, divide(a[l], b[l]))
		}
		return resultNext
	}}, in, q)
}

func buildDP4A(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	aSigned, bSigned := q[1] == "s32", q[2] == "s32"
	result := "u32"
	if aSigned || bSigned {
		result = "s32"
	}
	f := form{args: result + " " + q[1] + " " + q[2] + " " + result}
	f.vec = ternaryU32(func(a, b, c uint32) uint32 { return alu.DP4A(a, b, c, aSigned, bSigned) })
	return d.fromArgs(&f, in, q)
}

// Logic, shifts and bit fields.
var bitForms = []form{
	{pattern: "and.b16|b32|b64", args: "T T T", vec: func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = a[l] & b[l]
		}
	}},
	{pattern: "or.b16|b32|b64", args: "T T T", vec: func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = a[l] | b[l]
		}
	}},
	{pattern: "xor.b16|b32|b64", args: "T T T", vec: func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = a[l] ^ b[l]
		}
	}},
	{pattern: "not.b32", args: "T T", vec: unaryU32(func(a uint32) uint32 { return ^a })},
	{pattern: "not.b64", args: "T T", vec: unaryU64(func(a uint64) uint64 { return ^a })},
	{pattern: "and|or|xor|not.pred", build: buildPredicate},

	// PTX clamps shift amounts to the width. Shifts in Go give the same results.
	{pattern: "shl.b32", args: "T T u32", vec: func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = uint64(uint32(a[l]) << b[l])
		}
	}},
	{pattern: "shl.b64", args: "T T u32", vec: binaryU64(func(a, b uint64) uint64 { return a << b })},
	{pattern: "shr.u32|b32|u64|b64", args: "T T u32", vec: func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = a[l] >> b[l]
		}
	}},
	{pattern: "shr.s32", args: "T T u32", vec: binaryU64(func(a, b uint64) uint64 { return uint64(uint32(int32(a) >> b)) })},
	{pattern: "shr.s64", args: "T T u32", vec: binaryU64(func(a, b uint64) uint64 { return uint64(int64(a) >> b) })},

	{pattern: "bfe.u32", needs: requirement{20, 20}, args: "T T u32 u32",
		vec: ternaryU32(func(a, pos, n uint32) uint32 { return alu.BFE(a, pos, n, false) })},
	{pattern: "bfe.s32", needs: requirement{20, 20}, args: "T T u32 u32",
		vec: ternaryU32(func(a, pos, n uint32) uint32 { return alu.BFE(a, pos, n, true) })},
	{pattern: "bfi.b32", needs: requirement{20, 20}, build: buildBFI},
	{pattern: "lop3.b32", needs: requirement{43, 50}, build: buildLop3},
	{pattern: "prmt.b32", needs: requirement{20, 20}, args: "T T T T", vec: ternaryU32(alu.Prmt)},
	{pattern: "popc.b32", needs: requirement{20, 20}, args: "u32 T", vec: unaryU32(func(a uint32) uint32 { return uint32(bits.OnesCount32(a)) })},
	{pattern: "clz.b32", needs: requirement{20, 20}, args: "u32 T", vec: unaryU32(func(a uint32) uint32 { return uint32(bits.LeadingZeros32(a)) })},
	{pattern: "brev.b32", needs: requirement{20, 20}, args: "T T", vec: unaryU32(bits.Reverse32)},
	{pattern: "shf.l.wrap.b32", needs: requirement{31, 32}, args: "T T T u32",
		vec: ternaryU32(func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) << (c & 31) >> 32) })},
	{pattern: "shf.r.wrap.b32", needs: requirement{31, 32}, args: "T T T u32",
		vec: ternaryU32(func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) >> (c & 31)) })},
}

// buildLop3 decodes d, a, b, c, table.
func buildLop3(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := wantOperands(in, 5); err != nil {
		return op{}, err
	}
	table, err := constantOperand(in.Operands[4], "the table", 255)
	if err != nil {
		return op{}, err
	}
	first := *in
	first.Operands = in.Operands[:4]
	f := form{args: "T T T T", vec: ternaryU32(func(a, b, c uint32) uint32 {
		return alu.Lop3(a, b, c, uint8(table))
	})}
	return d.fromArgs(&f, &first, q)
}

// buildBFI decodes d, a, b, position, length. The register of the length is in more[0].
func buildBFI(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := wantOperands(in, 5); err != nil {
		return op{}, err
	}
	first := *in
	first.Operands = in.Operands[:4]
	o, err := d.fromArgs(&form{args: "T T T u32", run: runBFI}, &first, q)
	if err != nil {
		return o, err
	}
	length, err := d.source(in.Operands[4], typeU32)
	o.more = []int32{length}
	return o, err
}

func runBFI(w *warp, o *op, m uint32) result {
	if !w.reads(o, m, o.a, o.b, o.c, o.more[0]) {
		return resultTrap
	}
	a, b, pos, n := &w.regs[o.a], &w.regs[o.b], &w.regs[o.c], &w.regs[o.more[0]]
	for l := range lanesOf(m) {
		w.set(o.d, l, uint64(alu.BFI(uint32(a[l]), uint32(b[l]), uint32(pos[l]), uint32(n[l]))))
	}
	return resultNext
}

// buildPredicate decodes and, or, xor and not of predicates.
func buildPredicate(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	f := form{args: "pred pred pred", run: func(w *warp, o *op, m uint32) result {
		if !w.readsPred(o, m, o.a) || !w.readsPred(o, m, o.b) {
			return resultTrap
		}
		v, b := w.preds[o.a], w.preds[o.b]
		switch q[0] {
		case "and":
			v &= b
		case "or":
			v |= b
		case "xor":
			v ^= b
		case "not":
			v = ^v
		}
		w.setPred(o.d, m, v)
		return resultNext
	}}
	if q[0] == "not" {
		f.args = "pred pred"
	}
	return d.fromArgs(&f, in, q)
}
