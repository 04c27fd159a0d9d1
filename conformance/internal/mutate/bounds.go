package mutate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
)

// Rules about comparisons of integers whose range is known.

// constants returns an operand of the instruction before and after the change, if both are
// numbers.
func (q survivor) constants(i int) (was, is uint64, ok bool) {
	if i >= len(q.was.Args) || i >= len(q.is.Args) {
		return 0, 0, false
	}
	was, err1 := strconv.ParseUint(q.was.Args[i], 10, 32)
	is, err2 := strconv.ParseUint(q.is.Args[i], 10, 32)
	return was, is, err1 == nil && err2 == nil
}

// isBelow reports whether s demands that an index is below a constant that no thread reaches.
func isBelow(f ptxtext.Flow, s ptxtext.Statement) bool {
	if !s.Is("setp.lt.u32", "setp.le.u32") {
		return false
	}
	n, err := strconv.ParseUint(s.Args[2], 10, 32)
	return err == nil && f.UpperBound(s.Args[1]) < n
}

// isBounded: an index is compared with, or clamped to, a constant that no thread reaches; or
// the changed instruction has the guard of such a comparison; or all readers compare such an
// index with the clamped number.
func isBounded(q survivor) bool {
	f := q.flow()
	switch {
	case q.mutant.Mutator == "guard":
		s, once := f.Definition(condition(q.was))
		return q.is.Guard == "" && q.is.Op != "" && once && isBelow(f, s)
	case q.was.Is("setp"):
		return q.was.Args[1] == q.is.Args[1] && isBelow(f, q.was) && isBelow(f, q.is)
	case q.was.Is("min.u32") && q.is.Is("min.u32"):
		was, is, ok := q.constants(2)
		return ok && q.was.Args[1] == q.is.Args[1] && (f.UpperBound(q.was.Args[1]) <= min(was, is) || q.readersBelow(min(was, is)))
	}
	return false
}

// readersBelow reports whether all readers compare indices below n with the result.
func (q survivor) readersBelow(n uint64) bool {
	f := q.flow()
	list := f.Readers(q.was.Written())
	return len(list) > 0 && !slices.ContainsFunc(list, func(s ptxtext.Statement) bool {
		return !s.Is("setp.lt.u32") || s.Args[2] != q.was.Written() || f.UpperBound(s.Args[1]) >= n
	})
}

// sameBounded: the guard holds for each thread, or the result or what is read from it is the same.
func sameBounded(q survivor) bool {
	if q.mutant.Mutator == "guard" {
		return q.happens(q.mutant.line, "") && !q.happens(q.mutant.line, negated(q.was).Guard)
	}
	return sameResult(q) || sameReaders(q)
}

// isNeverEqual: whether equal numbers pass a comparison, between numbers that are never equal.
func isNeverEqual(q survivor) bool {
	if q.mutant.Mutator != "comparison" || !(q.was.Is("setp.lt.u32") && q.is.Is("setp.le.u32") || q.was.Is("setp.ge.u32") && q.is.Is("setp.gt.u32")) {
		return false
	}
	_, extreme := q.extreme()
	return extreme || q.endsWhereEqual() || q.isGroup() || q.isFirstOfProduct()
}

// extreme returns the value of the second operand without a mask, if a position is compared
// with the start or the end of the visible positions of a page: 0, of which the position is
// larger, or the size of the page.
func (q survivor) extreme() (n string, ok bool) {
	f := q.flow()
	s, once := f.Definition(q.was.Args[2])
	if !once || ptxtext.IsNumber(q.was.Args[1]) {
		return "", false
	}
	most := f.UpperBound(q.was.Args[1])
	switch {
	case q.was.Is("setp.lt") && s.Is("min.u32"):
		size, err := strconv.ParseUint(s.Args[2], 10, 32)
		return s.Args[2], err == nil && most < size
	case q.was.Is("setp.ge") && s.Is("sub.u32"):
		later, _ := f.Definition(s.Args[1])
		position, _ := f.Definition(q.was.Args[1])
		return "0", later.Is("max.u32") && later.Args[2] == s.Args[2] && position.Is("add.u32") && ptxtext.IsNumber(position.Args[2]) && position.Args[2] != "0" && most < 1<<31
	}
	return "", false
}

// endsWhereEqual reports whether threads for which the comparison would be between equal
// numbers have ended at a branch that each way to it passes.
func (q survivor) endsWhereEqual() bool {
	f := q.flow()
	for i, s := range f.At {
		p, _ := f.Definition(condition(s))
		end := p.Is("setp.ge.u32") && slices.Equal(p.Args[1:], q.was.Args[1:]) ||
			p.Is("setp.eq.u32") && p.Args[1] == q.was.Args[2] && p.Args[2] == q.was.Args[1]
		if !s.Is("ret") || !strings.HasPrefix(s.Guard, "@%") || !end {
			continue
		}
		once := func(arg string) bool {
			_, once := f.Definition(arg)
			return once || ptxtext.IsNumber(arg)
		}
		seen, todo := map[int]bool{i: true}, []int{0}
		for len(todo) > 0 {
			n := todo[0]
			todo = todo[1:]
			if n < len(f.At) && !seen[n] {
				seen[n] = true
				todo = append(todo, f.Next[n]...)
			}
		}
		if once(p.Args[1]) && once(p.Args[2]) && !seen[q.mutant.line] {
			return true
		}
	}
	return false
}

