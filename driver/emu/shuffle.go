package emu

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

var collectiveForms = []form{
	{pattern: "bar.warp.sync", since: gate{60, 30}, build: buildWarpSync},
	{pattern: "shfl.sync.bfly|idx|down|up.b32", since: gate{60, 30}, build: buildShuffle},
	{pattern: "vote.sync.ballot.b32", since: gate{60, 30}, build: buildVote},
	{pattern: "vote.sync.any|all|uni.pred", since: gate{60, 30}, build: buildVote},
	{pattern: "activemask.b32", since: gate{62, 30}, args: "b32", run: runActive},
	{pattern: "redux.sync.add|min|max.u32|s32", since: gate{70, 80}, build: buildRedux},
	{pattern: "redux.sync.and|or|xor.b32", since: gate{70, 80}, build: buildRedux},
}

func buildWarpSync(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 1); err != nil {
		return op{}, err
	}
	o := op{kind: opRun, run: runWarpSync, syncOnly: true}
	var err error
	o.c, err = d.source(in.Operands[0], typeB32)
	return o, err
}

func runWarpSync(w *warp, o *op, m uint32) step {
	s, named, ok := w.members(o, m, o.c)
	if !ok {
		return stepFault
	}
	lanes, st := w.assemble(o, m, s, named)
	if lanes != 0 {
		w.syncLanes(lanes)
	}
	return st
}

// Modes of shfl.
const (
	shuffleXor uint8 = iota
	shuffleIndex
	shuffleDown
	shuffleUp
)

var shuffleModes = map[string]uint8{"bfly": shuffleXor, "idx": shuffleIndex, "down": shuffleDown, "up": shuffleUp}

// buildShuffle decodes d[|p], a, b, c, members.
func buildShuffle(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 5); err != nil {
		return op{}, err
	}
	o := op{kind: opRun, run: runShuffle, mode: shuffleModes[q[2]]}
	b32, u32 := typeB32, typeU32
	to := in.Operands[0]
	pair := to.Pair
	to.Pair = ""
	var err error
	if o.d, err = d.dest(to, b32); err != nil {
		return o, err
	}
	if pair != "" {
		if o.target, err = d.predicate(pair); err != nil {
			return o, err
		}
	}
	if o.a, err = d.typed(in.Operands[1], b32, b32.Fits); err != nil {
		return o, err
	}
	if o.b, err = d.source(in.Operands[2], u32); err != nil {
		return o, err
	}
	clamp, err := d.source(in.Operands[3], u32)
	if err != nil {
		return o, err
	}
	o.more = []int32{clamp}
	o.c, err = d.source(in.Operands[4], b32)
	return o, err
}

// shuffleSource gives the lane that a lane reads from, and whether it is within
// the bounds that clamp and segment mask set; as the PTX ISA spells it.
func shuffleSource(mode uint8, lane, b, c int) (int, bool) {
	segment, clamp := c>>8&31, c&31
	maxLane := lane&segment | clamp&^segment
	switch b &= 31; mode {
	case shuffleUp:
		lane -= b
		return lane, lane >= maxLane
	case shuffleDown:
		lane += b
	case shuffleXor:
		lane ^= b
	default:
		lane = lane&segment | b&^segment
	}
	return lane, lane <= maxLane
}

func runShuffle(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.b, o.more[0]) {
		return stepFault
	}
	s, named, ok := w.members(o, m, o.c)
	if !ok {
		return stepFault
	}
	lanes, st := w.assemble(o, m, s, named)
	values := w.regs[o.a]
	for l := range lanesOf(lanes) {
		from, within := shuffleSource(o.mode, l, int(w.regs[o.b][l]), int(w.regs[o.more[0]][l]))
		if !within {
			from = l
		}
		if lanes>>from&1 == 0 {
			return w.trap(TrapLane, o, l, "it reads from lane %d, which is not in the member mask %08x", from, named)
		}
		w.set(o.d, l, values[from])
		if o.target != 0 {
			v := uint32(0)
			if within {
				v = allLanes
			}
			w.setPred(o.target, 1<<l, v)
		}
	}
	return st
}

// buildVote decodes d, [!]p, members.
func buildVote(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 3); err != nil {
		return op{}, err
	}
	mode := q[2]
	o := op{kind: opRun, signed: in.Operands[1].Negated}
	var err error
	if o.d, err = d.dest(in.Operands[0], q.typ()); err != nil {
		return o, err
	}
	if o.a, err = d.source(in.Operands[1], typePred); err != nil {
		return o, err
	}
	o.c, err = d.source(in.Operands[2], typeB32)
	o.run = func(w *warp, o *op, m uint32) step { return w.vote(o, m, mode) }
	return o, err
}

// vote is vote.sync of the lanes that come together.
func (w *warp) vote(o *op, m uint32, mode string) step {
	if !w.readsPred(o, m, o.a) {
		return stepFault
	}
	s, named, ok := w.members(o, m, o.c)
	if !ok {
		return stepFault
	}
	lanes, st := w.assemble(o, m, s, named)
	votes := w.preds[o.a]
	if o.signed {
		votes = ^votes
	}
	votes &= lanes
	if mode == "ballot" {
		for l := range lanesOf(lanes) {
			w.set(o.d, l, uint64(votes))
		}
		return st
	}
	yes := uint32(0)
	if mode == "any" && votes != 0 || mode != "any" && votes == lanes || mode == "uni" && votes == 0 {
		yes = allLanes
	}
	w.setPred(o.d, lanes, yes)
	return st
}

func runActive(w *warp, o *op, m uint32) step {
	for l := range lanesOf(m) {
		w.set(o.d, l, uint64(m))
	}
	return stepNext
}

// reductions are what redux and atom make of two values.
var reductions = map[string]func(a, b uint64) uint64{
	"add": func(a, b uint64) uint64 { return a + b },
	"min": func(a, b uint64) uint64 { return min(a, b) },
	"max": func(a, b uint64) uint64 { return max(a, b) },
	"and": func(a, b uint64) uint64 { return a & b },
	"or":  func(a, b uint64) uint64 { return a | b },
	"xor": func(a, b uint64) uint64 { return a ^ b },
}

// reduction is what redux and atom make of two values of type t.
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

// buildRedux decodes d, a, members.
func buildRedux(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	f := reduction(q[2], q.typ())
	return d.plain(&form{args: "T T b32", run: func(w *warp, o *op, m uint32) step {
		if !w.reads(o, m, o.a) {
			return stepFault
		}
		s, named, ok := w.members(o, m, o.b)
		if !ok {
			return stepFault
		}
		lanes, st := w.assemble(o, m, s, named)
		if lanes == 0 {
			return st
		}
		sum := w.regs[o.a][bits.TrailingZeros32(lanes)]
		for l := range lanesOf(lanes & (lanes - 1)) {
			sum = uint64(uint32(f(sum, w.regs[o.a][l])))
		}
		for l := range lanesOf(lanes) {
			w.set(o.d, l, sum)
		}
		return st
	}}, in, q)
}
