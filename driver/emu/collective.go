package emu

import "github.com/lockstep-go/lockstep/driver/emu/internal/syntax"

// Instructions that several lanes of a warp execute together.
var collectiveForms = []form{
	{pattern: "bar.warp.sync", needs: requirement{60, 30}, build: buildWarpSync},
	{pattern: "shfl.sync.bfly|idx|down|up.b32", needs: requirement{60, 30}, build: buildShuffle},
	{pattern: "vote.sync.ballot.b32", needs: requirement{60, 30}, build: buildVote},
	{pattern: "vote.sync.any|all|uni.pred", needs: requirement{60, 30}, build: buildVote},
	{pattern: "activemask.b32", needs: requirement{62, 30}, args: "b32", run: runActiveMask},
	{pattern: "redux.sync.add|min|max.u32|s32", needs: requirement{70, 80}, build: buildRedux},
	{pattern: "redux.sync.and|or|xor.b32", needs: requirement{70, 80}, build: buildRedux},
}

// wait describes what a lane waits for.
type wait struct {
	op      *op
	named   uint32 // the lanes that must execute op together
	barrier int8   // the barrier that must open, registerPool, or -1
}

// converge collects the lanes that must execute an op together. m holds the active lanes that
// execute it, and s those lanes of m whose member mask is named. If all lanes of named have come,
// converge returns named. Otherwise it makes the lanes of s wait and returns 0. The result is
// resultNext only if the set of active lanes does not change.
func (w *warp) converge(o *op, m, s, named uint32) (uint32, result) {
	if s == w.active && s == named {
		return s, resultNext
	}
	w.setPC(w.active&^m, w.pc+1) // excluded by the guard
	w.setPC(m, w.pc)
	if absent := named &^ w.live; absent != 0 {
		return 0, w.trap(absentLanes(o), o, lowestLane(s), "lanes %08x are named, and of these lanes %08x have exited or do not exist",
			named, absent)
	}
	present := s
	for l := range lanesOf(w.waiting & named) {
		if at := w.waits[l]; at.named == named && at.barrier < 0 && converges(at.op, o) {
			present |= 1 << l
		}
	}
	if present != named {
		w.waiting |= s
		for l := range lanesOf(s) {
			w.waits[l] = wait{op: o, named: named, barrier: -1}
		}
		return 0, resultReselect
	}
	w.waiting &^= present
	for l := range lanesOf(present) {
		w.pcs[l]++
	}
	return present, resultReselect
}

// converges reports whether lanes at two ops can come together: at the same op, or at any two
// bar.warp.sync.
func converges(a, b *op) bool { return a == b || a.syncOnly && b.syncOnly }

// absentLanes is the kind of trap for lanes that do not come to an op.
func absentLanes(o *op) TrapKind {
	if o.aligned {
		return TrapDivergence
	}
	return TrapLane
}

// convergeWarp is converge for an op that all 32 lanes execute. It returns false if lanes are
// missing.
func (w *warp) convergeWarp(o *op, m uint32) (bool, result) {
	lanes, res := w.converge(o, m, m, allLanes)
	return lanes != 0, res
}

// convergeMembers is converge for an op with member masks in a register. named is the mask of the
// lowest lane of m.
func (w *warp) convergeMembers(o *op, m uint32, reg int32) (lanes, named uint32, res result) {
	if !w.reads(o, m, reg) {
		return 0, 0, resultTrap
	}
	masks := &w.regs[reg]
	named = uint32(masks[lowestLane(m)])
	s := uint32(0) // lanes of m with the same mask
	for l := range lanesOf(m) {
		if uint32(masks[l])>>l&1 == 0 {
			return 0, 0, w.trap(TrapLane, o, l, "the executing lane is not in its member mask %08x", uint32(masks[l]))
		}
		if uint32(masks[l]) == named {
			s |= 1 << l
		}
	}
	lanes, res = w.converge(o, m, s, named)
	return lanes, named, res
}

func buildWarpSync(d *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
	if err := wantOperands(in, 1); err != nil {
		return op{}, err
	}
	o := op{kind: opRun, run: runWarpSync, syncOnly: true}
	var err error
	o.c, err = d.source(in.Operands[0], typeB32)
	return o, err
}

func runWarpSync(w *warp, o *op, m uint32) result {
	lanes, _, res := w.convergeMembers(o, m, o.c)
	if lanes != 0 {
		w.syncLanes(lanes)
	}
	return res
}

// buildShuffle decodes d[|p], a, b, c, member mask. The ops have registers d, a and b, the member
// mask in c, and c in more[0].
func buildShuffle(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := wantOperands(in, 5); err != nil {
		return op{}, err
	}
	o := op{kind: opRun}
	to := in.Operands[0]
	pair := to.Pair
	to.Pair = ""
	var err error
	if o.d, err = d.destination(to, typeB32); err != nil {
		return o, err
	}
	inRange := int32(-1)
	if pair != "" {
		if inRange, err = d.predicate(pair); err != nil {
			return o, err
		}
	}
	if o.a, err = d.typed(in.Operands[1], typeB32, typeB32.Fits); err != nil {
		return o, err
	}
	if o.b, err = d.source(in.Operands[2], typeU32); err != nil {
		return o, err
	}
	c, err := d.source(in.Operands[3], typeU32)
	if err != nil {
		return o, err
	}
	o.more = []int32{c}
	mode := shuffleModes[q[2]]
	o.run = func(w *warp, o *op, m uint32) result { return w.shuffle(o, m, mode, inRange) }
	o.c, err = d.source(in.Operands[4], typeB32)
	return o, err
}

