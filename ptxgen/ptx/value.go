package ptx

import (
	"fmt"
	"math"
)

// class is a register class.
type class uint8

const (
	pred class = iota
	b16
	b32
	f32
	b64
	f64
	classes
)

// classNames holds the name prefix and the declared type of each class.
var classNames = [classes]struct{ prefix, decl string }{
	pred: {"%p", ".pred"}, b16: {"%h", ".b16"}, b32: {"%r", ".b32"}, f32: {"%f", ".f32"}, b64: {"%d", ".b64"}, f64: {"%g", ".f64"},
}

type operandKind uint8

const (
	register operandKind = iota + 1
	immediate
	symbol  // a shared array or a parameter
	special // a special register such as %tid.x
)

// operand is a register, a constant or a symbol. It is comparable.
type operand struct {
	kind  operandKind
	class class
	n     uint64 // number of a register, or bits of a constant
	name  string // of a symbol or a special register
}

func (o operand) String() string {
	switch o.kind {
	case register:
		return fmt.Sprintf("%s%d", classNames[o.class].prefix, o.n)
	case immediate:
		switch o.class {
		case f32:
			return fmt.Sprintf("0f%08X", uint32(o.n))
		case f64:
			return fmt.Sprintf("0d%016X", o.n)
		case b64:
			return fmt.Sprintf("%d", o.n)
		}
		return fmt.Sprintf("%d", uint32(o.n))
	}
	return o.name
}

// arg is one argument of an instruction.
type arg struct {
	kind argKind
	ops  []operand
	off  int64 // of an address
}

type argKind uint8

const (
	single  argKind = iota
	vector          // {a, b}
	address         // [a+off]
)

func one(o operand) arg           { return arg{kind: single, ops: []operand{o}} }
func braces(o ...operand) arg     { return arg{kind: vector, ops: o} }
func at(o operand, off int64) arg { return arg{kind: address, ops: []operand{o}, off: off} }
func number(n int64) arg {
	return one(operand{kind: immediate, class: b32, n: uint64(uint32(n))})
}

func (a arg) String() string {
	switch a.kind {
	case vector:
		s := "{" + a.ops[0].String()
		for _, o := range a.ops[1:] {
			s += ", " + o.String()
		}
		return s + "}"
	case address:
		if a.off != 0 {
			return fmt.Sprintf("[%v+%d]", a.ops[0], a.off)
		}
		return fmt.Sprintf("[%v]", a.ops[0])
	}
	return a.ops[0].String()
}

// value is the representation of every typed value.
type value struct {
	b  *Builder
	op operand
}

func (v value) get() value { return v }

type raw struct{ value }

// A value is immutable unless Var or Undefined made it.
type (
	U32    raw // an unsigned 32-bit integer, or 32 bits
	S32    raw // a signed 32-bit integer
	U64    raw // an unsigned 64-bit integer, or an address
	F32    raw // a float32
	F64    raw // a float64
	F16    raw // a float16
	F16x2  raw // two float16, the first in the low bits
	BF16x2 raw // two bfloat16, the first in the low bits
	Pred   raw // a predicate
)

// Value is the constraint of all typed values.
type Value interface {
	U32 | S32 | U64 | F32 | F64 | F16 | F16x2 | BF16x2 | Pred
	get() value
}

// classOf returns the register class of T.
func classOf[T Value]() class {
	var zero T
	switch any(zero).(type) {
	case U64:
		return b64
	case F32:
		return f32
	case F64:
		return f64
	case F16:
		return b16
	case Pred:
		return pred
	}
	return b32
}

func constant[T Value](b *Builder, bits uint64) T {
	return T(raw{value{b, operand{kind: immediate, class: classOf[T](), n: bits}}})
}

// U32 returns a constant.
func (b *Builder) U32(n uint32) U32 { return constant[U32](b, uint64(n)) }

// N returns a 32-bit constant. It fails if n is negative or does not fit.
func (b *Builder) N(n int) U32 {
	if n < 0 || int64(n) > math.MaxUint32 {
		b.fail("%d is not a 32-bit constant", n)
	}
	return b.U32(uint32(n))
}

// S32 returns a constant.
func (b *Builder) S32(n int32) S32 { return constant[S32](b, uint64(uint32(n))) }

// U64 returns a constant.
func (b *Builder) U64(n uint64) U64 { return constant[U64](b, n) }

// F32 returns a constant.
func (b *Builder) F32(x float32) F32 { return constant[F32](b, uint64(math.Float32bits(x))) }

// F64 returns a constant.
func (b *Builder) F64(x float64) F64 { return constant[F64](b, math.Float64bits(x)) }

// fresh allocates a register for a result of type T.
func fresh[T Value](b *Builder) (T, operand) {
	r := b.newReg(classOf[T]())
	return T(raw{value{b, r}}), r
}

const zeroValue = "ptx: a zero value was used: values come from a Builder"

// apply emits op with one result of type T. It fails if the operands belong to different
// kernels.
func apply[T Value](op string, args ...value) T {
	b := args[0].b
	if b == nil {
		panic(zeroValue)
	}
	res, r := fresh[T](b)
	list := []arg{one(r)}
	for _, a := range args {
		if a.b != b {
			b.fail("%s: a value of another kernel", op)
		}
		list = append(list, one(a.op))
	}
	b.emit(op, 1, list...)
	return res
}

// Var emits mov: it makes a variable with the initial value init. Set changes it.
func Var[T Value](init T) T {
	v := init.get()
	res, r := fresh[T](v.b)
	v.b.vars[r] = true
	v.b.emit(movOf[T](), 1, one(r), one(v.op))
	return res
}

// Undefined makes a variable without a value. Every path must Set it before it is read.
func Undefined[T Value](b *Builder) T {
	res, r := fresh[T](b)
	b.vars[r] = true
	return res
}

func movOf[T Value]() string {
	return "mov" + classNames[classOf[T]()].decl
}

// Set emits mov: it assigns src to dst, a variable made by Var or Undefined.
func Set[T Value](dst, src T) {
	d, s := dst.get(), src.get()
	switch {
	case d.b == nil:
		panic(zeroValue)
	case d.b != s.b:
		d.b.fail("set: values of two kernels")
	case !d.b.vars[d.op]:
		d.b.fail("set: %v is not a variable", d.op)
	}
	d.b.emit(movOf[T](), 1, one(d.op), one(s.op))
}

// Select emits selp: yes if p holds, else no. T must not be Pred.
func Select[T Value](p Pred, yes, no T) T {
	c := classOf[T]()
	if c == pred {
		p.b.fail("select: of predicates")
	}
	return apply[T]("selp"+classNames[c].decl, yes.get(), no.get(), p.value)
}
