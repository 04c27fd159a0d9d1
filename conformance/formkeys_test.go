package conformance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// form is one way in which an instruction is written: the opcode with those of its
// operands that change what it does. Numbers that are only data (an addend, a
// selector, an offset) are not part of it.
type form struct {
	op   string
	args string // constants that are part of the meaning, and the shape of operands
}

func (f form) String() string { return strings.TrimSpace(f.op + " " + f.args) }

// list is args, one by one.
func (f form) list() []string { return strings.Fields(strings.ReplaceAll(f.args, ",", " ")) }

// plainRegister matches registers, but not special ones.
var plainRegister = regexp.MustCompile(`^%[a-z]+\d+$`)

// isLiteral tells a number from a register or a name.
func isLiteral(arg string) bool { return arg != "" && strings.ContainsAny(arg[:1], "-0123456789") }

// word32 is a number, however written, as an unsigned one of 32 bits.
func word32(number string) string {
	n, err := strconv.ParseInt(number, 0, 64)
	if err != nil {
		return number
	}
	return strconv.FormatUint(uint64(uint32(n)), 10)
}

// formOf reads the form of an instruction.
func formOf(s statement) form {
	var parts []string
	switch {
	case s.is("lop3"): // the truth table
		parts = append(parts, word32(s.args[len(s.args)-1]))
	case s.is("bar", "barrier", "cp.async.wait_group", "wgmma.wait_group"): // a barrier's number and threads, groups
		for _, arg := range s.args {
			parts = append(parts, shape(arg, word32(arg)))
		}
	case s.is("mov"):
		parts = append(parts, shape(s.args[0], "r"), shape(s.args[1], "r"))
	case s.is("cp.async.ca", "cp.async.cg"):
		parts = append(parts, fmt.Sprintf("%d operands", len(s.args)), "size "+s.args[2])
	case s.is("mbarrier.arrive"):
		parts = append(parts, fmt.Sprintf("%d operands", len(s.args)), shape(s.args[0], "r"))
	case s.is("createpolicy"):
		parts = append(parts, fmt.Sprintf("%d operands", len(s.args)))
	case s.is("ld", "st", "atom", "red") && !s.is("ld.param"):
		parts = append(parts, accessShape(s)...)
	case !s.is("mma", "ldmatrix", "wgmma"):
		parts = append(parts, oddities(s)...)
	}
	return form{s.op, strings.Join(parts, ",")}
}

// oddities are operands that most instructions are written without: a pair of
// results, a negated predicate, a vector.
func oddities(s statement) (parts []string) {
	for i, arg := range s.args {
		switch {
		case i == 0 && strings.Contains(arg, "|"):
			parts = append(parts, "pair")
		case arg[0] == '!':
			parts = append(parts, "negated")
		case arg[0] == '{':
			parts = append(parts, "{}")
		}
	}
	return parts
}

// shape is the kind of an operand: a number as asked for, "r", "{}", "_", a special
// register's name, or "symbol".
func shape(arg, number string) string {
	switch {
	case isLiteral(arg):
		return number
	case plainRegister.MatchString(arg):
		return "r"
	case arg[0] == '{':
		return "{}"
	case arg[0] == '%' || arg == "_":
		return arg
	}
	return "symbol"
}

// accessShape tells of an access whether it names the variable that it goes to, and
// which of the values stored are numbers: "number 01" is {register, number}.
func accessShape(s statement) (parts []string) {
	address := 0
	if s.is("ld", "atom") {
		address = 1
	}
	if s.args[address][1] != '%' {
		parts = append(parts, "symbol")
	}
	kinds := ""
	for _, value := range strings.FieldsFunc(strings.Join(s.args[min(1, len(s.args)-1):], ","), func(r rune) bool { return strings.ContainsRune("{}, ", r) }) {
		if value[0] != '[' {
			kinds += map[bool]string{true: "1", false: "0"}[isLiteral(value)]
		}
	}
	if s.is("st", "atom", "red") && strings.Contains(kinds, "1") {
		parts = append(parts, "number "+kinds)
	}
	return parts
}

// use is where a form was found, and with which operands.
type use struct {
	where  string
	tuples map[string]bool // the operands behind the first, numbers as written, others as %
}

// uses collects forms.
type uses map[form]use

func (u uses) add(s statement, where string) {
	f := formOf(s)
	at, ok := u[f]
	if !ok {
		at = use{where, map[string]bool{}}
		u[f] = at
	}
	at.tuples[s.tuple()] = true
}

func (s statement) tuple() string {
	var list []string
	for _, arg := range s.args[min(1, len(s.args)):] {
		if !isLiteral(arg) {
			arg = "%"
		}
		list = append(list, arg)
	}
	return strings.Join(list, ",")
}

// merge adds what another has, which goes first where both have a form.
func (u uses) merge(other uses) {
	for f, theirs := range other {
		all := maps.Clone(theirs.tuples)
		maps.Copy(all, u[f].tuples)
		u[f] = use{theirs.where, all}
	}
}

// sorted are the forms in the order of their names.
func (u uses) sorted() []form {
	var all []form
	for f := range u {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b form) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// count is the number in an argument such as "4 operands" or "size 16"; 0 without.
func (f form) count(word string) int {
	for part := range strings.SplitSeq(f.args, ",") {
		if strings.Contains(part, word) {
			n, _ := strconv.Atoi(strings.TrimSpace(strings.Replace(part, word, "", 1)))
			return n
		}
	}
	return 0
}
