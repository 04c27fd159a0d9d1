package conformance

import (
	"strconv"
	"strings"
)

// isEither: who stores does not matter, since those that the guard keeps from it would
// store the same to the same place; but somebody must.
func isEither(q question) bool {
	if q.mutator != "guard" || !q.was.is("st") || q.fate != unseen {
		return false
	}
	others, nobody := q.mutant, q.mutant
	others.new, nobody.new = turned(q.was).String(), ""
	return q.m.probe(others) == unseen && q.m.probe(nobody) != unseen
}

// isPowerCount: a number is compared with a power of two, and for each that it may be the
// comparison is as it was; or a guard is left out that holds for all of them.
func isPowerCount(q question) bool {
	if q.mutator == "guard" && q.is.guard == "" && strings.HasPrefix(q.was.guard, "@%") {
		p, _ := q.m.flow(q.kernel).definition(strings.TrimSpace(q.was.guard[1:]))
		q.was, q.is = p, statement{op: "setp.le.u32", args: p.args}
		return p.is("setp.lt.u32") && p.args[1] == "0" && isPowerCount(question{m: q.m, mutant: mutant{kernel: q.kernel}, was: q.was, is: q.is})
	}
	if !q.was.is("setp") || !isNumber(q.was.args[1]) || isNumber(q.was.args[2]) {
		return false
	}
	n, ok := q.m.flow(q.kernel).definition(q.was.args[2])
	var most int
	switch {
	case !ok:
		return false
	case n.is("shl.b32") && n.args[1] == "1":
		most = 31
	case n.is("mov") && n.args[1] == "%nctaid.z": // slices of a row, of which there are at most 16
		most = 4
	default:
		return false
	}
	for log := range most + 1 {
		was, ok1 := compared(q.was, 1<<log)
		is, ok2 := compared(q.is, 1<<log)
		if !ok1 || !ok2 || was != is {
			return false
		}
	}
	return true
}

// compared is the outcome of a comparison of a constant with n.
func compared(s statement, n uint64) (outcome, ok bool) {
	c, err := strconv.ParseUint(s.args[1], 10, 64)
	switch {
	case err != nil:
		return false, false
	case s.is("setp.lt.u32"):
		return c < n, true
	case s.is("setp.le.u32"):
		return c <= n, true
	}
	return false, false
}

// isPositive: whether an argument is at least 1, which the launcher sees to, or no more
// than that it is not negative.
func isPositive(q question) bool {
	if !q.was.is("setp.lt.u32") || q.was.args[1] != "0" || !q.is.is("setp.le.u32") || q.fate != unseen {
		return false
	}
	n, ok := q.m.flow(q.kernel).definition(q.was.args[2])
	return ok && n.is("ld.param") && !q.m.infects(q.mutant)
}

// isPair: the two halves of a compensated sum, which are only added up.
func isPair(q question) bool {
	if q.mutator != "order of a vector" || !q.was.is("st.shared.v2.f32") || q.fate != tolerated {
		return false
	}
	f := q.m.flow(q.kernel)
	for _, reg := range registerForm.FindAllString(q.was.args[1], -1) {
		if s, ok := f.definition(reg); !ok || !s.is("add.rn.f32") {
			return false
		}
	}
	return true
}

// isHandover: where one way hands over to another that holds everywhere, at a bound that
// is a little off.
func isHandover(q question) bool {
	if !q.was.is("setp") || !strings.HasSuffix(q.was.op, ".f32") || q.mutator != "float constant" {
		return false
	}
	f := q.m.flow(q.kernel)
	branches := f.decides(q.line)
	for _, line := range branches {
		if !q.m.idle(q.kernel, line, tolerated) {
			return false
		}
	}
	return len(branches) > 0
}

// needlessOnce: a barrier that only a further round of a loop needs, where there is none.
func needlessOnce(q question) bool {
	if q.mutator != dropSync || !q.was.is("bar") || q.fate != unseen {
		return false
	}
	f := q.m.flow(q.kernel)
	steps := make([][]int, len(f.next))
	copy(steps, f.next)
	cut := false
	for i, s := range f.at {
		if i <= q.line || !s.is("bra") || f.next[i][0] > q.line || s.guard == "" {
			continue
		}
		if q.m.probe(mutant{kernel: q.kernel, line: i, old: linesOf(q.m.kernels[q.kernel])[i]}) == unseen {
			steps[i], cut = []int{i + 1}, true
		}
	}
	f.next = steps
	return cut && f.needless(q.line)
}

// isSign: an arithmetic shift by 32 leaves the sign, as one by 31 does.
func isSign(q question) bool {
	return q.was.is("shr.s32") && q.is.is("shr.s32") && q.was.args[2] == "31" && q.is.args[2] == "32"
}

// isMasked: the first block's number is a quotient by a power of two, here by a larger one.
// That it shows nowhere counts only where the window does hide whole blocks.
func isMasked(q question) bool {
	if !strings.HasPrefix(q.kernel, "flash_attention") || !q.was.is("shr.u32") || !q.is.is("shr.u32") || !isNumber(q.was.args[2]) {
		return false
	}
	first := q.mutant
	first.new = q.was.withArg(2, "31").String()
	return q.fate == unseen && q.m.infects(first) && q.m.probe(first) == unseen
}

// isSlice: a loop over the blocks of a vector begins with the first of all, or with the
// slice's, which is as many warps further on: a warp comes to the same ones, of which it copies
// those of the slice. What is not in the slice is in another CTA's, whose result would show it.
func isSlice(q question) bool {
	if q.kernel != "gemv_digits" && q.kernel != "gemv_digits_wide" || !q.was.is("selp.b32") || !q.is.is("selp.b32") {
		return false
	}
	swapped := q.was.args[1] == q.is.args[2] && q.was.args[2] == q.is.args[1]
	return swapped && q.was.args[1] == "0" && q.fate == unseen && q.m.infects(q.mutant)
}
