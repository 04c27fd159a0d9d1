// Package mutate changes kernels one instruction at a time and checks that the kernel
// cases detect each change, unless a rule proves that it changes nothing.
package mutate

import (
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Options configures a Runner.
type Options struct {
	Seed   uint64  // of the cases' inputs
	Long   bool    // change more kernels
	Budget float64 // instructions that the cases of one mutant may run, not counting the first case
	// Open opens an emulator on which a launch traps after maxInstructions.
	Open func(maxInstructions int64) (driver.Device, error)
}

// Runner runs mutants on the cases that reach the changed instruction.
type Runner struct {
	kernels  map[string]*ptx.Kernel
	cases    map[string][]harness.Result // per kernel
	Changed  []*ptx.Kernel               // the kernels to mutate
	Family   map[string]string           // per kernel, its operation
	coverage *coverage
	options  Options
	probed   sync.Map // Fate, by mutant
	flows    sync.Map // ptxtext.Flow, by kernel
}

// New selects kernels and cases from the results of a suite. It ignores failed cases.
func New(kernels map[string]*ptx.Kernel, results []harness.Result, o Options) (*Runner, error) {
	m := &Runner{kernels: kernels, cases: map[string][]harness.Result{}, Family: map[string]string{}, options: o}
	for _, r := range results {
		for name := range r.Kernels {
			if r.Failures == 0 && kernels[name] != nil {
				m.cases[name] = append(m.cases[name], r)
			}
		}
	}
	m.Changed = m.representatives()
	used := map[string]harness.Result{}
	for _, k := range m.Changed {
		for _, r := range m.cases[k.Name] {
			used[r.Case.ID()] = r
		}
	}
	var list []harness.Result
	for _, id := range slices.Sorted(maps.Keys(used)) {
		list = append(list, used[id])
	}
	var err error
	m.coverage, err = cover(kernels, m.Changed, list, o.Seed)
	return m, err
}

// representatives selects the kernels to mutate. Kernels of one operation share a
// generator. So it takes, per operation, the kernel with the most cases, and per format,
// for its decoder, the kernel with the shortest text. Long adds those of mostLaunched.
func (m *Runner) representatives() []*ptx.Kernel {
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
		m.Family[name] = mostOf(cases)
	}
	byName := map[string]*ptx.Kernel{}
	for _, k := range chosen {
		byName[k.Name] = k
	}
	if m.options.Long {
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

// mostLaunched returns up to each kernels per operation and format, those with the most
// cases. It skips formats with less than two thirds of the cases of the operation's most
// tested format.
func (m *Runner) mostLaunched(each int) (list []string) {
	type class struct{ operation, format string }
	names, counts, most := map[class][]string{}, map[class]int{}, map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(m.cases)) {
		c := class{m.Family[name], m.cases[name][0].Case.Format}
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

// mostOf returns the most frequent operation.
func mostOf(cases []harness.Result) string {
	counts, most := map[string]int{}, ""
	for _, r := range cases {
		operation := r.Case.Operation
		if counts[operation]++; counts[operation] > counts[most] {
			most = operation
		}
	}
	return most
}

// All lists the sites of all kernels to mutate.
func (m *Runner) All() []Site {
	var list []Mutant
	for _, k := range m.Changed {
		list = append(list, MutantsOf(k)...)
	}
	return sitesOf(list, func(kernel string) []string { return linesOf(m.kernels[kernel]) })
}

// Fate is the outcome of a mutant.
type Fate string

const (
	Killed          Fate = "killed"           // a case fails or the emulator traps
	Rejected        Fate = "rejected"         // the module does not load
	withinTolerance Fate = "within tolerance" // other bits, but no check fails
	Unchanged       Fate = "no difference"    // every bit is the same
	unreached       Fate = "not reached"      // no case runs the instruction
)

// Verdict is the outcome of a site: that of its mutant, with the first failure message if
// it was killed.
type Verdict struct {
	Fate    Fate
	Mutant  Mutant
	Failure string
	Rule    string // the rule that proves the mutant equivalent
}

// mostMutants limits how many mutants of a site are tried.
const mostMutants = 4

// Try returns the verdict on a site: a killed mutant if there is one, else the mutant with
// the largest effect.
func (m *Runner) Try(p Site) Verdict {
	best := Verdict{Fate: unreached, Mutant: p.Mutants[0]}
	tried := 0
	for _, x := range p.Mutants {
		cases := m.coverage.reaching(x.Kernel, x.line)
		if len(cases) == 0 {
			continue
		}
		v := m.run(x, cases)
		if v.Fate == Killed {
			return v
		}
		if best.Fate == unreached || v.Fate == withinTolerance {
			best = v
		}
		if tried++; tried == mostMutants {
			break
		}
	}
	return best
}

// diverse moves the first case of each reason to the front, because cases with the same reason
// differ only in format or shape.
func diverse(cases []harness.Result) []harness.Result {
	seen := map[string]bool{}
	var first, others []harness.Result
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

// affordable returns the first cases that fit the budget, and the largest cost among them.
func (m *Runner) affordable(cases []harness.Result) (list []harness.Result, most float64) {
	spent := 0.0
	for i, r := range cases {
		cost := m.coverage.cost[r.Case.ID()]
		if spent += cost; i > 0 && spent > m.options.Budget {
			break
		}
		list, most = append(list, r), max(most, cost)
	}
	return list, most
}

// run runs one mutant on cases until one kills it or the budget is spent.
func (m *Runner) run(x Mutant, cases []harness.Result) Verdict {
	cases, most := m.affordable(diverse(cases))
	s, err := harness.NewSuite(func() (driver.Device, error) { return m.options.Open(int64(4*most) + 1<<16) }, m.options.Seed)
	if err != nil {
		panic(err) // an emulator opened before
	}
	defer s.Close()
	s.Guard, s.Patterns = 0, 1 // the emulator traps; two patterns could kill mutants that one pattern does not
	s.Rewrite = x.Apply
	s.Kernels = maps.Clone(m.kernels)
	if _, err := s.Function(m.kernels[x.Kernel]); err != nil {
		return Verdict{Fate: Rejected, Mutant: x, Failure: err.Error()}
	}
	v := Verdict{Fate: Unchanged, Mutant: x}
	for _, right := range cases {
		rec := &harness.Recorder{}
		got := s.Run(rec, right.Case)
		if len(rec.Messages) > 0 {
			return Verdict{Fate: Killed, Mutant: x, Failure: right.Case.ID() + ": " + rec.Messages[0]}
		}
		if got.Hash != right.Hash {
			v.Fate = withinTolerance
		}
	}
	return v
}

// Verdicts tries all sites in parallel.
func (m *Runner) Verdicts(list []Site) []Verdict {
	out := make([]Verdict, len(list))
	next := make(chan int)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = m.Try(list[i])
				out[i].Rule = m.ruleOf(out[i])
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
