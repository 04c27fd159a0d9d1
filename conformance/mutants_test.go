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
	return bytes.Join(lines, []byte("\n"))
}

// mutantsOf lists every mutant of a kernel, but for those of instructions whose
// results nothing reads before they are written again: they mean the same.
func mutantsOf(k *ptx.Kernel) []mutant {
	var all []mutant
	lines := linesOf(k)
	dead := flowOf(lines).dead()
	for i, line := range lines {
		s, ok := parseStatement(line)
		if !ok || s.is("ld.param") || dead[i] {
			continue
		}
		for _, m := range mutators {
			for _, changed := range m.make(s) {
				if next := changed.String(); next != line {
					all = append(all, mutant{k.Name, m.name, i, line, next})
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
	text, err := k.Text(ptx.Target{})
	if err != nil {
		panic(err) // it was loaded before
	}
	lines := strings.Split(string(text), "\n")
	kernelLines.Store(k, lines)
	return lines
}

// around is the line and the two on both sides, without the numbers of registers and
// labels.
func around(lines []string, i int) string {
	window := strings.Join(lines[max(0, i-2):min(len(lines), i+3)], "\n")
	return numbersForm.ReplaceAllString(window, "$1")
}

var numbersForm = regexp.MustCompile(`(%[a-z]|\$L)\d+`)

// in is the same change to a line of another kernel that differs in registers only.
func (m mutant) in(kernel string, line int, old string) (mutant, bool) {
	s, ok := parseStatement(old)
	if !ok {
		return mutant{}, false
	}
	for _, other := range mutators {
		if other.name != m.mutator {
			continue
		}
		for _, changed := range other.make(s) {
			next := changed.String()
			if numbersForm.ReplaceAllString(next, "$1") == numbersForm.ReplaceAllString(m.new, "$1") {
				return mutant{kernel, m.mutator, line, old, next}, true
			}
		}
	}
	return mutant{}, false
}

// sample picks n mutants: of each mutator in turn, and of each of its kernels in
// turn.
func sample(all []mutant, n int, seed uint64) []mutant {
	random := rand.New(rand.NewPCG(seed, 5))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	inTurn(all, func(m mutant) string { return m.mutator + " " + m.kernel })
	inTurn(all, func(m mutant) string { return m.mutator })
	return all[:min(n, len(all))]
}

// inTurn sorts a list so that each key has its turn, in the order that there was.
func inTurn(all []mutant, key func(mutant) string) {
	type ranked struct {
		mutant
		rank int
	}
	seen := map[string]int{}
	list := make([]ranked, len(all))
	for i, m := range all {
		list[i] = ranked{m, seen[key(m)]}
		seen[key(m)]++
	}
	slices.SortStableFunc(list, func(a, b ranked) int { return a.rank - b.rank })
	for i, r := range list {
		all[i] = r.mutant
	}
}
