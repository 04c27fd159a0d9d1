package emu

import (
	"math/bits"
	"sync"
)

func newLocks() *[stripes]sync.Mutex { return new([stripes]sync.Mutex) }

// locate finds n bytes of memory that a lane accesses, at addr and aligned to
// align. It returns nil and traps if they are not there.
func (w *warp) locate(o *op, shared bool, lane int, addr uint64, n, align int) (*segment, int) {
	if addr&uint64(align-1) != 0 {
		w.trap(TrapAlignment, o, lane, "%d bytes at %#x", n, addr)
		return nil, 0
	}
	if shared {
		s := w.cta.shared
		if off := addr - s.base; off <= uint64(len(s.data)) && uint64(n) <= uint64(len(s.data))-off {
			return s, int(off)
		}
		w.trap(TrapBounds, o, lane, "%d bytes at %#x of shared memory, which is %d bytes at %#x", n, addr, len(s.data), s.base)
		return nil, 0
	}
	if s := w.near; s != nil {
		if off := addr - s.base; off <= uint64(len(s.data)) && uint64(n) <= uint64(len(s.data))-off {
			w.hold(s, int(off))
			return s, int(off)
		}
	}
	s, off, kind, err := w.cta.grid.memory.find(addr, int64(n))
	if err != nil {
		w.trap(kind, o, lane, "%v", err)
		return nil, 0
	}
	w.near = s
	w.hold(s, off)
	return s, off
}

// hold takes the lock of the page at an offset, and lets go of the one held. CTAs
// that run at the same time may access one buffer.
func (w *warp) hold(s *segment, at int) {
	if !w.cta.grid.parallel {
		return
	}
	lock := &s.locks[at>>pageShift%stripes]
	if lock == w.held {
		return
	}
	w.release()
	lock.Lock()
	w.held = lock
}

// release lets go of the lock that hold took.
func (w *warp) release() {
	if w.held != nil {
		w.held.Unlock()
		w.held = nil
	}
}

// checkDefined traps if a lane reads bytes that nobody has written.
func (w *warp) checkDefined(o *op, s *segment, at, n, lane int) bool {
	if s.defined(at, n) {
		return true
	}
	first := s.firstUndefined(at, n)
	w.trap(TrapMemory, o, lane, "byte %d of %s is read before it is written", first, s.name)
	return false
}

// runLoad is ld from global or shared memory.
func runLoad(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.b) {
		return stepFault
	}
	defer w.release()
	n := int(o.size) * len(o.list)
	kind := accessRead
	if o.constant {
		kind = accessConstant
	}
	for l := range lanesOf(m) {
		s, at := w.locate(o, o.shared, l, w.regs[o.a][l]+uint64(o.imm), n, n)
		if s == nil || !w.checkDefined(o, s, at, n, l) || !w.note(o, s, at, n, l, kind) {
			return stepFault
		}
		for i, d := range o.list {
			v := s.load(at+i*int(o.size), o.size)
			if o.signed {
				shift := 64 - 8*o.size
				v = uint64(int64(v<<shift)>>shift) & o.keep
			}
			w.regs[d][l] = v
		}
	}
	for _, d := range o.list {
		w.def[d] |= m
	}
	if o.order.strong {
		w.cta.polls++
	}
	if !o.shared {
		w.cta.worker.loadBytes += uint64(n * bits.OnesCount32(m))
	}
	return stepNext
}

// runStore is st to global or shared memory.
func runStore(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a, o.b) || !w.reads(o, m, o.list...) {
		return stepFault
	}
	defer w.release()
	n := int(o.size) * len(o.list)
	for l := range lanesOf(m) {
		s, at := w.locate(o, o.shared, l, w.regs[o.a][l]+uint64(o.imm), n, n)
		if s == nil {
			return stepFault
		}
		w.same = true
		for i, d := range o.list {
			keep := ones(8 * int(o.size))
			w.same = w.same && s.load(at+i*int(o.size), o.size) == w.regs[d][l]&keep
		}
		if !w.note(o, s, at, n, l, accessWrite) {
			return stepFault
		}
		for i, d := range o.list {
			s.store(at+i*int(o.size), o.size, w.regs[d][l])
		}
		s.define(at, n)
	}
	w.same = false
	w.clock.now++
	return stepNext
}
