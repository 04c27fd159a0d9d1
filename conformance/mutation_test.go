package conformance

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

var mutantCount = flag.Int("mutants", 0, "how many mutants of the kernels to try; 0 is 120, and 1200 with -long")

// score prints how many mutants of each mutator met which fate.
func score(w io.Writer, list []mutant, verdicts []verdict) {
	counts := map[string]map[fate]int{}
	total := map[fate]int{}
	for i, m := range list {
		if counts[m.mutator] == nil {
			counts[m.mutator] = map[fate]int{}
		}
		counts[m.mutator][verdicts[i].fate]++
		total[verdicts[i].fate]++
	}
	fates := []fate{killed, tolerated, unseen, unreached}
	fmt.Fprintf(w, "\nmutants: %d of %d killed\n", total[killed], len(list))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "mutator")
	for _, f := range fates {
		fmt.Fprintf(t, "\t%s", f)
	}
	fmt.Fprintln(t)
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprint(t, name)
		for _, f := range fates {
			fmt.Fprintf(t, "\t%d", counts[name][f])
		}
		fmt.Fprintln(t)
	}
	t.Flush()
}

// equivalent reports whether a mutant that lives is no fault, by rule:
//   - what changes results within their bounds is a right kernel, for the bounds are
//     what right means; only arithmetic does so;
//   - a return that changes nothing when it is left out, under an emulator that traps
//     each access that is not allowed, only saves time;
//   - whether there are four elements left chooses between loads of four and of one, which give the same.
func (m mutant) equivalent(f fate) bool {
	switch {
	case f == tolerated:
		return true
	case f != unseen:
		return false
	}
	return m.mutator == "return left out" || byFours.MatchString(m.old) && (m.mutator == "constant" || m.mutator == "comparison")
}

var byFours = regexp.MustCompile(`setp\.g[et]\.u32 %p\d+, %r\d+, 4;`)

// leastKilled is the part of the mutants that are not equivalent that must be
// killed. It only ever rises; those that live are listed.
const leastKilled = 0.8

// TestMutants changes the kernels one instruction at a time. Each mutant is to be
// rejected, trap or fail a case of the suite.
func TestMutants(t *testing.T) {
	if *onGPU {
		t.Skip("mutants run on the emulator only: a wrong address may take the GPU")
	}
	n, budget := *mutantCount, 3*time.Second
	if n == 0 && *longCases {
		n, budget = 1200, 20*time.Second
	}
	if n == 0 {
		n = 120
	}
	s := kernelSuite(t)
	m := newMutation(s, measured(t, s), budget)
	list := sample(m.all(), n, *kernelSeed)
	if len(list) < n {
		t.Errorf("only %d mutants, want %d", len(list), n)
	}
	verdicts := m.verdicts(list)
	score(os.Stdout, list, verdicts)
	dead, alive := 0, 0
	for i, x := range list {
		v := verdicts[i]
		switch {
		case v.fate == killed:
			dead++
			t.Logf("%s, line %d: %s", x.kernel, x.line+1, firstLine(v.complaint))
		case x.equivalent(v.fate):
			t.Logf("equivalent (%s): %v", v.fate, x)
		default:
			alive++
			fmt.Printf("lives (%s): %v\n", v.fate, x)
		}
	}
	part := float64(dead) / float64(dead+alive)
	fmt.Printf("%d of %d that are not equivalent killed\n\n", dead, dead+alive)
	if !(part >= leastKilled) {
		t.Errorf("%.3f of the mutants killed, want %.3f", part, leastKilled)
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// measuredResults are TestKernels', so that the cases need not run again.
var measuredResults []KernelResult

// measured are the results of the default cases with the kernels they launch.
func measured(t *testing.T, s *KernelSuite) []KernelResult {
	t.Helper()
	results := measuredResults
	if results == nil {
		cases, err := SelectKernels(Kernels(), *kernelIDs, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			results = append(results, s.Run(&recorder{}, c))
		}
	}
	return results
}

// The mutation's own proof: every mutant of a small kernel dies, and one that means
// the same is reported.
func TestMutationOfScale(t *testing.T) {
	s, err := NewKernelSuite(openMutant, *kernelSeed)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var results []KernelResult
	for _, c := range scaleCases() {
		r := s.Run(t, c)
		results = append(results, r)
	}
	m := newMutation(s, results, time.Minute)
	list := m.all()
	if len(list) < 10 {
		t.Errorf("only %d mutants", len(list))
	}
	for i, v := range m.verdicts(list) {
		if v.fate != killed {
			t.Errorf("survived (%s): %v", v.fate, list[i])
		}
	}
	same := list[0]
	same.new = same.old + " // the same"
	if v := m.try(same); v.fate != unseen {
		t.Errorf("a mutant that means the same: %+v", v)
	}
}
