package emu

import "strconv"

// kind is what PTX calls a fundamental type, without the size.
type kind uint8

const (
	kindPred kind = iota
	kindBits
	kindUnsigned
	kindSigned
	kindFloat
)

// dtype is a PTX type: of a register, an operand or a memory access.
type dtype struct {
	kind kind
	bits int
}

// bytes is the size in memory.
func (t dtype) bytes() int { return t.bits / 8 }

func (t dtype) String() string {
	if t.kind == kindPred {
		return ".pred"
	}
	return "." + string("pbusf"[t.kind]) + strconv.Itoa(t.bits)
}

// typeOf reads a type's name without its dot.
func typeOf(name string) (dtype, bool) {
	switch name {
	case "pred":
		return dtype{kindPred, 1}, true
	case "f16x2", "bf16x2":
		return dtype{kindBits, 32}, true
	case "bf16":
		return dtype{kindBits, 16}, true
	}
	if len(name) < 2 {
		return dtype{}, false
	}
	bits, err := strconv.Atoi(name[1:])
	if err != nil || bits != 8 && bits != 16 && bits != 32 && bits != 64 {
		return dtype{}, false
	}
	switch name[0] {
	case 'b':
		return dtype{kindBits, bits}, true
	case 'u':
		return dtype{kindUnsigned, bits}, true
	case 's':
		return dtype{kindSigned, bits}, true
	case 'f':
		return dtype{kindFloat, bits}, bits > 8
	}
	return dtype{}, false
}

// fits tells whether a register of type r may be an operand of type t: sizes are
// equal; untyped bits fit anything, integers fit integers, floats fit floats.
func (t dtype) fits(r dtype) bool {
	switch {
	case t.bits != r.bits || (t.kind == kindPred) != (r.kind == kindPred):
		return false
	case t.kind == kindBits || r.kind == kindBits:
		return true
	}
	return (t.kind == kindFloat) == (r.kind == kindFloat)
}
