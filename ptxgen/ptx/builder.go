package ptx

import (
	"fmt"
	"runtime"
	"strings"
)

// Builder collects a kernel. The zero value is not usable; see New. A Builder is
// for one goroutine.
type Builder struct {
	name       string
	doc        []string
	params     []Param
	shared     []sharedVar
	body       []node
	block      *[]node // where emit appends
	regs       [classes]int
	vars       map[operand]bool // registers that may be set more than once
	guard      *guard           // of the When around, nil outside
	dynamic    bool             // has dynamic shared memory
	warpgroups bool             // has products of warpgroups
	err        error
}

// node is one of *inst, *branch, *loop, *remark.
type node any

type inst struct {
	op     string
	args   []arg
	dsts   int // args[:dsts] are written
	guard  *guard
	effect bool // must stay where it is even if nothing reads its result
	spare  bool // left out of texts for targets that do not have it
	update bool // reads what it writes too
	pc     uintptr
}

type guard struct {
	pred operand
	not  bool
}

type branch struct {
	pred      operand
	then, alt []node
	pc        uintptr
}

// loop runs head, leaves if pred is given and false, runs body, and begins again;
// with bottom, it is body, then again while pred holds.
type loop struct {
	head, body []node
	pred       operand
	bottom     bool
	noUnroll   bool
	pc         uintptr
}

type remark struct{ text string }

type sharedVar struct {
	name         string
	bytes, align int
}

// New begins a kernel whose entry has the given name: a letter, then letters,
// digits and underscores.
func New(name string) *Builder {
	b := &Builder{name: name, vars: map[operand]bool{}}
	b.block = &b.body
	if !isName(name) {
		b.fail("%q cannot name a kernel", name)
	}
	return b
}

// Doc adds lines of comment above the entry.
func (b *Builder) Doc(format string, args ...any) {
	b.doc = append(b.doc, strings.Split(b.ascii(fmt.Sprintf(format, args...)), "\n")...)
}

// Comment adds a line of comment at this place of the text.
func (b *Builder) Comment(format string, args ...any) {
	*b.block = append(*b.block, &remark{b.ascii(fmt.Sprintf(format, args...))})
}

func (b *Builder) ascii(s string) string {
	for _, c := range s {
		if c != '\n' && (c < ' ' || c > '~') {
			b.fail("a comment holds %q, which is not ASCII", c)
			return "?"
		}
	}
	return s
}

// Err is the first failure so far.
func (b *Builder) Err() error { return b.err }

// Failf records that the kernel cannot be built, for example because a parameter
// of its generator is out of range. The first failure stays.
func (b *Builder) Failf(format string, args ...any) { b.fail(format, args...) }

func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = b.errorAt(author(), format, args...)
	}
}

func (b *Builder) errorAt(pc uintptr, format string, args ...any) error {
	return &Error{Kernel: b.name, Pos: position(pc), Detail: fmt.Sprintf(format, args...)}
}

// Error is a kernel that could not be built.
type Error struct {
	Kernel string
	Pos    string // file:line of the kernel's author
	Detail string
}

func (e *Error) Error() string {
	return fmt.Sprintf("ptx: %s: kernel %s: %s", e.Pos, e.Kernel, e.Detail)
}

const thisPackage = "github.com/lockstep-go/lockstep/ptxgen/ptx."

// author is the innermost program counter outside this package.
func author() uintptr {
	var pcs [16]uintptr
	n := runtime.Callers(2, pcs[:])
	for _, pc := range pcs[:n] {
		f := runtime.FuncForPC(pc - 1)
		if f == nil {
			continue
		}
		if rest, ok := strings.CutPrefix(f.Name(), thisPackage); !ok || strings.HasPrefix(rest, "Test") || strings.HasPrefix(rest, "Example") {
			return pc
		}
	}
	return 0
}

// position names a program counter: the file without its folders, and the line.
func position(pc uintptr) string {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	if frame.File == "" {
		return "?"
	}
	return fmt.Sprintf("%s:%d", frame.File[strings.LastIndexByte(frame.File, '/')+1:], frame.Line)
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '_' && (c < '0' || c > '9')) {
			return false
		}
	}
	return s != ""
}

// emit appends an instruction. The first dsts args are its results.
func (b *Builder) emit(op string, dsts int, args ...arg) *inst {
	in := &inst{op: op, args: args, dsts: dsts, guard: b.guard, pc: author()}
	*b.block = append(*b.block, in)
	return in
}

// effect appends an instruction without results, or whose place matters.
func (b *Builder) effect(op string, dsts int, args ...arg) {
	b.emit(op, dsts, args...).effect = true
}

func (b *Builder) newReg(c class) operand {
	b.regs[c]++
	return operand{kind: register, class: c, n: uint64(b.regs[c] - 1)}
}
