package ptx

import (
	"fmt"
	"strings"
)

// typeClass maps a type of an instruction to the class of register that holds it.
var typeClass = map[string]class{
	"pred": pred, "b16": b16, "u16": b16, "f16": b16, "bf16": b16, "u8": b32, "s8": b32,
	"b32": b32, "u32": b32, "s32": b32, "f16x2": b32, "bf16x2": b32, "f32": f32,
	"b64": b64, "u64": b64, "s64": b64, "f64": f64,
}

// signatures say which type each argument of an instruction has: a digit is the
// first or second type of its name, w twice as wide as the first, r 32 bits, p a
// predicate, a an address, * an argument that is not checked here. The longest
// beginning of the name wins.
var signatures = map[string]string{
	"add.": "111", "sub.": "111", "mul.": "111", "div.": "111", "rem.": "111", "min.": "111", "max.": "111",
	"and.": "111", "or.": "111", "xor.": "111", "fma.": "1111", "mad.": "1111", "mul.wide.": "w11", "mad.wide.": "w11w",
	"not.": "11", "neg.": "11", "abs.": "11", "sqrt.": "11", "rcp.": "11", "rsqrt.": "11", "ex2.": "11", "lg2.": "11", "tanh.": "11",
	"popc.": "r1", "clz.": "r1", "shl.": "11r", "shr.": "11r", "bfe.": "11rr", "bfi.": "111rr", "lop3.": "1111r", "prmt.": "1111",
	"dp4a.": "rrrr", "setp.": "p11", "selp.": "111p", "cvt.": "12", "cvt.rn.f16x2.": "122", "cvt.rn.bf16x2.": "122",
	"ld.": "*a", "st.": "a*", "ld.param.": "1a", "shfl.": "11rrr", "vote.sync.ballot.": "rpr", "vote.": "ppr", "redux.": "11r",
	"atom.": "1a1", "red.": "a1", "wgmma.mma_async.": "**wp",
}

// checkTypes holds an instruction's arguments to its name.
func checkTypes(in *inst) error {
	sig := longest(signatures, in.op)
	if sig == "" || in.op[:3] == "mov" {
		return nil
	}
	if len(sig) != len(in.args) {
		return fmt.Errorf("%d operands, want %d", len(in.args), len(sig))
	}
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

// checkOperand holds an argument to a letter of a signature.
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
			return fmt.Errorf("is the constant %v, but .%s takes registers alone: see Var", a, typ)
		}
	}
	if a.kind != single || !holds(a.ops[0], c, types) {
		return fmt.Errorf("is %v, not of class %s", a, classNames[c].decl)
	}
	return nil
}

// halves are the types of which the assembler takes no constants.
var halves = map[string]bool{"f16": true, "bf16": true, "f16x2": true, "bf16x2": true}

// checkAddress takes an address with a register. Constant ones are for local memory.
func checkAddress(a arg) error {
	switch {
	case a.kind != address:
		return fmt.Errorf("is no address")
	case a.ops[0].kind == immediate:
		return fmt.Errorf("is the address %v, which is a constant", a)
	}
	return nil
}

// holds reports whether an operand can stand where class c is wanted. Untyped
// 32-bit operations take floats too, as they take any bits.
func holds(o operand, c class, types []string) bool {
	if o.kind == symbol || o.kind == special || o.class == c {
		return true
	}
	bits := len(types) > 0 && types[0] == "b32"
	return bits && (o.class == f32 && c == b32 || o.class == b32 && c == f32) || o.kind == immediate && o.class == b32 && c == b64
}

// checkAccess holds a load's or store's registers to the width of what it moves.
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

// typesOf lists the types in an instruction's name.
func typesOf(op string) []string {
	var list []string
	for part := range strings.SplitSeq(op, ".") {
		if _, ok := typeClass[part]; ok {
			list = append(list, part)
		}
	}
	return list
}

// longest finds the entry of the table whose key begins op and is longest.
func longest[V any](table map[string]V, op string) V {
	for p := op; p != ""; p = p[:len(p)-1] {
		if v, ok := table[p]; ok {
			return v
		}
	}
	var none V
	return none
}
