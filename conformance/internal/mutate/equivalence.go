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

// rule is a proof that a mutant computes the same as the kernel. holds receives only
// mutants that no case killed.
type rule struct {
	name   string
	reason string
	holds  func(q survivor) bool
}

// survivor is a mutant that no case killed.
type survivor struct {
	m       *Runner
	mutant  Mutant
	fate    Fate
	was, is ptxtext.Statement // the instruction before and after the change
}

var rules = []rule{
	{"bounds", "arithmetic on floats whose other bits are within the bounds, or that a later rounding removes", withinBounds},
	{"threshold", "both approximations are accurate where one hands over to the other", isThreshold},
	{"general", "a check for arguments that this kernel never gets; another kernel has the same check", isGeneral},
	{"power of two", "a scale by a power of two that cancels exactly", isScale},
	{"sign", "the absolute value of a sum of squares", func(q survivor) bool { return q.was.Is("abs") && !q.m.infects(q.mutant) }},
	{"nothing", "a multiple of 0, or a bit that is always 0", isNothing},
	{"shifted out", "the lowest bit of a value that is only shifted right", isShiftedOut},
	{"finite", "a finite number instead of -Inf, whose weight is 0", isFinite},
	{"unused", "an unguarded result that is read only under the same guard", isUnused},
	{"ones", "a product of matrices whose elements are all 1", isOnes},
	{"xor", "the order of values that are combined by xor", isXor},
	{"one warp", "the warp index in a CTA of one warp", isOneWarp},
	{"never", "a guard that is constant for this kernel's inputs; the same mutant of another kernel is killed", isNever},
	{"vec4", "4i < n for each i < ceil(n/4)", isImplied},
	{"one lane", "a warp reduction of which only one lane's result is used", isOneLane},
	{"edge", "a bound that is checked again: values on the edge take the other path and no bit changes", onEdge},
	{"truth", "a number that is only compared with 0", isTruth},
	{"low key", "a chosen expert whose key ties with those of NaNs, behind 32 lower indices that win the tie", isLowKey},
	{"start", "the initial value of a maximum or minimum, beyond all inputs", isStart},
	{"once", "a loop whose second iteration the launch bounds exclude", isOnce},
	{"choice", "a branch between two paths with equal results", isChoice},
	{"fill", "padding after a row or a list: even NaN there changes nothing", isFill},
	{"any value", "an integer that is replaced or loses before it is read: even two other numbers there change nothing", isAnyValue},
	{"every index", "a mask of a thread index whose comparisons have the same outcome for every thread", isEveryIndex},
	{"one side", "a bound above numbers that are never positive", isOneSide},
	{"masked copy", "the zero fill of an asynchronous copy into masked elements: even the whole source there changes nothing", isMaskedCopy},
	{"saturation", "a clamp beyond the point at which the function is constant in float32", isClamp},
	{"barrier", "a barrier that orders no two conflicting accesses between the barriers around it", needlessBarrier},
	{"last iteration", "a barrier that only another loop iteration would need; the launch bounds exclude it", needlessOnce},
	{"either", "several threads store the same value to the same address", isEither},
	{"power", "a comparison with a power of two whose outcome is the same for all of them", isPowerCount},
	{"sign of a shift", "an arithmetic shift by 32 instead of 31", isSign},
	{"positive", "a check of an argument that the launch code requires to be positive", isPositive},
	{"pair", "the order of the two parts of a compensated sum", isPair},
	{"handover", "a bound at which one path hands over to another that is valid everywhere", isHandover},
	{"butterfly", "shuffle masks that still combine every lane once, in another order", isButterfly},
	{"pointer", "a comparison of a pointer with 1 instead of 0", isPointerTest},
	{"masked", "attention that starts at an earlier block, which the window masks", isMasked},
	{"slice", "a loop that starts earlier, at elements that it skips", isSlice},
	{"early end", "an idle thread that does not return early; the emulator traps any illegal access", func(q survivor) bool {
		return q.mutant.Mutator == "return left out"
	}},
}

