package emu

import "math/bits"

// wait is what a lane waits for.
type wait struct {
	op      *op
	named   uint32 // the lanes that must come together
	barrier int8   // or the barrier that must open, -1 if none
}

// assemble brings lanes together for an instruction that they execute as one: s of
// the lanes m that execute it now, where all of named must. It returns the lanes
// that go ahead, none if some are still missing. The result step is stepNext only
// if the group goes on as it was.
func (w *warp) assemble(o *op, m, s, named uint32) (uint32, step) {
	if s == w.group && s == named {
		return s, stepNext
	}
	w.move(w.group&^m, w.pc+1) // those that the guard excludes
	w.move(m, w.pc)
	if absent := named &^ w.live; absent != 0 {
		return 0, w.trap(absence(o), o, bits.TrailingZeros32(s), "lanes %08x are named and lanes %08x of them have exited or do not exist",
			named, absent)
	}
	present := s
	for l := range lanesOf(w.waiting & named) {
		if at := w.waits[l]; at.named == named && at.barrier < 0 && meets(at.op, o) {
			present |= 1 << l
		}
	}
	if present != named {
		w.waiting |= s
		for l := range lanesOf(s) {
			w.waits[l] = wait{op: o, named: named, barrier: -1}
		}
		return 0, stepRegroup
	}
	w.waiting &^= present
	for l := range lanesOf(present) {
		w.pcs[l]++
	}
	return present, stepRegroup
}

// meets tells whether lanes at two ops come together: at the same one, or at any
// two that only synchronize.
func meets(a, b *op) bool { return a == b || a.syncOnly && b.syncOnly }

// absence is the kind of trap for lanes that do not come to an op.
func absence(o *op) TrapKind {
	if o.aligned {
		return TrapDivergence
	}
	return TrapLane
}

// members reads the member mask of a collective instruction: s are the lanes of m
// that give the same mask as the first, named is that mask.
func (w *warp) members(o *op, m uint32, reg int32) (s, named uint32, ok bool) {
	if !w.reads(o, m, reg) {
		return 0, 0, false
	}
	masks := &w.regs[reg]
	named = uint32(masks[bits.TrailingZeros32(m)])
	for l := range lanesOf(m) {
		if uint32(masks[l])>>l&1 == 0 {
			w.trap(TrapLane, o, l, "the executing lane is not in its member mask %08x", uint32(masks[l]))
			return 0, 0, false
		}
		if uint32(masks[l]) == named {
			s |= 1 << l
		}
	}
	return s, named, true
}

// stuck traps if lanes wait for others of their warp that cannot come: those have
// exited, or wait themselves at another instruction.
func (w *warp) stuck() {
	for l := range lanesOf(w.live & w.waiting) {
		at := w.waits[l]
		if at.barrier >= 0 {
			continue
		}
		missing, released := at.named, false
		for k := range lanesOf(at.named & w.live & w.waiting) {
			other := w.waits[k]
			if other.barrier >= 0 {
				released = true // the barrier may still open
			} else if meets(other.op, at.op) && other.named == at.named {
				missing &^= 1 << k
			}
		}
		if released {
			continue
		}
		detail := ""
		if k := bits.TrailingZeros32(missing); w.live>>k&1 == 0 {
			detail = "has exited"
		} else {
			detail = "waits at line " + itoa(w.waits[k].op.line)
		}
		w.trap(absence(at.op), at.op, l, "it waits for lanes %08x, of which %08x never come: lane %d %s",
			at.named, missing, bits.TrailingZeros32(missing), detail)
		return
	}
}
