package emu

import (
	"fmt"
	"math/bits"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

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
	{pattern: "not.b32", args: "T T", vec: words1(func(a uint32) uint32 { return ^a })},
	{pattern: "not.b64", args: "T T", vec: lanes1(func(a uint64) uint64 { return ^a })},
	{pattern: "and|or|xor|not.pred", build: buildPredicate},

	// Shift amounts are unsigned and clamped to the width, as Go's shifts behave.
	{pattern: "shl.b32", args: "T T u32", vec: func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = uint64(uint32(a[l]) << b[l])
		}
	}},
	{pattern: "shl.b64", args: "T T u32",
		vec: lanes2(func(a, b uint64) uint64 { return a << b })},
	{pattern: "shr.u32|b32|u64|b64", args: "T T u32", vec: func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = a[l] >> b[l]
		}
	}},
	{pattern: "shr.s32", args: "T T u32",
		vec: lanes2(func(a, b uint64) uint64 { return uint64(uint32(int32(a) >> b)) })},
	{pattern: "shr.s64", args: "T T u32",
		vec: lanes2(func(a, b uint64) uint64 { return uint64(int64(a) >> b) })},

	{pattern: "bfe.u32", since: gate{20, 20}, args: "T T u32 u32",
		vec: words3(func(a, pos, n uint32) uint32 { return alu.BFE(a, pos, n, false) })},
	{pattern: "bfe.s32", since: gate{20, 20}, args: "T T u32 u32",
		vec: words3(func(a, pos, n uint32) uint32 { return alu.BFE(a, pos, n, true) })},
	{pattern: "bfi.b32", since: gate{20, 20}, build: buildBFI},
	{pattern: "lop3.b32", since: gate{43, 50}, build: buildLop3},
	{pattern: "prmt.b32", since: gate{20, 20}, args: "T T T T", vec: words3(alu.Prmt)},
	{pattern: "popc.b32", since: gate{20, 20}, args: "u32 T",
		vec: words1(func(a uint32) uint32 { return uint32(bits.OnesCount32(a)) })},
	{pattern: "clz.b32", since: gate{20, 20}, args: "u32 T",
		vec: words1(func(a uint32) uint32 { return uint32(bits.LeadingZeros32(a)) })},
	{pattern: "brev.b32", since: gate{20, 20}, args: "T T", vec: words1(bits.Reverse32)},
	{pattern: "shf.l.wrap.b32", since: gate{31, 32}, args: "T T T u32",
		vec: words3(func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) << (c & 31) >> 32) })},
	{pattern: "shf.r.wrap.b32", since: gate{31, 32}, args: "T T T u32",
		vec: words3(func(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) >> (c & 31)) })},
}

// buildLop3 decodes d, a, b, c, table.
func buildLop3(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 5); err != nil {
		return op{}, err
	}
	table := in.Operands[4]
	if table.Kind != syntax.ImmInt || table.Value > 0xff {
		return op{}, fmt.Errorf("the table is not a number from 0 to 255")
	}
	short := *in
	short.Operands = in.Operands[:4]
	f := form{args: "T T T T", vec: words3(func(a, b, c uint32) uint32 {
		return alu.Lop3(a, b, c, uint8(table.Value))
	})}
	return d.plain(&f, &short, q)
}

// buildBFI decodes d, a, b, pos, len.
func buildBFI(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 5); err != nil {
		return op{}, err
	}
	short := *in
	short.Operands = in.Operands[:4]
	o, err := d.plain(&form{args: "T T T u32", run: runBFI}, &short, q)
	if err != nil {
		return o, err
	}
	length, err := d.source(in.Operands[4], typeU32)
	o.more = []int32{length}
	return o, err
}

func runBFI(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.b, o.c, o.more[0]) {
		return stepFault
	}
	a, b, pos, n := &w.regs[o.a], &w.regs[o.b], &w.regs[o.c], &w.regs[o.more[0]]
	for l := range lanesOf(m) {
		w.set(o.d, l, uint64(alu.BFI(uint32(a[l]), uint32(b[l]), uint32(pos[l]), uint32(n[l]))))
	}
	return stepNext
}

// buildPredicate decodes logic on predicates.
func buildPredicate(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	f := form{args: "pred pred pred", run: func(w *warp, o *op, m uint32) step {
		if !w.readsPred(o, m, o.a) || !w.readsPred(o, m, o.b) {
			return stepFault
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
		return stepNext
	}}
	if q[0] == "not" {
		f.args = "pred pred"
	}
	return d.plain(&f, in, q)
}
