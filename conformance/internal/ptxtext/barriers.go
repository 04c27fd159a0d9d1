package ptxtext

// The kinds of accesses to memory that others may see, as bits.
const (
	sharedRead = 1 << iota
	sharedWrite
	globalRead
	globalWrite
)

// accessOf are the kinds of accesses of an instruction. What is read as constant
// nobody writes; what an asynchronous copy writes is there once it was waited for.
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

// previous are the lines that may come before each line.
func (f Flow) Previous() [][]int {
	out := make([][]int, len(f.At)+1)
	for i, list := range f.Next {
		for _, n := range list {
			out[n] = append(out[n], i)
		}
	}
	return out
}

// accesses are the kinds of accesses that may follow a barrier along steps, up to what
// stops them.
func (f Flow) accesses(barrier int, steps [][]int, stops ...string) int {
	kinds, seen, todo := 0, map[int]bool{}, []int{barrier}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range steps[i] {
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

// sinceShuffle are the kinds of accesses in the text between the shuffle or the product of
// matrices before a line and the line. What a lane gives to these it has read before, and
// all lanes have.
func (f Flow) sinceShuffle(line int) int {
	kinds := 0
	for i := line; i >= 0 && !f.At[i].Is("shfl.sync", "mma.sync"); i-- {
		kinds |= accessOf(f.At[i])
	}
	return kinds
}

// needless reports whether no access before a barrier, back to the one before it,
// conflicts with one after it, up to the next.
func (f Flow) Needless(line int) bool {
	stops := []string{"bar.sync"}
	if f.At[line].Is("bar.warp") {
		stops = append(stops, "bar.warp")
	}
	before, after := f.accesses(line, f.Previous(), stops...), f.accesses(line, f.Next, stops...)
	if f.At[line].Is("bar.warp") {
		before &= f.sinceShuffle(line)
	}
	conflict := func(read, write int) bool {
		return before&write != 0 && after&(read|write) != 0 || after&write != 0 && before&(read|write) != 0
	}
	return !conflict(sharedRead, sharedWrite) && !conflict(globalRead, globalWrite)
}
