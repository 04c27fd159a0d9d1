package emu

import (
	"fmt"
	"strings"
)

// Four checks find a kernel that does not end:
//
//   - checkConvergence: lanes wait for lanes of their warp that never come.
//   - deadlock: no warp can run.
//   - livelock: all warps spin on mbarriers, and nothing arrives at these.
//   - runaway: the launch exceeds Options.MaxInstructions.

// checkConvergence traps if lanes wait for others of their warp that cannot come, because these
// have exited or wait at another instruction.
func (w *warp) checkConvergence() {
	for l := range lanesOf(w.live & w.waiting) {
		at := w.waits[l]
		if at.barrier >= 0 {
			continue
		}
		missing, mayCome := at.named, false
		for k := range lanesOf(at.named & w.live & w.waiting) {
			other := w.waits[k]
			if other.barrier >= 0 {
				mayCome = true
			} else if converges(other.op, at.op) && other.named == at.named {
				missing &^= 1 << k
			}
		}
		if mayCome {
			continue
		}
		detail := ""
		k := lowestLane(missing)
		if w.live>>k&1 == 0 {
			detail = "has exited"
		} else {
			detail = fmt.Sprintf("waits at line %d", w.waits[k].op.line)
		}
		w.trap(absentLanes(at.op), at.op, l, "the lane waits for lanes %08x, but lanes %08x never come: lane %d %s", at.named, missing, k, detail)
		return
	}
}

// deadlock traps because no warp can run.
func (c *cta) deadlock() *Trap {
	var waits []string
	var first *warp
	for _, w := range c.warps {
		if w.live == 0 {
			continue
		}
		if first == nil {
			first = w
		}
		at := w.waits[lowestLane(w.live)]
		text := fmt.Sprintf("warp %d at line %d", w.index, at.op.line)
		switch {
		case at.barrier == registerPool:
			text += fmt.Sprintf(": the warp waits for %d more registers per thread, and the CTA has %d", w.registers.lacking, c.registers)
		case at.barrier >= 0:
			bar := &c.barriers[at.barrier]
			text += fmt.Sprintf(": barrier %d has %d of %d threads", at.barrier, bar.arrived, bar.expected)
		}
		waits = append(waits, text)
	}
	l := lowestLane(first.live)
	first.trap(TrapDeadlock, first.waits[l].op, l, "%s", strings.Join(waits, "; "))
	return first.fault
}

// failedWait is the first test of an mbarrier by a warp, since the last check for a livelock, that
// found the phase incomplete. op is nil if there was none.
type failedWait struct {
	op      *op
	lane    int
	barrier *mbarrier
}

// livelockChecks is how many consecutive checks must find that all warps only poll mbarriers
// before this counts as a deadlock. A check follows when each warp has had a turn. In an adversarial
// schedule turns are short, so a check follows several turns of each warp, about fixedTurn
// instructions.
const livelockChecks = 32

// livelock traps after livelockChecks consecutive checks in which every warp that ran found an
// mbarrier's phase incomplete.
func (c *cta) livelock() *Trap {
	window := 1
	if c.random != nil {
		window = fixedTurn / maxRandomTurn
	}
	if c.polls > 0 {
		c.idleChecks = 0 // another CTA may change what this one waits for
	}
	if c.rounds++; c.rounds%window != 0 {
		return nil
	}
	var waiter *warp
	idle := true
	for _, w := range c.warps {
		if w.ran && w.failedWait.op == nil {
			idle = false
		} else if w.ran && waiter == nil {
			waiter = w
		}
	}
	if c.idleChecks++; !idle || waiter == nil {
		c.idleChecks = 0
	}
	if c.idleChecks > livelockChecks {
		f := waiter.failedWait
		waiter.trap(TrapDeadlock, f.op, f.lane, "the mbarrier waits for %d arrivals and %d bytes that never come", f.barrier.pending, f.barrier.txBytes)
		return waiter.fault
	}
	for _, w := range c.warps {
		w.ran, w.failedWait = false, failedWait{}
	}
	return nil
}

// runaway traps because the launch has executed too many instructions.
func (c *cta) runaway() *Trap {
	for _, w := range c.warps {
		if w.live != 0 {
			mask, _ := w.lowest(w.live, 0)
			w.trap(TrapRunaway, &c.grid.prog.ops[w.pc], lowestLane(mask), "the launch has executed Options.MaxInstructions instructions")
			return w.fault
		}
	}
	return nil
}