// ruleOf returns the name of the rule that proves a mutant equivalent, or "".
func (m *Runner) ruleOf(v Verdict) string {
	if v.Fate == unreached && m.unreachable(v.Mutant) {
		return unreachableRule.name
	}
	if v.Fate != withinTolerance && v.Fate != Unchanged {
		return ""
	}
	q := survivor{m: m, mutant: v.Mutant, fate: v.Fate}
	q.was, _ = ptxtext.Parse(q.mutant.Old)
	q.is, _ = ptxtext.Parse(q.mutant.New)
	for _, r := range rules {
		if r.holds(q) {
			return r.name
		}
	}
	return ""
}

// idle reports whether a branch could always go one way, or a selection always choose one
// operand. The results of the cases must then stay the same, or have the fate allowed.
func (m *Runner) idle(kernel string, line int, allowed Fate) bool {
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
		if got := m.probe(x); got == Unchanged || got == unreached || got == allowed {
			return true
		}
	}
	return false
}

// infects reports whether the changed instruction gives another result in some case, even
// if that result does not reach an output.
func (m *Runner) infects(x Mutant) bool {
	was, _ := ptxtext.Parse(x.Old)
	is, _ := ptxtext.Parse(x.New)
	to := was.Written()
	if to == "" || is.Written() != to || was.Guard != "" || len(to) < 2 {
		return true // cannot be observed
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

// probe returns the fate of a mutant that a rule constructs.
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

// unreachableRule covers code that no case runs, if no input can reach it.
var unreachableRule = rule{
	"unreachable", "a tail path that aligned addresses and whole rows never take", nil,
}

// unreachable reports whether a predicate that is always true blocks each path from code that
// some case runs to the mutant.
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
				if !turned || !f.AlwaysTrue(p) || f.Next[n][0] != i {
					return false
				}
			}
		}
	}
	return ways > 0
}

// flow returns the control-flow graph of a kernel.
func (m *Runner) flow(kernel string) ptxtext.Flow {
	if f, ok := m.flows.Load(kernel); ok {
		return f.(ptxtext.Flow)
	}
	f := ptxtext.FlowOf(linesOf(m.kernels[kernel]))
	m.flows.Store(kernel, f)
	return f
}

func needlessBarrier(q survivor) bool {
	return q.mutant.Mutator == LeaveOutSync && q.was.Is("bar") && q.m.flow(q.mutant.Kernel).BarrierNeedless(q.mutant.line)
}

func withinBounds(q survivor) bool {
	return (floatArithmetic.MatchString(q.was.Op) || q.was.Is("cvt.rni")) && (q.fate == withinTolerance || q.was.Op[:3] != "mov" && q.m.infects(q.mutant))
}

// isThreshold: a float comparison changes only for operands equal to its constant, which is
// neither 0 nor infinite.
func isThreshold(q survivor) bool {
	return q.was.Is("setp") && strings.HasSuffix(q.was.Op, ".f32") && q.mutant.Mutator == "comparison" &&
		strings.HasPrefix(q.was.Args[2], "0f") && !slices.Contains([]string{"0f00000000", "0f7F800000", "0fFF800000"}, q.was.Args[2])
}

// isGeneral: replacing the check by true, or by false, changes no result of this kernel, and
// another kernel contains the same check.
func isGeneral(q survivor) bool {
	if !q.was.Is("setp") || !strings.HasSuffix(q.was.Op, ".f32") || !strings.HasPrefix(q.was.Args[2], "0f") {
		return false
	}
	const nan = "0f7FC00000"
	constant := q.mutant
	for _, op := range []string{"setp.eq.f32", "setp.neu.f32"} {
		constant.New = ptxtext.Statement{Op: op, Args: []string{q.was.Args[0], nan, nan}}.String()
		if q.m.probe(constant) != Unchanged {
			continue
		}
		for _, k := range q.m.Changed {
			if k.Name != q.mutant.Kernel && slices.ContainsFunc(q.m.flow(k.Name).At, func(s ptxtext.Statement) bool {
				return s.Op == q.was.Op && s.Args[2] == q.was.Args[2]
			}) {
				return true
			}
		}
	}
	return false
}

