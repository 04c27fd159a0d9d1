package mutate

import (
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-go/lockstep/conformance/internal/ptxtext"
)

// rule is a reason why a mutant that no case kills computes the same as the kernel. It
// excuses a mutant if its pattern applies and its probe confirms the reason on a device.
type rule struct {
	name   string
	reason string
	fates  []Fate // of the mutants that it may excuse
	// applies reports whether the change and the code around it have the rule's pattern.
	applies func(q survivor) bool
	// probe runs rewritten kernels. It must fail if no case exercises the change, and if the
	// pattern alone does not make the mutant equivalent.
	probe func(q survivor) bool
}

// survivor is a mutant that no case killed.
type survivor struct {
	m       *Runner
	mutant  Mutant
	fate    Fate
	was, is ptxtext.Statement // the instruction before and after the change
}

var (
	noBit   = []Fate{Unchanged}
	inBound = []Fate{Unchanged, withinTolerance}
)

var rules = []rule{
	{"unreachable", "a tail path that aligned addresses and whole rows never take", []Fate{unreached}, isUnreachable, neverEntered},
	{"zero bit", "a bit that is always 0, or a multiple of 0", noBit, isZeroBit, sameResult},
	{"shifted out", "bits that are only shifted out", noBit, isShiftedOut, sameReaders},
	{"fraction", "low bits of a fraction that is shifted right by a computed number, always 8 or more", noBit, isFraction, eightBits},
	{"vec4", "4i < n for each i < ceil(n/4)", noBit, isVec4, sameComparisons},
	{"always", "conditions that alignment and whole rows make true", noBit, isAlways, sameConditions},
	{"constant", "a comparison of two constants", noBit, isConstant, sameResult},
	{"every thread", "a comparison that has the same outcome for every thread index", noBit, isEveryThread, sameResult},
	{"every index", "a mask of a thread index whose comparisons have the same outcome for every thread", noBit, isEveryIndex, sameReaders},
	{"bounded", "a comparison with, or a clamp to, a constant that no thread's index reaches", noBit, isBounded, sameBounded},
	{"never equal", "whether equal numbers pass a comparison of numbers that are never equal", noBit, isNeverEqual, neverEqual},
	{"later block", "whether a copy of a later block includes the first visible position, which is in the first block", noBit, isLaterBlock, equalInFirst},
	{"tie", "a selection between two equal numbers", noBit, isTie, equalOperands},
	{"idle iteration", "one more iteration, which accesses no memory", noBit, isIdle, noAccess},
	{"narrow", "a signed field of numbers that need fewer bits", noBit, isNarrow, twoBitsLess},
	{"maximum", "a check for a number above the maximum of the numbers", noBit, isAboveMaximum, neverAbove},
	{"any thread", "a thread that has the same value as the one that stores it", noBit, isAnyThread, otherThreads},
	{"sign of a shift", "an arithmetic shift by 32 instead of 31", noBit, isSign, sameResult},
	{"sign", "the absolute value of a number that is never negative", noBit, isAbs, sameResult},
	{"zero added", "a zero that is added to a number that is never -0", noBit, isZeroAdded, sameResult},
	{"one part", "the offset of a CTA's part of a head, when one CTA has the whole head", noBit, isOnePart, firstPart},
	{"one warp", "the warp index in a CTA of one warp", noBit, isOneWarp, anyLane},
	{"truth", "a number that is only compared with 0", noBit, isTruth, anyNumber},
	{"xor", "the order of values that are combined by xor", noBit, isXor, anyOrder},
	{"sum of two", "two numbers change places, and only their sum is used", noBit, isSumOfTwo, anyOrder},
	{"two factors", "the order of two numbers that are only multiplied by each other", noBit, isTwoFactors, anyOrderOfParts},
	{"two parts", "the order of the two parts of a number that a product multiplies by the same factor", inBound, isTwoParts, anyOrderOfParts},
	{"equal factors", "the order of two operands of a product that are multiplied by the same number", noBit, isEqualFactors, anyOrderOfFactors},
	{"squares", "the order of numbers of which only a sum of squares is used", inBound, isSquares, anyOrderOfSquares},
	{"equal pair", "the order of two numbers that are stored equal", noBit, isEqualPair, equalLoads},
	{"ones", "the order of sums that are equal", noBit, isOnes, equalSums},
	{"unused", "an unguarded result that is read only under the same guard", noBit, isUnused, anyUnread},
	{"once", "a loop whose second iteration the launch bounds exclude", noBit, isOnce, atLimit},
	{"first iteration", "the first test of a loop over at least one expert or segment", noBit, isFirstTest, runsOnce},
	{"finite sum", "a check for infinity of a sum of at most 512 powers, none above 1", noBit, isFiniteSum, atMost512},
	{"division", "a division of a list among warps that leaves all of it to the first", noBit, isDivision, firstTakesAll},
	{"first vec4", "the first vec4 of a thread's 32 elements, which the row has for each thread", noBit, isFirstVec4, sameFirst},
	{"one pass", "a loop whose step is at least its bound, so that its branch is never taken", noBit, isOnePass, neverRepeats},
	{"equal operands", "a selection between two numbers that are equal where the change turns it", noBit, isSelection, sameSelections},
	{"factor of zero", "whether 0 is multiplied by one factor or another", noBit, isFactor, sameProduct},
	{"choice", "a branch between two paths with equal results", inBound, isChoice, bothWays},
	{"loop bound", "a bound that the test of the loop implies", noBit, isLoopBound, sameBound},
	{"even", "a bound at an odd element of a head, although heads have an even length", noBit, isEven, neverOdd},
	{"edge", "a bound that is checked again", noBit, isEdge, furtherBound},
	{"clamp", "a limit of numbers that are never above it", noBit, isLimit, neverLimits},
	{"padding", "a store beyond a row into shared memory that nothing reads", noBit, isPadding, neverRead},
	{"fill", "padding after a row or a list", noBit, isFill, anyFill},
	{"start", "the initial value of a maximum or minimum, beyond all inputs", noBit, isStart, otherStart},
	{"low key", "a chosen expert whose key ties with those of NaNs, behind 32 lower indices that win the tie", noBit, isLowKey, keyMatters},
	{"finite", "a finite number instead of -Inf; its weight is 0 too", noBit, isFinite, anyFinite},
	{"saturation", "a clamp beyond the point at which the function is constant in float32", noBit, isClamp, beyondClamps},
	{"power of two", "a scale by a power of two that cancels exactly", noBit, isScale, onlyPowers},
	{"handover", "a border between two approximations that are both accurate there", inBound, isHandover, movedBorder},
	{"rounding", "an error far below the bounds, or one that a later rounding removes", inBound, isArithmetic, amplified},
	{"butterfly", "shuffle masks that still combine every lane once, in another order", inBound, isButterfly, maskMatters},
	{"pairs", "a shuffle from another lane of a pair whose sums are equal", noBit, isPaired, equalPairs},
	{"mirrored", "lanes that exchange their parts of a transposed sum", noBit, isMirrored, anyPart},
	{"one lane", "a warp reduction of which only the low lanes' results are used", noBit, isOneLane, lowLanes},
	{"later arrival", "a wait for a barrier at which the same warps arrive later", noBit, isLaterArrival, earlierMatters},
	{"barrier", "a barrier that orders no two conflicting accesses between the barriers around it", noBit, isNeedlessBarrier, noRace},
	{"joined copies", "a group of copies that joins the next one, before a wait for all groups", noBit, isJoined, waitMatters},
	{"joined products", "a group of products that joins the next one, or a wait for some, before a wait for all products", noBit, isJoinedProduct, productWaitMatters},
	{"masked copy", "the zero fill of an asynchronous copy into masked elements", noBit, isMaskedCopy, wholeCopy},
	{"masked position", "positions that are copied but masked later", noBit, isMaskedPosition, onlyMore},
	{"masked", "attention that starts at an earlier block, which the window masks", noBit, isMasked, earlierBlock},
}

// complete reports the first rule without a name, a reason, a pattern or a probe.
func complete(rules []rule) error {
	for _, r := range rules {
		if r.name == "" || r.reason == "" || len(r.fates) == 0 || r.applies == nil || r.probe == nil {
			return fmt.Errorf("mutate: rule %q: it needs a reason, fates, a pattern and a probe", r.name)
		}
	}
	return nil
}

// ruleOf returns the name of the rule that proves a mutant equivalent, or "".
func (m *Runner) ruleOf(v Verdict) string {
	q := survivor{m: m, mutant: v.Mutant, fate: v.Fate}
	q.was, _ = ptxtext.Parse(q.mutant.Old)
	q.is, _ = ptxtext.Parse(q.mutant.New)
	for _, r := range rules {
		if slices.Contains(r.fates, v.Fate) && r.applies(q) && r.probe(q) {
			return r.name
		}
	}
	return ""
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

// entries returns the lines from which code that some case runs could enter the code around
// the mutant that none runs.
func (q survivor) entries() []int {
	before := q.flow().Previous()
	seen, todo := map[int]bool{q.mutant.line: true}, []int{q.mutant.line}
	var list []int
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range before[i] {
			switch {
			case seen[n]:
			case len(q.m.coverage.reaching(q.mutant.Kernel, n)) == 0:
				seen[n] = true
				todo = append(todo, n)
			default:
				list = append(list, n)
			}
		}
	}
	return list
}

