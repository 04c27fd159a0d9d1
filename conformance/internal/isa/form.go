package isa

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// form is one way in which an instruction is written: the opcode with those of its
// operands that change what it does. Numbers that are only data (an addend, a
// selector, an offset) are not part of it.
type Form struct {
	Op   string
	Args string // constants that are part of the meaning, and the shape of operands
}

func (f Form) String() string { return strings.TrimSpace(f.Op + " " + f.Args) }

// list is args, one by one.
func (f Form) list() []string { return strings.Fields(strings.ReplaceAll(f.Args, ",", " ")) }

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
func formOf(s ptxtext.Statement) Form {
	var parts []string
	switch {
	case s.Is("lop3"): // the truth table
		parts = append(parts, word32(s.Args[len(s.Args)-1]))
	case s.Is("bar", "barrier", "cp.async.wait_group", "wgmma.wait_group"): // a barrier's number and threads, groups
		for _, arg := range s.Args {
			parts = append(parts, shape(arg, word32(arg)))
		}
	case s.Is("mov"):
		parts = append(parts, shape(s.Args[0], "r"), shape(s.Args[1], "r"))
	case s.Is("cp.async.ca", "cp.async.cg"):
		parts = append(parts, fmt.Sprintf("%d operands", len(s.Args)), "size "+s.Args[2])
	case s.Is("mbarrier.arrive"):
		parts = append(parts, fmt.Sprintf("%d operands", len(s.Args)), shape(s.Args[0], "r"))
	case s.Is("createpolicy"):
		parts = append(parts, fmt.Sprintf("%d operands", len(s.Args)))
	case s.Is("ld", "st", "atom", "red") && !s.Is("ld.param"):
		parts = append(parts, accessShape(s)...)
	case !s.Is("mma", "ldmatrix", "wgmma"):
		parts = append(parts, oddities(s)...)
	}
	return Form{s.Op, strings.Join(parts, ",")}
}

// oddities are operands that most instructions are written without: a pair of
// results, a negated predicate, a vector.
func oddities(s ptxtext.Statement) (parts []string) {
	for i, arg := range s.Args {
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
func accessShape(s ptxtext.Statement) (parts []string) {
	address := 0
	if s.Is("ld", "atom") {
		address = 1
	}
	if s.Args[address][1] != '%' {
		parts = append(parts, "symbol")
	}
	kinds := ""
	for _, value := range strings.FieldsFunc(strings.Join(s.Args[min(1, len(s.Args)-1):], ","), func(r rune) bool { return strings.ContainsRune("{}, ", r) }) {
		if value[0] != '[' {
			kinds += map[bool]string{true: "1", false: "0"}[isLiteral(value)]
		}
	}
	if s.Is("st", "atom", "red") && strings.Contains(kinds, "1") {
		parts = append(parts, "number "+kinds)
	}
	return parts
}

// use is where a form was found, and with which operands.
type Use struct {
	Where  string
	Tuples map[string]bool // the operands behind the first, numbers as written, others as %
}

// uses collects forms.
type Uses map[Form]Use

func (u Uses) add(s ptxtext.Statement, where string) {
	f := formOf(s)
	at, ok := u[f]
	if !ok {
		at = Use{where, map[string]bool{}}
		u[f] = at
	}
	at.Tuples[tupleOf(s)] = true
}

func tupleOf(s ptxtext.Statement) string {
	var list []string
	for _, arg := range s.Args[min(1, len(s.Args)):] {
		if !isLiteral(arg) {
			arg = "%"
		}
		list = append(list, arg)
	}
	return strings.Join(list, ",")
}

// merge adds what another has, which goes first where both have a form.
func (u Uses) merge(other Uses) {
	for f, theirs := range other {
		all := maps.Clone(theirs.Tuples)
		maps.Copy(all, u[f].Tuples)
		u[f] = Use{theirs.Where, all}
	}
}

// sorted are the forms in the order of their names.
func (u Uses) Sorted() []Form {
	var all []Form
	for f := range u {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Form) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// count is the number in an argument such as "4 operands" or "size 16"; 0 without.
func (f Form) count(word string) int {
	for part := range strings.SplitSeq(f.Args, ",") {
		if strings.Contains(part, word) {
			n, _ := strconv.Atoi(strings.TrimSpace(strings.Replace(part, word, "", 1)))
			return n
		}
	}
	return 0
}

// formNeeds are the instructions that need more than sm_80, by the beginning of the
// form; PTX ISA, "Target ISA Notes".
var requirements = map[string]int{
	"griddepcontrol.": 90, "fence.proxy.async": 90, "fence.mbarrier_init.": 90, "cp.async.bulk.": 90, "mbarrier.try_wait.": 90,
	"mbarrier.arrive.shared.b64 3 operands": 90, "mbarrier.arrive.expect_tx.": 90, "mbarrier.expect_tx.": 90, "cvt.f32.bf16": 90,
	"add.rn.bf16x2": 90, "sub.rn.bf16x2": 90, "mul.rn.bf16x2": 90, "add.rn.bf16": 90, "sub.rn.bf16": 90, "mul.rn.bf16": 90,
}

// needs is the target that a form's kernel is written for.
func (f Form) Target() ptx.Target {
	if strings.HasPrefix(f.Op, "wgmma.") { // PTX 8.4 for factors of two types
		return ptx.Target{SM: 90, Arch: true, Version: 84}
	}
	for prefix, sm := range requirements {
		if strings.HasPrefix(f.String(), prefix) {
			return targetFor(sm)
		}
	}
	return targetFor(80)
}

// formTarget is what a kernel for sm_80, sm_90... is written for.
func targetFor(sm int) ptx.Target {
	if sm > 80 {
		return ptx.Target{SM: sm, Version: 80}
	}
	return ptx.Target{SM: sm, Version: 74}
}

// untried are the forms that no kernel of this table runs, with the reason.
var Excluded = map[string]string{
	"trap": "ends the launch with an error by design; the emulator's own tests show it",
}