// isGroup reports whether 0 is compared with the number of query heads per KV head, or with
// those of an iteration. A launch with none is refused.
func (q survivor) isGroup() bool {
	if !strings.HasPrefix(q.mutant.Kernel, "attention_decode") || q.was.Args[1] != "0" {
		return false
	}
	f := q.flow()
	s, once := f.Definition(q.was.Args[2])
	if once && s.Is("min.u32") {
		if s, once = f.Definition(s.Args[1]); once && s.Is("sub.u32") {
			s, once = f.Definition(s.Args[1])
		}
	}
	return once && s.Is("ld.param.u32") && s.Args[1] == "[group]"
}

// isFirstOfProduct reports whether a product compares an index below m with m times a parameter, or that of a CTA with one. A
// launch has segments, and no more CTAs than tiles.
func (q survivor) isFirstOfProduct() bool {
	f := q.flow()
	index, _ := f.Definition(q.was.Args[1])
	count, _ := f.Definition(q.was.Args[2])
	if count.Is("shl.b32") && strings.HasPrefix(q.mutant.Kernel, "product_stream_") {
		n, once := f.Definition(count.Args[1])
		return once && n.Is("ld.param") && f.UpperBound(q.was.Args[1])>>f.TrailingZeros(q.was.Args[2]) == 0
	}
	return strings.HasPrefix(q.mutant.Kernel, "product_tile_") && count.Is("ld.param") && index.Is("mov.u32") && index.Args[1] == "%ctaid.x"
}

// neverEqual: the operands are never equal. If the second should be a constant, it is.
func neverEqual(q survivor) bool {
	traps := func(op, x, y string) Fate {
		x = fmt.Sprintf("\t%s %%found, %s, %s;\n\t@%%found trap;\n", op, x, y)
		v := q.variant(q.mutant.line, x+q.mutant.Old)
		v.declare, v.trap = "\t.reg .pred %found;\n", true
		return q.m.probe(v)
	}
	if n, ok := q.extreme(); ok && traps("setp.ne.u32", q.was.Args[2], n) != Unchanged {
		return false
	}
	return traps("setp.eq.u32", q.was.Args[1], q.was.Args[2]) == Unchanged
}

// isTie: selections between 0 and a difference, by which of its terms is larger.
func isTie(q survivor) bool {
	if q.mutant.Mutator != "comparison" || !q.was.Is("setp.gt.u32") || !q.is.Is("setp.ge.u32") {
		return false
	}
	f := q.flow()
	list := f.Controls(q.mutant.line)
	return len(list) > 0 && !slices.ContainsFunc(list, func(i int) bool {
		s := f.At[i]
		if !s.Is("selp.b32") || s.Args[2] != "0" {
			return true
		}
		difference, _ := f.Definition(s.Args[1])
		return !difference.Is("sub.u32") || !slices.Equal(difference.Args[1:], q.was.Args[1:])
	})
}

// equalOperands: the change turns each selection in some case, always between equal numbers.
func equalOperands(q survivor) bool {
	for _, i := range q.flow().Controls(q.mutant.line) {
		s := q.flow().At[i]
		x, ok := q.shadows(condition(s))
		if !ok || !q.turns(i, condition(s), true) {
			return false
		}
		x.declare += "\t.reg .pred %apart;\n"
		x.after[i-1] += fmt.Sprintf("\txor.pred %%differs, %s, %s;\n\tsetp.ne.u32 %%apart, %s, %s;\n\tand.pred %%differs, %%differs, %%apart;\n\t@%%differs trap;\n",
			condition(s), shadow(condition(s)), s.Args[1], s.Args[2])
		if q.m.probe(x) != Unchanged {
			return false
		}
	}
	return true
}

// isIdle: a loop goes on while its counter is at most the bound, not only below it.
func isIdle(q survivor) bool {
	f, back := q.flow(), q.mutant.line+1
	return q.was.Is("setp.lt.u32") && q.is.Is("setp.le.u32") && back < len(f.At) && f.At[back].Is("bra") &&
		condition(f.At[back]) == q.was.Written() && f.Next[back][0] <= q.mutant.line
}

// noAccess: some loop ends with its counter at the bound, and one more iteration accesses no
// memory.
func noAccess(q survivor) bool {
	x := q.variant(q.mutant.line, q.mutant.New)
	x.declare, x.trap, x.after = "\t.reg .pred %idle;\n", true, map[int]string{}
	for i := q.flow().Next[q.mutant.line+1][0]; i < q.mutant.line; i++ {
		if q.flow().At[i].Is("ld", "st", "red", "atom", "cp") {
			x.after[i-1] = fmt.Sprintf("\tsetp.eq.u32 %%idle, %s, %s;\n\t@%%idle trap;\n", q.was.Args[1], q.was.Args[2])
		}
	}
	return q.infects() && q.m.probe(x) == Unchanged
}
