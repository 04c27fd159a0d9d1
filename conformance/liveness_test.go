package conformance

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// flow is a kernel's text as a graph of instructions.
type flow struct {
	at   []statement // by line; a zero one where there is no instruction
	next [][]int     // lines that may follow, len(lines) for the end

	aligned map[string]int // of pointer parameters, as a power of two
	threads int            // that a CTA has at most
}

var parameterForm = regexp.MustCompile(`^\t\.param \.u64 \.ptr \.global \.align (\d+) (\w+),?$`)

// flowOf reads a text.
func flowOf(lines []string) flow {
	f := flow{at: make([]statement, len(lines)), next: make([][]int, len(lines)), aligned: map[string]int{}}
	labels := map[string]int{}
	for i, line := range lines {
		f.at[i], _ = parseStatement(line)
		fmt.Sscanf(line, ".maxntid %d,", &f.threads)
		if m := parameterForm.FindStringSubmatch(line); m != nil {
			n, _ := strconv.ParseUint(m[1], 10, 32)
			f.aligned[m[2]] = bits.TrailingZeros64(n)
		}
		if label, ok := strings.CutSuffix(line, ":"); ok {
			labels[label] = i
		}
	}
	for i, s := range f.at {
		switch {
		case s.is("bra") && f.entersLoop(i): // never past it
		case s.is("bra"):
			f.next[i] = append(f.next[i], labels[s.args[0]])
		case s.is("ret"):
			f.next[i] = append(f.next[i], len(lines))
		}
		if s.guard != "" || !s.is("bra", "ret") {
			f.next[i] = append(f.next[i], i+1)
		}
	}
	return f
}

// entersLoop reports whether a branch is the first test of a loop of at least one
// round: of a number that was just set, and not to 0.
func (f flow) entersLoop(i int) bool {
	if i < 2 || !strings.HasPrefix(f.at[i].guard, "@!") || !f.at[i-1].is("setp.ne.u32") || f.at[i-1].args[2] != "0" {
		return false
	}
	for j := i - 2; j >= 0 && f.at[j].op != ""; j-- {
		if s := f.at[j]; slices.Contains(s.writes(), f.at[i-1].args[1]) {
			return s.is("mov.b32") && s.guard == "" && isNumber(s.args[1]) && s.args[1] != "0"
		}
	}
	return false
}

// live finds, for each line, the registers whose values may still be read after it.
func (f flow) live() []map[string]bool {
	before := make([]map[string]bool, len(f.at)+1)
	after := make([]map[string]bool, len(f.at))
	before[len(f.at)] = map[string]bool{}
	for i := range f.at {
		before[i], after[i] = map[string]bool{}, map[string]bool{}
	}
	for changed := true; changed; {
		changed = false
		for i := len(f.at) - 1; i >= 0; i-- {
			for _, n := range f.next[i] {
				for reg := range before[n] {
					after[i][reg] = true
				}
			}
			count := len(before[i])
			overwritten := f.at[i].writes()
			for reg := range after[i] {
				if f.at[i].guard != "" || !slices.Contains(overwritten, reg) {
					before[i][reg] = true
				}
			}
			for _, reg := range f.at[i].reads() {
				before[i][reg] = true
			}
			changed = changed || len(before[i]) != count
		}
	}
	return after
}

// dead reports, for each line, whether it writes registers of which none is read
// before it is written again, but by what is dead itself.
func (f flow) dead() []bool {
	out := make([]bool, len(f.at))
	f.at = slices.Clone(f.at)
	for changed := true; changed; {
		changed = false
		after := f.live()
		for i, s := range f.at {
			regs := s.writes()
			if len(regs) > 0 && !s.is("atom") && !slices.ContainsFunc(regs, func(reg string) bool { return after[i][reg] }) {
				out[i], f.at[i], changed = true, statement{}, true
			}
		}
	}
	return out
}

func TestDeadResults(t *testing.T) {
	lines := strings.Split(`
	mov.u32 %r0, 0;
	mov.u32 %r1, 1;
	mov.u32 %r2, 2;
	setp.eq.u32 %p0, %r0, 0;
	@%p0 bra $L1;
	mov.u32 %r1, 3;
	@%p0 mov.u32 %r2, 4;
	mov.u32 %r3, 5;
$L1:
	add.u32 %r3, %r2, 1;
	add.u32 %r4, %r3, %r1;
	mul.lo.u32 %r5, %r4, 3;
	st.global.u32 [%d0], %r3;
	ret;`, "\n")
	want := []string{"\tmov.u32 %r1, 1;", "\tmov.u32 %r1, 3;", "\tmov.u32 %r3, 5;", "\tadd.u32 %r4, %r3, %r1;", "\tmul.lo.u32 %r5, %r4, 3;"}
	var got []string
	for i, dead := range flowOf(lines).dead() {
		if dead {
			got = append(got, lines[i])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("dead: %q, want %q", got, want)
	}
}