func isScale(q survivor) bool {
	if !q.was.Is("selp.f32", "mov.f32") || q.mutant.Mutator != "float constant" || q.fate != Unchanged {
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
	f := q.m.flow(q.mutant.Kernel)
	if q.was.Is("and", "lop3") && q.mutant.Mutator == "constant" {
		i := slices.IndexFunc(q.was.Args, func(arg string) bool { return arg[0] != '%' })
		return i > 0 && i <= 3 && slices.ContainsFunc(q.was.Args[1:], func(arg string) bool { return arg[0] == '%' && f.TrailingZeros(arg) > 0 })
	}
	if q.was.Is("add.u32") && q.is.Is("sub.u32") {
		return f.UpperBound(q.was.Args[2]) == 0
	}
	if !q.was.Is("shl", "shr") {
		return false
	}
	if q.is.Args[1] == q.was.Args[1] && f.UpperBound(q.was.Args[1]) == 0 {
		return true
	}
	if q.was.Is("shr.u32") && q.is.Is("shr.u32") && f.UpperBound(q.was.Args[1]) < 32 {
		return q.was.Args[2] == "5" // the warp index in a CTA of one warp
	}
	s, ok := f.Definition(q.was.Args[1])
	return ok && s.Is("mul") && slices.Contains(s.Args[1:], "0")
}

// isImplied: a comparison of 4i with n, or a value that only such comparisons read.
func isImplied(q survivor) bool {
	f := q.m.flow(q.mutant.Kernel)
	if q.was.Is("setp") {
		return f.IsVec4Bound(q.was)
	}
	uses := 0
	for _, s := range f.At {
		if q.was.Written() != "" && slices.Contains(s.Reads(), q.was.Written()) {
			if uses++; !f.IsVec4Bound(s) {
				return false
			}
		}
	}
	return uses > 0
}

func isOneLane(q survivor) bool {
	return q.was.Is("shfl.sync.bfly") && q.is.Is("shfl.sync.down") && q.fate == Unchanged && q.m.infects(q.mutant)
}

var floatArithmetic = regexp.MustCompile(`^(add|sub|mul|fma|div|neg|abs|mov|ex2|sqrt|rcp|setp\..*)\.(.*\.)?f(32|64)$`)

// onEdge: only values at the bound or next to it take the other path.
func onEdge(q survivor) bool {
	if q.mutant.Mutator == "constant" && q.was.Is("add.u32") && len(q.m.flow(q.mutant.Kernel).Controls(q.mutant.line)) > 0 {
		return q.m.infects(q.mutant)
	}
	if !q.was.Is("setp") || q.mutant.Mutator == "comparison" && slices.Contains([]string{"eq", "ne", "neu", "nan"}, strings.Split(q.was.Op, ".")[1]) {
		return false
	}
	return (q.mutant.Mutator == "comparison" || q.mutant.Mutator == "constant") && q.m.infects(q.mutant)
}

// readBy reports whether all readers of a changed constant pass test.
func (q survivor) readBy(test func(s ptxtext.Statement) bool) bool {
	if !q.was.Is("mov.b32", "selp.b32") || q.mutant.Mutator != "constant" {
		return false
	}
	list := q.m.flow(q.mutant.Kernel).Readers(q.was.Written())
	return len(list) > 0 && !slices.ContainsFunc(list, func(s ptxtext.Statement) bool { return !test(s) })
}

// isOnce: only a second loop iteration would read the changed counter, and there is none.
func isOnce(q survivor) bool {
	f := q.m.flow(q.mutant.Kernel)
	if !q.was.Is("add.u32") || q.mutant.line+2 >= len(f.At) || q.was.Args[0] != q.was.Args[1] {
		return false
	}
	test, back := f.At[q.mutant.line+1], f.At[q.mutant.line+2]
	if !test.Is("setp") || test.Args[1] != q.was.Args[0] || !back.Is("bra") || f.Next[q.mutant.line+2][0] > q.mutant.line {
		return false
	}
	return q.m.probe(Mutant{Kernel: q.mutant.Kernel, line: q.mutant.line + 2, Old: linesOf(q.m.kernels[q.mutant.Kernel])[q.mutant.line+2]}) == Unchanged
}

// isShiftedOut: all readers shift the changed bit out.
func isShiftedOut(q survivor) bool {
	return q.readBy(func(s ptxtext.Statement) bool {
		return s.Is("shr.u32") && s.Args[2] != "0" && ptxtext.IsNumber(s.Args[2])
	})
}

func isTruth(q survivor) bool {
	return q.readBy(func(s ptxtext.Statement) bool { return s.Is("setp.ne.u32", "setp.eq.u32") && s.Args[2] == "0" })
}

// isLowKey: the router sets the key of a chosen expert to 0, below the 1 of a NaN. A 1 ties
// with NaNs, and the lowest index wins. At most 32 experts are chosen, so an expert with 32
// lower indices never wins.
func isLowKey(q survivor) bool {
	if !strings.HasPrefix(q.mutant.Kernel, "moe_route") || q.mutant.Mutator != "constant" || !q.was.Is("selp.b32") || q.is.Args[1] != "1" {
		return false
	}
	f := q.m.flow(q.mutant.Kernel)
	chosen, ok := f.Definition(q.was.Args[3])
	if !ok || !chosen.Is("setp.eq.u32") {
		return false
	}
	index, ok := f.Definition(chosen.Args[2])
	if !ok || !index.Is("add.u32") {
		return false
	}
	lower, err := strconv.Atoi(index.Args[2])
	return err == nil && lower >= 32
}

func isStart(q survivor) bool {
	return q.was.Is("mov") && q.readBy(func(s ptxtext.Statement) bool {
		return s.Is("setp.gt", "setp.lt", "max", "min", "redux.sync.max", "redux.sync.min", "selp", "shfl") || s.Is("setp.eq") && !ptxtext.IsNumber(s.Args[2])
	})
}

// isChoice: only branches depend on the changed result, and each could always go one way.
func isChoice(q survivor) bool {
	f := q.m.flow(q.mutant.Kernel)
	var branches []int
	switch {
	case q.was.Is("bra"):
		branches = []int{q.mutant.line}
	case q.was.Written() != "":
		branches = f.Controls(q.mutant.line)
	}
	for _, line := range branches {
		if !q.m.idle(q.mutant.Kernel, line, q.fate) {
			return false
		}
	}
	return len(branches) > 0
}

// isFill: NaN or 2^100 instead of the constant changes no bit either.
func isFill(q survivor) bool {
	if !q.was.Is("mov.f32", "selp.f32") || q.fate != Unchanged || q.mutant.Mutator != "float constant" {
		return false
	}
	for i, arg := range q.was.Args {
		if !strings.HasPrefix(arg, "0f") || q.is.Args[i] == arg {
			continue
		}
		for _, other := range []string{"0f7FC00000", "0f71800000"} { // NaN, 2^100
			x := q.mutant
			x.New = q.was.WithArg(i, other).String()
			if q.m.probe(x) == Unchanged {
				return true
			}
		}
	}
	return false
}

// isAnyValue: other integers instead of the constant, one of them as large as an index can be,
// change no bit either.
func isAnyValue(q survivor) bool {
	if !q.was.Is("mov.b32", "selp.b32") || q.fate != Unchanged || q.mutant.Mutator != "constant" {
		return false
	}
	for i, arg := range q.was.Args {
		if q.is.Args[i] == arg {
			continue
		}
		for _, other := range []string{"1234567", "2147483647"} {
			x := q.mutant
			x.New = q.was.WithArg(i, other).String()
			if q.m.probe(x) != Unchanged {
				return false
			}
		}
	}
	return true
}

// isEveryIndex: all readers of the masked index are comparisons with constants, whose outcomes
// are the same for every value that the index can have.
func isEveryIndex(q survivor) bool {
	if !q.was.Is("and.b32") || q.mutant.Mutator != "constant" {
		return false
	}
	f := q.m.flow(q.mutant.Kernel)
	most := f.UpperBound(q.was.Args[1])
	was, err1 := strconv.ParseUint(q.was.Args[2], 10, 32)
	is, err2 := strconv.ParseUint(q.is.Args[2], 10, 32)
	readers := f.Readers(q.was.Written())
	if err1 != nil || err2 != nil || most > 1023 || len(readers) == 0 {
		return false
	}
	for _, s := range readers {
		bound, err := strconv.ParseUint(s.Args[2], 10, 32)
		if err != nil || !s.Is("setp.ge.u32", "setp.lt.u32") {
			return false
		}
		for i := range most + 1 {
			if (i&was < bound) != (i&is < bound) {
				return false
			}
		}
	}
	return true
}

// isOneSide: the compared number is not above 0 in any case, and the bound is positive before and
// after the change.
func isOneSide(q survivor) bool {
	if !q.was.Is("setp.gt.f32") || q.mutant.Mutator != "float constant" || q.fate != Unchanged {
		return false
	}
	if n, err := strconv.ParseUint(strings.TrimPrefix(q.was.Args[2], "0f"), 16, 31); err != nil || n == 0 {
		return false // not positive
	}
	x := q.mutant
	x.New = q.was.WithArg(0, "%pp").WithArg(2, "0f00000000").String() + "\n\t@%pp trap;\n" + x.Old
	x.declare = "\t.reg .pred %pp;\n"
	return q.m.probe(x) == Unchanged
}

// isMaskedCopy: the changed byte count of an asynchronous copy is not 0 in some case, and
// copying the whole source, which may be uninitialized, changes no bit either.
func isMaskedCopy(q survivor) bool {
	if !q.was.Is("selp.b32") || q.mutant.Mutator != "constant" || q.was.Args[2] != "0" || q.fate != Unchanged {
		return false
	}
	for _, s := range q.m.flow(q.mutant.Kernel).Readers(q.was.Written()) {
		if !s.Is("cp.async") {
			return false
		}
	}
	whole := q.mutant
	whole.New = q.was.WithArg(2, q.was.Args[1]).String()
	return q.m.infects(q.mutant) && q.m.probe(whole) == Unchanged
}

// isFinite: 0 replaces -Inf, which avoids Inf - Inf; any finite number would do.
func isFinite(q survivor) bool {
	if !q.was.Is("selp.f32") || q.fate != Unchanged || !slices.Contains(q.was.Args[1:3], "0f00000000") {
		return false
	}
	s, ok := q.m.flow(q.mutant.Kernel).Definition(q.was.Args[3])
	return ok && s.Is("setp") && s.Args[2] == "0fFF800000"
}

// isUnused: the unguarded instruction's result is read only under the same guard.
func isUnused(q survivor) bool {
	if q.mutant.Mutator != "guard" || q.is.Guard != "" || q.was.Is("bra", "ret", "st", "ld", "red", "atom", "bar", "cp") {
		return false
	}
	f := q.m.flow(q.mutant.Kernel)
	_, once := f.Definition(q.was.Written())
	return once && !slices.ContainsFunc(f.At, func(s ptxtext.Statement) bool {
		return slices.Contains(s.Reads(), q.was.Written()) && s.Guard != q.was.Guard
	})
}

// isOnes: a matrix product whose operand registers are all the same.
func isOnes(q survivor) bool {
	return q.was.Is("mma") && len(slices.Compact(ptxtext.Registers.FindAllString(q.was.Args[1]+q.was.Args[2], -1))) == 1
}

// isXor: only xor reads the exchanged values.
func isXor(q survivor) bool {
	if q.mutant.Mutator != "order of a vector" || !q.was.Is("ld") {
		return false
	}
	f := q.m.flow(q.mutant.Kernel)
	for _, reg := range q.was.Writes()[:2] {
		for _, s := range f.Readers(reg) {
			if !s.Is("xor") {
				return false
			}
		}
	}
	return true
}

// isOneWarp: tid.x is read only to compute the warp index, in a kernel of one warp.
func isOneWarp(q survivor) bool {
	f := q.m.flow(q.mutant.Kernel)
	return f.Threads == 32 && q.was.Is("mov") && q.was.Args[1] == "%tid.x" &&
		!slices.ContainsFunc(f.Readers(q.was.Args[0]), func(s ptxtext.Statement) bool { return !s.Is("shr.u32") || s.Args[2] != "5" })
}

// isNever: the guard is always true or always false for this kernel's inputs, and a case of
// another kernel kills the same mutant.
func isNever(q survivor) bool {
	if q.was.Guard == "" || q.was.Is("bra", "ret") {
		return false
	}
	stop := q.mutant
	for _, s := range []ptxtext.Statement{q.was, negated(q.was)} {
		stop.New = ptxtext.Statement{Guard: s.Guard, Op: "trap"}.String()
		if q.m.probe(stop) == Unchanged {
			return q.m.killedElsewhere(q.mutant)
		}
	}
	return false
}

// negated returns the instruction with its guard negated.
func negated(s ptxtext.Statement) ptxtext.Statement {
	if rest, ok := strings.CutPrefix(s.Guard, "@!"); ok {
		s.Guard = "@" + rest
	} else {
		s.Guard = "@!" + s.Guard[1:]
	}
	return s
}

// killedElsewhere reports whether a case kills the same change in another kernel.
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
	return q.was.Is("min.f32", "max.f32") && q.mutant.Mutator == "float constant" && q.fate == Unchanged
}

