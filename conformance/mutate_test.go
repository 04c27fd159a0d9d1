package conformance

import (
	"cmp"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// openMutant opens the emulator that the suite runs on, for a text that may run away.
func openMutant() (driver.Device, error) {
	o := emulation()
	o.Workers, o.MaxInstructions = 1, 1<<21
	return emu.Open(o)
}

// mutation tries mutants on the cases that launch their kernels.
type mutation struct {
	kernels map[string]*ptx.Kernel
	cases   map[string][]KernelResult // by kernel, the quickest first
	budget  time.Duration             // for the cases of one mutant
}

// newMutation takes the kernels and the cases from a run of the suite. Cases that
// failed in it tell nothing of mutants.
func newMutation(s *KernelSuite, results []KernelResult, budget time.Duration) *mutation {
	m := &mutation{kernels: s.kernels, cases: map[string][]KernelResult{}, budget: budget}
	results = slices.Clone(results)
	slices.SortStableFunc(results, func(a, b KernelResult) int { return cmp.Compare(a.Seconds, b.Seconds) })
	for _, r := range results {
		for name := range r.Kernels {
			if r.Failures == 0 && s.kernels[name] != nil {
				m.cases[name] = append(m.cases[name], r)
			}
		}
	}
	return m
}

// representatives are the kernels that are changed. Those of one operation share
// their generator and differ in the format or a size, so of each operation it is the
// one that most cases launch; and of each format, for its decoder, the one with the
// shortest text.
func (m *mutation) representatives() []*ptx.Kernel {
	chosen := map[string]*ptx.Kernel{}
	for _, name := range slices.Sorted(maps.Keys(m.cases)) {
		k, cases := m.kernels[name], m.cases[name]
		for _, r := range cases {
			operation := "operation " + r.Case.Operation
			if best := chosen[operation]; best == nil || len(cases) > len(m.cases[best.Name]) {
				chosen[operation] = k
			}
			format := "format " + r.Case.Format
			if best := chosen[format]; best == nil || len(linesOf(k)) < len(linesOf(best)) {
				chosen[format] = k
			}
		}
	}
	byName := map[string]*ptx.Kernel{}
	for _, k := range chosen {
		byName[k.Name] = k
	}
	var list []*ptx.Kernel
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		list = append(list, byName[name])
	}
	return list
}

// all lists every mutant of the representatives.
func (m *mutation) all() []mutant {
	var list []mutant
	for _, k := range m.representatives() {
		list = append(list, mutantsOf(k)...)
	}
	return list
}

// fate is what became of a mutant.
type fate string

const (
	killed    fate = "killed"
	tolerated fate = "within tolerance" // other bits, but no gate minds: the kernel is better than it must be
	unseen    fate = "no difference"    // run, and every bit the same
	unreached fate = "not reached"      // no case runs the instruction
)

// verdict is a mutant's fate and, of a killed one, the first complaint.
type verdict struct {
	fate
	complaint string
}

// try finds out a mutant's fate. One that no case of its kernel reaches is tried in
// the kernels that share its generator, where they have the same code.
func (m *mutation) try(x mutant) verdict {
	v := m.reach(x)
	for _, y := range m.elsewhere(x) {
		if v.fate != unreached {
			break
		}
		v = m.reach(y)
	}
	return v
}

// reach is run, and tells what is not reached from what makes no difference.
func (m *mutation) reach(x mutant) verdict {
	v := m.run(x)
	if v.fate != unseen {
		return v
	}
	stop := x
	stop.new = "\ttrap;"
	if m.run(stop).fate == unseen {
		v.fate = unreached
	}
	return v
}

// mostElsewhere bounds in how many kernels an unreached mutant is tried.
const mostElsewhere = 4

// elsewhere is the same mutant in other kernels of its kernel's operations, those of
// the most cases first: where the lines around are the same but for the registers.
func (m *mutation) elsewhere(x mutant) []mutant {
	operations := map[string]bool{}
	for _, r := range m.cases[x.kernel] {
		operations[r.Case.Operation] = true
	}
	var names []string
	for name, cases := range m.cases {
		if name != x.kernel && slices.ContainsFunc(cases, func(r KernelResult) bool { return operations[r.Case.Operation] }) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(len(m.cases[b])-len(m.cases[a]), strings.Compare(a, b))
	})
	own := linesOf(m.kernels[x.kernel])
	var list []mutant
	for _, name := range names {
		if len(list) == mostElsewhere {
			break
		}
		lines := linesOf(m.kernels[name])
		for i := range lines {
			if around(lines, i) != around(own, x.line) {
				continue
			}
			if y, ok := x.in(name, i, lines[i]); ok {
				list = append(list, y)
				break
			}
		}
	}
	return list
}

func (m *mutation) run(x mutant) verdict {
	s, err := NewKernelSuite(openMutant, *kernelSeed)
	if err != nil {
		return verdict{killed, err.Error()}
	}
	defer s.Close()
	s.Guard = 0 // the emulator traps
	s.rewrite = x.apply
	s.kernels = maps.Clone(m.kernels)
	begin := time.Now()
	v := verdict{fate: unseen}
	for _, right := range m.cases[x.kernel] {
		rec := &recorder{}
		got := s.Run(rec, right.Case)
		if len(rec.all) > 0 {
			return verdict{killed, right.Case.ID() + ": " + rec.all[0]}
		}
		if got.bits != right.bits {
			v.fate = tolerated
		}
		if time.Since(begin) > m.budget {
			break
		}
	}
	return v
}

// verdicts tries all mutants.
func (m *mutation) verdicts(list []mutant) []verdict {
	out := make([]verdict, len(list))
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = m.try(list[i])
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}
