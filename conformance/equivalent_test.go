package conformance

import (
	"fmt"
	"strings"
)

// rule says why mutants of a class mean the same, though no case tells them from the
// kernel as it is.
type rule struct {
	name   string
	reason string
	holds  func(q question) bool
}

// question is a mutant that lives.
type question struct {
	m *mutation
	mutant
	fate
	was, is statement // the instruction
}

var rules = []rule{
	{"bounds", "floating-point arithmetic that gives other bits within the bounds, which say what is right, or that a later rounding takes away", withinBounds},
	{"threshold", "where one approximation hands over to another both hold", isThreshold},
	{"general", "a function guards against arguments that this kernel does not have and another one has", isGeneral},
	{"power of two", "a scale that is a power of two cancels without a rounding", isScale},
	{"sign", "a sum of squares is its own magnitude", func(q question) bool { return q.was.is("abs") && !q.m.infects(q.mutant) }},
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
	{"early end", "a thread without work that goes on does none, under an emulator that traps all that is not allowed", func(q question) bool {
		return q.mutator == "return left out"
	}},
}

// ruleOf names the rule by which a mutant is equivalent; "" if none.
func (m *mutation) ruleOf(v verdict) string {
	if v.fate == unreached && m.unreachable(v.mutant) {
		return unreachableRule.name
	}
	if v.fate != tolerated && v.fate != unseen {
		return ""
	}
	q := question{m: m, mutant: v.mutant, fate: v.fate}
	q.was, _ = parseStatement(q.old)
	q.is, _ = parseStatement(q.new)
	for _, r := range rules {
		if r.holds(q) {
			return r.name
		}
	}
	return ""
}

// idle reports whether a branch may always be taken, or never, as far as the cases see.
func (m *mutation) idle(kernel string, line int, most fate) bool {
	old := linesOf(m.kernels[kernel])[line]
	s, _ := parseStatement(old)
	always := s
	always.guard = ""
	ways := []string{always.String(), ""}
	if s.is("selp") {
		move := "mov" + strings.TrimPrefix(s.op, "selp")
		ways = []string{statement{s.guard, move, []string{s.args[0], s.args[1]}}.String(), statement{s.guard, move, []string{s.args[0], s.args[2]}}.String()}
	}
	for _, next := range ways {
		x := mutant{kernel: kernel, line: line, old: old, new: next}
		if got := m.probe(x); got == unseen || got == unreached || got == most {
			return true
		}
	}
	return false
}

// infects reports whether the changed instruction gives another result in some case.
func (m *mutation) infects(x mutant) bool {
	was, _ := parseStatement(x.old)
	is, _ := parseStatement(x.new)
	to := was.written()
	if to == "" || is.written() != to || was.guard != "" || len(to) < 2 {
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
	y.new = is.withArg(0, spare).String() + "\n" + x.old + "\n" + strings.NewReplacer("%%", "%", "%s", to).Replace(different) + "\t@%other trap;"
	y.declare = "\t.reg .pred %other, %pp;\n\t.reg .b32 %rr, %rs;\n\t.reg .b64 %dd, %de;\n\t.reg .f32 %ff;\n\t.reg .f64 %gg;\n"
	return m.probe(y) == killed
}

// probe is the fate of a mutant that a rule asks for.
func (m *mutation) probe(x mutant) fate {
	key := fmt.Sprint(x.kernel, x.line, x.new)
	if f, ok := m.probed.Load(key); ok {
		return f.(fate)
	}
	cases := m.coverage.reaching(x.kernel, x.line)
	if len(cases) == 0 {
		return unreached
	}
	f := m.run(x, cases).fate
	m.probed.Store(key, f)
	return f
}
