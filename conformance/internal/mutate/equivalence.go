package mutate

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
)

// needlessBarrier looks at the accesses that only this barrier orders.
func needlessBarrier(q survivor) bool {
	return q.Mutator == LeaveOutSync && q.was.Is("bar") && q.m.flow(q.Kernel).Needless(q.line)
}

func withinBounds(q survivor) bool {
	return (floatArithmetic.MatchString(q.was.Op) || q.was.Is("cvt.rni")) && (q.Fate == withinTolerance || q.was.Op[:3] != "mov" && q.m.infects(q.Mutant))
}

// isThreshold: the comparison of a number with one that is not special, at equality.
func isThreshold(q survivor) bool {
	return q.was.Is("setp") && strings.HasSuffix(q.was.Op, ".f32") && q.Mutator == "comparison" &&
		strings.HasPrefix(q.was.Args[2], "0f") && !slices.Contains([]string{"0f00000000", "0f7F800000", "0fFF800000"}, q.was.Args[2])
}

// isGeneral: the guard might as well never hold, or always, but another kernel has
// the same one.
func isGeneral(q survivor) bool {
	if !q.was.Is("setp") || !strings.HasSuffix(q.was.Op, ".f32") || !strings.HasPrefix(q.was.Args[2], "0f") {
		return false
	}
	const nan = "0f7FC00000"
	constant := q.Mutant
	for _, op := range []string{"setp.eq.f32", "setp.neu.f32"} {
		constant.New = ptxtext.Statement{Op: op, Args: []string{q.was.Args[0], nan, nan}}.String()
		if q.m.probe(constant) != Unchanged {
			continue
		}
		for _, k := range q.m.Changed {
			if k.Name != q.Kernel && slices.ContainsFunc(q.m.flow(k.Name).At, func(s ptxtext.Statement) bool {
				return s.Op == q.was.Op && s.Args[2] == q.was.Args[2]
			}) {
				return true
			}
		}
	}
	return false
}

func isScale(q survivor) bool {
	if !q.was.Is("selp.f32", "mov.f32") || q.Mutator != "float constant" || q.Fate != Unchanged {
		return false
	}
	for i, arg := range q.was.Args {
		if q.is.Args[i] != arg {
			n, err := strconv.ParseUint(strings.TrimPrefix(arg, "0f"), 16, 32)
			return err == nil && n&0x007FFFFF == 0 && n != 0
		}
	}
	return false
}

func isNothing(q survivor) bool {
	f := q.m.flow(q.Kernel)
	if q.was.Is("and", "lop3") && q.Mutator == "constant" {
		i := slices.IndexFunc(q.was.Args, func(arg string) bool { return arg[0] != '%' })
		return i > 0 && i <= 3 && slices.ContainsFunc(q.was.Args[1:], func(arg string) bool { return arg[0] == '%' && f.Zeros(arg) > 0 })
	}
	if q.was.Is("add.u32") && q.is.Is("sub.u32") {
		return f.Most(q.was.Args[2]) == 0
	}
	if !q.was.Is("shl", "shr") {
		return false
	}
	if q.was.Is("shr.u32") && q.is.Is("shr.u32") && f.Most(q.was.Args[1]) < 32 {
		return q.was.Args[2] == "5" // a warp's number in a CTA of one
	}
	s, ok := f.Definition(q.was.Args[1])
	return ok && s.Is("mul") && slices.Contains(s.Args[1:], "0")
}

// isImplied: a comparison of 4i with n, or what is used for such ones only.
func isImplied(q survivor) bool {
	f := q.m.flow(q.Kernel)
	if q.was.Is("setp") {
		return f.ImpliesQuads(q.was)
	}
	uses := 0
	for _, s := range f.At {
		if q.was.Written() != "" && slices.Contains(s.Reads(), q.was.Written()) {
			if uses++; !f.ImpliesQuads(s) {
				return false
			}
		}
	}
	return uses > 0
}

func isOneLane(q survivor) bool {
	return q.was.Is("shfl.sync.bfly") && q.is.Is("shfl.sync.down") && q.Fate == Unchanged && q.m.infects(q.Mutant)
}

var floatArithmetic = regexp.MustCompile(`^(add|sub|mul|fma|div|neg|abs|mov|ex2|sqrt|rcp|setp\..*)\.(.*\.)?f(32|64)$`)