// isUnreachable: each entry is a branch that a predicate which is always true prevents.
func isUnreachable(q survivor) bool {
	f, list := q.flow(), q.entries()
	return len(list) > 0 && !slices.ContainsFunc(list, func(n int) bool {
		p, turned := strings.CutPrefix(strings.TrimSpace(f.At[n].Guard), "@!")
		return !turned || !f.At[n].Is("bra") || !f.AlwaysTrue(p)
	})
}

func neverEntered(q survivor) bool {
	for _, n := range q.entries() {
		if !q.happens(n, "") || q.happens(n, q.flow().At[n].Guard) {
			return false
		}
	}
	return true
}

// sameResult: the changed instruction gives the same result in each case.
func sameResult(q survivor) bool { return q.agrees(q.was.Written()) }

// isZeroBit: the change affects only bits that are 0, by alignment or by the bounds of a
// thread index, or selects another byte of 0.
func isZeroBit(q survivor) bool {
	f := q.flow()
	if q.was.Is("and", "lop3") && q.mutant.Mutator == "constant" {
		return slices.ContainsFunc(q.was.Args[1:], func(arg string) bool { return !ptxtext.IsNumber(arg) && f.TrailingZeros(arg) > 0 })
	}
	if q.was.Is("add") && q.is.Is("sub") {
		return f.UpperBound(q.was.Args[2]) == 0 || f.TrailingZeros(q.was.Args[2]) >= 64
	}
	if q.was.Is("mad") && q.constant() == 2 {
		return f.UpperBound(q.was.Args[1]) == 0
	}
	if was, is, ok := q.constants(3); ok && q.was.Is("prmt.b32") && q.is.Is("prmt.b32") {
		for i := 0; i < 16; i += 4 {
			if was>>i&15 != is>>i&15 && was>>i&is>>i&4 == 0 { // not both of the second operand
				return false
			}
		}
		return q.was.Args[2] == "0" && q.is.Args[2] == "0" && q.was.Args[1] == q.is.Args[1]
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

// isShiftedOut: all readers shift the lowest bit out.
func isShiftedOut(q survivor) bool {
	list := q.flow().Readers(q.was.Written())
	return q.mutant.Mutator == "constant" && q.was.Is("add.u32", "and", "lop3", "mov.b32", "selp.b32") && len(list) > 0 && !slices.ContainsFunc(list, func(s ptxtext.Statement) bool {
		return !s.Is("shr.u32") || s.Args[2] == "0" || !ptxtext.IsNumber(s.Args[2])
	})
}

// isFraction: a constant in a fraction of 64 bits, which is only shifted right by a computed number.
func isFraction(q survivor) bool {
	_, ok := q.shifted()
	return ok && q.mutant.Mutator == "constant" && q.was.Is("and.b64", "or.b64")
}

// shifted returns the shifted fraction.
func (q survivor) shifted() (to string, ok bool) {
	list := q.flow().Readers(q.was.Written())
	if len(list) == 1 && list[0].Is("or.b64") {
		list = q.flow().Readers(list[0].Written())
	}
	if len(list) != 1 || !list[0].Is("shr.u64") || ptxtext.IsNumber(list[0].Args[2]) {
		return "", false
	}
	return list[0].Written(), true
}

// eightBits: no shifted fraction changes with the lowest eight bits of the constant, but one
// does with the lower half of the bits.
func eightBits(q survivor) bool {
	to, _ := q.shifted()
	n, err := strconv.ParseUint(q.was.Args[q.constant()], 10, 64)
	same := func(bits uint64) bool {
		x := q
		x.is = q.was.WithArg(q.constant(), fmt.Sprint(n^bits))
		return x.agrees(to)
	}
	return err == nil && q.infects() && same(1<<8-1) && !same(1<<32-1)
}

// sameReaders: the change matters in some case, and none of its readers' results change.
func sameReaders(q survivor) bool {
	return q.infects() && !slices.ContainsFunc(q.flow().Readers(q.was.Written()), func(s ptxtext.Statement) bool { return !q.agrees(s.Written()) })
}

// comparisons returns the comparisons that the change affects, or nil if it has another use.
func (q survivor) comparisons() (list []ptxtext.Statement) {
	if q.was.Is("setp") {
		return []ptxtext.Statement{q.was}
	}
	if q.was.Written() == "" {
		return nil
	}
	for _, s := range q.flow().At {
		if slices.Contains(s.Reads(), q.was.Written()) {
			if !s.Is("setp") {
				return nil
			}
			list = append(list, s)
		}
	}
	return list
}

// isVec4: the comparisons that the change affects, or the one that never selects a changed
// constant.
func isVec4(q survivor) bool {
	if p, ok := q.unselected(); ok {
		s, ok := q.flow().Definition(p)
		return ok && q.flow().IsVec4Bound(s)
	}
	list := q.comparisons()
	return len(list) > 0 && !slices.ContainsFunc(list, func(s ptxtext.Statement) bool { return !q.flow().IsVec4Bound(s) })
}

// unselected returns the predicate of a selection whose second, changed operand is a constant.
func (q survivor) unselected() (p string, ok bool) {
	if !q.was.Is("selp") || q.constant() != 2 {
		return "", false
	}
	return q.was.Args[3], true
}

func sameComparisons(q survivor) bool {
	if p, ok := q.unselected(); ok {
		return q.happens(q.mutant.line, "@"+p+" ") && !q.happens(q.mutant.line, "@!"+p+" ")
	}
	return !slices.ContainsFunc(q.comparisons(), func(s ptxtext.Statement) bool { return !q.agrees(s.Written()) })
}

// conditions returns the predicates of the branches and selections that the change controls
// and that some case runs.
func (q survivor) conditions() (list []string) {
	if q.was.Written() == "" {
		return nil
	}
	for _, i := range q.flow().Controls(q.mutant.line) {
		if len(q.m.coverage.reaching(q.mutant.Kernel, i)) > 0 {
			list = append(list, condition(q.flow().At[i]))
		}
	}
	return list
}

// condition returns the predicate of a branch or selection.
func condition(s ptxtext.Statement) string {
	if s.Is("selp") {
		return s.Args[3]
	}
	return strings.TrimLeft(strings.TrimSpace(s.Guard), "@!")
}

func isAlways(q survivor) bool {
	list := q.conditions()
	return len(list) > 0 && !slices.ContainsFunc(list, func(p string) bool { return !q.flow().AlwaysTrue(p) })
}

func sameConditions(q survivor) bool {
	return !slices.ContainsFunc(q.conditions(), func(p string) bool { return !q.agrees(p) })
}

// isConstant: a comparison of float constants that are not equal.
func isConstant(q survivor) bool {
	if !q.was.Is("setp") || !strings.HasSuffix(q.was.Op, ".f32") {
		return false
	}
	x, ok := q.flow().Constant(q.was.Args[1])
	y, ok2 := q.flow().Constant(q.was.Args[2])
	z, ok3 := q.flow().Constant(q.is.Args[2])
	return ok && ok2 && ok3 && x != y && (x < y) == (x < z) && x != z
}

// isEveryThread: both comparisons of a thread index with a constant, each plus the same number
// or not, have the same outcome for each index that a thread can have.
func isEveryThread(q survivor) bool {
	f := q.flow()
	index := func(s ptxtext.Statement) (arg, bound string) {
		i, ok1 := f.Definition(s.Args[1])
		n, ok2 := f.Definition(s.Args[2])
		if ok1 && ok2 && i.Is("add.u32") && n.Is("add.u32") && i.Args[1] == n.Args[1] {
			return i.Args[2], n.Args[2]
		}
		return s.Args[1], s.Args[2]
	}
	if !q.was.Is("setp.lt.u32", "setp.le.u32") || !q.is.Is("setp.lt.u32", "setp.le.u32") {
		return false
	}
	below := func(s ptxtext.Statement) bool { // whether each index is below the bound
		arg, bound := index(s)
		n, err := strconv.ParseUint(bound, 10, 32)
		return err == nil && f.UpperBound(arg) < min(n, 1024)
	}
	return below(q.was) && below(q.is)
}

// isEveryIndex: all readers of the masked index are comparisons with constants. Each has the
// same outcome with both masks, for every value that the index can have.
func isEveryIndex(q survivor) bool {
	if !q.was.Is("and.b32") || q.mutant.Mutator != "constant" {
		return false
	}
	f := q.flow()
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

// isNarrow: the length of a signed field.
func isNarrow(q survivor) bool {
	return q.was.Is("bfe.s32") && q.is.Is("bfe.s32") && q.constant() == 3 && ptxtext.IsNumber(q.was.Args[3])
}

// twoBitsLess: the numbers are the same in two bits less, and need each of the others.
func twoBitsLess(q survivor) bool {
	n, err := strconv.Atoi(q.was.Args[3])
	fits, short := q, q
	fits.is, short.is = q.was.WithArg(3, fmt.Sprint(n-2)), q.was.WithArg(3, fmt.Sprint(n-3))
	return err == nil && n > 3 && sameResult(fits) && short.infects()
}

// aboveMaximum returns the line that checks whether a number less a maximum is larger than a
// positive constant: the changed line, or the one that decides whether a changed constant is
// selected.
func (q survivor) aboveMaximum() (line int, ok bool) {
	f, line := q.flow(), q.mutant.line
	if q.was.Is("selp.f32") && q.constant() == 1 {
		line = slices.IndexFunc(f.At, func(s ptxtext.Statement) bool { return s.Written() == q.was.Args[3] })
	}
	if line < 0 || !f.At[line].Is("setp.gt.f32") || q.mutant.Mutator != "float constant" && q.mutant.Mutator != "comparison" {
		return 0, false
	}
	if c, ok := f.Constant(f.At[line].Args[2]); !ok || c <= 0 {
		return 0, false
	}
	difference, ok := f.Definition(f.At[line].Args[1])
	if ok && difference.Is("selp.f32") { // clamped from below
		difference, ok = f.Definition(difference.Args[2])
	}
	if !ok || !difference.Is("sub.rn.f32") {
		return 0, false
	}
	maximum, ok := f.Definition(difference.Args[2])
	return line, ok && maximum.Is("max.f32")
}

func isAboveMaximum(q survivor) bool {
	_, ok := q.aboveMaximum()
	return ok
}

// neverAbove: no number is above the maximum, and one equals it.
func neverAbove(q survivor) bool {
	line, _ := q.aboveMaximum()
	return q.compares(line, "setp.gt.f32", 0) == Unchanged && q.compares(line, "setp.ge.f32", 0) == Killed
}

// compares returns the fate of the kernel if it traps after a comparison where op holds
// between that comparison's first operand and a bound.
func (q survivor) compares(line int, op string, bound float32) Fate {
	x := q.variant(line, q.lines()[line]+fmt.Sprintf("\n\t%s %%above, %s, %s;\n\t@%%above trap;", op, q.flow().At[line].Args[1], floatArg(bound)))
	x.declare, x.trap = "\t.reg .pred %above;\n", true
	return q.m.probe(x)
}

// isAnyThread: another thread of the warp takes the part of thread 0.
func isAnyThread(q survivor) bool {
	return q.mutant.Mutator == "constant" && q.was.Is("setp.eq.u32", "setp.ne.u32") && q.was.Args[2] == "0" && q.is.Args[2] == "1"
}

// otherThreads: each of some other threads gives the same results, and none gives others.
func otherThreads(q survivor) bool {
	last := min(31, q.flow().UpperBound(q.was.Args[1]))
	return last > 1 && q.set("2") == Unchanged && q.set(fmt.Sprint(last)) == Unchanged && q.set("4294967295") == Killed
}

func isSign(q survivor) bool {
	return q.was.Is("shr.s32") && q.is.Is("shr.s32") && q.was.Args[2] == "31" && q.is.Args[2] == "32"
}

func isAbs(q survivor) bool { return q.was.Is("abs") && q.is.Is("mov") }

// isZeroAdded: x + 0 is x - 0, except for x = -0.
func isZeroAdded(q survivor) bool {
	return q.was.Is("add.rn.f32") && q.is.Is("sub.rn.f32") && q.was.Args[2] == "0f00000000" && slices.Equal(q.was.Args, q.is.Args)
}

// isOneWarp: tid.x is read only to compute the warp index, in a kernel of one warp.
func isOneWarp(q survivor) bool {
	f := q.flow()
	return f.Threads == 32 && q.was.Is("mov") && q.was.Args[1] == "%tid.x" && !slices.ContainsFunc(f.Readers(q.was.Args[0]), func(s ptxtext.Statement) bool {
		return !s.Is("shr.u32") || s.Args[2] != "5"
	})
}

// anyLane: each index below 32 gives the same results, and 32 gives others.
func anyLane(q survivor) bool {
	set := func(n string) Fate {
		return q.instead(ptxtext.Statement{Op: "mov.b32", Args: []string{q.was.Args[0], n}})
	}
	return set("0") == Unchanged && set("31") == Unchanged && set("32") != Unchanged
}

// isOnePart: the length of a part, by which ctaid.z is multiplied, is the length of a head, by
// which the index of the head is multiplied.
func isOnePart(q survivor) bool {
	if !strings.HasPrefix(q.mutant.Kernel, "attention_combine") || !q.was.Is("mad.wide.u32") || q.constant() != 2 {
		return false
	}
	part, ok1 := q.flow().Definition(q.was.Args[1])
	head, ok2 := q.flow().Definition(q.was.Args[3])
	return ok1 && ok2 && part.Is("mov.u32") && part.Args[1] == "%ctaid.z" && head.Is("mad.wide.u32") && head.Args[2] == q.was.Args[2]
}

// firstPart: the address is that of the head in each case, and a case fails if it is that of the
// next one.
func firstPart(q survivor) bool {
	next := ptxtext.Statement{Op: "add.u64", Args: []string{q.was.Args[0], q.was.Args[3], q.was.Args[2]}}
	return sameResult(q) && q.instead(ptxtext.Statement{Op: "mov.b64", Args: []string{q.was.Args[0], q.was.Args[3]}}) == Unchanged && q.instead(next) == Killed
}

// readBy reports whether all readers of a changed constant pass test.
func (q survivor) readBy(test func(s ptxtext.Statement) bool) bool {
	if !q.was.Is("mov.b32", "selp.b32") || q.mutant.Mutator != "constant" {
		return false
	}
	list := q.flow().Readers(q.was.Written())
	return len(list) > 0 && !slices.ContainsFunc(list, func(s ptxtext.Statement) bool { return !test(s) })
}

// constant returns the index of the changed constant.
func (q survivor) constant() int {
	for i, arg := range q.was.Args {
		if i < len(q.is.Args) && q.is.Args[i] != arg {
			return i
		}
	}
	return -1
}

// set returns the fate of the kernel with another constant in place of the changed one.
func (q survivor) set(c string) Fate { return q.instead(q.was.WithArg(q.constant(), c)) }

func isTruth(q survivor) bool {
	return q.readBy(func(s ptxtext.Statement) bool { return s.Is("setp.ne.u32", "setp.eq.u32") && s.Args[2] == "0" })
}

// anyNumber: other numbers change nothing, and 0 does.
func anyNumber(q survivor) bool {
	return q.set("4") == Unchanged && q.set("2147483648") == Unchanged && q.set("0") != Unchanged
}

// isXor: only xor reads the exchanged values.
func isXor(q survivor) bool {
	if q.mutant.Mutator != "order of a vector" || !q.was.Is("ld") {
		return false
	}
	for _, reg := range q.was.Writes() {
		if slices.ContainsFunc(q.flow().Readers(reg), func(s ptxtext.Statement) bool { return !s.Is("xor") }) {
			return false
		}
	}
	return true
}

// isSumOfTwo: both numbers of a pair are converted, and one addition reads nothing but both.
func isSumOfTwo(q survivor) bool {
	regs := q.was.Writes()
	if q.mutant.Mutator != "order of a vector" || !q.was.Is("mov") || len(regs) != 2 {
		return false
	}
	var converted []string
	for _, reg := range regs {
		readers := q.flow().Readers(reg)
		if len(readers) != 1 || !readers[0].Is("cvt") {
			return false
		}
		converted = append(converted, readers[0].Written())
	}
	first, second := q.flow().Readers(converted[0]), q.flow().Readers(converted[1])
	return len(first) == 1 && len(second) == 1 && first[0].Is("add") && slices.Equal(first[0].Args[1:], converted) &&
		first[0].String() == second[0].String()
}

// isEqualFactors: operand B of m16n8k16 has two registers, and those of A that are multiplied by them are equal.
// The change is in operand B, or in the load of both registers.
func isEqualFactors(q survivor) bool {
	b := "{" + strings.Join(q.was.Writes(), ", ") + "}"
	var products []ptxtext.Statement
	if q.was.Is("mma") && q.is.Args[2] != q.was.Args[2] {
		b, products = q.was.Args[2], []ptxtext.Statement{q.was}
	} else if len(q.was.Writes()) == 2 {
		for _, reg := range q.was.Writes() {
			products = append(products, q.flow().Readers(reg)...)
		}
	}
	return q.mutant.Mutator == "order of a vector" && len(products) > 0 && !slices.ContainsFunc(products, func(s ptxtext.Statement) bool {
		if !s.Is("mma.sync.aligned.m16n8k16") || s.Args[2] != b {
			return true
		}
		a := strings.Split(strings.Trim(s.Args[1], "{}"), ", ")
		return len(a) != 4 || a[0] != a[2] || a[1] != a[3]
	})
}

// anyOrderOfFactors: the reverse order changes nothing, and one register twice does.
func anyOrderOfFactors(q survivor) bool {
	if !q.was.Is("mma") {
		return anyOrder(q)
	}
	b := strings.Split(strings.Trim(q.was.Args[2], "{}"), ", ")
	reversed, twice := "{"+b[1]+", "+b[0]+"}", "{"+b[0]+", "+b[0]+"}"
	return q.instead(q.was.WithArg(2, reversed)) == Unchanged && q.instead(q.was.WithArg(2, twice)) != Unchanged
}

// anyOrder: the reverse order changes nothing, and one value twice does.
func anyOrder(q survivor) bool {
	regs := q.was.Writes()
	reversed := slices.Clone(regs)
	slices.Reverse(reversed)
	op := "mov.b32"
	if strings.HasPrefix(regs[0], "%h") {
		op = "mov.b16"
	}
	twice := ptxtext.Statement{Op: op, Args: []string{regs[0], regs[1]}}
	return q.instead(q.was.WithArg(0, "{"+strings.Join(reversed, ", ")+"}")) == Unchanged && q.instead(q.was, twice) != Unchanged
}

// isTwoFactors: the first two numbers of a load from shared memory are only multiplied by each other, or the first two of
// a store in a kernel with such a load.
func isTwoFactors(q survivor) bool {
	f := q.flow()
	factors := func(load ptxtext.Statement) bool {
		if !load.Is("ld.shared.v2.f32", "ld.shared.v4.f32") {
			return false
		}
		return !slices.ContainsFunc(load.Writes()[:2], func(reg string) bool {
			readers := f.Readers(reg)
			return len(readers) != 1 || !readers[0].Is("fma.rn.f32") || !slices.Equal(readers[0].Args[1:3], load.Writes()[:2])
		})
	}
	if q.mutant.Mutator != "order of a vector" {
		return false
	}
	return factors(q.was) || q.was.Is("st.shared.v4.f32") && slices.ContainsFunc(f.At, factors)
}

// isTwoParts: both numbers are the sum of activations as a pair of float16, or lanes' pairs of them,
// sorted by part. A product multiplies both parts by the same weights.
func isTwoParts(q survivor) bool {
	f := q.flow()
	sorted := func(s ptxtext.Statement) bool {
		return s.Is("prmt") && (s.Args[3] == "21520" || s.Args[3] == "30258") // 0x5410: the low halves, 0x7632: the high ones
	}
	switch {
	case q.was.Is("ld.shared.v2") && q.mutant.Mutator == "order of a vector":
		pair := "{" + strings.Join(q.was.Writes(), ", ") + "}"
		return !slices.ContainsFunc(q.was.Writes(), func(reg string) bool {
			return slices.ContainsFunc(f.Readers(reg), func(s ptxtext.Statement) bool {
				a := ptxtext.Registers.FindAllString(s.Args[1], -1)
				return !s.Is("mma") || s.Args[2] != pair || len(a) != 4 || a[0] != a[2] || a[1] != a[3]
			})
		})
	case q.was.Is("st.shared.v2") && q.mutant.Mutator == "order of a vector":
		regs := ptxtext.Registers.FindAllString(q.was.Args[1], -1)
		low, isLow := f.Definition(regs[0])
		high, isHigh := f.Definition(regs[1])
		return isLow && isHigh && sorted(low) && sorted(high) && slices.Equal(low.Args[1:3], high.Args[1:3])
	case q.was.Is("cvt.rn.f16x2") && q.mutant.Mutator == "operands":
		readers := f.Readers(q.was.Written())
		return len(readers) > 1 && !slices.ContainsFunc(readers, func(s ptxtext.Statement) bool { return !s.Is("shfl") && !sorted(s) })
	}
	return false
}

// anyOrderOfParts: the reverse order changes no result, and one part twice does.
func anyOrderOfParts(q survivor) bool {
	twice := []ptxtext.Statement{q.was}
	switch regs := q.was.Writes(); {
	case q.was.Is("ld"):
		twice = append(twice, ptxtext.Statement{Op: "mov.b32", Args: []string{regs[0], regs[1]}})
	case q.was.Is("st"):
		stored := ptxtext.Registers.FindAllString(q.was.Args[1], -1)
		stored[1] = stored[0]
		twice[0] = q.was.WithArg(1, "{"+strings.Join(stored, ", ")+"}")
	default:
		twice[0] = q.was.WithArg(1, q.was.Args[2])
	}
	return q.instead(q.is) == q.fate && q.instead(twice...) == Killed
}

// isSquares: each of the exchanged numbers is multiplied by the same number, and only squared
// after that.
func isSquares(q survivor) bool {
	if q.mutant.Mutator != "order of a vector" || !q.was.Is("ld") {
		return false
	}
	factor := ""
	for _, reg := range q.was.Writes() {
		list := q.flow().Readers(reg)
		if len(list) != 1 || !list[0].Is("mul.rn.f32") || list[0].Args[1] != reg || factor != "" && list[0].Args[2] != factor {
			return false
		}
		factor = list[0].Args[2]
		product := list[0].Written()
		if slices.ContainsFunc(q.flow().Readers(product), func(s ptxtext.Statement) bool { return s.Args[1] != product || s.Args[2] != product }) {
			return false
		}
	}
	return factor != ""
}

// anyOrderOfSquares: the reverse order stays within the bounds, and one number twice does not.
func anyOrderOfSquares(q survivor) bool {
	regs := q.was.Writes()
	reversed := slices.Clone(regs)
	slices.Reverse(reversed)
	got := q.instead(q.was.WithArg(0, "{"+strings.Join(reversed, ", ")+"}"))
	twice := ptxtext.Statement{Op: "mov.b32", Args: []string{regs[0], regs[1]}}
	return (got == Unchanged || got == withinTolerance) && q.instead(q.was, twice) == Killed
}

// isEqualPair: a load of two numbers from shared memory, into which the kernel stores only pairs
// of equal numbers.
func isEqualPair(q survivor) bool {
	if q.mutant.Mutator != "order of a vector" || !q.was.Is("ld.shared.v2.f32") {
		return false
	}
	stored := false
	for _, s := range q.flow().At {
		switch {
		case s.Is("st.shared.v2.f32") && len(slices.Compact(ptxtext.Registers.FindAllString(s.Args[1], -1))) == 1:
			stored = true
		case s.Is("st.shared", "red.shared", "atom.shared", "cp"):
			return false
		}
	}
	return stored
}

// equalLoads: the numbers have the same bits in each case, and the first is needed.
func equalLoads(q survivor) bool {
	regs := q.was.Writes()
	x := q.variant(q.mutant.line, q.mutant.Old+fmt.Sprintf("\n\tmov.b32 %%ba, %s;\n\tmov.b32 %%bb, %s;\n\tsetp.ne.u32 %%differs, %%ba, %%bb;\n\t@%%differs trap;", regs[0], regs[1]))
	x.declare, x.trap = "\t.reg .pred %differs;\n\t.reg .b32 %ba, %bb;\n", true
	zero := ptxtext.Statement{Op: "mov.f32", Args: []string{regs[0], "0f00000000"}}
	return q.m.probe(x) == Unchanged && q.instead(q.was, zero) == Killed
}

// isOnes: a matrix product whose operand registers are all the same.
func isOnes(q survivor) bool {
	return q.mutant.Mutator == "order of a vector" && q.was.Is("mma") && len(slices.Compact(ptxtext.Registers.FindAllString(q.was.Args[1]+q.was.Args[2], -1))) == 1
}

// equalSums: any of the sums may stand for the first, and the product is needed.
func equalSums(q survivor) bool {
	regs := q.was.Writes()
	for _, reg := range regs[1:] {
		if q.instead(q.was, ptxtext.Statement{Op: "mov.f32", Args: []string{regs[0], reg}}) != Unchanged {
			return false
		}
	}
	return q.instead() == Killed
}

// isUnused: the unguarded instruction's result is read only under the same guard.
func isUnused(q survivor) bool {
	if q.mutant.Mutator != "guard" || q.is.Guard != "" || len(q.was.Writes()) != 1 || q.was.Is("bra", "ret", "st", "ld", "red", "atom", "bar", "cp") {
		return false
	}
	_, once := q.flow().Definition(q.was.Written())
	return once && !slices.ContainsFunc(q.flow().At, func(s ptxtext.Statement) bool {
		return slices.Contains(s.Reads(), q.was.Written()) && s.Guard != q.was.Guard
	})
}

// anyUnread: where the guard does not hold, which happens, any result changes nothing.
func anyUnread(q survivor) bool {
	no := negated(q.was).Guard
	for _, n := range []string{"0", "4294967295"} {
		other := ptxtext.Statement{Guard: no, Op: "mov.b32", Args: []string{q.was.Written(), n}}
		if q.instead(q.was, other) != Unchanged {
			return false
		}
	}
	return q.happens(q.mutant.line, no)
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

// isOnce: the changed counter is read only by the test of a loop and in its next iteration.
func isOnce(q survivor) bool {
	f := q.flow()
	if !q.was.Is("add.u32") || q.mutant.line+2 >= len(f.At) || q.was.Args[0] != q.was.Args[1] {
		return false
	}
	test, back := f.At[q.mutant.line+1], f.At[q.mutant.line+2]
	return test.Is("setp.lt.u32") && test.Args[1] == q.was.Args[0] && back.Is("bra") && f.Next[q.mutant.line+2][0] <= q.mutant.line
}

// atLimit: the loop's branch is never taken, but it would be if the bound of some case were
// larger by one.
func atLimit(q survivor) bool {
	back, test := q.mutant.line+2, q.flow().At[q.mutant.line+1]
	if q.happens(back, q.flow().At[back].Guard) {
		return false
	}
	larger := q.variant(q.mutant.line+1, test.WithOp("setp.le.u32").String()+"\n\t"+q.flow().At[back].Guard+"trap;")
	return q.m.probe(larger) == Killed
}

// isFirstTest: 0 < n before a loop over the experts of a token, the segments of a row or the taps of a convolution. The
// launch demands that n is at least 1.
func isFirstTest(q survivor) bool {
	families := []string{"moe_", "product_tile_", "deltanet_inputs"}
	if !slices.ContainsFunc(families, func(name string) bool { return strings.HasPrefix(q.mutant.Kernel, name) }) ||
		q.mutant.Mutator != "comparison" || !q.was.Is("setp.lt.u32") || q.was.Args[1] != "0" {
		return false
	}
	n, ok := q.flow().Definition(q.was.Args[2])
	return ok && n.Is("ld.param")
}

// runsOnce: the loop always runs, and in some case only once.
func runsOnce(q survivor) bool {
	return sameComparisons(q) && q.instead(q.was.WithArg(1, "1")) == Killed
}

// isFiniteSum: the router compares its sum of powers with infinity.
func isFiniteSum(q survivor) bool {
	return strings.HasPrefix(q.mutant.Kernel, "moe_route") && (q.mutant.Mutator == "comparison" || q.mutant.Mutator == "float constant") &&
		q.was.Is("setp.lt.f32") && q.was.Args[2] == floatArg(float32(math.Inf(1)))
}

// atMost512: no sum is above 512, and one is 512.
func atMost512(q survivor) bool {
	return q.compares(q.mutant.line, "setp.gt.f32", 512) == Unchanged && q.compares(q.mutant.line, "setp.ge.f32", 512) == Killed
}

// isDivision: a warp's part of a list ends at start + run instead of start - run, where both
// start = warp*run and the end are at most the length. Below 0 it wraps and becomes the length,
// so the first part is the whole list, and the others are empty.
func isDivision(q survivor) bool {
	f := q.flow()
	if !q.was.Is("add.u32") || !q.is.Is("sub.u32") {
		return false
	}
	start, ok := f.Definition(q.was.Args[1])
	if !ok || !start.Is("min.u32") {
		return false
	}
	product, ok := f.Definition(start.Args[1])
	readers := f.Readers(q.was.Written())
	return ok && product.Is("mul.lo.u32") && product.Args[2] == q.was.Args[2] && len(readers) > 0 && !slices.ContainsFunc(readers, func(s ptxtext.Statement) bool {
		return !s.Is("min.u32") || s.Args[2] != start.Args[2]
	})
}

// firstTakesAll: ends differ, and results do not. If all parts are empty, they do.
func firstTakesAll(q survivor) bool {
	return q.infects() && q.instead(q.is) == Unchanged && q.instead(ptxtext.Statement{Op: "mov.b32", Args: []string{q.was.Written(), "0"}}) == Killed
}

// isFirstVec4: the bound of 8i < ceil(n/4), for an index i that is compared with another bound,
// ceil(n/32).
func isFirstVec4(q survivor) bool {
	f := q.flow()
	readers := f.Readers(q.was.Written())
	return q.was.Is("shr.u32") && q.was.Args[2] == "2" && q.is.Is("shl.b32") && len(readers) > 0 && !slices.ContainsFunc(readers, func(s ptxtext.Statement) bool {
		first, ok := f.Definition(s.Args[1])
		return !ok || !s.Is("setp.lt.u32") || !first.Is("shl.b32") || first.Args[2] != "3" || !slices.ContainsFunc(f.At, func(s ptxtext.Statement) bool {
			return s.Is("setp.ge.u32") && s.Args[1] == first.Args[1]
		})
	})
}

// sameFirst: the bounds differ, and the comparisons do not. With ceil(n/4)/8 as the bound, they
// do.
func sameFirst(q survivor) bool { return sameReaders(q) && q.instead(q.was.WithArg(2, "5")) == Killed }

// passLoop returns the step and the test of a loop of which the change affects either.
func (q survivor) passLoop() (step, test int, ok bool) {
	f := q.flow()
	step = q.mutant.line
	if q.was.Is("setp") {
		step--
	}
	test = step + 1
	if step < 0 || test+1 >= len(f.At) {
		return 0, 0, false
	}
	add, compare, back := f.At[step], f.At[test], f.At[test+1]
	return step, test, add.Is("add.u32") && add.Args[0] == add.Args[1] && compare.Is("setp.lt.u32") && compare.Args[1] == add.Args[0] &&
		back.Is("bra") && back.Guard == "@"+compare.Args[0]+" " && f.Next[test+1][0] <= step
}

// isOnePass: the step of a counter is at least the loop's bound. The step is a constant or the number of warps.
func isOnePass(q survivor) bool {
	step, test, ok := q.passLoop()
	if !ok {
		return false
	}
	f := q.flow()
	by, err1 := strconv.ParseUint(f.At[step].Args[2], 10, 32)
	if f.IsWarps(f.At[step].Args[2]) {
		by, err1 = uint64(f.Threads/32), nil
	}
	bound, err2 := strconv.ParseUint(f.At[test].Args[2], 10, 32)
	return err1 == nil && err2 == nil && by >= bound
}

// neverRepeats: the branch is never taken, with or without the change, and a case fails if it
// is taken.
func neverRepeats(q survivor) bool {
	_, test, _ := q.passLoop()
	at := q.flow().At
	return q.agrees(at[test].Args[0]) && !q.happens(test+1, at[test+1].Guard) &&
		q.m.probe(q.variant(test, at[test].WithArg(2, "4294967295").String())) == Killed
}

// isSelection: only selections depend on a comparison.
func isSelection(q survivor) bool {
	lines := q.flow().Controls(q.mutant.line)
	return q.was.Is("setp") && len(lines) > 0 && !slices.ContainsFunc(lines, func(i int) bool { return !q.flow().At[i].Is("selp") })
}

// sameSelections: the change turns the comparison in some case, and each selection has the same
// result.
func sameSelections(q survivor) bool {
	return q.infects() && !slices.ContainsFunc(q.flow().Controls(q.mutant.line), func(i int) bool { return !q.agrees(q.flow().At[i].Written()) })
}

// isFactor: a comparison of a number with 0 that only selects a factor of the number.
func isFactor(q survivor) bool {
	_, product, ok := q.factor()
	return ok && q.was.Args[2] == "0f00000000" && slices.Contains(product.Args[1:], q.was.Args[1])
}

// factor returns the selection that reads the changed comparison of floats, and the product that
// reads the selection, if there are no other readers.
func (q survivor) factor() (selection, product ptxtext.Statement, ok bool) {
	readers := q.flow().Readers(q.was.Written())
	if q.mutant.Mutator != "comparison" || !q.was.Is("setp.gt.f32") || len(readers) != 1 || !readers[0].Is("selp.f32") {
		return selection, product, false
	}
	products := q.flow().Readers(readers[0].Written())
	if len(products) != 1 || !products[0].Is("mul.rn.f32") {
		return selection, product, false
	}
	return readers[0], products[0], true
}

// sameProduct: the change selects another factor in some case, and each product is the same.
func sameProduct(q survivor) bool {
	selection, product, _ := q.factor()
	x, ok := q.compared(selection.Written())
	return ok && q.m.probe(x) == Killed && q.agrees(product.Written())
}

// isChoice: only branches and selections depend on the change.
func isChoice(q survivor) bool {
	switch {
	case q.was.Is("bra", "ret"):
		return true
	case q.was.Written() != "":
		return len(q.flow().Controls(q.mutant.line)) > 0
	}
	return false
}

// bothWays: where the change turns a branch, which happens, going that way always gives the
// same results.
func bothWays(q survivor) bool {
	allowed := func(x Mutant) bool {
		got := q.m.probe(x)
		return got == Unchanged || got == q.fate
	}
	turned := false
	if q.was.Is("bra", "ret") {
		for _, taken := range []bool{true, false} {
			guard := q.was.Guard
			if taken {
				guard = negated(q.was).Guard
			}
			if taken && q.is.Op == "" || !q.happens(q.mutant.line, guard) {
				continue
			}
			if turned = true; !allowed(q.always(q.mutant.line, taken)) {
				return false
			}
		}
		return turned
	}
	for _, line := range q.flow().Controls(q.mutant.line) {
		s := q.flow().At[line]
		for _, to := range []bool{true, false} {
			if !q.turns(line, condition(s), to) {
				continue
			}
			turned = true
			alone := q.always(line, to != strings.HasPrefix(s.Guard, "@!")) // a selection has no guard
			if !allowed(alone) && !allowed(q.decided(condition(s), to)) && !q.comparesEither(line, allowed) {
				return false
			}
		}
	}
	return turned
}

// comparesEither reports whether the only reader of the changed number is a comparison, the change
// turns its outcome before a line, and each turned outcome is allowed.
func (q survivor) comparesEither(line int, allowed func(x Mutant) bool) bool {
	readers := q.flow().Readers(q.was.Written())
	if len(readers) != 1 || !readers[0].Is("setp") {
		return false
	}
	p, turned := readers[0].Written(), false
	for _, to := range []bool{true, false} {
		if q.turns(line, p, to) {
			if turned = true; !allowed(q.decided(p, to)) {
				return false
			}
		}
	}
	return turned
}

// decided returns the kernel with a predicate that is always true or false, so that all
// branches that it controls go the same way.
func (q survivor) decided(p string, to bool) Mutant {
	line := slices.IndexFunc(q.flow().At, func(s ptxtext.Statement) bool { return slices.Contains(s.Writes(), p) })
	op := map[bool]string{true: "setp.eq.u32", false: "setp.ne.u32"}[to]
	return q.variant(line, q.lines()[line]+"\n"+ptxtext.Statement{Op: op, Args: []string{p, "0", "0"}}.String())
}

// always returns the kernel with a branch that is taken always or never, or a selection of
// the first or second operand.
func (q survivor) always(line int, taken bool) Mutant {
	s := q.flow().At[line]
	switch {
	case s.Is("selp") && taken:
		s = ptxtext.Statement{Guard: s.Guard, Op: "mov" + strings.TrimPrefix(s.Op, "selp"), Args: []string{s.Args[0], s.Args[1]}}
	case s.Is("selp"):
		s = ptxtext.Statement{Guard: s.Guard, Op: "mov" + strings.TrimPrefix(s.Op, "selp"), Args: []string{s.Args[0], s.Args[2]}}
	case taken:
		s.Guard = ""
	default:
		s = ptxtext.Statement{}
	}
	return q.variant(line, s.String())
}

// isLoopBound: i <= n instead of i < n, or n+1 instead of n-1 as the maximum of i, where i < n.
func isLoopBound(q survivor) bool {
	f := q.flow()
	if q.was.Is("setp.lt.u32") && q.is.Is("setp.le.u32") {
		return f.Below(q.mutant.line, q.was.Args[1], q.was.Args[2])
	}
	if !q.was.Is("add.u32") || !q.is.Is("sub.u32") || q.was.Args[2] != "4294967295" {
		return false
	}
	found := false
	for i, s := range f.At {
		if slices.Contains(s.Reads(), q.was.Written()) {
			if !s.Is("min.u32") || s.Args[2] != q.was.Written() || !f.Below(i, s.Args[1], q.was.Args[1]) {
				return false
			}
			found = true
		}
	}
	return found
}

// sameBound: the comparison, or the minimum, gives the same result in each case.
func sameBound(q survivor) bool {
	if q.was.Is("setp") {
		return sameResult(q)
	}
	return sameReaders(q)
}

// odd returns the number for which a changed comparison of a rest of a head with a constant
// has another result, if there is only one below 64 and it is odd.
func (q survivor) odd() (n uint64, ok bool) {
	if !q.was.Is("setp.gt.u32", "setp.ge.u32") || !q.is.Is("setp.gt.u32", "setp.ge.u32") {
		return 0, false
	}
	was, err1 := strconv.ParseUint(q.was.Args[2], 10, 32)
	is, err2 := strconv.ParseUint(q.is.Args[2], 10, 32)
	if err1 != nil || err2 != nil {
		return 0, false
	}
	holds := func(s ptxtext.Statement, bound, v uint64) bool { return v > bound || v == bound && s.Is("setp.ge") }
	count := 0
	for v := range uint64(64) {
		if holds(q.was, was, v) != holds(q.is, is, v) {
			n, count = v, count+1
		}
	}
	return n, count == 1 && n%2 == 1
}

// isEven: rope_append refuses heads of odd length.
func isEven(q survivor) bool {
	if _, ok := q.odd(); !ok || !strings.HasPrefix(q.mutant.Kernel, "rope_append") {
		return false
	}
	rest, ok := q.flow().Definition(q.was.Args[1])
	return ok && rest.Is("sub.u32")
}

// neverOdd: the rest is never odd, and an even number next to the odd one occurs.
func neverOdd(q survivor) bool {
	n, _ := q.odd()
	traps := func(test string) Fate {
		x := q.variant(q.mutant.line, fmt.Sprintf(test, q.was.Args[1])+"\n\t@%found trap;\n"+q.mutant.Old)
		x.declare, x.trap = "\t.reg .pred %found;\n\t.reg .b32 %low;\n", true
		return q.m.probe(x)
	}
	next := func(v uint64) Fate { return traps(fmt.Sprintf("\tsetp.eq.u32 %%%%found, %%s, %d;", v)) }
	return traps("\tand.b32 %%low, %s, 1;\n\tsetp.eq.u32 %%found, %%low, 1;") == Unchanged && (next(n+1) == Killed || next(n-1) == Killed)
}

var integerOrder = regexp.MustCompile(`^setp\.(lt|le|gt|ge)\.[us](32|64)$`)

// isEdge: a bound of integers, or a term of one, or a quotient that is only a bound.
func isEdge(q survivor) bool {
	if list := q.flow().Readers(q.was.Written()); q.was.Is("shr.u32") && q.is.Is("shl.b32") {
		return !slices.ContainsFunc(list, func(s ptxtext.Statement) bool { return !s.Is("setp.lt.u32") || s.Args[2] != q.was.Written() })
	}
	if q.was.Is("add.u32") && q.mutant.Mutator == "constant" {
		return len(q.flow().Controls(q.mutant.line)) > 0
	}
	return integerOrder.MatchString(q.was.Op) && (q.mutant.Mutator == "comparison" || q.mutant.Mutator == "constant")
}

// furtherBound: the bound matters in some case, and moving it further changes nothing.
func furtherBound(q survivor) bool {
	if !q.infects() {
		return false
	}
	if q.was.Is("shr.u32") {
		further := func(n int) bool {
			more := fmt.Sprintf("%s\n\tadd.u32 %s, %[2]s, %d;", q.was, q.was.Written(), n)
			return q.m.probe(q.variant(q.mutant.line, more)) == Unchanged
		}
		return !sameReaders(q) && further(2) && further(5)
	}
	if q.mutant.Mutator == "constant" {
		n, err := strconv.ParseUint(q.was.Args[q.constant()], 10, 32)
		return err == nil && q.set(fmt.Sprint(n+2)) == Unchanged && q.set(fmt.Sprint(n+5)) == Unchanged
	}
	op := "add.u32"
	if q.was.Is("setp.le", "setp.gt") {
		op = "sub.u32"
	}
	for _, n := range []string{"2", "5"} {
		x := q.variant(q.mutant.line, ptxtext.Statement{Op: op, Args: []string{"%moved", q.was.Args[2], n}}.String()+"\n"+q.was.WithArg(2, "%moved").String())
		x.declare = "\t.reg .b32 %moved;\n"
		if !strings.HasSuffix(q.was.Op, "32") || q.m.probe(x) != Unchanged {
			return false
		}
	}
	return true
}

// isLimit: a sum with a constant, of which all readers are minima.
func isLimit(q survivor) bool {
	list := q.flow().Readers(q.was.Written())
	return q.was.Is("add.u32") && ptxtext.IsNumber(q.was.Args[2]) && len(list) > 0 && !slices.ContainsFunc(list, func(s ptxtext.Statement) bool { return !s.Is("min.u32") })
}

// neverLimits: the change matters to the limit and to no minimum, but a limit less by one would.
func neverLimits(q survivor) bool {
	n, err := strconv.ParseUint(q.was.Args[2], 10, 32)
	less := q
	less.is = q.was.WithArg(2, fmt.Sprint(uint32(n-1)))
	return err == nil && sameReaders(q) && !sameReaders(less)
}

// padded returns the lines that a comparison guards: stores to shared memory, copies into it
// and the addresses of both.
func (q survivor) padded() (lines []int) {
	p, stores := q.was.Written(), false
	for i, s := range q.flow().At {
		switch store := s.Is("st.shared.v2.u32", "st.shared.v4.u32", "cp.async.cg.shared.global"); {
		case !slices.Contains(s.Reads(), p):
			continue
		case s.Guard != "@"+p+" " || !store && !s.Is("mad.lo.u32"):
			return nil
		default:
			lines, stores = append(lines, i), stores || store
		}
	}
	if !stores {
		return nil
	}
	return lines
}

// isPadding: an index of a row's part is compared with a constant, and the change lets one more
// part pass.
func isPadding(q survivor) bool {
	if !q.was.Is("setp.lt.u32") || len(q.padded()) == 0 {
		return false
	}
	n, err := strconv.ParseUint(q.was.Args[2], 10, 32)
	if err != nil {
		return false
	}
	return q.is.Is("setp.le.u32") && q.is.Args[2] == q.was.Args[2] || q.is.Is("setp.lt.u32") && q.is.Args[2] == fmt.Sprint(n+1)
}

// neverRead: in some case a thread stores one more part, and storing other numbers there
// changes nothing either. What it copies is in bounds.
func neverRead(q survivor) bool {
	x := q.variant(q.mutant.line, q.mutant.Old+"\n"+q.is.WithArg(0, "%passes").String()+
		fmt.Sprintf("\n\tnot.pred %%extra, %s;\n\tand.pred %%extra, %%extra, %%passes;\n\tmov.b32 %%bad, 2143292333;", q.was.Written()))
	x.declare, x.after = "\t.reg .pred %passes, %extra;\n\t.reg .b32 %bad;\n", map[int]string{}
	stored := x
	stored.trap, stored.New = true, x.New+"\n\t@%extra trap;"
	for _, i := range q.padded() {
		s := q.flow().At[i]
		s.Guard = "@%extra "
		switch {
		case s.Is("cp"):
			s.Op, s.Args = "st.shared.v4.u32", []string{s.Args[0], "{%bad, %bad, %bad, %bad}"}
		case s.Is("st"):
			s = s.WithArg(1, ptxtext.Registers.ReplaceAllString(s.Args[1], "%bad"))
		}
		x.after[i] = s.String() + "\n"
	}
	return q.m.probe(stored) == Killed && q.m.probe(x) == Unchanged && q.instead(q.is) == Unchanged
}

// changedFloat returns the bits of the float32 constant that the change replaces.
func (q survivor) changedFloat() (n uint32, ok bool) {
	if q.mutant.Mutator != "float constant" {
		return 0, false
	}
	digits, ok := strings.CutPrefix(q.was.Args[q.constant()], "0f")
	u, err := strconv.ParseUint(digits, 16, 32)
	return uint32(u), ok && err == nil
}

// setFloat returns the fate of the kernel with another float32 in place of the changed one.
func (q survivor) setFloat(x float64) Fate { return q.set(floatArg(float32(x))) }

func floatArg(x float32) string { return fmt.Sprintf("0f%08X", math.Float32bits(x)) }

func isFill(q survivor) bool {
	_, ok := q.changedFloat()
	return ok && q.was.Is("mov.f32", "selp.f32") || q.was.Is("mov.b32", "mov.b64", "selp.b32", "selp.b64") && q.mutant.Mutator == "constant"
}

// anyFill: NaN or 2^100, or such an integer, instead of the constant changes no bit either.
// Some instruction reads that value, or it is still there when some thread ends, so that the
// cases cover the path on which nothing overwrites it.
func anyFill(q survivor) bool {
	reg := q.was.Written()
	for _, n := range []uint32{0x7FC00BAD, 0x71800BAD} {
		other := fmt.Sprintf("0f%08X", n)
		if !strings.HasPrefix(q.was.Args[q.constant()], "0f") {
			other = fmt.Sprint(n)
		}
		x := q.variant(q.mutant.line, q.was.WithArg(q.constant(), other).String())
		if q.m.probe(x) == Unchanged {
			return q.arrives(x, reg, fmt.Sprint(n), func(s ptxtext.Statement) bool { return slices.Contains(s.Reads(), reg) || s.Is("ret") })
		}
	}
	return false
}

func isStart(q survivor) bool {
	if n, ok := q.changedFloat(); ok {
		return q.was.Is("mov.f32", "selp.f32") && n == math.Float32bits(float32(math.Inf(-1)))
	}
	if q.was.Is("max.u32") {
		return q.mutant.Mutator == "constant" && q.was.Args[q.constant()] == "0"
	}
	return q.was.Is("mov") && q.readBy(func(s ptxtext.Statement) bool {
		return s.Is("setp.gt", "setp.lt", "max", "min", "redux.sync.max", "redux.sync.min", "selp", "shfl") || s.Is("setp.eq") && !ptxtext.IsNumber(s.Args[2])
	})
}

// otherStart: a value far nearer to the inputs changes nothing either, or the inputs begin
// next to the changed value, so that the next one is wrong. A value beyond them is wrong.
func otherStart(q survivor) bool {
	if _, ok := q.changedFloat(); ok {
		return q.setFloat(-0x1p100) == Unchanged && q.setFloat(0x1p100) != Unchanged
	}
	switch q.was.Args[q.constant()] {
	case "0":
		return q.set("2") == Killed || q.set("65536") == Unchanged && q.set("4294967295") != Unchanged
	case "4294967295":
		return q.set("2147483647") == Unchanged && q.set("0") != Unchanged
	}
	return false
}

// isLowKey: the router sets the key of a chosen expert to 0, below the 1 of a NaN. A 1 ties
// with NaNs, and the lowest index wins. At most 32 experts are chosen, so an expert with 32
// lower indices never wins.
func isLowKey(q survivor) bool {
	if !strings.HasPrefix(q.mutant.Kernel, "moe_route") || q.mutant.Mutator != "constant" || !q.was.Is("selp.b32") || q.is.Args[1] != "1" {
		return false
	}
	f := q.flow()
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

// keyMatters: above the key of a NaN, a chosen expert is chosen again.
func keyMatters(q survivor) bool { return q.set("2") == Killed }

// isFinite: 0 replaces -Inf, which avoids Inf - Inf; any finite number would do.
func isFinite(q survivor) bool {
	if !q.was.Is("selp.f32") || q.constant() < 0 || q.was.Args[q.constant()] != "0f00000000" {
		return false
	}
	s, ok := q.flow().Definition(q.was.Args[3])
	return ok && s.Is("setp") && s.Args[2] == "0fFF800000"
}

func anyFinite(q survivor) bool {
	return q.setFloat(1024) == Unchanged && q.setFloat(-1024) == Unchanged && q.setFloat(math.Inf(-1)) != Unchanged
}

func isClamp(q survivor) bool {
	_, ok := q.changedFloat()
	return ok && q.was.Is("min.f32", "max.f32")
}

// beyondClamps: some input is beyond both clamps.
func beyondClamps(q survivor) bool {
	i := q.constant()
	at := "max.f32"
	if q.was.Is("max") {
		at = "min.f32"
	}
	beyond := q.variant(q.mutant.line, fmt.Sprintf("\t%[1]s %%far, %[2]s, %[3]s;\n\t%[1]s %%far, %%far, %[4]s;\n\tsetp.eq.f32 %%beyond, %%far, %[4]s;\n\t@%%beyond trap;\n", at, q.was.Args[i], q.is.Args[i], q.was.Args[3-i])+q.mutant.Old)
	beyond.declare = "\t.reg .f32 %far;\n\t.reg .pred %beyond;\n"
	return q.m.probe(beyond) == Killed
}

// isScale: a finite power of two.
func isScale(q survivor) bool {
	n, ok := q.changedFloat()
	return ok && q.was.Is("selp.f32", "mov.f32") && n&0x007FFFFF == 0 && n&0x7F800000 != 0 && n&0x7F800000 != 0x7F800000
}

// onlyPowers: other powers of two change nothing, and another factor changes the rounding.
func onlyPowers(q survivor) bool {
	n, _ := q.changedFloat()
	x := float64(math.Float32frombits(n))
	return q.setFloat(4*x) == Unchanged && q.setFloat(x/4) == Unchanged && q.setFloat(1.5*x) == withinTolerance
}

// isHandover: a comparison of floats with a constant other than 0.
func isHandover(q survivor) bool {
	c, _, ok := q.border()
	return ok && c != 0 && (q.mutant.Mutator == "comparison" || q.mutant.Mutator == "float constant")
}

// border returns the float constant of a comparison. write returns a number as a constant of
// the same type.
func (q survivor) border() (c float64, write func(c float64) string, ok bool) {
	if !q.was.Is("setp") {
		return 0, nil, false
	}
	if digits, ok := strings.CutPrefix(q.was.Args[2], "0d"); ok {
		n, err := strconv.ParseUint(digits, 16, 64)
		return math.Float64frombits(n), func(c float64) string { return fmt.Sprintf("0d%016X", math.Float64bits(c)) }, err == nil
	}
	digits, ok := strings.CutPrefix(q.was.Args[2], "0f")
	n, err := strconv.ParseUint(digits, 16, 32)
	return float64(math.Float32frombits(uint32(n))), func(c float64) string { return floatArg(float32(c)) }, ok && err == nil
}

// movedBorder: a border that is moved by a sixteenth or a factor of two, or to the changed
// constant, past some inputs, gives results within the bounds.
func movedBorder(q survivor) bool {
	c, write, _ := q.border()
	moves := [][]string{{q.is.Args[2]}}
	if q.mutant.Mutator == "comparison" {
		moves = [][]string{{write(c * 15 / 16), write(c * 17 / 16)}, {write(c / 2), write(c * 2)}}
	}
	for _, moved := range moves {
		passed := false
		for _, c := range moved {
			x := q
			x.is = q.was.WithArg(2, c)
			if got := q.instead(x.is); got != Unchanged && got != withinTolerance {
				return false
			}
			passed = passed || x.infects()
		}
		if passed {
			return true
		}
	}
	return false
}

var floatArithmetic = regexp.MustCompile(`^(add|sub|mul|fma|div|neg|abs|mov|ex2|sqrt|rcp|selp)\.(.*\.)?f(32|64)$`)

func isArithmetic(q survivor) bool {
	return floatArithmetic.MatchString(q.was.Op) && q.was.Guard == "" && q.is.Written() == q.was.Written()
}

// amplified: the result changes in some case, and even twice the change stays within the
// bounds.
func amplified(q survivor) bool {
	to, kind := q.was.Written(), q.was.Op[len(q.was.Op)-3:]
	x := q.variant(q.mutant.line, strings.Join([]string{
		q.is.WithArg(0, "%other").String(), q.mutant.Old,
		fmt.Sprintf("\tsetp.neu.%s %%changed, %%other, %s;", kind, to),
		fmt.Sprintf("\t@%%changed sub.rn.%s %%other, %%other, %s;", kind, to),
		fmt.Sprintf("\t@%%changed fma.rn.%s %s, %%other, %s, %[2]s;", kind, to, map[string]string{"f32": "0f40000000", "f64": "0d4000000000000000"}[kind]),
	}, "\n"))
	x.declare = "\t.reg .pred %changed;\n\t.reg ." + kind + " %other;\n"
	got := q.m.probe(x)
	return (got == withinTolerance || got == Unchanged) && q.infects()
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

// maskMatters: lanes receive other values, and a case fails if each keeps its own.
func maskMatters(q survivor) bool {
	return q.infects() && q.instead(q.was.WithArg(2, "0")) == Killed
}

// isPaired: the lanes have already added, or compared, what the two masks exchange.
func isPaired(q survivor) bool {
	if !isButterfly(q) {
		return false
	}
	f := q.flow()
	sum, ok := f.Definition(q.was.Args[1])
	if !ok || !sum.Is("add", "max", "min") {
		return false
	}
	a, _ := strconv.ParseUint(q.was.Args[2], 10, 32)
	b, _ := strconv.ParseUint(q.is.Args[2], 10, 32)
	return slices.ContainsFunc(sum.Args[1:], func(arg string) bool {
		s, ok := f.Definition(arg)
		return ok && s.Is("shfl.sync.bfly") && s.Args[2] == fmt.Sprint(a^b)
	})
}

// equalPairs: lanes receive equal values, and a case fails if each keeps its own.
func equalPairs(q survivor) bool {
	return sameResult(q) && q.instead(q.was.WithArg(2, "0")) == Killed
}

// isMirrored: a lane's bit, inverted, selects the part of a sum that the lane adds and the one
// that it sends.
func isMirrored(q survivor) bool {
	f := q.flow()
	if !q.was.Is("setp.ne.u32") || q.was.Args[2] != "0" || q.was.Args[1] != q.is.Args[1] {
		return false
	}
	bit, once := f.Definition(q.was.Args[1])
	if !once || !bit.Is("and.b32") || !slices.Contains([]string{"1", "2", "4", "8", "16"}, bit.Args[2]) {
		return false
	}
	inverted := q.is.Is("setp.eq.u32") && q.is.Args[2] == "0" || q.is.Is("setp.ne.u32") && q.is.Args[2] == bit.Args[2]
	return inverted && !slices.ContainsFunc(f.Readers(q.was.Written()), func(s ptxtext.Statement) bool { return !s.Is("selp") })
}

// anyPart: the inverted bit changes nothing, but two lanes with the same part do.
func anyPart(q survivor) bool {
	same := func(op string) Fate {
		return q.instead(ptxtext.Statement{Op: op, Args: []string{q.was.Written(), "0", "0"}})
	}
	return q.infects() && q.instead(q.is) == Unchanged && same("setp.eq.u32") == Killed && same("setp.ne.u32") == Killed
}

func isOneLane(q survivor) bool { return q.was.Is("shfl.sync.bfly") && q.is.Is("shfl.sync.down") }

// lowLanes: lanes receive other values, and NaN in each lane from the mask on changes nothing.
func lowLanes(q survivor) bool {
	x := q.variant(q.mutant.line, fmt.Sprintf("%s\n\tmov.u32 %%lane, %%laneid;\n\tsetp.ge.u32 %%high, %%lane, %s;\n\t@%%high mov.b32 %s, 2143289344;", q.mutant.Old, q.was.Args[2], q.was.Written()))
	x.declare = "\t.reg .b32 %lane;\n\t.reg .pred %high;\n"
	return q.infects() && q.m.probe(x) == Unchanged
}

func isNeedlessBarrier(q survivor) bool {
	return q.mutant.Mutator == LeaveOutSync && q.was.Is("bar") && q.flow().BarrierNeedless(q.mutant.line)
}

// noRace: on each seed's schedule the emulator finds no race without the barrier, and no case
// changes.
func noRace(q survivor) bool { return q.instead() == Unchanged }

func isJoined(q survivor) bool {
	return q.mutant.Mutator == LeaveOutSync && q.was.Is("cp.async.commit_group") && len(q.flow().JoinedWaits(q.mutant.line)) > 0
}

// waitMatters: joining the groups changes nothing, although the emulator completes a copy only
// when a wait demands it, and a case fails without the wait.
func waitMatters(q survivor) bool {
	return q.instead() == Unchanged && !slices.ContainsFunc(q.flow().JoinedWaits(q.mutant.line), func(wait int) bool { return q.m.probe(q.variant(wait, "")) != Killed })
}

// isJoinedProduct: a later wait includes the wait that is changed or left out, or the wait for the group.
func isJoinedProduct(q survivor) bool {
	if !q.was.Is("wgmma.commit_group", "wgmma.wait_group") {
		return false
	}
	_, ok := q.flow().LaterProductWait(q.mutant.line)
	return ok
}

// productWaitMatters: a case fails without the later wait.
func productWaitMatters(q survivor) bool {
	wait, _ := q.flow().LaterProductWait(q.mutant.line)
	return q.instead() == Unchanged && q.m.probe(q.variant(wait, "")) == Killed
}

// isMaskedCopy: the changed number is how many bytes of its source an asynchronous copy reads.
func isMaskedCopy(q survivor) bool {
	return q.was.Is("selp.b32") && q.was.Args[2] == "0" && q.readBy(func(s ptxtext.Statement) bool { return s.Is("cp.async") })
}

// wholeCopy: it is not 0 in some case, and copying the whole source, which may be
// uninitialized, changes no bit either.
func wholeCopy(q survivor) bool { return q.infects() && q.set(q.was.Args[1]) == Unchanged }

// sizes returns the selections, with 0 if not, of how many bytes a copy reads, if the change
// affects nothing else.
func (q survivor) sizes() (list []int, ok bool) {
	f := q.flow()
	seen, todo := map[string]bool{}, q.was.Writes()
	for len(todo) > 0 {
		reg := todo[0]
		if todo = todo[1:]; seen[reg] {
			continue
		}
		seen[reg] = true
		for i, s := range f.At {
			switch {
			case !slices.Contains(s.Reads(), reg):
			case (s.Is("setp.ge.u32", "setp.lt.u32", "and.pred") || s.Is("add.u32") && ptxtext.IsNumber(s.Args[2])) && s.Guard == "":
				todo = append(todo, s.Written())
			case s.Is("selp.b32") && s.Args[2] == "0" && s.Args[3] == reg && !slices.ContainsFunc(f.Readers(s.Written()), func(s ptxtext.Statement) bool { return !s.Is("cp.async") }):
				list = append(list, i)
			default:
				return nil, false
			}
		}
	}
	return list, len(list) == 1
}

func isMaskedPosition(q survivor) bool {
	if !(q.was.Is("and.pred") && q.is.Is("or.pred") || q.was.Is("setp.lt.u32") && q.is.Is("setp.le.u32") || q.was.Is("add.u32") && (q.mutant.Mutator == "constant" || q.is.Is("sub.u32"))) {
		return false
	}
	_, ok := q.sizes()
	return ok
}

// onlyMore: some case copies more positions, none copies fewer, and copying all of them changes
// no bit either.
func onlyMore(q survivor) bool {
	list, _ := q.sizes()
	p := condition(q.flow().At[list[0]])
	return q.turns(list[0], p, true) && !q.turns(list[0], p, false) && q.m.probe(q.always(list[0], true)) == Unchanged
}

// laterBlock returns how many keys a block has, if a position of the next block is compared with
// the first visible one.
func (q survivor) laterBlock() (keys uint64, ok bool) {
	f := q.flow()
	s, once := f.Definition(q.was.Args[1])
	for once && s.Is("add.u32") {
		s, once = f.Definition(s.Args[1])
	}
	if !once || !s.Is("shl.b32") || !ptxtext.IsNumber(s.Args[2]) {
		return 0, false
	}
	next, once := f.Definition(s.Args[1])
	n, err := strconv.Atoi(s.Args[2])
	return 1 << n, once && next.Is("add.u32") && next.Args[2] == "1" && err == nil && n < 32
}

func isLaterBlock(q survivor) bool {
	if !strings.HasPrefix(q.mutant.Kernel, "flash_") || !q.was.Is("setp.ge.u32") || !q.is.Is("setp.gt.u32") || q.mutant.Mutator != "comparison" {
		return false
	}
	_, ok := q.laterBlock()
	return ok
}

// equalInFirst: the position is never the first visible one, but that of the block before is.
func equalInFirst(q survivor) bool {
	keys, _ := q.laterBlock()
	equal := func(back uint64) Fate {
		x := q.variant(q.mutant.line, fmt.Sprintf("\tsub.u32 %%before, %s, %d;\n\tsetp.eq.u32 %%found, %%before, %s;\n\t@%%found trap;\n", q.was.Args[1], back, q.was.Args[2])+q.mutant.Old)
		x.declare, x.trap = "\t.reg .pred %found;\n\t.reg .b32 %before;\n", true
		return q.m.probe(x)
	}
	return equal(0) == Unchanged && equal(keys) == Killed
}

// isLaterArrival: a wait for the next barrier of a stage, at which warps arrive in order.
func isLaterArrival(q survivor) bool {
	return strings.HasPrefix(q.mutant.Kernel, "product_tile_") && q.mutant.Mutator == "offset" && q.was.Is("mbarrier.try_wait")
}

// earlierMatters: a wait for the barrier before is not enough.
func earlierMatters(q survivor) bool {
	address, offset, ok := strings.Cut(strings.Trim(q.was.Args[1], "[]"), "+")
	n, err := strconv.Atoi(offset)
	return ok && err == nil && n >= 8 && q.instead(q.was.WithArg(1, fmt.Sprintf("[%s+%d]", address, n-8))) == Killed
}

// isMasked: the first block index is a quotient; a larger divisor starts at an earlier block.
func isMasked(q survivor) bool {
	return strings.HasPrefix(q.mutant.Kernel, "flash_") && q.was.Is("shr.u32") && q.is.Is("shr.u32") && ptxtext.IsNumber(q.was.Args[2])
}

// earlierBlock: starting at block 0 changes the index and no output bit.
func earlierBlock(q survivor) bool {
	first := q
	first.is = q.was.WithArg(2, "31")
	return first.infects() && q.instead(first.is) == Unchanged
}
