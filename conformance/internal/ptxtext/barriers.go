package ptxtext

import (
	"slices"
	"strings"
)

// The kinds of memory accesses that other threads can observe, as bits.
const (
	sharedRead = 1 << iota
	sharedWrite
	globalRead
	globalWrite
)

// accessOf returns the kinds of accesses of an instruction. Constant reads count as none.
// An asynchronous copy writes shared memory where the kernel waits for it.
func accessOf(s Statement) int {
	switch {
	case s.Is("cp.async.wait_group", "st.shared"):
		return sharedWrite
	case s.Is("cp.async"):
		return sharedWrite | globalRead
	case s.Is("ld.shared", "ldmatrix"):
		return sharedRead
	case s.Is("ld.global.nc", "ld.param", "cp.async.commit_group"):
		return 0
	case s.Is("ld"):
		return globalRead
	case s.Is("st"):
		return globalWrite
	case s.Is("atom", "red", "mbarrier", "fence", "cp"):
		return sharedRead | sharedWrite | globalRead | globalWrite
	}
	return 0
}

// Previous returns, for each line, the lines that may run just before it.
func (f Flow) Previous() [][]int {
	out := make([][]int, len(f.At)+1)
	for i, list := range f.Next {
		for _, n := range list {
			out[n] = append(out[n], i)
		}
	}
	return out
}

// accesses returns the kinds of accesses that are reachable from a barrier along edges,
// without passing an unguarded instruction of stops.
func (f Flow) accesses(barrier int, edges [][]int, stops ...string) int {
	kinds, seen, todo := 0, map[int]bool{}, []int{barrier}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range edges[i] {
			if n >= len(f.At) || seen[n] {
				continue
			}
			seen[n] = true
			if s := f.At[n]; s.Guard == "" && s.Is(stops...) {
				continue
			}
			kinds |= accessOf(f.At[n])
			todo = append(todo, n)
		}
	}
	return kinds
}

// accessesSinceShuffle returns the kinds of accesses between a line and the shuffle or mma
// before it. Those instructions synchronize the warp, so earlier reads are complete.
func (f Flow) accessesSinceShuffle(line int) int {
	kinds := 0
	for i := line; i >= 0 && !f.At[i].Is("shfl.sync", "mma.sync"); i-- {
		kinds |= accessOf(f.At[i])
	}
	return kinds
}

// BarrierNeedless reports whether a barrier orders no conflicting accesses: none between
// the previous barrier and it conflicts with one between it and the next barrier.
func (f Flow) BarrierNeedless(line int) bool {
	stops := []string{"bar.sync"}
	if f.At[line].Is("bar.warp") {
		stops = append(stops, "bar.warp")
	}
	before, after := f.accesses(line, f.Previous(), stops...), f.accesses(line, f.Next, stops...)
	if f.At[line].Is("bar.warp") {
		before &= f.accessesSinceShuffle(line)
	}
	conflict := func(read, write int) bool {
		return before&write != 0 && after&(read|write) != 0 || after&write != 0 && before&(read|write) != 0
	}
	return !conflict(sharedRead, sharedWrite) && !conflict(globalRead, globalWrite)
}

// JoinedWaits returns the waits for copies that may follow a cp.async.commit_group, if the group
// may as well be joined to the next one: on each path to a wait there is another commit_group,
// and the wait is for all groups. Otherwise it returns nil.
func (f Flow) JoinedWaits(commit int) (waits []int) {
	type state struct {
		line      int
		committed bool
	}
	holds := f.holds(commit)
	seen, todo := map[state]bool{}, []state{{commit + 1, false}}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s.line >= len(f.At) || seen[s] {
			continue
		}
		seen[s] = true
		switch at := f.At[s.line]; {
		case s.line == commit || !at.Is("cp") || at.Is("cp.async.cg", "cp.async.ca"):
		case at.Is("cp.async.commit_group") && at.Guard == "":
			s.committed = true
		case at.Is("cp.async.wait_group") && at.Guard == "" && at.Args[0] == "0" && s.committed:
			waits = append(waits, s.line)
			continue
		default:
			return nil
		}
		for _, n := range f.Next[s.line] {
			if p, to, ok := f.edge(s.line, n); !ok || holds[p] == 0 || holds[p] == to {
				todo = append(todo, state{n, s.committed})
			}
		}
	}
	return waits
}

// LaterProductWait returns the wait for all products that makes a wgmma.commit_group or wgmma.wait_group needless: no store,
// barrier or branch comes before it, and after a commit_group there is another one. ok is false if there is none.
func (f Flow) LaterProductWait(line int) (wait int, ok bool) {
	committed := f.At[line].Is("wgmma.wait_group")
	for i := line + 1; i < len(f.At); i++ {
		switch at := f.At[i]; {
		case len(f.Next[i]) != 1, at.Is("st", "red", "atom", "bar", "bra", "cp", "mbarrier"):
			return 0, false
		case at.Is("wgmma.commit_group"):
			committed = true
		case at.Is("wgmma.wait_group") && at.Args[0] == "0":
			return i, committed
		}
	}
	return 0, false
}

// edge returns the predicate of a branch and the value that it has, 1 for true or -1 for false,
// if the branch leads to a line.
func (f Flow) edge(branch, to int) (p string, value int, ok bool) {
	s := f.At[branch]
	if !s.Is("bra") || s.Guard == "" || len(f.Next[branch]) != 2 || f.Next[branch][0] == branch+1 {
		return "", 0, false
	}
	p, negated := strings.CutPrefix(strings.TrimSpace(s.Guard), "@!")
	if taken := to != branch+1; taken != negated {
		return strings.TrimPrefix(p, "@"), 1, true
	}
	return strings.TrimPrefix(p, "@"), -1, true
}

// holds returns the predicates that have a known value, 1 for true or -1 for false, when a line
// runs and after it: each path to the line leaves a branch on the same side, and the predicate is
// not set again after that.
func (f Flow) holds(line int) map[string]int {
	values := map[string]int{}
	for i := range f.At {
		for _, n := range f.Next[i] {
			p, value, ok := f.edge(i, n)
			if !ok || f.reachable(0, i, n)[line] {
				continue
			}
			_, once := f.Definition(p)
			set := slices.IndexFunc(f.At, func(s Statement) bool { return slices.Contains(s.Writes(), p) })
			if once && !f.reachable(n, -1, -1)[set] {
				values[p] = value
			}
		}
	}
	return values
}

// reachable returns the lines that may run from a line on, without the step from a branch to
// another line.
func (f Flow) reachable(from, branch, to int) map[int]bool {
	seen, todo := map[int]bool{}, []int{from}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if i >= len(f.At) || seen[i] {
			continue
		}
		seen[i] = true
		for _, n := range f.Next[i] {
			if i != branch || n != to {
				todo = append(todo, n)
			}
		}
	}
	return seen
}
