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

// mutant is a kernel's text with one instruction changed.
type Mutant struct {
	Kernel   string
	Mutator  string
	line     int // from 0
	Old, New string
	declare  string // registers that new needs
}

func (m Mutant) String() string {
	what := strings.TrimSpace(m.New)
	if what == "" {
		what = "(left out)"
	}
	return fmt.Sprintf("%s: line %d: %s\n\t- %s\n\t+ %s", m.Kernel, m.line+1, m.Mutator, strings.TrimSpace(m.Old), what)
}

// apply changes the text of the mutant's kernel.
func (m Mutant) Apply(name string, text []byte) []byte {
	if name != m.Kernel {
		return text
	}
	lines := bytes.Split(text, []byte("\n"))
	lines[m.line] = []byte(m.New)
	text = bytes.Join(lines, []byte("\n"))
	return bytes.Replace(text, []byte("\n{\n"), []byte("\n{\n"+m.declare), 1)
}

// mutantsOf lists every mutant of a kernel, but for those of instructions whose
// results nothing reads before they are written again: they mean the same.
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

// kernelLines keeps what linesOf has made.
var kernelLines sync.Map

// linesOf are the lines of a kernel's text.
func linesOf(k *ptx.Kernel) []string {
	if lines, ok := kernelLines.Load(k); ok {
		return lines.([]string)
	}
	text, err := k.Text(harness.EmulatorTarget.For(k))
	if err != nil {
		panic(err) // it was loaded before
	}
	lines := strings.Split(string(text), "\n")
	kernelLines.Store(k, lines)
	return lines
}

// place is a change of what a generator emits. Where the generator emits the same
// code several times, unrolled or in several kernels, that is several mutants, of
// which the suite must kill one.
type Place struct {
	mutator string
	key     string
	Mutants []Mutant
}

// around is the line and the two on both sides, without the numbers of registers and
// labels.
func around(lines []string, i int) string {
	window := strings.Join(lines[max(0, i-2):min(len(lines), i+3)], "\n")
	return numbersForm.ReplaceAllString(window, "$1")
}

var numbersForm = regexp.MustCompile(`(%[a-z]|\$L)\d+`)

// placesOf puts mutants of the same code together. What a missing barrier does depends
// on the code before and after, so that each of these stands alone.
func placesOf(all []Mutant, lines func(kernel string) []string) []Place {
	index := map[string]int{}
	var list []Place
	for _, m := range all {
		key := m.Mutator + "\n" + numbersForm.ReplaceAllString(m.New, "$1") + "\n" + around(lines(m.Kernel), m.line)
		if m.Mutator == LeaveOutSync {
			key = fmt.Sprint(m.Kernel, " ", m.line)
		}
		i, ok := index[key]
		if !ok {
			i = len(list)
			index[key] = i
			list = append(list, Place{mutator: m.Mutator, key: key})
		}
		list[i].Mutants = append(list[i].Mutants, m)
	}
	return list
}

// sample picks n places: of each mutator in turn, and of each of its families in turn.
// It shuffles their mutants, too.
func Sample(all []Place, family func(kernel string) string, n int, seed uint64) []Place {
	random := rand.New(rand.NewPCG(seed, 5))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, p := range all {
		random.Shuffle(len(p.Mutants), func(i, j int) { p.Mutants[i], p.Mutants[j] = p.Mutants[j], p.Mutants[i] })
	}
	inTurn(all, func(p Place) string { return p.mutator + " " + family(p.Mutants[0].Kernel) })
	inTurn(all, func(p Place) string { return p.mutator })
	return all[:min(n, len(all))]
}

// inTurn sorts a list so that each key has its turn, in the order that there was.
func inTurn(all []Place, key func(Place) string) {
	type ranked struct {
		Place
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
		all[i] = r.Place
	}
}
