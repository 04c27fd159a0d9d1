package emu

import "github.com/lockstep-go/lockstep/driver/emu/internal/syntax"

const ctaShared = "shared|shared::cta"

// Barrier objects in shared memory.
var mbarrierForms = []form{
	{pattern: "mbarrier.init." + ctaShared + ".b64", needs: requirement{70, 80}, build: buildMbarrier(runInit, 1)},
	{pattern: "mbarrier.inval." + ctaShared + ".b64", needs: requirement{70, 80}, build: buildMbarrier(runInvalidate, 0)},
	{pattern: "mbarrier.arrive.release?.cta?." + ctaShared + ".b64", needs: requirement{70, 80}, build: buildArrive},
	{pattern: "mbarrier.arrive.expect_tx.release?.cta?." + ctaShared + ".b64", needs: requirement{80, 90}, build: buildArrive},
	{pattern: "mbarrier.expect_tx.relaxed.cta." + ctaShared + ".b64", needs: requirement{80, 90}, build: buildMbarrier(runExpect, 1)},
	{pattern: "mbarrier.test_wait.parity." + ctaShared + ".b64", needs: requirement{71, 80}, build: buildWaitParity},
	{pattern: "mbarrier.try_wait.parity." + ctaShared + ".b64", needs: requirement{78, 90}, build: buildWaitParity},
}

// mbarrier is a barrier object in shared memory. Its phase completes when there are no pending
// arrivals and no pending bytes.
type mbarrier struct {
	count     int // arrivals per phase
	pending   int // arrivals of this phase that have not come
	txBytes   int // bytes of this phase that have not come (tx-count)
	phase     uint64
	arrived   *vectorClock // of the arrivals of this phase
	completed *vectorClock // of all completed phases
	late      []bulkCopy   // copies in flight that no failed wait has seen
	due       []bulkCopy   // copies that a failed wait has seen; each completes after bulkCopy.waits more waits
}

// maxMbarrier is the limit of the PTX ISA for the arrivals and bytes of an mbarrier.
const maxMbarrier = 1<<20 - 1

// buildMbarrier returns the build function of an instruction with the operands [barrier] and, if
// numbers is 1, a number.
func buildMbarrier(run func(*warp, *op, uint32) result, numbers int) func(*decoder, *syntax.Instruction, qualifiers) (op, error) {
	return func(d *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
		if err := wantOperands(in, 1+numbers); err != nil {
			return op{}, err
		}
		o := op{kind: opRun, run: run}
		var err error
		if o.a, o.imm, err = d.address(in.Operands[0], true); err == nil && numbers > 0 {
			o.b, err = d.source(in.Operands[1], typeU32)
		}
		return o, err
	}
}

// buildArrive decodes state, [barrier][, number]. The state may be _. The number counts bytes for
// expect_tx and else arrivals. Registers d and b are -1 if absent.
func buildArrive(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	expectTx := q.has("expect_tx")
	o := op{kind: opRun, d: -1, b: -1, order: order{strong: true}}
	o.run = func(w *warp, o *op, m uint32) result { return w.arriveMbarrier(o, m, expectTx) }
	operands := 2
	if expectTx || len(in.Operands) == 3 {
		operands = 3
	}
	if err := wantOperands(in, operands); err != nil {
		return o, err
	}
	var err error
	if in.Operands[0].Name == "_" {
		err = d.require("no state", requirement{71, 80})
	} else {
		o.d, err = d.destination(in.Operands[0], typeB64)
	}
	if operands == 3 && !expectTx && err == nil {
		err = d.require("a count", requirement{78, 90})
	}
	if err != nil {
		return o, err
	}
	if o.a, o.imm, err = d.address(in.Operands[1], true); err != nil || operands == 2 {
		return o, err
	}
	o.b, err = d.source(in.Operands[2], typeU32)
	return o, err
}

// buildWaitParity decodes p, [barrier], parity[, time limit].
func buildWaitParity(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	o := op{kind: opRun, run: runWaitParity, order: order{strong: true}}
	if len(in.Operands) != 4 || q[1] != "try_wait" {
		if err := wantOperands(in, 3); err != nil {
			return o, err
		}
	}
	var err error
	if o.d, err = d.destination(in.Operands[0], typePred); err != nil {
		return o, err
	}
	if o.a, o.imm, err = d.address(in.Operands[1], true); err != nil {
		return o, err
	}
	o.b, err = d.source(in.Operands[2], typeU32)
	return o, err
}

// mbarrierAt finds the mbarrier at an address, and its offset in shared memory. It traps and
// returns nil if none was initialized there.
func (w *warp) mbarrierAt(o *op, lane int, addr uint64) (at int, b *mbarrier) {
	s, at := w.locate(o, true, lane, addr, 8, 8)
	if s == nil {
		return at, nil
	}
	if b = w.cta.mbarriers[at]; b == nil {
		w.trap(TrapBarrier, o, lane, "no mbarrier has been initialized at %#x", addr)
		return at, nil
	}
	if !w.checkAccess(o, s, at, 8, lane, accessRead) {
		return at, nil
	}
	return at, b
}

