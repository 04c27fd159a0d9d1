package emu

import (
	"iter"
	"math"
	"math/bits"
	"sync"
)

// result tells the interpreter what follows an op.
type result uint8

const (
	resultNext     result = iota // go on with the next op
	resultReselect               // the op has set program counters or made lanes wait: pick lanes again
	resultTrap                   // warp.fault holds the trap
)

// warp is 32 threads of a CTA. Each lane has its own program counter. Lanes with equal program
// counters can execute together; those that do are the active lanes.
type warp struct {
	cta       *cta
	index     int    // in the CTA
	gridIndex uint32 // in the grid

	regs         []vec
	written      []uint32 // per register: lanes that have written it
	preds        []uint32
	predsWritten []uint32

	pcs     [warpSize]int32
	exists  uint32 // lanes that are threads of the CTA: all, unless this is a partial last warp
	live    uint32 // lanes that have not exited
	waiting uint32 // lanes that wait for a barrier or for other lanes
	waits   [warpSize]wait
	active  uint32 // lanes that execute together now
	pc      int32  // of the active lanes
	skipTo  int32  // the next pick prefers lanes at this program counter and above

	fault      *Trap
	scratch    vec
	lastBuffer *allocation // of the last access to global memory
	heldLock   *sync.Mutex // see lockRange
	sameValue  bool        // the store in progress writes the value that is there already

	clock         warpClock
	copies        asyncCopies
	wgmma         wgmmaState
	registers     warpRegisters
	waitedForGrid bool // executed griddepcontrol.wait, or need not
	ran           bool // since the last check for a livelock
	failedWait    failedWait
}

// start makes all existing lanes begin at the first op with undefined registers.
func (w *warp) start() {
	g := w.cta.grid
	clear(w.written)
	clear(w.predsWritten)
	w.written[0], w.predsWritten[0], w.preds[0] = allLanes, allLanes, allLanes
	for _, k := range g.prog.consts {
		w.written[k.reg] = allLanes
	}
	for _, a := range g.prog.arguments {
		w.written[a.reg] = allLanes
	}
	for _, r := range g.prog.specials {
		if r >= 0 {
			w.written[r] = allLanes
		}
	}
	for i, v := range [...]uint32{w.cta.id.X, w.cta.id.Y, w.cta.id.Z} {
		if r := g.prog.specials[ctaidX+special(i)]; r >= 0 {
			w.fill(r, uint64(v))
		}
	}
	w.gridIndex = uint32(w.cta.number*len(w.cta.warps) + w.index)
	w.clock.start(len(w.cta.warps))
	w.copies = asyncCopies{}
	w.wgmma.start(g.prog)
	w.registers = warpRegisters{most: g.prog.registers}
	w.ran, w.failedWait, w.waitedForGrid = false, failedWait{}, !g.overlaps
	w.live, w.waiting, w.pcs, w.skipTo, w.fault = w.exists, 0, [warpSize]int32{}, 0, nil
}

// lanesOf yields the lanes of a mask in rising order.
func lanesOf(m uint32) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; m != 0; m &= m - 1 {
			if !yield(bits.TrailingZeros32(m)) {
				return
			}
		}
	}
}

// lowestLane is the lowest lane of a mask that is not empty.
func lowestLane(m uint32) int { return bits.TrailingZeros32(m) }

// set writes a register in one lane.
func (w *warp) set(reg int32, lane int, v uint64) {
	w.regs[reg][lane] = v
	w.written[reg] |= 1 << lane
}

// fill sets a register in all lanes, without marking it as written.
func (w *warp) fill(reg int32, v uint64) {
	for l := range w.regs[reg] {
		w.regs[reg][l] = v
	}
}

// setPred writes the bits v of a predicate in the lanes of a mask.
func (w *warp) setPred(p int32, m, v uint32) {
	w.preds[p] = w.preds[p]&^m | v&m
	w.predsWritten[p] |= m
}

// reads checks that all lanes of a mask have written the registers.
func (w *warp) reads(o *op, m uint32, regs ...int32) bool {
	for _, r := range regs {
		if missing := m &^ w.written[r]; missing != 0 {
			w.trap(TrapRegister, o, lowestLane(missing), "%s is read before it is written", w.cta.grid.prog.names[r])
			return false
		}
	}
	return true
}

// readsPred is reads for a predicate.
func (w *warp) readsPred(o *op, m uint32, p int32) bool {
	missing := m &^ w.predsWritten[p]
	if missing != 0 {
		w.trap(TrapRegister, o, lowestLane(missing), "%s is read before it is written", w.cta.grid.prog.names[-p])
	}
	return missing == 0
}

// run executes at most budget instructions and returns their number. It stops early if no lane
// can go on, or at a trap.
func (w *warp) run(budget int) int {
	left := budget
	for left > 0 && w.fault == nil {
		mask, limit, turn := w.pick(left)
		if mask == 0 {
			w.checkConvergence()
			break
		}
		unused := w.runActive(mask, limit, turn)
		if left -= turn - unused; unused == 0 && limit < math.MaxInt32 {
			w.skipTo = limit
		}
	}
	return budget - left
}

// maxSpin is how many instructions the active lanes may execute while other lanes of the warp wait
// at a higher program counter. The active lanes may spin in a loop until one of the others stores
// a value.
const maxSpin = 1 << 12

// pick chooses the lanes that execute next. Without an adversarial schedule, these are the lanes with the lowest program
// counter, of those at skipTo or above if there are any. limit is the next higher program counter: there other lanes wait to
// join.
func (w *warp) pick(budget int) (mask uint32, limit int32, turn int) {
	ready := w.live &^ w.waiting
	if ready == 0 {
		return 0, 0, 0
	}
	if w.cta.random != nil {
		return w.pickRandom(ready, budget)
	}
	mask, limit = w.lowest(ready, w.skipTo)
	if mask == 0 {
		mask, limit = w.lowest(ready, 0)
	}
	w.skipTo = 0
	if limit < math.MaxInt32 {
		budget = min(budget, maxSpin)
	}
	return mask, limit, budget
}

