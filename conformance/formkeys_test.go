package conformance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// form is one way in which the emitted kernels write an instruction: the opcode with
// those of its operands that change what it does.
type form struct {
	op   string
	args string // constants that are part of the meaning, and the shape of operands
}

func (f form) String() string { return strings.TrimSpace(f.op + " " + f.args) }

// numbers are the form's constants.
func (f form) numbers() []string { return strings.Fields(strings.ReplaceAll(f.args, ",", " ")) }

// constantMeaning matches the instructions whose constants are part of what they do:
// a truth table, a selector, lanes, a barrier's number.
var constantMeaning = regexp.MustCompile(`^(lop3|prmt|shfl|bar\.sync|bar\.warp|vote|redux|cp\.async\.wait_group)`)

// formOf reads the form of an instruction.
func formOf(s statement) form {
	var parts []string
	switch {
	case constantMeaning.MatchString(s.op):
		for _, arg := range s.args {
			if _, err := strconv.ParseUint(arg, 10, 64); err == nil {
				parts = append(parts, arg)
			}
		}
	case s.is("mov"):
		for _, arg := range s.args {
			switch {
			case arg[0] == '{':
				parts = append(parts, "{}")
			case registerForm.MatchString(arg) || arg[0] >= '0' && arg[0] <= '9':
				parts = append(parts, "r")
			case arg[0] == '%':
				parts = append(parts, arg)
			default:
				parts = append(parts, "symbol")
			}
		}
	case strings.HasPrefix(s.op, "cp.async.cg"), strings.HasPrefix(s.op, "cp.async.ca"):
		parts = append(parts, fmt.Sprintf("%d operands", len(s.args)))
	}
	return form{s.op, strings.Join(parts, ",")}
}

// emittedForms are the forms of all kernels that an engine may ask for, each with a
// kernel that has it.
func emittedForms(t *testing.T) map[form]string {
	t.Helper()
	all := map[form]string{}
	for _, spec := range ptxgen.Reachable() {
		k, err := spec.Build()
		if err != nil {
			t.Fatalf("%s: %v", spec.Name(), err)
		}
		text, err := k.Text(ptx.Target{})
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if s, ok := parseStatement(line); ok {
				all[formOf(s)] = k.Name
			}
		}
	}
	return all
}

// sortedForms are the forms in the order of their names.
func sortedForms(all map[form]string) []form {
	return slices.SortedFunc(maps.Keys(all), func(a, b form) int { return strings.Compare(a.String(), b.String()) })
}