// onEdge: only what is equal to the bound, or next to it, takes another way.
func onEdge(q survivor) bool {
	if q.Mutator == "constant" && q.was.Is("add.u32") && len(q.m.flow(q.Kernel).Decides(q.line)) > 0 {
		return q.m.infects(q.Mutant)
	}
	if !q.was.Is("setp") || q.Mutator == "comparison" && slices.Contains([]string{"eq", "ne", "neu", "nan"}, strings.Split(q.was.Op, ".")[1]) {
		return false
	}
	return (q.Mutator == "comparison" || q.Mutator == "constant") && q.m.infects(q.Mutant)
}

// readBy reports whether all that read a changed constant's register pass a test.
func (q survivor) readBy(test func(s ptxtext.Statement) bool) bool {
	if !q.was.Is("mov.b32", "selp.b32") || q.Mutator != "constant" {
		return false
	}
	list := q.m.flow(q.Kernel).Readers(q.was.Written())
	return len(list) > 0 && !slices.ContainsFunc(list, func(s ptxtext.Statement) bool { return !test(s) })
}

// isOnce: what a loop's step changes is read in another round only, and there is none.
func isOnce(q survivor) bool {
	f := q.m.flow(q.Kernel)
	if !q.was.Is("add.u32") || q.line+2 >= len(f.At) || q.was.Args[0] != q.was.Args[1] {
		return false
	}
	test, back := f.At[q.line+1], f.At[q.line+2]
	if !test.Is("setp") || test.Args[1] != q.was.Args[0] || !back.Is("bra") || f.Next[q.line+2][0] > q.line {
		return false
	}
	return q.m.probe(Mutant{Kernel: q.Kernel, line: q.line + 2, Old: linesOf(q.m.kernels[q.Kernel])[q.line+2]}) == Unchanged
}

// isShiftedOut: a bit that a shift takes away.
func isShiftedOut(q survivor) bool {
	return q.readBy(func(s ptxtext.Statement) bool {
		return s.Is("shr.u32") && s.Args[2] != "0" && ptxtext.IsNumber(s.Args[2])
	})
}

func isTruth(q survivor) bool {
	return q.readBy(func(s ptxtext.Statement) bool { return s.Is("setp.ne.u32", "setp.eq.u32") && s.Args[2] == "0" })
}

func isStart(q survivor) bool {
	return q.was.Is("mov") && q.readBy(func(s ptxtext.Statement) bool {
		return s.Is("setp.gt", "setp.lt", "max", "min", "redux.sync.max", "redux.sync.min", "selp", "shfl") || s.Is("setp.eq") && !ptxtext.IsNumber(s.Args[2])
	})
}

// isChoice: the changed result is used for nothing but branches, and each of these may
// as well go one of its ways always.
func isChoice(q survivor) bool {
	f := q.m.flow(q.Kernel)
	var branches []int
	switch {
	case q.was.Is("bra"):
		branches = []int{q.line}
	case q.was.Written() != "":
		branches = f.Decides(q.line)
	}
	for _, line := range branches {
		if !q.m.idle(q.Kernel, line, q.Fate) {
			return false
		}
	}
	return len(branches) > 0
}

// isFill: NaN in place of a constant changes nothing either.
func isFill(q survivor) bool {
	if !q.was.Is("mov.f32", "selp.f32") || q.Fate != Unchanged || q.Mutator != "float constant" {
		return false
	}
	for i, arg := range q.was.Args {
		if !strings.HasPrefix(arg, "0f") || q.is.Args[i] == arg {
			continue
		}
		for _, other := range []string{"0f7FC00000", "0f71800000"} { // NaN, 2^100
			x := q.Mutant
			x.New = q.was.WithArg(i, other).String()
			if q.m.probe(x) == Unchanged {
				return true
			}
		}
	}
	return false
}

// isFinite: a number in place of -Inf, so that Inf - Inf is not taken.
func isFinite(q survivor) bool {
	if !q.was.Is("selp.f32") || q.Fate != Unchanged || !slices.Contains(q.was.Args[1:3], "0f00000000") {
		return false
	}
	s, ok := q.m.flow(q.Kernel).Definition(q.was.Args[3])
	return ok && s.Is("setp") && s.Args[2] == "0fFF800000"
}

// isUnused: without its guard an instruction computes what is used under the guard only.
func isUnused(q survivor) bool {
	if q.Mutator != "guard" || q.is.Guard != "" || q.was.Is("bra", "ret", "st", "ld", "red", "atom", "bar", "cp") {
		return false
	}
	f := q.m.flow(q.Kernel)
	_, once := f.Definition(q.was.Written())
	return once && !slices.ContainsFunc(f.At, func(s ptxtext.Statement) bool {
		return slices.Contains(s.Reads(), q.was.Written()) && s.Guard != q.was.Guard
	})
}

