package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// verify checks what Go types cannot express: a register is written on every path before it is
// read, only variables are written more than once, each instruction is known, and operands have
// the types of the instruction. It sets k.MinTarget.
func verify(b *Builder, k *Kernel) error {
	v := &verifier{b: b, guarded: map[operand]guard{}}
	v.list(b.body, registers{})
	v.waits(b.body)
	if b.wgmma {
		eachList(b.body, v.products)
	}
	k.MinTarget = Target{Version: 74, SM: 80}
	each(b.body, func(in *inst) {
		r, ok := longest(requirements, in.op)
		if !ok {
			v.fail(in.pc, "%s is an unknown instruction", in.op)
			return
		}
		if err := checkTypes(in); err != nil {
			v.fail(in.pc, "%s: %v", in, err)
		}
		if in.optional {
			return
		}
		k.MinTarget.Arch = k.MinTarget.Arch || r.arch
		k.MinTarget.Version = max(k.MinTarget.Version, r.version)
		k.MinTarget.SM = max(k.MinTarget.SM, r.sm)
	})
	k.MinTarget.Version = max(k.MinTarget.Version, minVersion(k.MinTarget))
	return v.err
}

type registers map[operand]bool

func (r registers) clone() registers {
	c := make(registers, len(r))
	for o := range r {
		c[o] = true
	}
	return c
}

type verifier struct {
	b       *Builder
	guarded map[operand]guard // the guard of the instruction that wrote a register
	err     error
}

func (v *verifier) fail(pc uintptr, format string, args ...any) {
	if v.err == nil {
		v.err = v.b.errorAt(pc, format, args...)
	}
}

// list checks a list of nodes. defined holds the registers that are written on every path so
// far.
func (v *verifier) list(list []node, defined registers) {
	for _, n := range list {
		switch n := n.(type) {
		case *inst:
			v.inst(n, defined)
		case *branch:
			v.use(n.pc, "a branch", n.pred, defined)
			then, alt := defined.clone(), defined.clone()
			v.list(n.then, then)
			v.list(n.alt, alt)
			for o := range then {
				if alt[o] {
					defined[o] = true
				}
			}
		case *loop:
			v.list(n.cond, defined)
			inside := defined
			if !n.bottom {
				v.use(n.pc, "a loop", n.pred, defined)
				inside = defined.clone()
			}
			v.list(n.body, inside)
			if n.bottom {
				v.use(n.pc, "a loop", n.pred, inside)
			}
		}
	}
}

func (v *verifier) inst(in *inst, defined registers) {
	for _, o := range in.reads() {
		if g, ok := v.guarded[o]; ok && in.guard != nil && *in.guard == g {
			continue
		}
		v.use(in.pc, in.op, o, defined)
	}
	for _, o := range in.writes() {
		switch {
		case o == sink:
		case o.kind != register:
			v.fail(in.pc, "%s writes %v", in.op, o)
		case defined[o] && !v.b.vars[o]:
			v.fail(in.pc, "%s writes %v again, which is not a variable", in.op, o)
		case in.guard == nil:
			defined[o] = true
		default:
			v.guarded[o] = *in.guard
		}
	}
}

func (v *verifier) use(pc uintptr, op string, o operand, defined registers) {
	if o.kind == register && !defined[o] {
		v.fail(pc, "%s reads %v, which is not written on every path to it", op, o)
	}
}

// typeClass maps a PTX type to the register class that holds it.
var typeClass = map[string]class{
	"pred": pred, "b16": b16, "u16": b16, "f16": b16, "bf16": b16, "u8": b32, "s8": b32,
	"b32": b32, "u32": b32, "s32": b32, "f16x2": b32, "bf16x2": b32, "f32": f32,
	"b64": b64, "u64": b64, "s64": b64, "f64": f64,
}

// signatures gives the type of each argument of an instruction, by the longest matching prefix
// of its name. A digit n stands for the n-th type in the name, w for 64 bits, r for 32 bits, p for
// a predicate and a for an address. An argument of * is not checked. An instruction with several
// numbers of arguments has alternatives, separated by |.
var signatures = map[string]string{
	"add.": "111", "sub.": "111", "mul.": "111", "div.": "111", "rem.": "111", "min.": "111", "max.": "111",
	"and.": "111", "or.": "111", "xor.": "111", "fma.": "1111", "mad.": "1111", "mul.wide.": "w11", "mad.wide.": "w11w",
	"not.": "11", "neg.": "11", "abs.": "11", "sqrt.": "11", "rcp.": "11", "ex2.": "11",
	"popc.": "r1", "shl.": "11r", "shr.": "11r", "bfe.": "11rr", "lop3.": "1111r", "prmt.": "1111",
	"setp.": "p11", "selp.": "111p", "cvt.": "12", "cvt.rn.f16x2.": "122", "cvt.rn.bf16x2.": "122",
	"ld.": "*a", "st.": "a*", "ld.param.": "1a", "shfl.": "11rrr", "vote.sync.ballot.": "rpr", "vote.": "ppr", "redux.": "11r",
	"atom.": "1a1", "red.": "a1", "createpolicy.": "w", "prefetch.": "a", "wgmma.mma_async.": "**wprrr|*wwprrrr",
}