func isPointerTest(q survivor) bool {
	return q.mutant.Mutator == "constant" && (q.was.Is("setp.ne.u64", "setp.eq.u64")) && q.was.Args[2] == "0"
}

// isButterfly: the mask keeps its highest bit, so the masks stay linearly independent.
func isButterfly(q survivor) bool {
	if !q.was.Is("shfl.sync.bfly") || q.mutant.Mutator != "constant" {
		return false
	}
	a, _ := strconv.ParseUint(q.was.Args[2], 10, 32)
	b, _ := strconv.ParseUint(q.is.Args[2], 10, 32)
	return bits.Len64(a) == bits.Len64(b) && bits.OnesCount64(a) == 1
}

// isEither: threads that the guard excludes would store the same value to the same address.
// The store itself is needed: without it, a case fails.
func isEither(q survivor) bool {
	if q.mutant.Mutator != "guard" || !q.was.Is("st") || q.fate != Unchanged {
		return false
	}
	others, none := q.mutant, q.mutant
	others.New, none.New = negated(q.was).String(), ""
	return q.m.probe(others) == Unchanged && q.m.probe(none) != Unchanged
}

// isPowerCount: a comparison of a constant with a power of two has the same outcome for
// each power that occurs, or the guard that was removed holds for each of them.
func isPowerCount(q survivor) bool {
	if q.mutant.Mutator == "guard" && q.is.Guard == "" && strings.HasPrefix(q.was.Guard, "@%") {
		p, _ := q.m.flow(q.mutant.Kernel).Definition(strings.TrimSpace(q.was.Guard[1:]))
		q.was, q.is = p, ptxtext.Statement{Op: "setp.le.u32", Args: p.Args}
		return p.Is("setp.lt.u32") && p.Args[1] == "0" && isPowerCount(survivor{m: q.m, mutant: Mutant{Kernel: q.mutant.Kernel}, was: q.was, is: q.is})
	}
	if !q.was.Is("setp") || !ptxtext.IsNumber(q.was.Args[1]) || ptxtext.IsNumber(q.was.Args[2]) {
		return false
	}
	n, ok := q.m.flow(q.mutant.Kernel).Definition(q.was.Args[2])
	var most int
	switch {
	case !ok:
		return false
	case n.Is("shl.b32") && n.Args[1] == "1":
		most = 31
	case n.Is("mov") && n.Args[1] == "%nctaid.z": // at most 16 slices per row
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

// compared returns the outcome of a comparison of a constant with n.
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

// isPositive: 0 < n becomes 0 <= n for a parameter that the launch code requires to be
// positive.
func isPositive(q survivor) bool {
	if !q.was.Is("setp.lt.u32") || q.was.Args[1] != "0" || !q.is.Is("setp.le.u32") || q.fate != Unchanged {
		return false
	}
	n, ok := q.m.flow(q.mutant.Kernel).Definition(q.was.Args[2])
	return ok && n.Is("ld.param") && !q.m.infects(q.mutant)
}

// isPair: both registers are the sums of an error-free addition, whose parts are only
// added.
func isPair(q survivor) bool {
	if q.mutant.Mutator != "order of a vector" || !q.was.Is("st.shared.v2.f32") || q.fate != withinTolerance {
		return false
	}
	f := q.m.flow(q.mutant.Kernel)
	for _, reg := range ptxtext.Registers.FindAllString(q.was.Args[1], -1) {
		if s, ok := f.Definition(reg); !ok || !s.Is("add.rn.f32") {
			return false
		}
	}
	return true
}

// isHandover: each branch that depends on the comparison could always go one way, and the
// results would stay within tolerance.
func isHandover(q survivor) bool {
	if !q.was.Is("setp") || !strings.HasSuffix(q.was.Op, ".f32") || q.mutant.Mutator != "float constant" {
		return false
	}
	f := q.m.flow(q.mutant.Kernel)
	branches := f.Controls(q.mutant.line)
	for _, line := range branches {
		if !q.m.idle(q.mutant.Kernel, line, withinTolerance) {
			return false
		}
	}
	return len(branches) > 0
}

// needlessOnce: only another loop iteration would need the barrier, and the loop's back
// edge is never taken.
func needlessOnce(q survivor) bool {
	if q.mutant.Mutator != LeaveOutSync || !q.was.Is("bar") || q.fate != Unchanged {
		return false
	}
	f := q.m.flow(q.mutant.Kernel)
	edges := make([][]int, len(f.Next))
	copy(edges, f.Next)
	cut := false
	for i, s := range f.At {
		if i <= q.mutant.line || !s.Is("bra") || f.Next[i][0] > q.mutant.line || s.Guard == "" {
			continue
		}
		if q.m.probe(Mutant{Kernel: q.mutant.Kernel, line: i, Old: linesOf(q.m.kernels[q.mutant.Kernel])[i]}) == Unchanged {
			edges[i], cut = []int{i + 1}, true
		}
	}
	f.Next = edges
	return cut && f.BarrierNeedless(q.mutant.line)
}

// isSign: an arithmetic shift by 32 gives the sign, as a shift by 31 does.
func isSign(q survivor) bool {
	return q.was.Is("shr.s32") && q.is.Is("shr.s32") && q.was.Args[2] == "31" && q.is.Args[2] == "32"
}

// isMasked: the first block index is a quotient; a larger divisor starts at an earlier
// block. Starting at block 0 must change the index and no output bit.
func isMasked(q survivor) bool {
	if !strings.HasPrefix(q.mutant.Kernel, "flash_attention") || !q.was.Is("shr.u32") || !q.is.Is("shr.u32") || !ptxtext.IsNumber(q.was.Args[2]) {
		return false
	}
	first := q.mutant
	first.New = q.was.WithArg(2, "31").String()
	return q.fate == Unchanged && q.m.infects(first) && q.m.probe(first) == Unchanged
}

// isSlice: the loop starts at block 0 instead of at the slice's first block. It skips the
// blocks of other slices.
func isSlice(q survivor) bool {
	if q.mutant.Kernel != "gemv_digits" && q.mutant.Kernel != "gemv_digits_wide" || !q.was.Is("selp.b32") || !q.is.Is("selp.b32") {
		return false
	}
	swapped := q.was.Args[1] == q.is.Args[2] && q.was.Args[2] == q.is.Args[1]
	return swapped && q.was.Args[1] == "0" && q.fate == Unchanged && q.m.infects(q.mutant)
}
