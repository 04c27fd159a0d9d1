package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Asynchronous copies from global to shared memory. An eager copy moves its data at once. A late
// copy makes its destination undefined and moves the data when the kernel waits for it, so that a
// missing wait traps as a read of undefined memory.
var asyncCopyForms = []form{
	{pattern: "cp.async.ca|cg.shared|shared::cta.global." + cacheHint + "?." + prefetchSize + "?", needs: requirement{70, 80}, build: buildAsyncCopy},
	{pattern: "cp.async.commit_group", needs: requirement{70, 80}, build: buildCommitGroup},
	{pattern: "cp.async.wait_group", needs: requirement{70, 80}, build: buildWaitGroup},
	{pattern: "cp.async.wait_all", needs: requirement{70, 80}, build: buildWaitAll},
	{pattern: "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes." + cacheHint + "?", needs: requirement{80, 90}, build: buildBulkCopy},
}

// asyncCopy is a copy of one thread.
type asyncCopy struct {
	op     *op
	from   *allocation // nil if bytes is 0
	fromAt int
	at     int // in shared memory
	bytes  int // bytes copied
	zeros  int // zero bytes written after them
}

// asyncCopies are the late copies of a warp: per lane, its groups in the order of commitment. The
// last group is still open.
type asyncCopies [warpSize][][]asyncCopy

// buildAsyncCopy decodes [to], [from], bytes[, source bytes][, cache policy]. Registers d and a
// hold the addresses, b the source bytes or is -1, and c the policy.
func buildAsyncCopy(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	o := op{kind: opRun, b: -1}
	plain := 3
	if n := len(in.Operands); n == 5 || n == 4 && !q.has(cacheHint) {
		plain = 4
	}
	var err error
	if o.c, err = d.cachePolicy(in, q, plain); err != nil {
		return o, err
	}
	if err := d.requireQualifiers(q); err != nil {
		return o, err
	}
	n := in.Operands[2]
	if n.Kind != syntax.ImmInt || n.Value != 16 && (q[2] == "cg" || n.Value != 4 && n.Value != 8) {
		return o, fmt.Errorf("cp.async.%s does not copy that number of bytes", q[2])
	}
	o.size = int32(n.Value)
	if o.d, o.imm, err = d.address(in.Operands[0], true); err != nil {
		return o, err
	}
	var fromOffset int64
	if o.a, fromOffset, err = d.address(in.Operands[1], false); err != nil {
		return o, err
	}
	o.run = func(w *warp, o *op, m uint32) result { return w.asyncCopy(o, m, fromOffset) }
	if plain == 4 {
		o.b, err = d.source(in.Operands[3], typeU32)
	}
	return o, err
}

func (w *warp) asyncCopy(o *op, m uint32, fromOffset int64) result {
	if !w.reads(o, m, o.a, o.d) || !w.readsPolicy(o, m, o.c) || o.b >= 0 && !w.reads(o, m, o.b) {
		return resultTrap
	}
	defer w.unlockRange()
	n := int(o.size)
	for l := range lanesOf(m) {
		bytes := n
		if o.b >= 0 {
			if bytes = int(w.regs[o.b][l]); bytes > n {
				return w.trap(TrapAsync, o, l, "%d source bytes for a copy of %d bytes", bytes, n)
			}
		}
		_, at := w.locate(o, true, l, w.regs[o.d][l]+uint64(o.imm), n, n)
		if w.fault != nil {
			return resultTrap
		}
		cp := asyncCopy{op: o, at: at, bytes: bytes, zeros: n - bytes}
		if bytes > 0 {
			if cp.from, cp.fromAt = w.locate(o, false, l, w.regs[o.a][l]+uint64(fromOffset), bytes, n); cp.from == nil {
				return resultTrap
			}
			if !w.checkDefined(o, cp.from, cp.fromAt, bytes, l) || !w.checkAccess(o, cp.from, cp.fromAt, bytes, l, accessRead) {
				return resultTrap
			}
		}
		if !w.checkAccess(o, w.cta.shared, at, n, l, accessWrite) {
			return resultTrap
		}
		if w.cta.grid.lateCopies {
			w.postpone(l, cp)
		} else {
			w.cta.complete(cp)
		}
	}
	return resultNext
}

// postpone adds a copy to the open group of a lane.
func (w *warp) postpone(lane int, cp asyncCopy) {
	w.cta.shared.mark(cp.at, cp.bytes+cp.zeros, false)
	groups := &w.copies[lane]
	if len(*groups) == 0 {
		*groups = append(*groups, nil)
	}
	open := &(*groups)[len(*groups)-1]
	*open = append(*open, cp)
}

// complete moves the data of a copy.
func (c *cta) complete(cp asyncCopy) {
	if cp.bytes > 0 {
		c.shared.copyFrom(cp.at, cp.from, cp.fromAt, cp.bytes)
	}
	if cp.zeros > 0 {
		clear(c.shared.data[cp.at+cp.bytes : cp.at+cp.bytes+cp.zeros])
		c.shared.define(cp.at+cp.bytes, cp.zeros)
	}
}

func buildCommitGroup(_ *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
	return op{kind: opRun, run: func(w *warp, _ *op, m uint32) result {
		if !w.cta.grid.lateCopies {
			return resultNext
		}
		for l := range lanesOf(m) {
			// An empty group counts, too.
			if w.copies[l] = append(w.copies[l], nil); len(w.copies[l]) == 1 {
				w.copies[l] = append(w.copies[l], nil)
			}
		}
		return resultNext
	}}, wantOperands(in, 0)
}

// maxPendingGroups bounds the operand of wait_group.
const maxPendingGroups = 1 << 20

