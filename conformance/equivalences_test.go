package conformance

import (
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func withinBounds(q question) bool {
	return (floatArithmetic.MatchString(q.was.op) || q.was.is("cvt.rni")) && (q.fate == tolerated || q.was.op[:3] != "mov" && q.m.infects(q.mutant))
}

// isThreshold: the comparison of a number with one that is not special, at equality.
func isThreshold(q question) bool {
	return q.was.is("setp") && strings.HasSuffix(q.was.op, ".f32") && q.mutator == "comparison" &&
		strings.HasPrefix(q.was.args[2], "0f") && !slices.Contains([]string{"0f00000000", "0f7F800000", "0fFF800000"}, q.was.args[2])
}

// isGeneral: the guard might as well never hold, or always, but another kernel has
// the same one.
func isGeneral(q question) bool {
	if !q.was.is("setp") || !strings.HasSuffix(q.was.op, ".f32") || !strings.HasPrefix(q.was.args[2], "0f") {
		return false
	}
	const nan = "0f7FC00000"
	constant := q.mutant
	for _, op := range []string{"setp.eq.f32", "setp.neu.f32"} {
		constant.new = statement{op: op, args: []string{q.was.args[0], nan, nan}}.String()
		if q.m.probe(constant) != unseen {
			continue
		}
		for _, k := range q.m.changed {
			if k.Name != q.kernel && slices.ContainsFunc(q.m.flow(k.Name).at, func(s statement) bool {
				return s.op == q.was.op && s.args[2] == q.was.args[2]
			}) {
				return true
			}
		}
	}
	return false
}

func isScale(q question) bool {
	if !q.was.is("selp.f32", "mov.f32") || q.mutator != "float constant" || q.fate != unseen {
		return false
	}
	for i, arg := range q.was.args {
		if q.is.args[i] != arg {
			n, err := strconv.ParseUint(strings.TrimPrefix(arg, "0f"), 16, 32)
			return err == nil && n&0x007FFFFF == 0 && n != 0
		}
	}
	return false
}

func isNothing(q question) bool {
	f := q.m.flow(q.kernel)
	if q.was.is("and", "lop3") && q.mutator == "constant" {
		i := slices.IndexFunc(q.was.args, func(arg string) bool { return arg[0] != '%' })
		return i > 0 && i <= 3 && slices.ContainsFunc(q.was.args[1:], func(arg string) bool { return arg[0] == '%' && f.zeros(arg) > 0 })
	}
	if q.was.is("add.u32") && q.is.is("sub.u32") {
		return f.most(q.was.args[2]) == 0
	}
	if !q.was.is("shl", "shr") {
		return false
	}
	if q.was.is("shr.u32") && q.is.is("shr.u32") && f.most(q.was.args[1]) < 32 {
		return q.was.args[2] == "5" // a warp's number in a CTA of one
	}
	s, ok := f.definition(q.was.args[1])
	return ok && s.is("mul") && slices.Contains(s.args[1:], "0")
}

// isImplied: a comparison of 4i with n, or what is used for such ones only.
func isImplied(q question) bool {
	f := q.m.flow(q.kernel)
	if q.was.is("setp") {
		return f.impliesQuads(q.was)
	}
	uses := 0
	for _, s := range f.at {
		if q.was.written() != "" && slices.Contains(s.reads(), q.was.written()) {
			if uses++; !f.impliesQuads(s) {
				return false
			}
		}
	}
	return uses > 0
}

func isOneLane(q question) bool {
	return q.was.is("shfl.sync.bfly") && q.is.is("shfl.sync.down") && q.fate == unseen && q.m.infects(q.mutant)
}

var floatArithmetic = regexp.MustCompile(`^(add|sub|mul|fma|div|neg|abs|mov|ex2|sqrt|rcp|setp\..*)\.(.*\.)?f(32|64)$`)

// onEdge: only what is equal to the bound, or next to it, takes another way.
func onEdge(q question) bool {
	if q.mutator == "constant" && q.was.is("add.u32") && len(q.m.flow(q.kernel).decides(q.line)) > 0 {
		return q.m.infects(q.mutant)
	}
	if !q.was.is("setp") || q.mutator == "comparison" && slices.Contains([]string{"eq", "ne", "neu", "nan"}, strings.Split(q.was.op, ".")[1]) {
		return false
	}
	return (q.mutator == "comparison" || q.mutator == "constant") && q.m.infects(q.mutant)
}

// readBy reports whether all that read a changed constant's register pass a test.
func (q question) readBy(test func(s statement) bool) bool {
	if !q.was.is("mov.b32", "selp.b32") || q.mutator != "constant" {
		return false
	}
	list := q.m.flow(q.kernel).readers(q.was.written())
	return len(list) > 0 && !slices.ContainsFunc(list, func(s statement) bool { return !test(s) })
}

// isOnce: what a loop's step changes is read in another round only, and there is none.
func isOnce(q question) bool {
	f := q.m.flow(q.kernel)
	if !q.was.is("add.u32") || q.line+2 >= len(f.at) || q.was.args[0] != q.was.args[1] {
		return false
	}
	test, back := f.at[q.line+1], f.at[q.line+2]
	if !test.is("setp") || test.args[1] != q.was.args[0] || !back.is("bra") || f.next[q.line+2][0] > q.line {
		return false
	}
	return q.m.probe(mutant{kernel: q.kernel, line: q.line + 2, old: linesOf(q.m.kernels[q.kernel])[q.line+2]}) == unseen
}

// isShiftedOut: a bit that a shift takes away.
func isShiftedOut(q question) bool {
	return q.readBy(func(s statement) bool { return s.is("shr.u32") && s.args[2] != "0" && isNumber(s.args[2]) })
}

func isTruth(q question) bool {
	return q.readBy(func(s statement) bool { return s.is("setp.ne.u32", "setp.eq.u32") && s.args[2] == "0" })
}

func isStart(q question) bool {
	return q.was.is("mov") && q.readBy(func(s statement) bool {
		return s.is("setp.gt", "setp.lt", "max", "min", "redux.sync.max", "redux.sync.min", "selp", "shfl") || s.is("setp.eq") && !isNumber(s.args[2])
	})
}

// isChoice: the changed result is used for nothing but branches, and each of these may
// as well go one of its ways always.
func isChoice(q question) bool {
	f := q.m.flow(q.kernel)
	var branches []int
	switch {
	case q.was.is("bra"):
		branches = []int{q.line}
	case q.was.written() != "":
		branches = f.decides(q.line)
	}
	for _, line := range branches {
		if !q.m.idle(q.kernel, line, q.fate) {
			return false
		}
	}
	return len(branches) > 0
}

// isFill: NaN in place of a constant changes nothing either.
func isFill(q question) bool {
	if !q.was.is("mov.f32", "selp.f32") || q.fate != unseen || q.mutator != "float constant" {
		return false
	}
	for i, arg := range q.was.args {
		if !strings.HasPrefix(arg, "0f") || q.is.args[i] == arg {
			continue
		}
		for _, other := range []string{"0f7FC00000", "0f71800000"} { // NaN, 2^100
			x := q.mutant
			x.new = q.was.withArg(i, other).String()
			if q.m.probe(x) == unseen {
				return true
			}
		}
	}
	return false
}

// isFinite: a number in place of -Inf, so that Inf - Inf is not taken.
func isFinite(q question) bool {
	if !q.was.is("selp.f32") || q.fate != unseen || !slices.Contains(q.was.args[1:3], "0f00000000") {
		return false
	}
	s, ok := q.m.flow(q.kernel).definition(q.was.args[3])
	return ok && s.is("setp") && s.args[2] == "0fFF800000"
}

// isUnused: without its guard an instruction computes what is used under the guard only.
func isUnused(q question) bool {
	if q.mutator != "guard" || q.is.guard != "" || q.was.is("bra", "ret", "st", "ld", "red", "atom", "bar", "cp") {
		return false
	}
	f := q.m.flow(q.kernel)
	_, once := f.definition(q.was.written())
	return once && !slices.ContainsFunc(f.at, func(s statement) bool {
		return slices.Contains(s.reads(), q.was.written()) && s.guard != q.was.guard
	})
}

// isOnes: a product of matrices of ones.
func isOnes(q question) bool {
	return q.was.is("mma") && len(slices.Compact(registerForm.FindAllString(q.was.args[1]+q.was.args[2], -1))) == 1
}

// isXor: two numbers of which the order does not matter, as they are only added up so.
func isXor(q question) bool {
	if q.mutator != "order of a vector" || !q.was.is("ld") {
		return false
	}
	f := q.m.flow(q.kernel)
	for _, reg := range q.was.writes()[:2] {
		for _, s := range f.readers(reg) {
			if !s.is("xor") {
				return false
			}
		}
	}
	return true
}

// isOneWarp: of a kernel of one warp, the number of a thread's.
func isOneWarp(q question) bool {
	f := q.m.flow(q.kernel)
	return f.threads == 32 && q.was.is("mov") && q.was.args[1] == "%tid.x" &&
		!slices.ContainsFunc(f.readers(q.was.args[0]), func(s statement) bool { return !s.is("shr.u32") || s.args[2] != "5" })
}

// isNever: the guard always holds here, or never, but another kernel has the same
// instruction and there it is missed.
func isNever(q question) bool {
	if q.was.guard == "" || q.was.is("bra", "ret") {
		return false
	}
	stop := q.mutant
	for _, s := range []statement{q.was, turned(q.was)} {
		stop.new = statement{guard: s.guard, op: "trap"}.String()
		if q.m.probe(stop) == unseen {
			return q.m.killedElsewhere(q.mutant)
		}
	}
	return false
}

// turned has the other sense of the guard.
func turned(s statement) statement {
	if rest, ok := strings.CutPrefix(s.guard, "@!"); ok {
		s.guard = "@" + rest
	} else {
		s.guard = "@!" + s.guard[1:]
	}
	return s
}

// killedElsewhere tries the same change in other kernels with the same instruction.
func (m *mutation) killedElsewhere(x mutant) bool {
	plain := func(line string) string { return numbersForm.ReplaceAllString(line, "$1") }
	for _, k := range m.changed {
		if k.Name == x.kernel {
			continue
		}
		for _, y := range mutantsOf(k) {
			if y.mutator == x.mutator && plain(y.old) == plain(x.old) && plain(y.new) == plain(x.new) && m.probe(y) == killed {
				return true
			}
		}
	}
	return false
}

func isClamp(q question) bool {
	return q.was.is("min.f32", "max.f32") && q.mutator == "float constant" && q.fate == unseen
}

func isPointerTest(q question) bool {
	return q.mutator == "constant" && (q.was.is("setp.ne.u64", "setp.eq.u64")) && q.was.args[2] == "0"
}

// isButterfly: the masks of a butterfly need not be powers of two, but independent.
func isButterfly(q question) bool {
	if !q.was.is("shfl.sync.bfly") || q.mutator != "constant" {
		return false
	}
	a, _ := strconv.ParseUint(q.was.args[2], 10, 32)
	b, _ := strconv.ParseUint(q.is.args[2], 10, 32)
	return bits.Len64(a) == bits.Len64(b) && bits.OnesCount64(a) == 1
}