func runInit(w *warp, o *op, m uint32) result {
	if !w.reads(o, m, o.a, o.b) {
		return resultTrap
	}
	for l := range lanesOf(m) {
		n := int(w.regs[o.b][l])
		s, at := w.locate(o, true, l, w.regs[o.a][l]+uint64(o.imm), 8, 8)
		if s == nil || !w.checkAccess(o, s, at, 8, l, accessWrite) {
			return resultTrap
		}
		if n < 1 || n > maxMbarrier {
			return w.trap(TrapBarrier, o, l, "an mbarrier for %d arrivals, the limits are 1 and %d", n, maxMbarrier)
		}
		if w.cta.mbarriers[at] != nil {
			return w.trap(TrapBarrier, o, l, "the mbarrier was initialized before and not invalidated")
		}
		w.cta.idleChecks = 0
		w.cta.mbarriers[at] = &mbarrier{count: n, pending: n}
		s.mark(at, 8, false) // the object is opaque
	}
	w.clock.now++
	return resultNext
}

func runInvalidate(w *warp, o *op, m uint32) result {
	if !w.reads(o, m, o.a) {
		return resultTrap
	}
	for l := range lanesOf(m) {
		at, b := w.mbarrierAt(o, l, w.regs[o.a][l]+uint64(o.imm))
		if b == nil {
			return resultTrap
		}
		if !w.checkAccess(o, w.cta.shared, at, 8, l, accessWrite) {
			return resultTrap
		}
		delete(w.cta.mbarriers, at)
	}
	w.clock.now++
	return resultNext
}

func runExpect(w *warp, o *op, m uint32) result {
	if !w.reads(o, m, o.a, o.b) {
		return resultTrap
	}
	for l := range lanesOf(m) {
		_, b := w.mbarrierAt(o, l, w.regs[o.a][l]+uint64(o.imm))
		if b == nil || !w.expectTx(o, b, l) {
			return resultTrap
		}
	}
	return resultNext
}

// expectTx makes an mbarrier expect as many more bytes as a lane has in register b.
func (w *warp) expectTx(o *op, b *mbarrier, lane int) bool {
	if b.txBytes += int(w.regs[o.b][lane]); b.txBytes > maxMbarrier {
		w.trap(TrapBarrier, o, lane, "the mbarrier expects %d bytes, the limit is %d", b.txBytes, maxMbarrier)
		return false
	}
	return true
}

func (w *warp) arriveMbarrier(o *op, m uint32, expectTx bool) result {
	if !w.reads(o, m, o.a) || o.b >= 0 && !w.reads(o, m, o.b) {
		return resultTrap
	}
	var last *mbarrier
	var phase uint64 // of last before the instruction
	for l := range lanesOf(m) {
		_, b := w.mbarrierAt(o, l, w.regs[o.a][l]+uint64(o.imm))
		switch {
		case b == nil:
			return resultTrap
		case b != last:
			last, phase = b, b.phase
		case b.phase != phase:
			return w.trap(TrapBarrier, o, l, "one instruction completes a phase of an mbarrier and arrives at the next one, so that no thread can wait for the first")
		}
		n := 1
		if expectTx {
			if !w.expectTx(o, b, l) {
				return resultTrap
			}
		} else if o.b >= 0 {
			n = int(w.regs[o.b][l])
		}
		if o.d >= 0 {
			w.set(o.d, l, b.phase)
		}
		if n < 1 || n > b.pending {
			return w.trap(TrapBarrier, o, l, "%d arrivals at an mbarrier that waits for %d", n, b.pending)
		}
		if w.cta.grid.races {
			b.arrived = join(b.arrived, w.laneClock(l))
		}
		b.pending -= n
		w.cta.idleChecks = 0
		b.advance()
	}
	w.clock.now++
	return resultNext
}

// advance starts the next phase if this one is complete.
func (b *mbarrier) advance() {
	if b.pending == 0 && b.txBytes == 0 {
		b.phase++
		b.pending = b.count
		b.completed, b.arrived = join(b.completed, b.arrived), nil
	}
}

// runWaitParity is test_wait and try_wait, which never blocks here. A copy in flight completes
// at the second wait or later, so that a kernel that ignores or inverts the result of the first one fails.
func runWaitParity(w *warp, o *op, m uint32) result {
	if !w.reads(o, m, o.a, o.b) {
		return resultTrap
	}
	for l := range lanesOf(m) {
		_, b := w.mbarrierAt(o, l, w.regs[o.a][l]+uint64(o.imm))
		if b == nil {
			return resultTrap
		}
		due := b.due
		b.due = nil
		for _, cp := range due {
			if cp.waits == 0 {
				w.cta.completeBulk(b, cp)
				continue
			}
			cp.waits--
			b.due = append(b.due, cp)
			w.cta.idleChecks = 0
		}
	}
	for l := range lanesOf(m) {
		_, b := w.mbarrierAt(o, l, w.regs[o.a][l]+uint64(o.imm))
		if b == nil {
			return resultTrap
		}
		if b.phase&1 != w.regs[o.b][l]&1 {
			w.setPred(o.d, 1<<l, allLanes)
			lane := &w.clock.lanes[l]
			lane.acquired = join(lane.acquired, b.completed)
			continue
		}
		w.setPred(o.d, 1<<l, 0)
		if w.failedWait.op == nil {
			w.failedWait = failedWait{o, l, b}
		}
		b.due, b.late = append(b.due, b.late...), nil
	}
	return resultNext
}