// isOnes: a product of matrices of ones.
func isOnes(q survivor) bool {
	return q.was.Is("mma") && len(slices.Compact(ptxtext.Registers.FindAllString(q.was.Args[1]+q.was.Args[2], -1))) == 1
}

// isXor: two numbers of which the order does not matter, as they are only added up so.
func isXor(q survivor) bool {
	if q.Mutator != "order of a vector" || !q.was.Is("ld") {
		return false
	}
	f := q.m.flow(q.Kernel)
	for _, reg := range q.was.Writes()[:2] {
		for _, s := range f.Readers(reg) {
			if !s.Is("xor") {
				return false
			}
		}
	}
	return true
}

// isOneWarp: of a kernel of one warp, the number of a thread's.
func isOneWarp(q survivor) bool {
	f := q.m.flow(q.Kernel)
	return f.Threads == 32 && q.was.Is("mov") && q.was.Args[1] == "%tid.x" &&
		!slices.ContainsFunc(f.Readers(q.was.Args[0]), func(s ptxtext.Statement) bool { return !s.Is("shr.u32") || s.Args[2] != "5" })
}

// isNever: the guard always holds here, or never, but another kernel has the same
// instruction and there it is missed.
func isNever(q survivor) bool {
	if q.was.Guard == "" || q.was.Is("bra", "ret") {
		return false
	}
	stop := q.Mutant
	for _, s := range []ptxtext.Statement{q.was, turned(q.was)} {
		stop.New = ptxtext.Statement{Guard: s.Guard, Op: "trap"}.String()
		if q.m.probe(stop) == Unchanged {
			return q.m.killedElsewhere(q.Mutant)
		}
	}
	return false
}

// turned has the other sense of the guard.
func turned(s ptxtext.Statement) ptxtext.Statement {
	if rest, ok := strings.CutPrefix(s.Guard, "@!"); ok {
		s.Guard = "@" + rest
	} else {
		s.Guard = "@!" + s.Guard[1:]
	}
	return s
}

// killedElsewhere tries the same change in other kernels with the same instruction.
func (m *Runner) killedElsewhere(x Mutant) bool {
	plain := func(line string) string { return numbersForm.ReplaceAllString(line, "$1") }
	for _, k := range m.Changed {
		if k.Name == x.Kernel {
			continue
		}
		for _, y := range MutantsOf(k) {
			if y.Mutator == x.Mutator && plain(y.Old) == plain(x.Old) && plain(y.New) == plain(x.New) && m.probe(y) == Killed {
				return true
			}
		}
	}
	return false
}

func isClamp(q survivor) bool {
	return q.was.Is("min.f32", "max.f32") && q.Mutator == "float constant" && q.Fate == Unchanged
}

func isPointerTest(q survivor) bool {
	return q.Mutator == "constant" && (q.was.Is("setp.ne.u64", "setp.eq.u64")) && q.was.Args[2] == "0"
}

// isButterfly: the masks of a butterfly need not be powers of two, but independent.
func isButterfly(q survivor) bool {
	if !q.was.Is("shfl.sync.bfly") || q.Mutator != "constant" {
		return false
	}
	a, _ := strconv.ParseUint(q.was.Args[2], 10, 32)
	b, _ := strconv.ParseUint(q.is.Args[2], 10, 32)
	return bits.Len64(a) == bits.Len64(b) && bits.OnesCount64(a) == 1
}

// isEither: who stores does not matter, since those that the guard keeps from it would
// store the same to the same place; but somebody must.
func isEither(q survivor) bool {
	if q.Mutator != "guard" || !q.was.Is("st") || q.Fate != Unchanged {
		return false
	}
	others, nobody := q.Mutant, q.Mutant
	others.New, nobody.New = turned(q.was).String(), ""
	return q.m.probe(others) == Unchanged && q.m.probe(nobody) != Unchanged
}

