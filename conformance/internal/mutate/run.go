// Package mutate changes kernels one instruction at a time and checks that the kernel
// cases detect each change, unless a rule proves that it changes nothing.
package mutate

import (
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Options configures a Runner.
type Options struct {
	Seed   uint64  // of the cases' inputs
	Long   bool    // change more kernels
	Mutate string  // regular expression: change only kernels whose names match
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
	probed   sync.Map // func() Fate, by text
	rights   sync.Map // func() harness.Result, by seed and case
	flows    sync.Map // ptxtext.Flow, by kernel
}

// New selects kernels and cases from the results of a suite. It ignores failed cases. It returns
// an error if a rule for equivalent mutants has no probe.
func New(kernels map[string]*ptx.Kernel, results []harness.Result, o Options) (*Runner, error) {
	if err := complete(rules); err != nil {
		return nil, err
	}
	m := &Runner{kernels: kernels, cases: map[string][]harness.Result{}, Family: map[string]string{}, options: o}
	for _, r := range results {
		for name := range r.Kernels {
			if r.Failures == 0 && kernels[name] != nil {
				m.cases[name] = append(m.cases[name], r)
			}
		}
	}
	match, err := regexp.Compile(o.Mutate)
	if err != nil {
		return nil, fmt.Errorf("mutate: kernels %q: %w", o.Mutate, err)
	}
	m.Changed = slices.DeleteFunc(m.representatives(), func(k *ptx.Kernel) bool { return !match.MatchString(k.Name) })
	if len(m.Changed) == 0 {
		return nil, fmt.Errorf("mutate: kernels %q: no kernel to change matches", o.Mutate)
	}
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
	m.coverage, err = cover(kernels, m.Changed, list, o.Seed)
	return m, err
}

// representatives selects the kernels to mutate. Kernels of one operation share a
// generator. So it takes, per operation, the kernel with the most cases, and per format,
// for its decoder, the kernel with the shortest text. An operation may launch kernels of
// several generators, so Long adds one kernel per generator, and those of mostLaunched.
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
			generator := "generator " + generatorOf(name)
			if best := chosen[generator]; m.options.Long && (best == nil || len(cases) > len(m.cases[best.Name])) {
				chosen[generator] = k
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

// generatorOf returns the name of a kernel without formats and sizes.
func generatorOf(kernel string) string {
	at := variantForm.FindStringIndex(kernel)
	if at == nil {
		return kernel
	}
	return kernel[:at[0]]
}

var variantForm = regexp.MustCompile(`_(f32|f16|bf16|i?q\d|[a-z]?\d)`)

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

// judged is how many mutants of a site are tried before the rules judge them, the one with the
// largest effect first.
const judged = 4

// Try returns the verdict on a site: a killed mutant if there is one among the first, else
// one that a rule proves equivalent. If neither is found, it goes on with the others.
func (m *Runner) Try(p Site) Verdict {
	var survivors []Verdict // the one with the largest effect first
	for i, x := range p.Mutants {
		v := Verdict{Fate: unreached, Mutant: x}
		if cases := m.coverage.reaching(x.Kernel, x.line); len(cases) > 0 {
			v = m.run(x, cases, m.options.Seed, m.options.Budget)
		}
		if v.Fate == Killed {
			return v
		}
		if len(survivors) > 0 && effect(v.Fate) > effect(survivors[0].Fate) {
			survivors = slices.Insert(survivors, 0, v)
		} else {
			survivors = append(survivors, v)
		}
		candidates := []Verdict{v}
		switch n := i + 1; {
		case n < min(judged, len(p.Mutants)):
			continue
		case n == min(judged, len(p.Mutants)):
			candidates = survivors
		}
		for _, v := range candidates {
			if v.Rule = m.ruleOf(v); v.Rule != "" {
				return v
			}
		}
	}
	return survivors[0]
}

// effect ranks the fates of mutants that no case kills.
func effect(f Fate) int { return slices.Index([]Fate{unreached, Unchanged, withinTolerance}, f) }

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

// affordable returns the first case and those of the others that fit the budget, and the largest cost among them.
func (m *Runner) affordable(cases []harness.Result, budget float64) (list []harness.Result, most float64) {
	spent := 0.0
	for i, r := range cases {
		cost := m.coverage.cost[r.Case.ID()]
		if i > 0 && spent+cost > budget {
			continue
		}
		spent += cost
		list, most = append(list, r), max(most, cost)
	}
	return list, most
}

// suite opens a suite whose inputs depend on seed.
func (m *Runner) suite(seed uint64, maxInstructions int64) (*harness.Suite, error) {
	s, err := harness.NewSuite(func() (driver.Device, error) { return m.options.Open(maxInstructions) }, seed)
	if err != nil {
		return nil, err
	}
	s.Guard, s.Patterns = 0, 1 // the emulator traps; two patterns could kill mutants that one pattern does not
	s.Kernels = maps.Clone(m.kernels)
	s.Rewrite = func(name string, _ []byte) []byte { return []byte(strings.Join(linesOf(m.kernels[name]), "\n")) }
	return s, nil
}

// run runs one mutant on cases, with the inputs of a seed, until one kills it or the budget
// is spent.
func (m *Runner) run(x Mutant, cases []harness.Result, seed uint64, budget float64) Verdict {
	cases, most := m.affordable(diverse(cases), budget)
	s, err := m.suite(seed, int64(4*most)+1<<16)
	if err != nil {
		panic(err) // an emulator opened before
	}
	defer s.Close()
	original := s.Rewrite
	s.Rewrite = func(name string, text []byte) []byte { return x.Apply(name, original(name, text)) }
	if _, err := s.Function(m.kernels[x.Kernel]); err != nil {
		return Verdict{Fate: Rejected, Mutant: x, Failure: err.Error()}
	}
	v := Verdict{Fate: Unchanged, Mutant: x}
	for _, r := range cases {
		right, ok := m.right(r, seed)
		if !ok {
			continue
		}
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
