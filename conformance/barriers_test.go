package conformance

// The kinds of accesses to memory that others may see, as bits.
const (
	sharedRead = 1 << iota
	sharedWrite
	globalRead
	globalWrite
)

// accessOf are the kinds of accesses of an instruction. What is read as constant
// nobody writes; what an asynchronous copy writes is there once it was waited for.
func accessOf(s statement) int {
	switch {
	case s.is("cp.async.wait_group", "st.shared"):
		return sharedWrite
	case s.is("cp.async"):
		return sharedWrite | globalRead
	case s.is("ld.shared", "ldmatrix"):
		return sharedRead
	case s.is("ld.global.nc", "ld.param", "cp.async.commit_group"):
		return 0
	case s.is("ld"):
		return globalRead
	case s.is("st"):
		return globalWrite
	case s.is("atom", "red", "mbarrier", "fence", "cp"):
		return sharedRead | sharedWrite | globalRead | globalWrite
	}
	return 0
}

// previous are the lines that may come before each line.
func (f flow) previous() [][]int {
	out := make([][]int, len(f.at)+1)
	for i, list := range f.next {
		for _, n := range list {
			out[n] = append(out[n], i)
		}
	}
	return out
}

// accesses are the kinds of accesses that may follow a barrier along steps, up to what
// stops them.
func (f flow) accesses(barrier int, steps [][]int, stops ...string) int {
	kinds, seen, todo := 0, map[int]bool{}, []int{barrier}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range steps[i] {
			if n >= len(f.at) || seen[n] {
				continue
			}
			seen[n] = true
			if s := f.at[n]; s.guard == "" && s.is(stops...) {
				continue
			}
			kinds |= accessOf(f.at[n])
			todo = append(todo, n)
		}
	}
	return kinds
}

// sinceShuffle are the kinds of accesses in the text between the shuffle or the product of
// matrices before a line and the line. What a lane gives to these it has read before, and
// all lanes have.
func (f flow) sinceShuffle(line int) int {
	kinds := 0
	for i := line; i >= 0 && !f.at[i].is("shfl.sync", "mma.sync"); i-- {
		kinds |= accessOf(f.at[i])
	}
	return kinds
}

// needlessBarrier looks at the accesses that only this barrier orders.
func needlessBarrier(q question) bool {
	return q.mutator == dropSync && q.was.is("bar") && q.m.flow(q.kernel).needless(q.line)
}

// needless reports whether no access before a barrier, back to the one before it,
// conflicts with one after it, up to the next.
func (f flow) needless(line int) bool {
	stops := []string{"bar.sync"}
	if f.at[line].is("bar.warp") {
		stops = append(stops, "bar.warp")
	}
	before, after := f.accesses(line, f.previous(), stops...), f.accesses(line, f.next, stops...)
	if f.at[line].is("bar.warp") {
		before &= f.sinceShuffle(line)
	}
	conflict := func(read, write int) bool {
		return before&write != 0 && after&(read|write) != 0 || after&write != 0 && before&(read|write) != 0
	}
	return !conflict(sharedRead, sharedWrite) && !conflict(globalRead, globalWrite)
}
