package ptxtext

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