type shuffleMode uint8

const (
	shuffleUp shuffleMode = iota
	shuffleDown
	shuffleXor
	shuffleIndex
)

var shuffleModes = map[string]shuffleMode{"up": shuffleUp, "down": shuffleDown, "bfly": shuffleXor, "idx": shuffleIndex}

// shuffleSource is the lane that a lane reads from, and whether it is in range. Operand c of shfl
// holds a segment mask and a clamp value. The formulas are those of the PTX ISA.
func shuffleSource(mode shuffleMode, lane, b, c int) (source int, inRange bool) {
	segment, clamp := c>>8&31, c&31
	maxLane := lane&segment | clamp&^segment
	switch b &= 31; mode {
	case shuffleUp:
		source = lane - b
		return source, source >= maxLane
	case shuffleDown:
		source = lane + b
	case shuffleXor:
		source = lane ^ b
	default:
		source = lane&segment | b&^segment
	}
	return source, source <= maxLane
}

func (w *warp) shuffle(o *op, m uint32, mode shuffleMode, inRangePred int32) result {
	c := o.more[0]
	if !w.reads(o, m, o.a, o.b, c) {
		return resultTrap
	}
	lanes, named, res := w.convergeMembers(o, m, o.c)
	values := w.regs[o.a]
	for l := range lanesOf(lanes) {
		from, inRange := shuffleSource(mode, l, int(w.regs[o.b][l]), int(w.regs[c][l]))
		if !inRange {
			from = l
		}
		if lanes>>from&1 == 0 {
			return w.trap(TrapLane, o, l, "the lane reads from lane %d, which is not in the member mask %08x", from, named)
		}
		w.set(o.d, l, values[from])
		if inRangePred >= 0 {
			v := uint32(0)
			if inRange {
				v = allLanes
			}
			w.setPred(inRangePred, 1<<l, v)
		}
	}
	return res
}

// buildVote decodes d, [!]p, member mask.
func buildVote(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := wantOperands(in, 3); err != nil {
		return op{}, err
	}
	o := op{kind: opRun}
	var err error
	if o.d, err = d.destination(in.Operands[0], q.typ()); err != nil {
		return o, err
	}
	if o.a, err = d.source(in.Operands[1], typePred); err != nil {
		return o, err
	}
	o.c, err = d.source(in.Operands[2], typeB32)
	mode, negated := q[2], in.Operands[1].Negated
	o.run = func(w *warp, o *op, m uint32) result { return w.vote(o, m, mode, negated) }
	return o, err
}

func (w *warp) vote(o *op, m uint32, mode string, negated bool) result {
	if !w.readsPred(o, m, o.a) {
		return resultTrap
	}
	lanes, _, res := w.convergeMembers(o, m, o.c)
	votes := w.preds[o.a]
	if negated {
		votes = ^votes
	}
	votes &= lanes
	if mode == "ballot" {
		for l := range lanesOf(lanes) {
			w.set(o.d, l, uint64(votes))
		}
		return res
	}
	yes := uint32(0)
	if mode == "any" && votes != 0 || mode != "any" && votes == lanes || mode == "uni" && votes == 0 {
		yes = allLanes
	}
	w.setPred(o.d, lanes, yes)
	return res
}

func runActiveMask(w *warp, o *op, m uint32) result {
	for l := range lanesOf(m) {
		w.set(o.d, l, uint64(m))
	}
	return resultNext
}

// reduction is the operation of redux, atom or red on two values of type t.
func reduction(name string, t syntax.Type) func(a, b uint64) uint64 {
	if t.Kind != syntax.Signed || name != "min" && name != "max" {
		return reductions[name]
	}
	return func(a, b uint64) uint64 {
		less := int64(extend(t, a)) < int64(extend(t, b))
		if less == (name == "min") {
			return a
		}
		return b
	}
}

// reductions are the operations on unsigned values.
var reductions = map[string]func(a, b uint64) uint64{
	"add": func(a, b uint64) uint64 { return a + b },
	"min": func(a, b uint64) uint64 { return min(a, b) },
	"max": func(a, b uint64) uint64 { return max(a, b) },
	"and": func(a, b uint64) uint64 { return a & b },
	"or":  func(a, b uint64) uint64 { return a | b },
	"xor": func(a, b uint64) uint64 { return a ^ b },
}

// buildRedux decodes d, a, member mask.
func buildRedux(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	f := reduction(q[2], q.typ())
	return d.fromArgs(&form{args: "T T b32", run: func(w *warp, o *op, m uint32) result {
		if !w.reads(o, m, o.a) {
			return resultTrap
		}
		lanes, _, res := w.convergeMembers(o, m, o.b)
		if lanes == 0 {
			return res
		}
		sum := w.regs[o.a][lowestLane(lanes)]
		for l := range lanesOf(lanes & (lanes - 1)) {
			sum = uint64(uint32(f(sum, w.regs[o.a][l])))
		}
		for l := range lanesOf(lanes) {
			w.set(o.d, l, sum)
		}
		return res
	}}, in, q)
}