// checkTypes compares the arguments of an instruction with its signature.
func checkTypes(in *inst) error {
	sig, ok := longest(signatures, in.op)
	if !ok {
		return nil
	}
	alternatives := strings.Split(sig, "|")
	i := slices.IndexFunc(alternatives, func(s string) bool { return len(s) == len(in.args) })
	if i < 0 {
		return fmt.Errorf("%d operands, want %d", len(in.args), len(alternatives[0]))
	}
	sig = alternatives[i]
	types := typesOf(in.op)
	if strings.HasPrefix(in.op, "ld.") || strings.HasPrefix(in.op, "st.") {
		return checkAccess(in, types)
	}
	for i, want := range sig {
		if err := checkOperand(in.args[i], want, types); err != nil {
			return fmt.Errorf("operand %d %w", i+1, err)
		}
	}
	return nil
}

// checkOperand compares an argument with one letter of a signature.
func checkOperand(a arg, want rune, types []string) error {
	var c class
	switch want {
	case '*':
		return nil
	case 'a':
		return checkAddress(a)
	case 'p':
		c = pred
	case 'r':
		c = b32
	case 'w':
		c = b64
	default:
		if int(want-'1') >= len(types) {
			return fmt.Errorf("has no type")
		}
		typ := types[want-'1']
		c = typeClass[typ]
		if halves[typ] && a.ops[0].kind == immediate {
			return fmt.Errorf("is the constant %v, but .%s takes only registers: see Var", a, typ)
		}
	}
	if a.kind != single || !holds(a.ops[0], c, types) {
		return fmt.Errorf("is %v, not of class %s", a, classNames[c].decl)
	}
	return nil
}

// halves are the 16-bit float types and pairs of them. Their operands must be registers.
var halves = map[string]bool{"f16": true, "bf16": true, "f16x2": true, "bf16x2": true}

// checkAddress requires an address in a register. A constant address would mean local memory.
func checkAddress(a arg) error {
	switch {
	case a.kind != address:
		return fmt.Errorf("is not an address")
	case a.ops[0].kind == immediate:
		return fmt.Errorf("is the address %v, which is a constant", a)
	}
	return nil
}

// holds reports whether an operand can be used for class c. Instructions of type .b32 also take
// f32 registers.
func holds(o operand, c class, types []string) bool {
	if o.kind == symbol || o.kind == special || o.class == c {
		return true
	}
	bits := len(types) > 0 && types[0] == "b32"
	return bits && (o.class == f32 && c == b32 || o.class == b32 && c == f32) || o.kind == immediate && o.class == b32 && c == b64
}

// checkAccess compares the registers of a load or store with its access type.
func checkAccess(in *inst, types []string) error {
	if len(types) == 0 {
		return fmt.Errorf("no type")
	}
	typ := types[len(types)-1]
	for i, a := range in.args {
		if a.kind == address {
			if err := checkAddress(a); err != nil {
				return fmt.Errorf("operand %d %w", i+1, err)
			}
			continue
		}
		n := 1
		for _, v := range []int{2, 4} {
			if strings.Contains(in.op, vectorInfix[v]+".") {
				n = v
			}
		}
		if len(a.ops) != n {
			return fmt.Errorf("%d registers for a vector of %d", len(a.ops), n)
		}
		for _, o := range a.ops {
			c := typeClass[typ]
			narrow := width[typ] < 4 && o.class == b32 || typ == "b32" && o.class == f32
			if o.class != c && !narrow {
				return fmt.Errorf("%v cannot hold .%s", o, typ)
			}
		}
	}
	return nil
}

// typesOf returns the types in the name of an instruction.
func typesOf(op string) []string {
	var list []string
	for part := range strings.SplitSeq(op, ".") {
		if _, ok := typeClass[part]; ok {
			list = append(list, part)
		}
	}
	return list
}

// longest returns the entry of the table with the longest key that is a prefix of op.
func longest[V any](table map[string]V, op string) (V, bool) {
	for p := op; p != ""; p = p[:len(p)-1] {
		if v, ok := table[p]; ok {
			return v, true
		}
	}
	var zero V
	return zero, false
}
