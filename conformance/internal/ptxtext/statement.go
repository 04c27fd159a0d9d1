// Package ptxtext parses the PTX text of kernels and analyzes its control and data flow.
package ptxtext

import (
	"regexp"
	"slices"
	"strings"
)

// Statement is one instruction of a PTX text.
type Statement struct {
	Guard string // "@%p1 " or ""
	Op    string
	Args  []string
}

var statementForm = regexp.MustCompile(`^\t(@!?%p\d+ )?([a-z][a-zA-Z0-9_.:]*)( .*)?;$`)

// Parse parses a line. It returns false if the line is no instruction.
func Parse(line string) (Statement, bool) {
	m := statementForm.FindStringSubmatch(line)
	if m == nil {
		return Statement{}, false
	}
	s := Statement{Guard: m[1], Op: m[2]}
	depth, from := 0, 0
	rest := strings.TrimSpace(m[3])
	for i, c := range rest {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				s.Args = append(s.Args, strings.TrimSpace(rest[from:i]))
				from = i + 1
			}
		}
	}
	if rest != "" {
		s.Args = append(s.Args, strings.TrimSpace(rest[from:]))
	}
	return s, true
}

// String returns the line, or "" for the zero Statement.
func (s Statement) String() string {
	if s.Op == "" {
		return ""
	}
	line := "\t" + s.Guard + s.Op
	if len(s.Args) > 0 {
		line += " " + strings.Join(s.Args, ", ")
	}
	return line + ";"
}

// WithArg returns a copy of s with another operand i.
func (s Statement) WithArg(i int, arg string) Statement {
	s.Args = slices.Clone(s.Args)
	s.Args[i] = arg
	return s
}

// WithOp returns a copy of s with another opcode.
func (s Statement) WithOp(op string) Statement { s.Op = op; return s }

// Is reports whether the opcode, or its beginning up to a dot, is one of names.
func (s Statement) Is(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return s.Op == n || strings.HasPrefix(s.Op, n+".") })
}

// Written returns the operand that the instruction writes, or "" if it writes no register.
func (s Statement) Written() string {
	if len(s.Args) == 0 || s.Is("st", "red", "bar", "bra", "ret", "cp", "fence", "mbarrier", "griddepcontrol", "wgmma.wait_group", "prefetch", "setmaxnreg") {
		return ""
	}
	return s.Args[0]
}

// Reads returns the registers that the instruction reads.
func (s Statement) Reads() []string {
	list := s.Args
	if s.Written() != "" && !s.Is("wgmma.mma_async") { // wgmma accumulates into the registers that it writes
		list = s.Args[1:]
	}
	return Registers.FindAllString(s.Guard+" "+strings.Join(list, " "), -1)
}

// Writes returns the registers that the instruction writes.
func (s Statement) Writes() []string { return Registers.FindAllString(s.Written(), -1) }

// Registers matches the registers of an operand.
var Registers = regexp.MustCompile(`%(?:p|h|r|f|d|g)\d+`)
