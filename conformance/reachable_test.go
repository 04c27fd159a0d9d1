package conformance

import (
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// unreachableRule is about code that no case runs: it must be shown that none can.
var unreachableRule = rule{
	"unreachable", "the tail of rows that are whole units, at addresses that are aligned", nil,
}

// definition is the only instruction that writes a register; false if there are more.
func (f flow) definition(reg string) (statement, bool) {
	found, n := statement{}, 0
	for _, s := range f.at {
		if slices.Contains(s.writes(), reg) {
			found = s
			n++
		}
	}
	return found, n == 1
}

// zeros is how many of a value's lowest bits are 0 for sure.
func (f flow) zeros(arg string) int {
	if n, err := strconv.ParseUint(arg, 10, 64); err == nil {
		return bits.TrailingZeros64(n)
	}
	s, ok := f.definition(arg)
	if !ok {
		return 0
	}
	switch {
	case s.is("mov", "cvt"):
		return f.zeros(s.args[1])
	case s.is("add", "sub", "min", "max"):
		return min(f.zeros(s.args[1]), f.zeros(s.args[2]))
	case s.is("mul"):
		return f.zeros(s.args[1]) + f.zeros(s.args[2])
	case s.is("shl"):
		n, err := strconv.Atoi(s.args[2])
		if err == nil {
			return n + f.zeros(s.args[1])
		}
	case s.is("ld.param"):
		return f.aligned[strings.Trim(s.args[1], "[]")]
	}
	return 0
}

// most is the largest that a value can be, by what threads there are.
func (f flow) most(arg string) uint64 {
	const any = 1<<32 - 1
	if n, err := strconv.ParseUint(arg, 10, 64); err == nil {
		return n
	}
	s, ok := f.definition(arg)
	if !ok || len(s.args) < 2 {
		return any
	}
	shift := func() int {
		n, err := strconv.Atoi(s.args[2])
		if err != nil {
			return 0
		}
		return n
	}
	switch {
	case s.is("mov") && s.args[1] == "%tid.x" && f.threads > 0:
		return uint64(f.threads - 1)
	case s.is("shr.u32"):
		return f.most(s.args[1]) >> shift()
	case s.is("shl.b32"):
		return min(any, f.most(s.args[1])<<shift())
	case s.is("and.b32"):
		return min(f.most(s.args[1]), f.most(s.args[2]))
	}
	return any
}

// quarters reports whether a value is 4i for an i that is compared with ceil(n/4).
func (f flow) quarters(arg, n string) bool {
	s, ok := f.definition(arg)
	if !ok || !s.is("shl.b32") || s.args[2] != "2" {
		return false
	}
	i := s.args[1]
	return slices.ContainsFunc(f.at, func(c statement) bool {
		if !c.is("setp.lt.u32", "setp.ge.u32") || c.args[1] != i {
			return false
		}
		ceil, _ := f.definition(c.args[2])
		if !ceil.is("shr.u32") || ceil.args[2] != "2" {
			return false
		}
		sum, _ := f.definition(ceil.args[1])
		return sum.is("add.u32") && sum.args[1] == n && sum.args[2] == "3"
	})
}

// impliesQuads reports whether a comparison is 4i < n, for such an i.
func (f flow) impliesQuads(s statement) bool {
	return s.is("setp.lt.u32") && f.quarters(s.args[1], s.args[2])
}

// holds reports whether a predicate is true for sure: an address is aligned, or a row
// of whole quads has four elements left.
func (f flow) holds(p string) bool {
	s, ok := f.definition(p)
	switch {
	case !ok:
		return false
	case s.is("and.pred"):
		return f.holds(s.args[1]) && f.holds(s.args[2])
	case s.is("setp.eq.u32") && s.args[2] == "0":
		mask, _ := f.definition(s.args[1])
		if !mask.is("and") {
			return false
		}
		n, err := strconv.ParseUint(mask.args[2], 10, 32)
		return err == nil && bits.Len64(n) <= f.zeros(mask.args[1])
	case s.is("setp.ge.u32") && s.args[2] == "4":
		rest, _ := f.definition(s.args[1])
		if !rest.is("sub.u32") || f.zeros(rest.args[1]) < 2 {
			return false
		}
		least, _ := f.definition(rest.args[2])
		n := rest.args[1]
		return least.is("min.u32") && (least.args[1] == n && f.quarters(least.args[2], n) || least.args[2] == n && f.quarters(least.args[1], n))
	}
	return false
}

// unreachable reports whether every way from what cases run to a line is closed by a
// predicate that holds.
func (m *mutation) unreachable(x mutant) bool {
	f := m.flow(x.kernel)
	before := f.previous()
	seen, todo, ways := map[int]bool{x.line: true}, []int{x.line}, 0
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range before[i] {
			switch {
			case seen[n]:
			case len(m.coverage.reaching(x.kernel, n)) == 0:
				seen[n] = true
				todo = append(todo, n)
			default:
				ways++
				p, turned := strings.CutPrefix(strings.TrimSpace(f.at[n].guard), "@!")
				if !turned || !f.holds(p) || f.next[n][0] != i {
					return false
				}
			}
		}
	}
	return ways > 0
}