// lowest finds the lanes whose program counter is the lowest one from least on, and sets w.pc to
// it. limit is the next higher program counter.
func (w *warp) lowest(ready uint32, least int32) (mask uint32, limit int32) {
	low := int32(math.MaxInt32)
	limit = math.MaxInt32
	for l := range lanesOf(ready) {
		switch pc := w.pcs[l]; {
		case pc < least:
		case pc < low:
			mask, low, limit = 1<<l, pc, low
		case pc == low:
			mask |= 1 << l
		default:
			limit = min(limit, pc)
		}
	}
	w.pc = low
	return mask, limit
}

// splitOdds is the rate of splits: in an adversarial schedule, one pick in splitOdds splits lanes
// that could execute together. Splits then happen during short loops, but not so often that they
// are slow: the two groups of lanes run one after the other.
const splitOdds = 16

// pickRandom chooses some of the lanes that share a program counter, for a few instructions.
func (w *warp) pickRandom(ready uint32, budget int) (mask uint32, limit int32, turn int) {
	r := w.cta.random
	pick := r.IntN(bits.OnesCount32(ready))
	for l := range lanesOf(ready) {
		if pick == 0 {
			w.pc = w.pcs[l]
			mask = 1 << l
			break
		}
		pick--
	}
	for l := range lanesOf(ready) {
		if w.pcs[l] == w.pc {
			mask |= 1 << l
		}
	}
	if r.IntN(splitOdds) == 0 {
		if some := mask & r.Uint32(); some != 0 {
			mask = some
		}
	}
	return mask, math.MaxInt32, min(budget, 1+r.IntN(32))
}

// runActive executes ops in the lanes of a mask from w.pc on, until the budget is spent, the lanes
// reach limit, or lanes must be picked again. It returns the rest of the budget.
func (w *warp) runActive(mask uint32, limit int32, budget int) int {
	ops := w.cta.grid.prog.ops
	pc := w.pc
	w.active = mask
	for budget > 0 {
		o := &ops[pc]
		budget--
		m := mask
		if o.guard != 0 {
			if w.predsWritten[o.guard]&mask != mask && !w.readsPred(o, mask, o.guard) {
				return budget
			}
			if o.negated {
				m &^= w.preds[o.guard]
			} else {
				m &= w.preds[o.guard]
			}
		}
		next := pc + 1
		switch {
		case m == 0:
		case o.kind == opBranch:
			switch {
			case m == mask:
				next = o.target
			case o.uniform:
				w.trap(TrapInvalidBranch, o, lowestLane(mask&^m), "lanes %08x branch and %08x do not", m, mask&^m)
				return budget
			default:
				w.setPC(m, o.target)
				w.setPC(mask&^m, next)
				return budget
			}
		case o.kind == opExit:
			w.exit(o, m)
			if w.fault != nil {
				return budget
			}
			if mask &^= m; mask == 0 {
				return budget
			}
			w.active = mask
		default:
			w.pc = pc
			if w.execute(o, m) != resultNext {
				return budget
			}
		}
		pc = next
		if pc >= limit {
			break
		}
	}
	w.setPC(mask, pc)
	return budget
}

// execute executes an op that is neither a branch nor an exit in the lanes of a mask.
func (w *warp) execute(o *op, m uint32) result {
	switch o.kind {
	case opRun:
		return o.run(w, o, m)
	case opCmp:
		if w.written[o.a]&w.written[o.b]&m != m {
			w.reads(o, m, o.a, o.b)
			return resultTrap
		}
		w.setPred(o.d, m, o.cmp(&w.regs[o.a], &w.regs[o.b]))
		return resultNext
	case opSel:
		if w.written[o.a]&w.written[o.b]&m != m || w.predsWritten[o.c]&m != m {
			if w.readsPred(o, m, o.c) {
				w.reads(o, m, o.a, o.b)
			}
			return resultTrap
		}
		p, a, b := w.preds[o.c], &w.regs[o.a], &w.regs[o.b]
		for l := range w.scratch {
			w.scratch[l] = b[l]
			if p>>l&1 != 0 {
				w.scratch[l] = a[l]
			}
		}
	default:
		if w.written[o.a]&w.written[o.b]&w.written[o.c]&m != m {
			w.reads(o, m, o.a, o.b, o.c)
			return resultTrap
		}
		if m == allLanes {
			o.vec(&w.regs[o.d], &w.regs[o.a], &w.regs[o.b], &w.regs[o.c])
			w.written[o.d] = allLanes
			return resultNext
		}
		o.vec(&w.scratch, &w.regs[o.a], &w.regs[o.b], &w.regs[o.c])
	}
	d := &w.regs[o.d]
	for l := range lanesOf(m) {
		d[l] = w.scratch[l]
	}
	w.written[o.d] |= m
	return resultNext
}

// setPC sets the program counter of the lanes of a mask.
func (w *warp) setPC(m uint32, pc int32) {
	for l := range lanesOf(m) {
		w.pcs[l] = pc
	}
}

// exit ends lanes. When the last lane ends, it checks that no asynchronous work is in flight.
func (w *warp) exit(o *op, m uint32) {
	w.live &^= m
	w.checkBarriersAtExit(o, m)
	if w.live == 0 {
		w.noteMissingWait(o, lowestLane(m))
		w.checkWGMMAAtExit(o, lowestLane(m))
		w.checkCopiesAtExit(o)
		w.cta.checkBulkCopiesAtExit(w, o, lowestLane(m))
	}
}
