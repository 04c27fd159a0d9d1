package emu

import (
	"iter"
	"math"
	"math/bits"
	"sync"
)

// step is what follows an op.
type step uint8

const (
	stepNext    step = iota
	stepRegroup      // the op has set the lanes' program counters, or let lanes wait
	stepFault        // warp.fault says why
)

// warp is 32 threads of a CTA. Each lane has its own program counter; those that
// have the same one run together.
type warp struct {
	cta   *cta
	index int // in the CTA

	regs  []vec
	def   []uint32 // lanes that have written the register
	preds []uint32
	pdef  []uint32

	pcs     [warpSize]int32
	started uint32 // lanes that exist
	live    uint32 // lanes that have not exited
	waiting uint32 // lanes that wait at a collective instruction or a barrier
	waits   [warpSize]wait
	group   uint32 // lanes that run together now
	pc      int32  // of the group
	ahead   int32  // lanes before this program counter let others go first, once

	scratch vec
	fault   *Trap
	near    *segment    // buffer of the last access
	held    *sync.Mutex // see hold
	gid     uint32      // number in the grid
	same    bool        // the store in progress writes what is there already
	clock   clocks
	async   asyncCopies
	flight  flight
	waited  bool // for the kernels before
	ran     bool // and vain: since despair looked
	vain    vain
}

// lanesOf goes through the lanes of a mask.
func lanesOf(m uint32) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; m != 0; m &= m - 1 {
			if !yield(bits.TrailingZeros32(m)) {
				return
			}
		}
	}
}

// set writes a register in one lane.
func (w *warp) set(reg int32, lane int, v uint64) {
	w.regs[reg][lane] = v
	w.def[reg] |= 1 << lane
}

// setPred writes a predicate in the lanes of a mask.
func (w *warp) setPred(p int32, m, v uint32) {
	w.preds[p] = w.preds[p]&^m | v&m
	w.pdef[p] |= m
}

// reads checks that registers have been written by all lanes of a mask.
func (w *warp) reads(o *op, m uint32, regs ...int32) bool {
	for _, r := range regs {
		if missing := m &^ w.def[r]; missing != 0 {
			w.trap(TrapRegister, o, bits.TrailingZeros32(missing), "%s is read before it is written", w.cta.grid.prog.names[r])
			return false
		}
	}
	return true
}

// readsPred is reads for a predicate.
func (w *warp) readsPred(o *op, m uint32, p int32) bool {
	missing := m &^ w.pdef[p]
	if missing != 0 {
		w.trap(TrapRegister, o, bits.TrailingZeros32(missing), "%s is read before it is written", w.cta.grid.prog.names[-p])
	}
	return missing == 0
}

// run executes up to so many instructions and returns how many it did: fewer when
// no lane can go on, or at a fault.
func (w *warp) run(budget int) int {
	left := budget
	for left > 0 && w.fault == nil {
		mask, limit, slice := w.pick(left)
		if mask == 0 {
			w.stuck()
			break
		}
		unused := w.runGroup(mask, limit, slice)
		if left -= slice - unused; unused == 0 && limit < math.MaxInt32 {
			w.ahead = limit
		}
	}
	return budget - left
}

// runGroup executes up to so many instructions of lanes that run together, and
// returns what is left of them.
func (w *warp) runGroup(mask uint32, limit int32, budget int) int {
	ops := w.cta.grid.prog.ops
	pc := w.pc
	w.group = mask
	for budget > 0 {
		o := &ops[pc]
		budget--
		m := mask
		if o.guard != 0 {
			if w.pdef[o.guard]&mask != mask && !w.readsPred(o, mask, o.guard) {
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
				w.trap(TrapInvalidBranch, o, bits.TrailingZeros32(mask&^m), "lanes %08x branch and %08x do not", m, mask&^m)
				return budget
			default:
				w.move(m, o.target)
				w.move(mask&^m, next)
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
			w.group = mask
		default:
			w.pc = pc
			switch w.execute(o, m) {
			case stepRegroup, stepFault:
				return budget
			}
		}
		pc = next
		if pc >= limit {
			break
		}
	}
	w.move(mask, pc)
	return budget
}

// execute runs an op that does not branch in the lanes of a mask.
func (w *warp) execute(o *op, m uint32) step {
	switch o.kind {
	case opRun:
		return o.run(w, o, m)
	case opCmp:
		if w.def[o.a]&w.def[o.b]&m != m {
			w.reads(o, m, o.a, o.b)
			return stepFault
		}
		w.setPred(o.d, m, o.cmp(&w.regs[o.a], &w.regs[o.b]))
		return stepNext
	case opSel:
		if w.def[o.a]&w.def[o.b]&m != m || w.pdef[o.c]&m != m {
			if w.readsPred(o, m, o.c) {
				w.reads(o, m, o.a, o.b)
			}
			return stepFault
		}
		p, a, b := w.preds[o.c], &w.regs[o.a], &w.regs[o.b]
		for l := range w.scratch {
			w.scratch[l] = b[l]
			if p>>l&1 != 0 {
				w.scratch[l] = a[l]
			}
		}
	default:
		if w.def[o.a]&w.def[o.b]&w.def[o.c]&m != m {
			w.reads(o, m, o.a, o.b, o.c)
			return stepFault
		}
		if m == allLanes {
			o.vec(&w.regs[o.d], &w.regs[o.a], &w.regs[o.b], &w.regs[o.c])
			w.def[o.d] = allLanes
			return stepNext
		}
		o.vec(&w.scratch, &w.regs[o.a], &w.regs[o.b], &w.regs[o.c])
	}
	d := &w.regs[o.d]
	for l := range lanesOf(m) {
		d[l] = w.scratch[l]
	}
	w.def[o.d] |= m
	return stepNext
}

// move sets the program counter of lanes.
func (w *warp) move(m uint32, pc int32) {
	for l := range lanesOf(m) {
		w.pcs[l] = pc
	}
}

// exit ends lanes.
func (w *warp) exit(o *op, m uint32) {
	w.live &^= m
	w.cta.exited(w, o, m)
	if w.live == 0 {
		w.ended(o, bits.TrailingZeros32(m))
		w.landed(o, bits.TrailingZeros32(m))
		w.cta.unfinished(w, o, m)
	}
}
