package emu

import "github.com/lockstep-go/lockstep/driver"

// module is a parsed PTX text.
type module struct {
	version int // major×10 + minor
	sm      int // major×10 + minor
	arch    string
	shared  []variable // of the module: seen by every entry
	entries []*entry
	lines   []string // the text, for messages
}

// variable is a declaration in shared memory.
type variable struct {
	name   string
	align  int
	bytes  int
	extern bool // the launch says how many bytes
}

// param is a parameter of an entry.
type param struct {
	name    string
	typ     dtype
	offset  int // in Launch.Params
	bytes   int
	pointer bool // declared .ptr
	align   int  // of what it points to
}

// entry is a kernel.
type entry struct {
	name    string
	line    int
	params  []param
	maxntid [3]uint32 // zero if not declared
	reqntid [3]uint32
	shared  []variable
	regs    map[string]dtype    // registers declared one by one
	ranges  map[string]regRange // registers declared as %r<n>, by the name before the number
	body    []instruction
	labels  map[string]int // index into body
}

type regRange struct {
	typ   dtype
	count int
}

// paramBytes is the length of Launch.Params.
func (e *entry) paramBytes() int {
	if len(e.params) == 0 {
		return 0
	}
	last := e.params[len(e.params)-1]
	return last.offset + last.bytes
}

// maxThreads is how many threads a CTA of the kernel may have.
func (e *entry) maxThreads(props *driver.Properties) int {
	for _, n := range [][3]uint32{e.maxntid, e.reqntid} {
		if n[0] != 0 {
			return int(n[0] * n[1] * n[2])
		}
	}
	return props.MaxThreadsPerCTA
}

// instruction is one statement of a body.
type instruction struct {
	line     int
	guard    string // predicate register, "" if none
	negated  bool
	opcode   string
	operands []operand
}

type operandKind uint8

const (
	opndName    operandKind = iota // register, special register, symbol or label
	opndInt                        // value, two's complement
	opndF32                        // value holds the bits
	opndF64                        // value holds the bits
	opndAddress                    // [name+offset], or [offset] with no name
	opndVector                     // {elems}
)

type operand struct {
	kind    operandKind
	name    string
	negated bool   // written with a !
	pair    string // the p of d|p, "" if none
	value   uint64
	minus   bool // an integer written with a minus
	offset  int64
	elems   []operand
}
