package mutate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
)

// A probe is a run of the cases on a kernel that a rule rewrites. Its outcome would be
// another one if the rule did not hold.

// probeSeeds are added to the runner's seed: a probe runs the cases on these inputs.
var probeSeeds = []uint64{0, 1}

// probeBudget is how many times a mutant's budget a probe may spend per seed. A probe that
// looks for a thread that does something may spend that many times more.
const probeBudget = 3

// probe returns the fate of a rewritten kernel on all probeSeeds. Only a probe that some
// case runs can be Unchanged.
func (m *Runner) probe(x Mutant) Fate {
	once, _ := m.probed.LoadOrStore(x.text(), sync.OnceValue(func() Fate {
		cases := m.coverage.reaching(x.Kernel, x.line)
		if len(cases) == 0 {
			return unreached
		}
		fate := Unchanged
		budget := probeBudget * m.options.Budget
		if x.trap {
			budget *= probeBudget
		}
		for _, seed := range probeSeeds {
			switch v := m.run(x, cases, m.options.Seed+seed, budget); v.Fate {
			case Killed, Rejected:
				return v.Fate
			case withinTolerance:
				fate = withinTolerance
			}
		}
		return fate
	}))
	return once.(func() Fate)()
}

// right returns the result of a case on the unchanged kernels, for a seed.
func (m *Runner) right(r harness.Result, seed uint64) (harness.Result, bool) {
	if seed == m.options.Seed {
		return r, true
	}
	once, _ := m.rights.LoadOrStore(fmt.Sprint(seed, r.Case.ID()), sync.OnceValue(func() harness.Result {
		s, err := m.suite(seed, 1<<40)
		if err != nil {
			panic(err) // an emulator opened before
		}
		defer s.Close()
		return s.Run(&harness.Recorder{}, r.Case)
	}))
	got := once.(func() harness.Result)()
	return got, got.Failures == 0
}

// text identifies what a mutant changes.
func (m Mutant) text() string {
	var b strings.Builder
	fmt.Fprint(&b, m.Kernel, m.line, m.New)
	for _, line := range slices.Sorted(maps.Keys(m.after)) {
		fmt.Fprint(&b, line, m.after[line])
	}
	return b.String()
}

// variant returns the kernel with another text in place of a line.
func (q survivor) variant(line int, text string) Mutant {
	return Mutant{Kernel: q.mutant.Kernel, line: line, Old: q.lines()[line], New: text}
}

// lines returns the kernel's text.
func (q survivor) lines() []string { return linesOf(q.m.kernels[q.mutant.Kernel]) }

// flow returns the kernel's control-flow graph.
func (q survivor) flow() ptxtext.Flow { return q.m.flow(q.mutant.Kernel) }

// instead returns the fate of the kernel with other instructions in place of the changed one.
func (q survivor) instead(list ...ptxtext.Statement) Fate {
	var text []string
	for _, s := range list {
		text = append(text, s.String())
	}
	return q.m.probe(q.variant(q.mutant.line, strings.Join(text, "\n")))
}

// happens reports whether some thread of some case arrives at a line with the guard
// ("@%p1 ", or "" for always).
func (q survivor) happens(line int, guard string) bool {
	x := q.variant(line, ptxtext.Statement{Guard: guard, Op: "trap"}.String()+"\n"+q.lines()[line])
	x.trap = true
	return q.m.probe(x) == Killed
}

// shadowTypes are the types of registers by the first letter of their names.
var shadowTypes = map[byte]string{'p': "pred", 'h': "b16", 'r': "b32", 'd': "b64", 'f': "f32", 'g': "f64"}

// shadow returns the name of a register's shadow.
func shadow(reg string) string { return "%x" + reg[1:] }

// shadows returns the kernel with a second copy of each register between the changed
// instruction and a register that depends on it by arithmetic. The copies have the values
// that the change would give, as long as each branch goes the way that it goes without the
// change. Comparing a register with its shadow shows where the change has an effect.
func (q survivor) shadows(target string) (x Mutant, ok bool) {
	f, at := q.flow(), q.mutant.line
	to := q.was.Writes()
	if len(to) != 1 || q.was.Written() != to[0] || q.is.Written() != to[0] || !computes(q.is) && !q.is.Is("ld") {
		return Mutant{}, false
	}
	regs := map[string]bool{to[0]: true} // that depend on the change
	spread(regs, f.At, func(s ptxtext.Statement) (from, to []string) { return s.Reads(), s.Writes() })
	needed := map[string]bool{target: true} // on which the target depends
	spread(needed, f.At, func(s ptxtext.Statement) (from, to []string) { return s.Writes(), s.Reads() })
	maps.DeleteFunc(regs, func(reg string, _ bool) bool { return !needed[reg] })
	if !regs[target] || !regs[to[0]] {
		return Mutant{}, false
	}
	x = q.variant(at, q.mutant.Old)
	x.trap, x.after = true, map[int]string{}
	for i, s := range f.At {
		if i == at {
			s = q.is
		}
		if w := s.Writes(); len(w) == 1 && regs[w[0]] {
			x.after[i] = ptxtext.Registers.ReplaceAllStringFunc(s.String(), func(reg string) string {
				if regs[reg] {
					return shadow(reg)
				}
				return reg
			}) + "\n"
		}
	}
	for _, reg := range slices.Sorted(maps.Keys(regs)) {
		x.declare += fmt.Sprintf("\t.reg .%s %s;\n", shadowTypes[reg[1]], shadow(reg))
	}
	x.declare += "\t.reg .pred %differs, %wrong;\n\t.reg .b32 %ba, %bb;\n\t.reg .b64 %bc, %bd;\n"
	return x, true
}