func buildWaitGroup(_ *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
	if err := wantOperands(in, 1); err != nil {
		return op{}, err
	}
	n, err := constantOperand(in.Operands[0], "the number of groups", maxPendingGroups)
	return op{kind: opRun, run: func(w *warp, _ *op, m uint32) result {
		return w.waitCopies(m, n+1) // and the open group
	}}, err
}

func buildWaitAll(_ *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
	return op{kind: opRun, run: func(w *warp, _ *op, m uint32) result { return w.waitCopies(m, 0) }}, wantOperands(in, 0)
}

// waitCopies completes the oldest groups of each lane until at most pending are left.
func (w *warp) waitCopies(m uint32, pending int) result {
	defer w.unlockRange()
	for l := range lanesOf(m) {
		for len(w.copies[l]) > pending {
			for _, cp := range w.copies[l][0] {
				if !w.checkAccess(cp.op, w.cta.shared, cp.at, cp.bytes+cp.zeros, l, accessWrite) {
					return resultTrap
				}
				if cp.from != nil {
					w.lockRange(cp.from, cp.fromAt)
				}
				w.cta.complete(cp)
			}
			w.copies[l] = w.copies[l][1:]
		}
	}
	return resultNext
}

// checkCopiesAtExit traps if a thread ends while copies that it started are in flight.
func (w *warp) checkCopiesAtExit(o *op) {
	for l, groups := range w.copies {
		for _, group := range groups {
			if len(group) > 0 {
				w.trap(TrapAsync, o, l, "the thread ends while its copy of line %d is in flight", group[0].op.line)
				return
			}
		}
	}
}

// bulkCopy is a copy that completes on an mbarrier.
type bulkCopy struct {
	asyncCopy asyncCopy
	clock     *vectorClock // of the thread that issued it
	waits     int          // of a late copy: how many more waits find it in flight
}

// In an adversarial schedule, one of slowCopies late copies is slow: up to slowWaits waits find it in flight. Warps that do
// not wait for it do other work meanwhile, so copies end in another order than they began.
const (
	slowCopies = 8
	slowWaits  = 1 << 10
)

// copyWaits chooses bulkCopy.waits.
func (c *cta) copyWaits() int {
	if c.random == nil || c.random.IntN(slowCopies) > 0 {
		return 0
	}
	return c.random.IntN(slowWaits)
}

// buildBulkCopy decodes [to], [from], bytes, [mbarrier][, cache policy]. Registers d, a and c hold
// the addresses, b the number of bytes, and more[0] the policy.
func buildBulkCopy(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	o := op{kind: opRun}
	policy, err := d.cachePolicy(in, q, 4)
	if err != nil {
		return o, err
	}
	o.more = []int32{policy}
	if o.d, o.imm, err = d.address(in.Operands[0], true); err != nil {
		return o, err
	}
	var fromOffset, barrierOffset int64
	if o.a, fromOffset, err = d.address(in.Operands[1], false); err != nil {
		return o, err
	}
	if o.b, err = d.source(in.Operands[2], typeU32); err != nil {
		return o, err
	}
	o.c, barrierOffset, err = d.address(in.Operands[3], true)
	o.run = func(w *warp, o *op, m uint32) result { return w.bulkCopy(o, m, fromOffset, barrierOffset) }
	return o, err
}

func (w *warp) bulkCopy(o *op, m uint32, fromOffset, barrierOffset int64) result {
	if !w.reads(o, m, o.a, o.b, o.c, o.d) || !w.readsPolicy(o, m, o.more[0]) {
		return resultTrap
	}
	defer w.unlockRange()
	for l := range lanesOf(m) {
		n := int(w.regs[o.b][l])
		if n == 0 || n%16 != 0 {
			return w.trap(TrapAlignment, o, l, "a bulk copy of %d bytes, not a multiple of 16", n)
		}
		_, b := w.mbarrierAt(o, l, w.regs[o.c][l]+uint64(barrierOffset))
		if b == nil {
			return resultTrap
		}
		to, at := w.locate(o, true, l, w.regs[o.d][l]+uint64(o.imm), n, 16)
		if to == nil {
			return resultTrap
		}
		from, fromAt := w.locate(o, false, l, w.regs[o.a][l]+uint64(fromOffset), n, 16)
		if from == nil || !w.checkDefined(o, from, fromAt, n, l) || !w.checkAccess(o, from, fromAt, n, l, accessRead) ||
			!w.checkAccess(o, to, at, n, l, accessBulkWrite) {
			return resultTrap
		}
		cp := bulkCopy{asyncCopy: asyncCopy{op: o, from: from, fromAt: fromAt, at: at, bytes: n}}
		if w.cta.grid.races {
			cp.clock = w.laneClock(l)
		}
		w.clock.now++
		if w.cta.grid.lateCopies {
			to.mark(at, n, false)
			cp.waits = w.cta.copyWaits()
			b.late = append(b.late, cp)
		} else {
			w.cta.completeBulk(b, cp)
		}
	}
	return resultNext
}

// completeBulk moves the data of a bulk copy and counts its bytes on the mbarrier.
func (c *cta) completeBulk(b *mbarrier, cp bulkCopy) {
	c.complete(cp.asyncCopy)
	b.arrived = join(b.arrived, cp.clock)
	b.txBytes -= cp.asyncCopy.bytes
	c.idleChecks = 0
	b.advance()
}

// checkBulkCopiesAtExit traps if the CTA ends with bulk copies in flight.
func (c *cta) checkBulkCopiesAtExit(w *warp, o *op, lane int) {
	for _, other := range c.warps {
		if other.live != 0 {
			return
		}
	}
	copies := 0
	for _, b := range c.mbarriers {
		copies += len(b.late) + len(b.due)
	}
	if copies > 0 {
		w.trap(TrapAsync, o, lane, "the CTA ends while bulk copies are in flight: %d", copies)
	}
}
