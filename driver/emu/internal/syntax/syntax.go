// Package syntax parses PTX text: modules, kernel entries, declarations and statements.
// It checks the grammar, and leaves opcodes, operand types and labels to the decoder.
// The language is that of NVIDIA's PTX ISA, without functions, structured directives
// and variables outside shared memory.
package syntax

import (
	"fmt"
	"strconv"
	"strings"
)

// Module is a parsed text.
type Module struct {
	Version int    // .version, major×10 + minor
	SM      int    // compute capability of .target, major×10 + minor
	Target  string // .target with its suffix, such as "sm_90a"
	Shared  []Variable
	Entries []*Entry
	Lines   []string // the text, for messages
}

// Variable is a declaration in shared memory.
type Variable struct {
	Name   string
	Align  int
	Bytes  int
	Extern bool // dynamic shared memory; Bytes is 0 and the launch sets the size
}

// Param is a parameter of an entry.
type Param struct {
	Name    string
	Type    Type
	Offset  int // in the parameter block of a launch
	Bytes   int
	Pointer bool // declared .ptr
	Align   int  // declared alignment of the address that a pointer holds
}

// Entry is a kernel.
type Entry struct {
	Name    string
	Line    int
	Params  []Param
	MaxNTID [3]uint32 // .maxntid; zero if absent
	ReqNTID [3]uint32 // .reqntid; zero if absent
	MinCTAs int       // .minnctapersm; 0 if absent
	MaxNReg int       // .maxnreg; 0 if absent
	Shared  []Variable
	Body    []Instruction
	Labels  map[string]int // index into Body

	registers map[string]Type          // declared as %a
	ranges    map[string]registerRange // declared as %r<n>, without the number
}

type registerRange struct {
	typ   Type
	count int
}

// ParamBytes is the length of the parameter block.
func (e *Entry) ParamBytes() int {
	if len(e.Params) == 0 {
		return 0
	}
	last := e.Params[len(e.Params)-1]
	return last.Offset + last.Bytes
}

// Register looks up the type of a declared register.
func (e *Entry) Register(name string) (Type, bool) {
	if t, ok := e.registers[name]; ok {
		return t, true
	}
	prefix := strings.TrimRight(name, "0123456789")
	digits := name[len(prefix):]
	// A prefix may itself end in digits: try the longest number first.
	for ; digits != ""; prefix, digits = prefix+digits[:1], digits[1:] {
		r, ok := e.ranges[prefix]
		if n, err := strconv.Atoi(digits); ok && err == nil && n < r.count && digits == strconv.Itoa(n) {
			return r.typ, true
		}
	}
	return Type{}, false
}

// Instruction is a statement of a body that executes.
type Instruction struct {
	Line     int
	Guard    string // predicate register, "" if none
	Negated  bool   // the guard is @!p
	Opcode   string
	Operands []Operand
}

// OperandKind tells which fields of an Operand are set.
type OperandKind uint8

// The kinds of operands.
const (
	Name    OperandKind = iota // register, special register, shared variable or label
	ImmInt                     // Value in two's complement
	ImmF32                     // Value holds the bits
	ImmF64                     // Value holds the bits
	Address                    // [Name+Offset], or [Offset] if Name is ""
	Vector                     // {Elems}
)

// Operand is an operand of an instruction.
type Operand struct {
	Kind    OperandKind
	Name    string
	Negated bool   // !Name
	Pair    string // the second name of Name|Pair, "" if none
	Value   uint64
	Minus   bool // an integer with a minus sign
	Offset  int64
	Elems   []Operand
}

// Error says what is wrong on a line.
type Error struct {
	Line int // from 1
	Msg  string
}

// Error gives the line and what is wrong with it.
func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// Errorf makes an *Error.
func Errorf(line int, format string, args ...any) error {
	return &Error{line, fmt.Sprintf(format, args...)}
}
