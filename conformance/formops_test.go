package conformance

import (
	"fmt"
	"strings"
)

// laneForm is an instruction that computes one result from up to four operands, in
// each lane; warp instructions give each lane a result, too.
type laneForm struct {
	form
	out  string   // type
	in   []string // types of the operands that are registers
	tail []string // constants that follow them
}

// signatures say, for the beginning of an opcode (the longest wins), the types of
// the result and of the operands: T the last type of the opcode, S the type before
// it, W twice as wide as T, or a type. "#" ends the registers; the form's constants
// follow.
var signatures = map[string]string{
	"add": "T T T", "sub": "T T T", "mul": "T T T", "div": "T T T", "rem": "T T T", "min": "T T T", "max": "T T T",
	"and": "T T T", "or": "T T T", "xor": "T T T", "fma": "T T T T", "mad": "T T T T", "mul.wide": "W T T", "mad.wide": "W T T W",
	"not": "T T", "neg": "T T", "abs": "T T", "sqrt": "T T", "rcp": "T T", "rsqrt": "T T", "ex2": "T T", "lg2": "T T", "tanh": "T T",
	"sin": "T T", "cos": "T T", "popc": "b32 T", "clz": "b32 T", "shl": "T T u32", "shr": "T T u32", "bfe": "T T u32 u32", "bfi": "T T T u32 u32",
	"lop3": "T T T T #", "prmt": "T T T #", "dp4a": "s32 b32 b32 s32", "setp": "pred T T", "selp": "T T T pred", "cvt": "S T",
	"cvt.rn.f16x2.f32": "f16x2 f32 f32", "cvt.rn.bf16x2.f32": "bf16x2 f32 f32", "shfl": "T T #", "vote.sync.ballot": "b32 pred #",
	"vote.sync": "pred pred #", "redux.sync": "T T #",
}

// typeBytes is what a type takes in memory; a predicate is kept as a word.
var typeBytes = map[string]int{
	"pred": 4, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
	"b64": 8, "u64": 8, "s64": 8, "f64": 8,
}

// typesIn lists the types that an opcode names.
func typesIn(op string) []string {
	var list []string
	for part := range strings.SplitSeq(op, ".") {
		if typeBytes[part] > 0 {
			list = append(list, part)
		}
	}
	return list
}

// laneFormOf finds the signature of a form; false if it is no such instruction.
func laneFormOf(f form) (laneForm, bool) {
	if f.op == "mov.pred" {
		return laneForm{form: f, out: "pred", in: []string{"pred"}}, true
	}
	if strings.HasPrefix(f.op, "mov.") {
		return laneForm{form: f, out: typesIn(f.op)[0], in: typesIn(f.op)}, f.args == "r,r"
	}
	signature := ""
	for p := f.op; p != "" && signature == ""; p = p[:len(p)-1] {
		if len(p) == len(f.op) || f.op[len(p)] == '.' {
			signature = signatures[p]
		}
	}
	types := typesIn(f.op)
	if signature == "" || len(types) == 0 {
		return laneForm{}, false
	}
	last := types[len(types)-1]
	resolve := map[string]string{"T": last, "S": types[max(0, len(types)-2)], "W": map[string]string{"u32": "u64", "s32": "s64", "u16": "u32"}[last]}
	out := laneForm{form: f}
	for i, word := range strings.Fields(signature) {
		if resolve[word] != "" {
			word = resolve[word]
		}
		switch {
		case word == "#":
			out.tail = f.numbers()
			if strings.HasPrefix(f.op, "shfl") && len(out.tail) == 2 { // the lane is a register
				out.in = append(out.in, "u32")
			}
		case i == 0:
			out.out = word
		default:
			out.in = append(out.in, word)
		}
	}
	return out, true
}

// bitsOf names the register type for a type: bits of its size, or a predicate.
func bitsOf(typ string) string {
	if typ == "pred" {
		return "pred"
	}
	return fmt.Sprintf("b%d", 8*typeBytes[typ])
}

const formThreads = 128

// The arrays that a form's kernel gets, of whatever each holds.
var formArrays = []string{"p0", "p1", "p2", "p3", "out"}

// formHeader begins a kernel: the arrays' addresses in %d0 to %d4, the thread's
// index in the grid in %i, and registers to use.
func formHeader(arch string) string {
	var b strings.Builder
	version := "7.4"
	if arch != "sm_80" {
		version = "8.0"
	}
	fmt.Fprintf(&b, ".version %s\n.target %s\n.address_size 64\n\n.visible .entry form(\n", version, arch)
	for i, name := range formArrays {
		fmt.Fprintf(&b, "\t.param .u64 %s%s\n", name, map[bool]string{true: ","}[i < len(formArrays)-1])
	}
	fmt.Fprintf(&b, ")\n.maxntid %d, 1, 1\n{\n", formThreads)
	for _, decl := range []string{"pred %p<8>", "b16 %h<16>", "b32 %r<64>", "b64 %d<24>", "f32 %f<16>", "u32 %i<4>"} {
		fmt.Fprintf(&b, "\t.reg .%s;\n", decl)
	}
	for i, name := range formArrays {
		fmt.Fprintf(&b, "\tld.param.u64 %%d%d, [%s];\n", i, name)
	}
	fmt.Fprintf(&b, "\tmov.u32 %%i0, %%tid.x;\n\tmov.u32 %%i1, %%ctaid.x;\n\tmad.lo.u32 %%i2, %%i1, %d, %%i0;\n", formThreads)
	return b.String()
}

// text is a kernel that runs the instruction once a thread.
func (f laneForm) text() string {
	var b strings.Builder
	b.WriteString(formHeader("sm_80"))
	registers := map[string]string{"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%d1"}
	args := []string{registers[bitsOf(f.out)] + "0"}
	for i, typ := range f.in {
		reg := fmt.Sprintf("%s%d", registers[bitsOf(typ)], i+1)
		fmt.Fprintf(&b, "\tmad.wide.u32 %%d9, %%i2, %d, %%d%d;\n", typeBytes[typ], i)
		if typ == "pred" {
			fmt.Fprintf(&b, "\tld.global.b32 %%r9, [%%d9];\n\tsetp.ne.u32 %s, %%r9, 0;\n", reg)
		} else {
			fmt.Fprintf(&b, "\tld.global.%s %s, [%%d9];\n", bitsOf(typ), reg)
		}
		args = append(args, reg)
	}
	fmt.Fprintf(&b, "\t%s %s;\n", f.op, strings.Join(append(args, f.tail...), ", "))
	fmt.Fprintf(&b, "\tmad.wide.u32 %%d9, %%i2, %d, %%d4;\n", typeBytes[f.out])
	if f.out == "pred" {
		fmt.Fprintf(&b, "\tselp.b32 %%r0, 1, 0, %%p0;\n\tst.global.b32 [%%d9], %%r0;\n")
	} else {
		fmt.Fprintf(&b, "\tst.global.%s [%%d9], %s;\n", bitsOf(f.out), args[0])
	}
	b.WriteString("\tret;\n}\n")
	return b.String()
}