// isPowerCount: a number is compared with a power of two, and for each that it may be the
// comparison is as it was; or a guard is left out that holds for all of them.
func isPowerCount(q survivor) bool {
	if q.Mutator == "guard" && q.is.Guard == "" && strings.HasPrefix(q.was.Guard, "@%") {
		p, _ := q.m.flow(q.Kernel).Definition(strings.TrimSpace(q.was.Guard[1:]))
		q.was, q.is = p, ptxtext.Statement{Op: "setp.le.u32", Args: p.Args}
		return p.Is("setp.lt.u32") && p.Args[1] == "0" && isPowerCount(survivor{m: q.m, Mutant: Mutant{Kernel: q.Kernel}, was: q.was, is: q.is})
	}
	if !q.was.Is("setp") || !ptxtext.IsNumber(q.was.Args[1]) || ptxtext.IsNumber(q.was.Args[2]) {
		return false
	}
	n, ok := q.m.flow(q.Kernel).Definition(q.was.Args[2])
	var most int
	switch {
	case !ok:
		return false
	case n.Is("shl.b32") && n.Args[1] == "1":
		most = 31
	case n.Is("mov") && n.Args[1] == "%nctaid.z": // slices of a row, of which there are at most 16
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
func compared(s ptxtext.Statement, n uint64) (outcome, ok bool) {
	c, err := strconv.ParseUint(s.Args[1], 10, 64)
	switch {
	case err != nil:
		return false, false
	case s.Is("setp.lt.u32"):
		return c < n, true
	case s.Is("setp.le.u32"):
		return c <= n, true
	}
	return false, false
}

// isPositive: whether an argument is at least 1, which the launcher sees to, or no more
// than that it is not negative.
func isPositive(q survivor) bool {
	if !q.was.Is("setp.lt.u32") || q.was.Args[1] != "0" || !q.is.Is("setp.le.u32") || q.Fate != Unchanged {
		return false
	}
	n, ok := q.m.flow(q.Kernel).Definition(q.was.Args[2])
	return ok && n.Is("ld.param") && !q.m.infects(q.Mutant)
}

// isPair: the two halves of a compensated sum, which are only added up.
func isPair(q survivor) bool {
	if q.Mutator != "order of a vector" || !q.was.Is("st.shared.v2.f32") || q.Fate != withinTolerance {
		return false
	}
	f := q.m.flow(q.Kernel)
	for _, reg := range ptxtext.Registers.FindAllString(q.was.Args[1], -1) {
		if s, ok := f.Definition(reg); !ok || !s.Is("add.rn.f32") {
			return false
		}
	}
	return true
}

// isHandover: where one way hands over to another that holds everywhere, at a bound that
// is a little off.
func isHandover(q survivor) bool {
	if !q.was.Is("setp") || !strings.HasSuffix(q.was.Op, ".f32") || q.Mutator != "float constant" {
		return false
	}
	f := q.m.flow(q.Kernel)
	branches := f.Decides(q.line)
	for _, line := range branches {
		if !q.m.idle(q.Kernel, line, withinTolerance) {
			return false
		}
	}
	return len(branches) > 0
}

// needlessOnce: a barrier that only a further round of a loop needs, where there is none.
func needlessOnce(q survivor) bool {
	if q.Mutator != LeaveOutSync || !q.was.Is("bar") || q.Fate != Unchanged {
		return false
	}
	f := q.m.flow(q.Kernel)
	steps := make([][]int, len(f.Next))
	copy(steps, f.Next)
	cut := false
	for i, s := range f.At {
		if i <= q.line || !s.Is("bra") || f.Next[i][0] > q.line || s.Guard == "" {
			continue
		}
		if q.m.probe(Mutant{Kernel: q.Kernel, line: i, Old: linesOf(q.m.kernels[q.Kernel])[i]}) == Unchanged {
			steps[i], cut = []int{i + 1}, true
		}
	}
	f.Next = steps
	return cut && f.Needless(q.line)
}

// isSign: an arithmetic shift by 32 leaves the sign, as one by 31 does.
func isSign(q survivor) bool {
	return q.was.Is("shr.s32") && q.is.Is("shr.s32") && q.was.Args[2] == "31" && q.is.Args[2] == "32"
}

// isMasked: the first block's number is a quotient by a power of two, here by a larger one.
// That it shows nowhere counts only where the window does hide whole blocks.
func isMasked(q survivor) bool {
	if !strings.HasPrefix(q.Kernel, "flash_attention") || !q.was.Is("shr.u32") || !q.is.Is("shr.u32") || !ptxtext.IsNumber(q.was.Args[2]) {
		return false
	}
	first := q.Mutant
	first.New = q.was.WithArg(2, "31").String()
	return q.Fate == Unchanged && q.m.infects(first) && q.m.probe(first) == Unchanged
}

// isSlice: a loop over the blocks of a vector begins with the first of all, or with the
// slice's, which is as many warps further on: a warp comes to the same ones, of which it copies
// those of the slice. What is not in the slice is in another CTA's, whose result would show it.
func isSlice(q survivor) bool {
	if q.Kernel != "gemv_digits" && q.Kernel != "gemv_digits_wide" || !q.was.Is("selp.b32") || !q.is.Is("selp.b32") {
		return false
	}
	swapped := q.was.Args[1] == q.is.Args[2] && q.was.Args[2] == q.is.Args[1]
	return swapped && q.was.Args[1] == "0" && q.Fate == Unchanged && q.m.infects(q.Mutant)
}

// rule says why mutants of a class mean the same, though no case tells them from the
// kernel as it is.
type rule struct {
	name   string
	reason string
	holds  func(q survivor) bool
}

// question is a mutant that lives.
type survivor struct {
	m *Runner
	Mutant
	Fate
	was, is ptxtext.Statement // the instruction
}

var rules = []rule{
	{"bounds", "floating-point arithmetic that gives other bits within the bounds, which say what is right, or that a later rounding takes away", withinBounds},
	{"threshold", "where one approximation hands over to another both hold", isThreshold},
	{"general", "a function guards against arguments that this kernel does not have and another one has", isGeneral},
	{"power of two", "a scale that is a power of two cancels without a rounding", isScale},
	{"sign", "a sum of squares is its own magnitude", func(q survivor) bool { return q.was.Is("abs") && !q.m.infects(q.Mutant) }},
	{"nothing", "a multiple of 0, or a bit that is 0", isNothing},
	{"shifted out", "the lowest bit of what is only shifted right", isShiftedOut},
	{"finite", "any finite number in place of -Inf, whose weight is 0", isFinite},
	{"unused", "without its guard, what is computed is used under the guard only", isUnused},
	{"ones", "all elements of a product of ones are equal", isOnes},
	{"xor", "the order of what is put together by xor", isXor},
	{"one warp", "the number of a thread's warp where there is one", isOneWarp},
	{"never", "a guard that all rows of this format's blocks pass; another kernel needs it, and the change is killed there", isNever},
	{"quads", "4i < n for each i < ceil(n/4)", isImplied},
	{"one lane", "of a reduction that one lane takes further, only its tree matters", isOneLane},
	{"edge", "a bound that is checked again: what lies on it did go the other way, and no bit changed", onEdge},
	{"truth", "a number that is only compared with 0", isTruth},
	{"start", "the start of a maximum or a minimum, beyond all that comes", isStart},
	{"once", "a loop of which no second round is taken, which the launcher's bounds rule out", isOnce},
	{"choice", "two ways to the same: to take the general one always changes no bit, and where the other is wrong it traps", isChoice},
	{"fill", "what stands beyond the end of a row or a list: not even NaN in its place is seen", isFill},
	{"saturation", "a clamp beyond the point where what follows is constant in float32", isClamp},
	{"barrier", "a barrier that no two accesses need: none before it, back to the last one, conflicts with one after it, up to the next", needlessBarrier},
	{"last round", "a barrier that only a further round of a loop needs, of which the launcher's bounds allow none", needlessOnce},
	{"either", "several threads would store the same to the same place: it does not matter which of them do", isEither},
	{"power", "a number that is compared with a power of two: for none of these it goes the other way", isPowerCount},
	{"sign of a shift", "an arithmetic shift by 32 leaves the sign, as one by 31 does", isSign},
	{"positive", "an argument that the launcher holds to at least 1", isPositive},
	{"pair", "the two halves of a compensated sum, which are only added up", isPair},
	{"handover", "where one way hands over to another, and that one holds everywhere", isHandover},
	{"butterfly", "each lane still gets every lane's part once, in another order", isButterfly},
	{"pointer", "no pointer is 1", isPointerTest},
	{"masked", "attention that begins with a sooner block of keys: to begin with the very first, where the window hides blocks, changes no bit", isMasked},
	{"slice", "a loop that begins sooner, with what is another CTA's and left out", isSlice},
	{"early end", "a thread without work that goes on does none, under an emulator that traps all that is not allowed", func(q survivor) bool {
		return q.Mutator == "return left out"
	}},
}

// ruleOf names the rule by which a mutant is equivalent; "" if none.
func (m *Runner) ruleOf(v Verdict) string {
	if v.Fate == unreached && m.unreachable(v.Mutant) {
		return unreachableRule.name
	}
	if v.Fate != withinTolerance && v.Fate != Unchanged {
		return ""
	}
	q := survivor{m: m, Mutant: v.Mutant, Fate: v.Fate}
	q.was, _ = ptxtext.Parse(q.Old)
	q.is, _ = ptxtext.Parse(q.New)
	for _, r := range rules {
		if r.holds(q) {
			return r.name
		}
	}
	return ""
}

// idle reports whether a branch may always be taken, or never, as far as the cases see.
func (m *Runner) idle(kernel string, line int, most Fate) bool {
	old := linesOf(m.kernels[kernel])[line]
	s, _ := ptxtext.Parse(old)
	always := s
	always.Guard = ""
	ways := []string{always.String(), ""}
	if s.Is("selp") {
		move := "mov" + strings.TrimPrefix(s.Op, "selp")
		ways = []string{ptxtext.Statement{Guard: s.Guard, Op: move, Args: []string{s.Args[0], s.Args[1]}}.String(), ptxtext.Statement{Guard: s.Guard, Op: move, Args: []string{s.Args[0], s.Args[2]}}.String()}
	}
	for _, next := range ways {
		x := Mutant{Kernel: kernel, line: line, Old: old, New: next}
		if got := m.probe(x); got == Unchanged || got == unreached || got == most {
			return true
		}
	}
	return false
}

// infects reports whether the changed instruction gives another result in some case.
func (m *Runner) infects(x Mutant) bool {
	was, _ := ptxtext.Parse(x.Old)
	is, _ := ptxtext.Parse(x.New)
	to := was.Written()
	if to == "" || is.Written() != to || was.Guard != "" || len(to) < 2 {
		return true // not known
	}
	different, ok := map[byte]string{
		'p': "\txor.pred %other, %%pp, %s;\n",
		'r': "\tsetp.ne.u32 %other, %%rr, %s;\n",
		'd': "\tsetp.ne.u64 %other, %%dd, %s;\n",
		'g': "\tmov.b64 %dd, %gg;\n\tmov.b64 %de, %s;\n\tsetp.ne.u64 %other, %dd, %de;\n",
		'f': "\tmov.b32 %rr, %ff;\n\tmov.b32 %rs, %s;\n\tsetp.ne.u32 %other, %rr, %rs;\n",
	}[to[1]]
	if !ok {
		return true
	}
	spare := "%" + strings.Repeat(to[1:2], 2)
	y := x
	y.New = is.WithArg(0, spare).String() + "\n" + x.Old + "\n" + strings.NewReplacer("%%", "%", "%s", to).Replace(different) + "\t@%other trap;"
	y.declare = "\t.reg .pred %other, %pp;\n\t.reg .b32 %rr, %rs;\n\t.reg .b64 %dd, %de;\n\t.reg .f32 %ff;\n\t.reg .f64 %gg;\n"
	return m.probe(y) == Killed
}

// probe is the fate of a mutant that a rule asks for.
func (m *Runner) probe(x Mutant) Fate {
	key := fmt.Sprint(x.Kernel, x.line, x.New)
	if f, ok := m.probed.Load(key); ok {
		return f.(Fate)
	}
	cases := m.coverage.reaching(x.Kernel, x.line)
	if len(cases) == 0 {
		return unreached
	}
	f := m.run(x, cases).Fate
	m.probed.Store(key, f)
	return f
}

// unreachableRule is about code that no case runs: it must be shown that none can.
var unreachableRule = rule{
	"unreachable", "the tail of rows that are whole units, at addresses that are aligned", nil,
}

// unreachable reports whether every way from what cases run to a line is closed by a
// predicate that holds.
func (m *Runner) unreachable(x Mutant) bool {
	f := m.flow(x.Kernel)
	before := f.Previous()
	seen, todo, ways := map[int]bool{x.line: true}, []int{x.line}, 0
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range before[i] {
			switch {
			case seen[n]:
			case len(m.coverage.reaching(x.Kernel, n)) == 0:
				seen[n] = true
				todo = append(todo, n)
			default:
				ways++
				p, turned := strings.CutPrefix(strings.TrimSpace(f.At[n].Guard), "@!")
				if !turned || !f.Holds(p) || f.Next[n][0] != i {
					return false
				}
			}
		}
	}
	return ways > 0
}

// flow reads a kernel, once.
func (m *Runner) flow(kernel string) ptxtext.Flow {
	if f, ok := m.flows.Load(kernel); ok {
		return f.(ptxtext.Flow)
	}
	f := ptxtext.FlowOf(linesOf(m.kernels[kernel]))
	m.flows.Store(kernel, f)
	return f
}