// spread adds registers to a set until it has each register that arithmetic leads to.
func spread(regs map[string]bool, at []ptxtext.Statement, edge func(s ptxtext.Statement) (from, to []string)) {
	for grew := true; grew; {
		grew = false
		for _, s := range at {
			if len(s.Writes()) != 1 || !computes(s) {
				continue
			}
			from, to := edge(s)
			if !slices.ContainsFunc(from, func(reg string) bool { return regs[reg] }) {
				continue
			}
			for _, reg := range to {
				grew = grew || !regs[reg]
				regs[reg] = true
			}
		}
	}
}

// computes reports whether an instruction's result depends only on its operands and those of
// the warp's other lanes.
func computes(s ptxtext.Statement) bool {
	return s.Is("mov", "setp", "and", "or", "not", "xor", "cvt", "sub", "add", "shr", "shl", "min", "max", "selp", "mad", "mul", "vote", "fma", "neg", "abs",
		"lop3", "prmt", "bfe", "bfi", "div", "rem", "ex2", "lg2", "rcp", "sqrt", "shfl", "clz", "popc")
}

// compareForms set %differs if a register, %[1]s, and its shadow, %[2]s, have different bits.
var compareForms = map[byte]string{
	'p': "\txor.pred %%differs, %[1]s, %[2]s;\n",
	'r': "\tsetp.ne.u32 %%differs, %[1]s, %[2]s;\n",
	'd': "\tsetp.ne.u64 %%differs, %[1]s, %[2]s;\n",
	'f': "\tmov.b32 %%ba, %[1]s;\n\tmov.b32 %%bb, %[2]s;\n\tsetp.ne.u32 %%differs, %%ba, %%bb;\n",
	'g': "\tmov.b64 %%bc, %[1]s;\n\tmov.b64 %%bd, %[2]s;\n\tsetp.ne.u64 %%differs, %%bc, %%bd;\n",
}

// compared returns the kernel with shadows that traps where a register is apart from its
// shadow.
func (q survivor) compared(reg string) (x Mutant, ok bool) {
	x, ok = q.shadows(reg)
	if !ok || compareForms[reg[1]] == "" {
		return x, false
	}
	for i, s := range q.flow().At {
		if slices.Contains(s.Writes(), reg) {
			if s.Guard != "" || i == x.line && q.is.Guard != "" {
				return x, false
			}
			x.after[i] += fmt.Sprintf(compareForms[reg[1]], reg, shadow(reg)) + "\t@%differs trap;\n"
		}
	}
	return x, true
}

// infects reports whether the changed instruction gives another result in some case, even if
// that result does not reach an output.
func (q survivor) infects() bool {
	x, ok := q.compared(q.was.Written())
	return ok && q.m.probe(x) == Killed
}

// agrees reports whether a register that depends on the changed instruction has the same
// value in each case.
func (q survivor) agrees(reg string) bool {
	x, ok := q.compared(reg)
	return ok && q.m.probe(x) == Unchanged
}

// turns reports whether the change turns a predicate from !to into to, in some case, before
// a line that reads it.
func (q survivor) turns(line int, p string, to bool) bool {
	x, ok := q.shadows(p)
	if !ok {
		return false
	}
	no, yes := p, shadow(p)
	if !to {
		no, yes = yes, no
	}
	x.after[line-1] += fmt.Sprintf("\tnot.pred %%wrong, %s;\n\tand.pred %%differs, %%wrong, %s;\n\t@%%differs trap;\n", no, yes)
	return q.m.probe(x) == Killed
}

// arrives reports whether a register of the rewritten kernel has the bits of a constant, in
// some case, where an instruction of readers is about to run.
func (q survivor) arrives(rewritten Mutant, reg, bits string, readers func(s ptxtext.Statement) bool) bool {
	width := "32"
	if shadowTypes[reg[1]] == "b64" {
		width = "64"
	}
	for i, s := range q.flow().At {
		if i == rewritten.line || !readers(s) {
			continue
		}
		x := rewritten
		x.declare = "\t.reg .pred %differs;\n\t.reg .b" + width + " %ba, %bb;\n"
		begin := slices.IndexFunc(q.flow().At, func(s ptxtext.Statement) bool { return s.Op != "" })
		x.after = map[int]string{begin: fmt.Sprintf("\tmov.b%s %s, 0;\n", width, reg)} // on paths that do not set it
		x.after[i-1] += fmt.Sprintf("\tmov.b%[1]s %%ba, %[2]s;\n\tmov.b%[1]s %%bb, %[3]s;\n\tsetp.eq.u%[1]s %%differs, %%ba, %%bb;\n\t@%%differs trap;\n", width, reg, bits)
		if q.m.probe(x) == Killed {
			return true
		}
	}
	return false
}
