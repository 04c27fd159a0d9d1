package conformance

import (
	"regexp"
	"slices"
	"strings"
)

// statement is one instruction of a text, taken apart.
type statement struct {
	guard string // "@%p1 " or ""
	op    string
	args  []string
}

var statementForm = regexp.MustCompile(`^\t(@!?%p\d+ )?([a-z][a-zA-Z0-9_.:]*)( .*)?;$`)

// parseStatement reads a line; false if it is no instruction.
func parseStatement(line string) (statement, bool) {
	m := statementForm.FindStringSubmatch(line)
	if m == nil {
		return statement{}, false
	}
	s := statement{guard: m[1], op: m[2]}
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
				s.args = append(s.args, strings.TrimSpace(rest[from:i]))
				from = i + 1
			}
		}
	}
	if rest != "" {
		s.args = append(s.args, strings.TrimSpace(rest[from:]))
	}
	return s, true
}

// String is the line again; of the zero value an empty one.
func (s statement) String() string {
	if s.op == "" {
		return ""
	}
	line := "\t" + s.guard + s.op
	if len(s.args) > 0 {
		line += " " + strings.Join(s.args, ", ")
	}
	return line + ";"
}

func (s statement) withArg(i int, arg string) statement {
	s.args = slices.Clone(s.args)
	s.args[i] = arg
	return s
}

func (s statement) withOp(op string) statement { s.op = op; return s }

// is reports whether the instruction begins with one of these names.
func (s statement) is(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return s.op == n || strings.HasPrefix(s.op, n+".") })
}

// written is the part that the instruction writes, "" if it writes no register.
func (s statement) written() string {
	if len(s.args) == 0 || s.is("st", "red", "bar", "bra", "ret", "cp", "fence", "mbarrier", "griddepcontrol", "wgmma.wait_group") {
		return ""
	}
	return s.args[0]
}

// reads are the registers that an instruction reads.
func (s statement) reads() []string {
	list := s.args
	if s.written() != "" && !s.is("wgmma.mma_async") { // which may add to what it writes
		list = s.args[1:]
	}
	return registerForm.FindAllString(s.guard+" "+strings.Join(list, " "), -1)
}

// writes are the registers that it writes.
func (s statement) writes() []string { return registerForm.FindAllString(s.written(), -1) }

var registerForm = regexp.MustCompile(`%(?:p|h|r|f|d|g)\d+`)
