package conformance

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

var mutantCount = flag.Int("mutants", 0, "how many mutants of the kernels to try; 0 is 120, and 2400 with -long")

// leastKilled is the part of the mutants that must be killed, of those that load and
// that no rule shows to mean the same.
const leastKilled = 1

// TestMutants changes the kernels one instruction at a time. Each mutant is to trap or
// to fail a case of the suite.
func TestMutants(t *testing.T) {
	notShort(t)
	if *onGPU {
		t.Skip("mutants run on the emulator only: a wrong address may take the GPU")
	}
	n, budget := *mutantCount, 2e6
	switch {
	case *longCases:
		n, budget = cmp.Or(n, 2400), 1e7
	default:
		n = cmp.Or(n, 120)
	}
	measure(t)
	m, err := newMutation(measured.kernels, measured.results, budget)
	if err != nil {
		t.Fatal(err)
	}
	all := m.all()
	places := len(all)
	list := sample(all, func(kernel string) string { return m.family[kernel] }, n, *kernelSeed)
	verdicts := m.verdicts(list)
	fmt.Printf("\nmutants, seed %d: %d of %d places in %d kernels\n", *kernelSeed, len(list), places, len(m.changed))
	s := scoreOf(m, verdicts)
	if err := s.write(os.Stdout); err != nil {
		t.Error(err)
	}
	for _, v := range verdicts {
		switch {
		case v.fate == killed:
			t.Logf("%v\n\tkilled: %s", v.mutant, firstLine(v.complaint))
		case v.rule != "":
			t.Logf("%v\n\texcluded: %s", v.mutant, v.rule)
		case v.fate != rejected:
			fmt.Printf("lives (%s): %v\n", v.fate, v.mutant)
		}
	}
	if part := s.total.part(); !(part >= leastKilled) {
		t.Errorf("%.3f of the mutants killed, want %d; replay with -seed %d -mutants %d", part, leastKilled, *kernelSeed, n)
	}
}

// tally counts mutants by what became of them.
type tally struct{ tried, killed, excluded, rejected int }

func (c *tally) add(v verdict) {
	c.tried++
	switch {
	case v.fate == killed:
		c.killed++
	case v.fate == rejected:
		c.rejected++
	case v.rule != "":
		c.excluded++
	}
}

// lives is how many no case kills and no rule excludes.
func (c tally) lives() int { return c.tried - c.killed - c.excluded - c.rejected }

// part is the score.
func (c tally) part() float64 { return float64(c.killed) / float64(c.killed+c.lives()) }

// mutationScore is tallies of verdicts.
type mutationScore struct {
	total     tally
	operators map[string]*tally
	families  map[string]*tally
	rules     map[string]int
}

func scoreOf(m *mutation, verdicts []verdict) mutationScore {
	s := mutationScore{operators: map[string]*tally{}, families: map[string]*tally{}, rules: map[string]int{}}
	for _, v := range verdicts {
		s.total.add(v)
		for key, to := range map[string]map[string]*tally{v.mutant.mutator: s.operators, m.family[v.mutant.kernel]: s.families} {
			if to[key] == nil {
				to[key] = &tally{}
			}
			to[key].add(v)
		}
		if v.rule != "" {
			s.rules[v.rule]++
		}
	}
	return s
}

// write prints the score by operator and by family, and what the rules exclude.
func (s mutationScore) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, part := range []struct {
		name string
		rows map[string]*tally
	}{{"operator", s.operators}, {"family", s.families}, {"", map[string]*tally{"all": &s.total}}} {
		if part.name != "" {
			fmt.Fprintf(t, "%s\ttried\tkilled\texcluded\trejected\tlive\tscore\n", part.name)
		}
		for _, name := range slices.Sorted(maps.Keys(part.rows)) {
			c := part.rows[name]
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t", name, c.tried, c.killed, c.excluded, c.rejected, c.lives())
			if c.killed+c.lives() > 0 {
				fmt.Fprintf(t, "%.1f%%", 100*c.part())
			}
			fmt.Fprintln(t)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "excluded as equivalent, by rule:")
	for _, r := range append([]rule{unreachableRule}, rules...) {
		if n := s.rules[r.name]; n > 0 {
			fmt.Fprintf(t, "  %s\t%d\t%s\n", r.name, n, r.reason)
		}
	}
	return t.Flush()
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// measured are TestKernels' results and kernels, so that the cases need not run again.
var measured struct {
	results []KernelResult
	kernels map[string]*ptx.Kernel
}

// measure runs the default cases, unless TestKernels has.
func measure(t *testing.T) {
	t.Helper()
	if measured.results != nil {
		return
	}
	cases, err := SelectKernels(Kernels(), *kernelIDs, false)
	if err != nil {
		t.Fatal(err)
	}
	results, suite := runKernels(t, cases, func(s *KernelSuite, c KernelCase) KernelResult { return s.Run(&recorder{}, c) })
	measured.results, measured.kernels = results, suite.kernels
}

// The mutation's own proof: every mutant of a small kernel dies, one that means the
// same and one that does not load are told from it.
func TestMutationOfScale(t *testing.T) {
	s, err := NewKernelSuite(openMutant(1<<20), *kernelSeed)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Guard = 0
	var results []KernelResult
	for _, c := range scaleCases() {
		results = append(results, s.Run(t, c))
	}
	m, err := newMutation(s.kernels, results, 1e9)
	if err != nil {
		t.Fatal(err)
	}
	list := m.all()
	if len(list) < 10 {
		t.Errorf("only %d mutants", len(list))
	}
	for _, v := range m.verdicts(list) {
		if v.fate != killed {
			t.Errorf("survived (%s): %v", v.fate, v.mutant)
		}
	}
	for change, want := range map[string]fate{" // the same": unseen, " no": rejected} {
		x := list[0].mutants[0]
		x.new = x.old + change
		if v := m.try(place{mutants: []mutant{x}}); v.fate != want {
			t.Errorf("%v is %s, want %s", x, v.fate, want)
		}
	}
}

func TestMutationScore(t *testing.T) {
	x := mutant{kernel: "k", mutator: "constant"}
	m := &mutation{family: map[string]string{"k": "f"}}
	s := scoreOf(m, []verdict{
		{fate: killed, mutant: x}, {fate: killed, mutant: x}, {fate: unseen, mutant: x}, {fate: unseen, mutant: x, rule: "edge"},
		{fate: rejected, mutant: x}, {fate: killed, mutant: x},
	})
	if s.total != (tally{6, 3, 1, 1}) || s.total.lives() != 1 || s.total.part() != 0.75 || *s.families["f"] != s.total || *s.operators["constant"] != s.total {
		t.Errorf("the score is %+v", s)
	}
}
