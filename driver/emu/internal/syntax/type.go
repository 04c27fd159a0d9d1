package syntax

import "strconv"

// Kind is the class of a PTX type without its size.
type Kind uint8

// The kinds of types.
const (
	Pred Kind = iota
	Bits
	Unsigned
	Signed
	Float
)

// Type is a PTX type of a register, an operand or a memory access.
type Type struct {
	Kind Kind
	Bits int
}

// Bytes is the size in memory.
func (t Type) Bytes() int { return t.Bits / 8 }

// String returns the name of the type, with its dot.
func (t Type) String() string {
	if t.Kind == Pred {
		return ".pred"
	}
	return "." + string("pbusf"[t.Kind]) + strconv.Itoa(t.Bits)
}

// ParseType reads the name of a type without its dot. The packed and the bf16 types are
// untyped bits, as their registers are.
func ParseType(name string) (Type, bool) {
	switch name {
	case "pred":
		return Type{Pred, 1}, true
	case "f16x2", "bf16x2":
		return Type{Bits, 32}, true
	case "bf16":
		return Type{Bits, 16}, true
	}
	if len(name) < 2 {
		return Type{}, false
	}
	bits, err := strconv.Atoi(name[1:])
	if err != nil || bits != 8 && bits != 16 && bits != 32 && bits != 64 {
		return Type{}, false
	}
	switch name[0] {
	case 'b':
		return Type{Bits, bits}, true
	case 'u':
		return Type{Unsigned, bits}, true
	case 's':
		return Type{Signed, bits}, true
	case 'f':
		return Type{Float, bits}, bits > 8
	}
	return Type{}, false
}

// Fits reports whether a register of type r may be an operand of type t. The sizes must be
// equal; untyped bits fit any type, integers fit integers, and floats fit floats.
func (t Type) Fits(r Type) bool {
	switch {
	case t.Bits != r.Bits || (t.Kind == Pred) != (r.Kind == Pred):
		return false
	case t.Kind == Bits || r.Kind == Bits:
		return true
	}
	return (t.Kind == Float) == (r.Kind == Float)
}

// FitsWithin is Fits for loads, stores and conversions: unless t is a float, the register may
// be larger than t.
func (t Type) FitsWithin(r Type) bool {
	if r.Bits <= t.Bits || t.Kind == Float || t.Kind == Pred {
		return t.Fits(r)
	}
	return r.Kind != Float && r.Kind != Pred
}
