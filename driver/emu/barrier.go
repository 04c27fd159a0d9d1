package emu

import (
	"math/bits"
	"strconv"
)

// barrier is one of the 16 of a CTA.
type barrier struct {
	arrived  int // threads
	expected int // threads; fixed by the first to arrive
	implicit bool
	op       *op // of the first to arrive
}

func itoa[T int | int32](n T) string { return strconv.Itoa(int(n)) }

// runBarrier lets lanes arrive at a barrier and wait there.
func runBarrier(w *warp, o *op, m uint32) step {
	if !w.reads(o, m, o.a) || o.b >= 0 && !w.reads(o, m, o.b) {
		return stepFault
	}
	first := bits.TrailingZeros32(m)
	id := w.regs[o.a][first]
	for l := range lanesOf(m) {
		if w.regs[o.a][l] != id || o.b >= 0 && w.regs[o.b][l] != w.regs[o.b][first] {
			return w.trap(TrapBarrier, o, l, "lanes of a warp disagree on the barrier or its count")
		}
	}
	lanes := m
	if o.aligned {
		var st step
		if lanes, st = w.assemble(o, m, m, w.started); lanes == 0 {
			return st
		}
	}
	count := -1
	if o.b >= 0 {
		count = int(w.regs[o.b][first])
	}
	w.move(w.group&^m, w.pc+1)
	for l := range lanesOf(lanes) {
		w.pcs[l] = w.pc + 1
	}
	return w.cta.arrive(w, o, lanes, int(id), count)
}

// arrive counts lanes at a barrier, which opens when all have come. A count below
// zero means all threads of the CTA.
func (c *cta) arrive(w *warp, o *op, lanes uint32, id, count int) step {
	first := bits.TrailingZeros32(lanes)
	if id < 0 || id >= len(c.barriers) {
		return w.trap(TrapBarrier, o, first, "barrier %d: there are %d", id, len(c.barriers))
	}
	b := &c.barriers[id]
	expected := count
	if count < 0 {
		expected = len(c.warps) * warpSize
		for _, other := range c.warps {
			if gone := other.started &^ other.live; gone != 0 {
				return w.trap(TrapBarrier, o, first, "barrier %d is for all threads, and lanes %08x of warp %d have exited", id, gone, other.index)
			}
		}
	} else if count == 0 || count%warpSize != 0 || count > len(c.warps)*warpSize {
		return w.trap(TrapBarrier, o, first, "barrier %d with a count of %d, not a multiple of %d up to the CTA's %d threads",
			id, count, warpSize, len(c.warps)*warpSize)
	}
	if b.arrived == 0 {
		*b = barrier{expected: expected, implicit: count < 0, op: o}
	} else if b.expected != expected {
		return w.trap(TrapBarrier, o, first, "barrier %d with a count of %d, others came with %d at line %d", id, expected, b.expected, b.op.line)
	}
	b.arrived += bits.OnesCount32(lanes)
	if lanes&1 != 0 {
		b.arrived += warpSize - bits.OnesCount32(w.started) // threads that a last warp lacks count as there
	}
	w.waiting |= lanes
	for l := range lanesOf(lanes) {
		w.waits[l] = wait{op: o, barrier: int8(id)}
	}
	if b.arrived > b.expected {
		return w.trap(TrapBarrier, o, first, "%d threads at barrier %d, which is for %d", b.arrived, id, b.expected)
	}
	if b.arrived == b.expected {
		c.open(int8(id))
	}
	return stepRegroup
}

// open lets everyone at a barrier go on.
func (c *cta) open(id int8) {
	c.barriers[id].arrived = 0
	var came []*warp
	for _, w := range c.warps {
		before := w.waiting
		for l := range lanesOf(before) {
			if w.waits[l].barrier == id {
				w.waiting &^= 1 << l
			}
		}
		if w.waiting != before {
			came = append(came, w)
		}
	}
	c.syncWarps(came)
}

// exited notes that lanes have ended: nobody may be waiting for them.
func (c *cta) exited(w *warp, o *op, m uint32) {
	for id := range c.barriers {
		if b := &c.barriers[id]; b.arrived > 0 && b.implicit {
			w.trap(TrapBarrier, o, bits.TrailingZeros32(m), "it exits while barrier %d at line %d, for all threads, waits for it", id, b.op.line)
			return
		}
	}
}
