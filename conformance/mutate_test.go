package conformance

import (
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// openMutant opens the emulator that the suite runs on, for a text that may run away:
// a launch traps after so many instructions.
func openMutant(most float64) func() (driver.Device, error) {
	o := emulation()
	o.Workers, o.MaxInstructions = 1, int64(most)
	return func() (driver.Device, error) { return emu.Open(o) }
}

// mutation tries mutants on the cases that run the changed instruction.
type mutation struct {
	kernels  map[string]*ptx.Kernel
	cases    map[string][]KernelResult // by kernel
	changed  []*ptx.Kernel             // the kernels that are changed
	family   map[string]string         // by kernel: its operation
	coverage *coverage
	budget   float64  // instructions that the cases of one mutant may take, beyond the first
	probed   sync.Map // fates, by what a rule asked for
	flows    sync.Map // flow, by kernel
}

// newMutation takes the kernels and the cases from a run of the suite. Cases that
// failed in it tell nothing of mutants.
func newMutation(kernels map[string]*ptx.Kernel, results []KernelResult, budget float64) (*mutation, error) {
	m := &mutation{kernels: kernels, cases: map[string][]KernelResult{}, family: map[string]string{}, budget: budget}
	for _, r := range results {
		for name := range r.Kernels {
			if r.Failures == 0 && kernels[name] != nil {
				m.cases[name] = append(m.cases[name], r)
			}
		}
	}
	m.changed = m.representatives()
	used := map[string]KernelResult{}
	for _, k := range m.changed {
		for _, r := range m.cases[k.Name] {
			used[r.Case.ID()] = r
		}
	}
	var list []KernelResult
	for _, id := range slices.Sorted(maps.Keys(used)) {
		list = append(list, used[id])
	}
	var err error
	m.coverage, err = cover(kernels, m.changed, list)
	return m, err
}

// representatives are the kernels that are changed. Those of one operation share their
// generator and differ in the format or a size, so of each operation it is the one that
// most cases launch, with -long in each format that has many cases of it, two of each; and
// of each format, for its decoder, the one with the shortest text.
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
		m.family[name] = mostOf(cases)
	}
	byName := map[string]*ptx.Kernel{}
	for _, k := range chosen {
		byName[k.Name] = k
	}
	if *longCases {
		for _, name := range m.mostLaunched(2) {
			byName[name] = m.kernels[name]
		}
	}
	var list []*ptx.Kernel
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		list = append(list, byName[name])
	}
	return list
}

// mostLaunched are, of each operation and each format that has at least two thirds as many
// cases of it as any has, the kernels that most cases launch.
func (m *mutation) mostLaunched(each int) (list []string) {
	type class struct{ operation, format string }
	names, counts, most := map[class][]string{}, map[class]int{}, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(m.cases)) {
		c := class{m.family[name], m.cases[name][0].Case.Format}
		names[c] = append(names[c], name)
		counts[c] += len(m.cases[name])
		most[c.operation] = max(most[c.operation], counts[c])
	}
	for c, of := range names {
		if 3*counts[c] < 2*most[c.operation] {
			continue
		}
		slices.SortStableFunc(of, func(a, b string) int { return len(m.cases[b]) - len(m.cases[a]) })
		list = append(list, of[:min(each, len(of))]...)
	}
	return list
}

// mostOf is the operation that most cases are of.
func mostOf(cases []KernelResult) string {
	counts, most := map[string]int{}, ""
	for _, r := range cases {
		operation := r.Case.Operation
		if counts[operation]++; counts[operation] > counts[most] {
			most = operation
		}
	}
	return most
}

// all lists every place of the kernels that are changed.
func (m *mutation) all() []place {
	var list []mutant
	for _, k := range m.changed {
		list = append(list, mutantsOf(k)...)
	}
	return placesOf(list, func(kernel string) []string { return linesOf(m.kernels[kernel]) })
}

// fate is what became of a mutant.
type fate string

const (
	killed    fate = "killed"
	rejected  fate = "rejected"         // no module loads with it: no case had to see it
	tolerated fate = "within tolerance" // other bits, but no gate minds
	unseen    fate = "no difference"    // run, and every bit the same
	unreached fate = "not reached"      // no case runs the instruction
)

// verdict is a place's fate, the mutant that decided it and, of a killed one, the
// first complaint.
type verdict struct {
	fate
	mutant    mutant
	complaint string
	rule      string // by which it is equivalent
}

// mostMutants bounds how many mutants of a place are tried.
const mostMutants = 4

// try finds out a place's fate: that of the first mutant that is killed, else of the
// one that came furthest.
func (m *mutation) try(p place) verdict {
	best := verdict{fate: unreached, mutant: p.mutants[0]}
	tried := 0
	for _, x := range p.mutants {
		cases := m.coverage.reaching(x.kernel, x.line)
		if len(cases) == 0 {
			continue
		}
		v := m.run(x, cases)
		if v.fate == killed {
			return v
		}
		if best.fate == unreached || v.fate == tolerated {
			best = v
		}
		if tried++; tried == mostMutants {
			break
		}
	}
	return best
}

// diverse puts the first case of each reason before the others, which differ in format or
// shape alone.
func diverse(cases []KernelResult) []KernelResult {
	seen := map[string]bool{}
	var first, others []KernelResult
	for _, r := range cases {
		if seen[r.Case.Reason] {
			others = append(others, r)
			continue
		}
		seen[r.Case.Reason] = true
		first = append(first, r)
	}
	return append(first, others...)
}

// affordable are the first of the cases, as many as the budget allows, and the
// instructions that one of them takes at most.
func (m *mutation) affordable(cases []KernelResult) (list []KernelResult, most float64) {
	spent := 0.0
	for i, r := range cases {
		cost := m.coverage.cost[r.Case.ID()]
		if spent += cost; i > 0 && spent > m.budget {
			break
		}
		list, most = append(list, r), max(most, cost)
	}
	return list, most
}

// run tries one mutant on cases, until one sees it or the budget is spent.
func (m *mutation) run(x mutant, cases []KernelResult) verdict {
	cases, most := m.affordable(diverse(cases))
	s, err := NewKernelSuite(openMutant(4*most+1<<16), *kernelSeed)
	if err != nil {
		panic(err) // it has opened before
	}
	defer s.Close()
	s.Guard, s.worlds = 0, 1 // the emulator traps, and what lives in one world may well die in two
	s.rewrite = x.apply
	s.kernels = maps.Clone(m.kernels)
	if _, err := s.function(m.kernels[x.kernel]); err != nil {
		return verdict{fate: rejected, mutant: x, complaint: err.Error()}
	}
	v := verdict{fate: unseen, mutant: x}
	for _, right := range cases {
		rec := &recorder{}
		got := s.Run(rec, right.Case)
		if len(rec.all) > 0 {
			return verdict{fate: killed, mutant: x, complaint: right.Case.ID() + ": " + rec.all[0]}
		}
		if got.bits != right.bits {
			v.fate = tolerated
		}
	}
	return v
}

// verdicts tries all places.
func (m *mutation) verdicts(list []place) []verdict {
	out := make([]verdict, len(list))
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = m.try(list[i])
				out[i].rule = m.ruleOf(out[i])
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
