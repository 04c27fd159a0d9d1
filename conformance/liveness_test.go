package conformance

import (
	"slices"
	"strings"
	"testing"
)

// flow is a kernel's text as a graph of instructions.
type flow struct {
	at   []statement // by line; a zero one where there is no instruction
	next [][]int     // lines that may follow, len(lines) for the end
}

// flowOf reads a text.
func flowOf(lines []string) flow {
	f := flow{at: make([]statement, len(lines)), next: make([][]int, len(lines))}
	labels := map[string]int{}
	for i, line := range lines {
		f.at[i], _ = parseStatement(line)
		if label, ok := strings.CutSuffix(line, ":"); ok {
			labels[label] = i
		}
	}
	for i, s := range f.at {
		switch {
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
// before it is written again.
func (f flow) dead() []bool {
	after := f.live()
	out := make([]bool, len(f.at))
	for i, s := range f.at {
		regs := s.writes()
		out[i] = len(regs) > 0 && !slices.ContainsFunc(regs, func(reg string) bool { return after[i][reg] })
	}
	return out
}

func TestDeadResults(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(`
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
	st.global.u32 [%d0], %r3;
	ret;`), "\n")
	want := []string{"\tmov.u32 %r3, 5;", "\tadd.u32 %r4, %r3, %r1;"}
	lines[0] = "\t" + lines[0]
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
