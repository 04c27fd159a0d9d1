package conformance

import (
	"slices"
	"strings"
)

// flow reads a kernel, once.
func (m *mutation) flow(kernel string) flow {
	if f, ok := m.flows.Load(kernel); ok {
		return f.(flow)
	}
	f := flowOf(linesOf(m.kernels[kernel]))
	m.flows.Store(kernel, f)
	return f
}

// isNumber tells a constant from a register.
func isNumber(arg string) bool { return arg[0] != '%' }

// decides finds what a line's result is used for, through arithmetic of integers and
// predicates: the branches and selections that it decides, nil if it does more.
func (f flow) decides(line int) []int {
	var branches []int
	regs := map[string]bool{}
	var follow func(reg string) bool
	follow = func(reg string) bool {
		if regs[reg] {
			return true
		}
		regs[reg] = true
		for i, s := range f.at {
			if !slices.Contains(s.reads(), reg) {
				continue
			}
			guards := strings.Contains(s.guard, reg+" ")
			switch {
			case s.is("bra", "ret") && guards, s.is("selp") && s.args[3] == reg && !isNumber(s.args[1]):
				branches = append(branches, i)
			case guards || len(s.writes()) != 1 || !s.is("setp", "and", "or", "not", "xor", "cvt", "sub", "add", "shr", "shl", "min", "max", "selp", "mov.b32", "vote"):
				return false
			case !follow(s.writes()[0]):
				return false
			}
		}
		return true
	}
	for _, reg := range f.at[line].writes() {
		if !follow(reg) {
			return nil
		}
	}
	slices.Sort(branches)
	return slices.Compact(branches)
}

// readers are the instructions that read what a line writes, and what it is moved to.
func (f flow) readers(reg string) []statement {
	var list []statement
	seen := map[string]bool{reg: true}
	for todo := []string{reg}; len(todo) > 0; todo = todo[1:] {
		for _, s := range f.at {
			switch to := s.written(); {
			case !slices.Contains(s.reads(), todo[0]):
			case s.is("mov") && !seen[to]:
				seen[to] = true
				todo = append(todo, to)
			case !s.is("mov"):
				list = append(list, s)
			}
		}
	}
	return list
}
