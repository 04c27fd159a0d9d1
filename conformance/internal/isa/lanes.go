package isa

import (
	"fmt"
	"strings"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// LaneForm is an instruction that computes one result per lane. Its operands may be
// registers or literals.
type LaneForm struct {
	form Form
	Out  string   // type of the result
	in   []string // types of the operands
	tail string   // literal after the operands
}

// signatures maps the beginnings of opcodes to the types of result and operands; the
// longest match counts. T is the last type in the opcode, S the type before it, W is twice
// as wide as T, and # is a literal that the form contains.
var signatures = map[string]string{
	"add": "T T T", "sub": "T T T", "mul": "T T T", "div": "T T T", "rem": "T T T", "min": "T T T", "max": "T T T",
	"and": "T T T", "or": "T T T", "xor": "T T T", "fma": "T T T T", "mad": "T T T T", "mul.wide": "W T T", "mad.wide": "W T T W",
	"not": "T T", "neg": "T T", "abs": "T T", "copysign": "T T T", "sqrt": "T T", "rcp": "T T", "rsqrt": "T T", "ex2": "T T",
	"lg2": "T T", "tanh": "T T", "popc": "u32 T", "clz": "u32 T", "brev": "T T", "shl": "T T u32", "shr": "T T u32",
	"shf": "T T T u32", "bfe": "T T field field", "bfi": "T T T field field", "lop3": "T T T T #", "prmt": "T T T b32",
	"dp4a": "b32 b32 b32 b32", "setp": "pred T T", "selp": "T T T pred", "cvt": "S T",
	"cvt.rn.f16x2.f32": "f16x2 f32 f32", "cvt.rn.bf16x2.f32": "bf16x2 f32 f32", "mov": "T T",
	"shfl.sync": "T T lane clamp mask", "vote.sync.ballot": "b32 pred mask", "vote.sync": "pred pred mask", "redux.sync": "T T mask",
}

// typeBytes maps types to their size in memory. Predicates and 8-bit integers are stored as
// words. lane, clamp and mask are operands of warp instructions; field is the position or
// length of a bit field, of which the low 8 bits count.
var typeBytes = map[string]int{
	"pred": 4, "u8": 4, "s8": 4, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
	"b32": 4, "u32": 4, "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "lane": 4, "clamp": 4, "mask": 4, "field": 4,
	"b64": 8, "u64": 8, "s64": 8, "f64": 8,
}

var twice = map[string]string{"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}

// typesIn lists the types in an opcode.
func typesIn(op string) []string {
	var list []string
	for part := range strings.SplitSeq(op, ".") {
		if typeBytes[part] > 0 {
			list = append(list, part)
		}
	}
	return list
}

// LaneFormOf returns the LaneForm of a form, or false if the instruction has no signature.
func LaneFormOf(f Form) (LaneForm, bool) {
	signature := ""
	for p := f.Op; p != "" && signature == ""; p = p[:len(p)-1] {
		if len(p) == len(f.Op) || f.Op[len(p)] == '.' {
			signature = signatures[p]
		}
	}
	types := typesIn(f.Op)
	if signature == "" || len(types) == 0 || !f.isPlain() {
		return LaneForm{}, false
	}
	last := types[len(types)-1]
	resolve := map[string]string{"T": last, "S": types[max(0, len(types)-2)], "W": twice[last]}
	out := LaneForm{form: f}
	for i, word := range strings.Fields(signature) {
		if resolved, ok := resolve[word]; ok {
			word = resolved
		}
		switch {
		case word == "#":
			out.tail = f.Args
		case i == 0:
			out.Out = word
		default:
			out.in = append(out.in, word)
		}
	}
	return out, true
}

// isPlain reports whether the operands are as the signature says, or modified in a way that
// text supports.
func (f Form) isPlain() bool {
	switch {
	case f.isOp("mov."):
		return f.Args == "r,r"
	case f.isOp("lop3."):
		return !strings.Contains(f.Args, ",")
	}
	return f.Args == "" || f.Args == "pair" && f.isOp("shfl.") || f.Args == "negated" && f.isOp("vote.")
}

// takes reports whether a tuple has the right number of operands.
func (f LaneForm) takes(tuple string) bool {
	n := len(f.in)
	if f.tail != "" {
		n++
	}
	return strings.Count(tuple, ",")+1 == n
}

// isOp reports whether the opcode begins with one of prefixes.
func (f Form) isOp(prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(f.Op, p) {
			return true
		}
	}
	return false
}

// bitsOf returns the register type for a type.
func bitsOf(typ string) string {
	if typ == "pred" {
		return "pred"
	}
	return fmt.Sprintf("b%d", 8*typeBytes[typ])
}

// Threads is the number of threads per CTA of a test kernel.
const Threads = 128

// Parameters lists the parameters of test kernels, all of 64 bits.
var Parameters = []string{"p0", "p1", "p2", "p3", "p4", "out"}

// header begins a test kernel: parameters in %d0 to %d5, the thread's index in %i0, the
// CTA's in %i1, the global index in %i2, and declared registers.
func header(target ptx.Target) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".version %d.%d\n.target %v\n.address_size 64\n\n.visible .entry form(\n", target.Version/10, target.Version%10, target)
	for i, name := range Parameters {
		fmt.Fprintf(&b, "\t.param .u64 %s%s\n", name, map[bool]string{true: ","}[i < len(Parameters)-1])
	}
	fmt.Fprintf(&b, ")\n.maxntid %d, 1, 1\n{\n", Threads)
	for _, decl := range []string{"pred %p<8>", "b16 %h<16>", "b32 %r<64>", "b64 %d<24>", "f32 %f<16>", "u32 %i<4>"} {
		fmt.Fprintf(&b, "\t.reg .%s;\n", decl)
	}
	for i, name := range Parameters {
		fmt.Fprintf(&b, "\tld.param.u64 %%d%d, [%s];\n", i, name)
	}
	fmt.Fprintf(&b, "\tmov.u32 %%i0, %%tid.x;\n\tmov.u32 %%i1, %%ctaid.x;\n\tmad.lo.u32 %%i2, %%i1, %d, %%i0;\n", Threads)
	return b.String()
}

