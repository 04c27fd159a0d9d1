package conformance

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// mutant is a kernel's text with one instruction changed.
type mutant struct {
	kernel   string
	mutator  string
	line     int // from 0
	old, new string
	declare  string // registers that new needs
}

func (m mutant) String() string {
	what := strings.TrimSpace(m.new)
	if what == "" {
		what = "(left out)"
	}
	return fmt.Sprintf("%s: line %d: %s\n\t- %s\n\t+ %s", m.kernel, m.line+1, m.mutator, strings.TrimSpace(m.old), what)
}

// apply changes the text of the mutant's kernel.
func (m mutant) apply(name string, text []byte) []byte {
	if name != m.kernel {
		return text
	}
	lines := bytes.Split(text, []byte("\n"))
	lines[m.line] = []byte(m.new)
	text = bytes.Join(lines, []byte("\n"))
	return bytes.Replace(text, []byte("\n{\n"), []byte("\n{\n"+m.declare), 1)
}

// mutantsOf lists every mutant of a kernel, but for those of instructions whose
// results nothing reads before they are written again: they mean the same.
func mutantsOf(k *ptx.Kernel) []mutant {
	var all []mutant
	lines := linesOf(k)
	f := flowOf(lines)
	dead, after := f.dead(), f.live()
	for i, line := range lines {
		s, ok := parseStatement(line)
		if !ok || s.is("ld.param") || dead[i] {
			continue
		}
		for _, m := range mutators {
			for _, changed := range m.make(s) {
				if regs := s.writes(); m.name == "order of a vector" && len(regs) > 1 && !after[i][regs[0]] && !after[i][regs[1]] {
					continue
				}
				if next := changed.String(); next != line {
					all = append(all, mutant{kernel: k.Name, mutator: m.name, line: i, old: line, new: next})
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
	text, err := k.Text(production.For(k))
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
type place struct {
	mutator string
	key     string
	mutants []mutant
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
func placesOf(all []mutant, lines func(kernel string) []string) []place {
	index := map[string]int{}
	var list []place
	for _, m := range all {
		key := m.mutator + "\n" + numbersForm.ReplaceAllString(m.new, "$1") + "\n" + around(lines(m.kernel), m.line)
		if m.mutator == dropSync {
			key = fmt.Sprint(m.kernel, " ", m.line)
		}
		i, ok := index[key]
		if !ok {
			i = len(list)
			index[key] = i
			list = append(list, place{mutator: m.mutator, key: key})
		}
		list[i].mutants = append(list[i].mutants, m)
	}
	return list
}

// sample picks n places: of each mutator in turn, and of each of its families in turn.
// It shuffles their mutants, too.
func sample(all []place, family func(kernel string) string, n int, seed uint64) []place {
	random := rand.New(rand.NewPCG(seed, 5))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, p := range all {
		random.Shuffle(len(p.mutants), func(i, j int) { p.mutants[i], p.mutants[j] = p.mutants[j], p.mutants[i] })
	}
	inTurn(all, func(p place) string { return p.mutator + " " + family(p.mutants[0].kernel) })
	inTurn(all, func(p place) string { return p.mutator })
	return all[:min(n, len(all))]
}

// inTurn sorts a list so that each key has its turn, in the order that there was.
func inTurn(all []place, key func(place) string) {
	type ranked struct {
		place
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
		all[i] = r.place
	}
}
