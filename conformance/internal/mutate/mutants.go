package mutate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// Mutant is a kernel with one changed instruction.
type Mutant struct {
	Kernel   string
	Mutator  string
	line     int // index
	Old, New string
	declare  string         // declarations of registers that New and after need
	after    map[int]string // text to insert after lines
	trap     bool           // a probe that traps where a thread does what it looks for
}

// String returns the kernel, the line and its change.
func (m Mutant) String() string {
	what := strings.TrimSpace(m.New)
	if what == "" {
		what = "(left out)"
	}
	return fmt.Sprintf("%s: line %d: %s\n\t- %s\n\t+ %s", m.Kernel, m.line+1, m.Mutator, strings.TrimSpace(m.Old), what)
}

// Apply changes text if name is the mutant's kernel.
func (m Mutant) Apply(name string, text []byte) []byte {
	if name != m.Kernel {
		return text
	}
	lines := bytes.Split(text, []byte("\n"))
	lines[m.line] = []byte(m.New)
	for line, more := range m.after {
		lines[line] = []byte(string(lines[line]) + "\n" + strings.TrimSuffix(more, "\n"))
	}
	text = bytes.Join(lines, []byte("\n"))
	return bytes.Replace(text, []byte("\n{\n"), []byte("\n{\n"+m.declare), 1)
}

// MutantsOf lists the mutants of a kernel, except of instructions whose results are dead.
func MutantsOf(k *ptx.Kernel) []Mutant {
	var all []Mutant
	lines := linesOf(k)
	f := ptxtext.FlowOf(lines)
	dead, after := f.Dead(), f.Live()
	for i, line := range lines {
		s, ok := ptxtext.Parse(line)
		if !ok || s.Is("ld.param") || dead[i] {
			continue
		}
		for _, m := range mutators {
			for _, changed := range m.make(s) {
				if regs := s.Writes(); m.name == "order of a vector" && len(regs) > 1 && !after[i][regs[0]] && !after[i][regs[1]] {
					continue
				}
				if next := changed.String(); next != line {
					all = append(all, Mutant{Kernel: k.Name, Mutator: m.name, line: i, Old: line, New: next})
				}
			}
		}
	}
	return all
}

// kernelLines caches linesOf.
var kernelLines sync.Map

// linesOf returns the lines of a kernel's text for the emulator.
func linesOf(k *ptx.Kernel) []string {
	if lines, ok := kernelLines.Load(k); ok {
		return lines.([]string)
	}
	text, err := k.Text(harness.EmulatorTarget.For(k))
	if err != nil {
		panic(err) // the kernel was loaded before
	}
	lines := strings.Split(string(text), "\n")
	kernelLines.Store(k, lines)
	return lines
}

// Site is one change at one place in the code of a generator. A generator may emit that code
// several times, unrolled or in several kernels, so a site has several mutants. A case must
// kill one of them.
type Site struct {
	mutator string
	key     string
	Mutants []Mutant
}

// around returns the line and its neighbors, two on each side, without the numbers of registers,
// labels and variables.
func around(lines []string, i int) string {
	window := strings.Join(lines[max(0, i-2):min(len(lines), i+3)], "\n")
	return numbersForm.ReplaceAllString(window, "$1")
}

var numbersForm = regexp.MustCompile(`(%[a-z]|\$L|, [a-z_]+[a-z])\d+`)

// sitesOf groups mutants of the same code. A removed barrier is a site of its own,
// because its effect depends on more code than its neighbors.
func sitesOf(all []Mutant, lines func(kernel string) []string) []Site {
	index := map[string]int{}
	var list []Site
	for _, m := range all {
		key := m.Mutator + "\n" + numbersForm.ReplaceAllString(m.New, "$1") + "\n" + around(lines(m.Kernel), m.line)
		if m.Mutator == LeaveOutSync {
			key = fmt.Sprint(m.Kernel, " ", m.line)
		}
		i, ok := index[key]
		if !ok {
			i = len(list)
			index[key] = i
			list = append(list, Site{mutator: m.Mutator, key: key})
		}
		list[i].Mutants = append(list[i].Mutants, m)
	}
	return list
}

// Sample selects n sites at random, round-robin over the mutators and over the kernel
// families of each mutator. It also shuffles the mutants of each site.
func Sample(all []Site, family func(kernel string) string, n int, seed uint64) []Site {
	random := rand.New(rand.NewPCG(seed, 5))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, p := range all {
		random.Shuffle(len(p.Mutants), func(i, j int) { p.Mutants[i], p.Mutants[j] = p.Mutants[j], p.Mutants[i] })
	}
	inTurn(all, func(p Site) string { return p.mutator + " " + family(p.Mutants[0].Kernel) })
	inTurn(all, func(p Site) string { return p.mutator })
	return all[:min(n, len(all))]
}

// inTurn reorders a list round-robin over its keys and keeps the order within a key.
func inTurn(all []Site, key func(Site) string) {
	type ranked struct {
		Site
		rank int
	}
	seen := map[string]int{}
	list := make([]ranked, len(all))
	for i, p := range all {
		list[i] = ranked{p, seen[key(p)]}
		seen[key(p)]++
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return a.rank - b.rank })
	for i, r := range list {
		all[i] = r.Site
	}
}
