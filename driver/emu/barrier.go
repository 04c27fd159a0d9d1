package emu

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Barriers among the warps of a CTA.
var barrierForms = []form{
	{pattern: "bar.sync", build: buildBarrier},
	{pattern: "barrier.sync.aligned?", needs: requirement{60, 30}, build: buildBarrier},
	{pattern: "bar.arrive", build: buildBarrier},
	{pattern: "barrier.arrive.aligned", needs: requirement{60, 30}, build: buildBarrier},
}

// barrier is one of the 16 barriers of a CTA.
type barrier struct {
	arrived    int          // threads
	expected   int          // threads, as the first one to arrive says
	allThreads bool         // the barrier waits for all threads of the CTA
	op         *op          // of the first to arrive
	passed     uint32       // warps that have arrived and not waited, by their index
	released   *vectorClock // what these have done and seen
}

// buildBarrier decodes id[, threads]. Register b is -1 if the number of threads is absent. A warp does
// not wait at arrive, which needs the number.
func buildBarrier(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	wait := q[1] == "sync"
	o := op{kind: opRun, aligned: q[0] == "bar" || q.has("aligned"), b: -1}
	o.run = func(w *warp, o *op, m uint32) result { return w.barrier(o, m, wait) }
	if len(in.Operands) < 1 || len(in.Operands) > 2 || !wait && len(in.Operands) < 2 {
		return o, wantOperands(in, 2)
	}
	var err error
	if o.a, err = d.source(in.Operands[0], typeU32); err != nil || len(in.Operands) == 1 {
		return o, err
	}
	o.b, err = d.source(in.Operands[1], typeU32)
	return o, err
}

// barrier makes lanes arrive at a barrier and, if wait is set, wait there.
func (w *warp) barrier(o *op, m uint32, wait bool) result {
	if !w.reads(o, m, o.a) || o.b >= 0 && !w.reads(o, m, o.b) {
		return resultTrap
	}
	first := lowestLane(m)
	id := w.regs[o.a][first]
	for l := range lanesOf(m) {
		if w.regs[o.a][l] != id || o.b >= 0 && w.regs[o.b][l] != w.regs[o.b][first] {
			return w.trap(TrapBarrier, o, l, "lanes of a warp disagree on the barrier or its count")
		}
	}
	lanes := m
	if o.aligned {
		var res result
		if lanes, res = w.converge(o, m, m, w.exists); lanes == 0 {
			return res
		}
	}
	count := -1
	if o.b >= 0 {
		count = int(w.regs[o.b][first])
	}
	w.setPC(w.active&^m, w.pc+1)
	for l := range lanesOf(lanes) {
		w.pcs[l] = w.pc + 1
	}
	return w.cta.arrive(w, o, lanes, int(id), count, wait)
}

// arrive counts lanes that have come to a barrier, and opens it when all have. count is the number
// of threads that the barrier waits for, or -1 for all threads of the CTA.
func (c *cta) arrive(w *warp, o *op, lanes uint32, id, count int, wait bool) result {
	first := lowestLane(lanes)
	if id < 0 || id >= len(c.barriers) {
		return w.trap(TrapBarrier, o, first, "barrier %d, a CTA has only %d", id, len(c.barriers))
	}
	b := &c.barriers[id]
	expected := count
	if count < 0 {
		expected = len(c.warps) * warpSize
		for _, other := range c.warps {
			if gone := other.exists &^ other.live; gone != 0 {
				return w.trap(TrapBarrier, o, first, "barrier %d waits for all threads, and lanes %08x of warp %d have exited", id, gone, other.index)
			}
		}
	} else if count == 0 || count%warpSize != 0 || count > len(c.warps)*warpSize {
		return w.trap(TrapBarrier, o, first, "barrier %d with a count of %d, not a multiple of %d up to the CTA's %d threads",
			id, count, warpSize, len(c.warps)*warpSize)
	}
	if b.arrived == 0 {
		*b = barrier{expected: expected, allThreads: count < 0, op: o}
	} else if b.expected != expected {
		return w.trap(TrapBarrier, o, first, "barrier %d with a count of %d, the first warp used %d at line %d", id, expected, b.expected, b.op.line)
	}
	if b.passed>>w.index&1 != 0 {
		return w.trap(TrapBarrier, o, first, "the warp has arrived at barrier %d before, which has %d of %d threads", id, b.arrived, b.expected)
	}
	b.arrived += bits.OnesCount32(lanes)
	if lanes&1 != 0 {
		b.arrived += warpSize - bits.OnesCount32(w.exists) // the threads that a partial warp lacks count as arrived
	}
	if wait {
		w.wait(lanes, o, int8(id))
	} else {
		b.passed |= 1 << w.index
		if c.grid.races {
			w.syncLanes(w.live)
			b.released = join(b.released, w.laneClock(first))
			w.clock.now++
		}
	}
	if b.arrived > b.expected {
		return w.trap(TrapBarrier, o, first, "%d threads at barrier %d, which waits for %d", b.arrived, id, b.expected)
	}
	if b.arrived == b.expected {
		c.open(int8(id))
	}
	return resultReselect
}

// wait makes lanes wait for a barrier.
func (w *warp) wait(lanes uint32, o *op, id int8) {
	w.waiting |= lanes
	for l := range lanesOf(lanes) {
		w.waits[l] = wait{op: o, barrier: id}
	}
}

// open releases all lanes that wait at a barrier.
func (c *cta) open(id int8) {
	b := &c.barriers[id]
	b.arrived = 0
	var released []*warp
	for _, w := range c.warps {
		before := w.waiting
		for l := range lanesOf(before) {
			if w.waits[l].barrier == id {
				w.waiting &^= 1 << l
			}
		}
		if w.waiting != before {
			released = append(released, w)
		}
	}
	c.syncWarps(released)
	for _, w := range released {
		w.clock.seen = join(w.clock.seen, b.released)
	}
}

// checkBarriersAtExit traps if a barrier waits for lanes that exit.
func (w *warp) checkBarriersAtExit(o *op, m uint32) {
	for id := range w.cta.barriers {
		if b := &w.cta.barriers[id]; b.arrived > 0 && b.allThreads {
			w.trap(TrapBarrier, o, lowestLane(m), "the thread exits while barrier %d at line %d waits for all threads", id, b.op.line)
			return
		}
	}
}