// variant lists the operands of a form: a literal, or "" for a register.
type variant []string

var registerPrefix = map[string]string{"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%d1"}

// text returns a kernel for n threads in total. Each thread loads the operands and runs the
// instruction once per variant. Variant v of thread i stores result n*v + i.
func (f LaneForm) text(variants []variant, n int) string {
	var b strings.Builder
	b.WriteString(header(f.form.Target()))
	for i, typ := range f.in {
		fmt.Fprintf(&b, "\tmad.wide.u32 %%d9, %%i2, %d, %%d%d;\n", typeBytes[typ], i)
		if typ == "pred" {
			fmt.Fprintf(&b, "\tld.global.b32 %%r9, [%%d9];\n\tsetp.ne.u32 %%p%d, %%r9, 0;\n", i+1)
		} else {
			fmt.Fprintf(&b, "\tld.global.%s %s%d, [%%d9];\n", bitsOf(typ), registerPrefix[bitsOf(typ)], i+1)
		}
	}
	fmt.Fprintf(&b, "\tmad.wide.u32 %%d9, %%i2, %d, %%d%d;\n", f.outBytes(), len(Parameters)-1)
	for v, numbers := range variants {
		args := []string{registerPrefix[bitsOf(f.Out)] + "0"}
		if f.form.Args == "pair" {
			args[0] += "|%p0"
		}
		for i, typ := range f.in {
			arg := numbers[i]
			if arg == "" {
				arg = fmt.Sprintf("%s%d", registerPrefix[bitsOf(typ)], i+1)
			}
			if f.form.Args == "negated" && i == 0 {
				arg = "!" + arg
			}
			args = append(args, arg)
		}
		if f.tail != "" {
			args = append(args, f.tail)
		}
		fmt.Fprintf(&b, "\t%s %s;\n", f.form.Op, strings.Join(args, ", "))
		f.store(&b, v*n*f.outBytes())
	}
	b.WriteString("\tret;\n}\n")
	return b.String()
}

// outBytes returns the size of a result. A pair has a second word for its predicate.
func (f LaneForm) outBytes() int {
	if f.form.Args == "pair" {
		return 8
	}
	return typeBytes[f.Out]
}

func (f LaneForm) store(b *strings.Builder, at int) {
	switch {
	case f.form.Args == "pair":
		fmt.Fprintf(b, "\tselp.b32 %%r9, 1, 0, %%p0;\n\tst.global.v2.b32 [%%d9+%d], {%%r0, %%r9};\n", at)
	case f.Out == "pred":
		fmt.Fprintf(b, "\tselp.b32 %%r0, 1, 0, %%p0;\n\tst.global.b32 [%%d9+%d], %%r0;\n", at)
	default:
		fmt.Fprintf(b, "\tst.global.%s [%%d9+%d], %s0;\n", bitsOf(f.Out), at, registerPrefix[bitsOf(f.Out)])
	}
}
