package ptx

import (
	"fmt"
	"runtime"
	"strings"
)

// Builder builds one kernel. Make it with New. A Builder must not be used concurrently.
type Builder struct {
	name    string
	doc     []string
	params  []Param
	shared  []sharedVar
	body    []node
	block   *[]node // emit appends to it
	regs    [classes]int
	vars    map[operand]bool // registers made by Var and Undefined
	guard   *guard           // of the enclosing When or Unless
	part    *part            // of Beside, or nil
	dynamic int              // alignment of dynamic shared memory; 0 if the kernel uses none
	wgmma   bool             // uses wgmma
	setsMax bool             // uses setmaxnreg
	err     error
}

type sharedVar struct {
	name         string
	bytes, align int
}

// New returns a builder for a kernel with the given name: a letter, then letters, digits and
// underscores.
func New(name string) *Builder {
	b := &Builder{name: name, vars: map[operand]bool{}}
	b.block = &b.body
	if !isName(name) {
		b.fail("%q cannot name a kernel", name)
	}
	return b
}

// Doc adds comment lines above the entry.
func (b *Builder) Doc(format string, args ...any) {
	b.doc = append(b.doc, strings.Split(b.ascii(fmt.Sprintf(format, args...)), "\n")...)
}

// Comment adds a comment line at this point of the text.
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

// Err returns the first failure so far.
func (b *Builder) Err() error { return b.err }

// Failf records a failure, for example a generator parameter out of range. Only the first
// failure is kept.
func (b *Builder) Failf(format string, args ...any) { b.fail(format, args...) }

func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = b.errorAt(callerPC(), format, args...)
	}
}

func (b *Builder) errorAt(pc uintptr, format string, args ...any) error {
	return &Error{Kernel: b.name, Pos: position(pc), Detail: fmt.Sprintf(format, args...)}
}

// Error describes why a kernel could not be built.
type Error struct {
	Kernel string
	Pos    string // file:line outside this package
	Detail string
}

// Error returns the source line, the kernel and the detail.
func (e *Error) Error() string {
	return fmt.Sprintf("ptx: %s: kernel %s: %s", e.Pos, e.Kernel, e.Detail)
}

const thisPackage = "github.com/lockstep-go/lockstep/ptxgen/ptx."

// callerPC returns the innermost program counter outside this package. Unwinding takes a large part of the time of building a
// kernel, and the caller is usually near: so it unwinds four frames at a time.
func callerPC() uintptr {
	var pcs [4]uintptr
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs[:])
		if pc := outside(pcs[:n]); pc != 0 || n < len(pcs) {
			return pc
		}
	}
}

// outside returns the first program counter outside this package; 0: none.
func outside(pcs []uintptr) uintptr {
	for _, pc := range pcs {
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

// position formats a program counter as file:line, without folders.
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

// emit appends an instruction. Its first dsts args are results.
func (b *Builder) emit(op string, dsts int, args ...arg) *inst {
	in := &inst{op: op, args: args, dsts: dsts, guard: b.guard, pc: callerPC()}
	*b.block = append(*b.block, in)
	return in
}

func (b *Builder) newReg(c class) operand {
	b.regs[c]++
	return operand{kind: register, class: c, n: uint64(b.regs[c] - 1)}
}
