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

// Form is one way to write an instruction: its opcode and those operands that change its
// meaning. Constants that are only data, such as an addend or an offset, are not part of
// it.
type Form struct {
	Op   string
	Args string // constants that belong to the meaning, and the shapes of operands, separated by commas
}

// String returns the opcode and Args.
func (f Form) String() string { return strings.TrimSpace(f.Op + " " + f.Args) }

// list splits Args.
func (f Form) list() []string { return strings.Fields(strings.ReplaceAll(f.Args, ",", " ")) }

// plainRegister matches registers except special registers.
var plainRegister = regexp.MustCompile(`^%[a-z]+\d+$`)

// isLiteral reports whether an operand is a number.
func isLiteral(arg string) bool { return arg != "" && strings.ContainsAny(arg[:1], "-0123456789") }

// word32 formats a number as an unsigned 32-bit integer.
func word32(number string) string {
	n, err := strconv.ParseInt(number, 0, 64)
	if err != nil {
		return number
	}
	return strconv.FormatUint(uint64(uint32(n)), 10)
}

// formOf returns the form of an instruction.
func formOf(s ptxtext.Statement) Form {
	var parts []string
	switch {
	case s.Is("lop3"): // the truth table
		parts = append(parts, word32(s.Args[len(s.Args)-1]))
	case s.Is("bar", "barrier") && len(s.Args) == 2: // barrier and thread count, at most that of test kernels
		count := word32(s.Args[1])
		if n, err := strconv.Atoi(count); err == nil {
			count = strconv.Itoa(min(n, Threads))
		}
		parts = append(parts, shape(s.Args[0], word32(s.Args[0])), shape(s.Args[1], count))
	case s.Is("bar", "barrier", "cp.async.wait_group", "wgmma.wait_group", "setmaxnreg"): // a barrier, or a count
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
	case s.Is("wgmma.mma_async"): // whether A is in registers, and which of A in shared memory and B are transposed
		parts = append(parts, shape(s.Args[min(1, len(s.Args)-1)], ""))
		parts = append(parts, s.Args[min(6, len(s.Args)):]...)
	case !s.Is("mma", "ldmatrix", "wgmma"):
		parts = append(parts, operandModifiers(s)...)
	}
	return Form{s.Op, strings.Join(parts, ",")}
}

// operandModifiers lists unusual operands: a pair of results, a negated predicate, a
// vector.
func operandModifiers(s ptxtext.Statement) (parts []string) {
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

// shape returns the kind of an operand: "r", "{}", "_", the name of a special register,
// "symbol", or number for a literal.
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

// accessShape describes a memory access: whether its address is a variable's name, and
// which stored values are literals. "number 01" means {register, literal}.
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

// Use records where a form occurs and with which operands.
type Use struct {
	Where  string
	Tuples map[string]bool // the operands after the first; literals as written, others as %
}

// Uses maps forms to their uses.
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

// merge adds the uses of other. If both have a form, Where is that of other.
func (u Uses) merge(other Uses) {
	for f, theirs := range other {
		all := maps.Clone(theirs.Tuples)
		maps.Copy(all, u[f].Tuples)
		u[f] = Use{theirs.Where, all}
	}
}

// Sorted returns the forms sorted by name.
func (u Uses) Sorted() []Form {
	var all []Form
	for f := range u {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Form) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// HasOp reports whether a form has the opcode.
func (u Uses) HasOp(op string) bool {
	for f := range u {
		if f.Op == op {
			return true
		}
	}
	return false
}

// count returns the number in an argument such as "4 operands" or "size 16", or 0.
func (f Form) count(word string) int {
	for part := range strings.SplitSeq(f.Args, ",") {
		if strings.Contains(part, word) {
			n, _ := strconv.Atoi(strings.TrimSpace(strings.Replace(part, word, "", 1)))
			return n
		}
	}
	return 0
}

// requirements maps the beginnings of forms that need more than sm_80 to the compute
// capability, from "Target ISA Notes" in the PTX ISA.
var requirements = map[string]int{
	"griddepcontrol.": 90, "fence.proxy.async": 90, "fence.mbarrier_init.": 90, "cp.async.bulk.": 90, "mbarrier.try_wait.": 90,
	"mbarrier.arrive.shared.b64 3 operands": 90, "mbarrier.arrive.expect_tx.": 90, "mbarrier.expect_tx.": 90, "cvt.f32.bf16": 90,
	"add.rn.bf16x2": 90, "sub.rn.bf16x2": 90, "mul.rn.bf16x2": 90, "add.rn.bf16": 90, "sub.rn.bf16": 90, "mul.rn.bf16": 90,
}

// Target returns the target for which the form's test kernel is written.
func (f Form) Target() ptx.Target {
	if f.isOp("wgmma.", "setmaxnreg.") { // operands of different types need PTX 8.4
		return ptx.Target{SM: 90, Arch: true, Version: 84}
	}
	for prefix, sm := range requirements {
		if strings.HasPrefix(f.String(), prefix) {
			return targetFor(sm)
		}
	}
	return targetFor(80)
}

// targetFor returns the target for a compute capability.
func targetFor(sm int) ptx.Target {
	if sm > 80 {
		return ptx.Target{SM: sm, Version: 80}
	}
	return ptx.Target{SM: sm, Version: 74}
}

// Excluded maps opcodes that no test kernel runs to the reason.
var Excluded = map[string]string{
	"trap": "ends the launch with an error by design; the emulator's ownWord tests show it",
}
