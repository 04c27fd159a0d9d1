package emu

import (
	"fmt"
	"math/bits"
	"strings"
)

// deadlock traps: no warp can go on.
func (c *cta) deadlock() *Trap {
	var b strings.Builder
	var first *warp
	for _, w := range c.warps {
		if w.live == 0 {
			continue
		}
		if first == nil {
			first = w
		}
		l := bits.TrailingZeros32(w.live)
		at := w.waits[l]
		fmt.Fprintf(&b, "warp %d at line %d", w.index, at.op.line)
		if at.barrier >= 0 {
			bar := &c.barriers[at.barrier]
			fmt.Fprintf(&b, ": barrier %d has %d of %d threads", at.barrier, bar.arrived, bar.expected)
		}
		b.WriteString("; ")
	}
	l := bits.TrailingZeros32(first.live)
	first.trap(TrapDeadlock, first.waits[l].op, l, "%s", strings.TrimSuffix(b.String(), "; "))
	return first.fault
}

// vain is the first look of a warp at an mbarrier that had not come so far; no op if
// there was none.
type vain struct {
	op      *op
	lane    int
	barrier *mbarrier
}

// A CTA is watched for hope turns of each warp, or as many instructions of an
// adversarial schedule, before looking at mbarriers in vain counts as a deadlock.
const hope = 32

// despair traps if all warps that run have done nothing for a while that could let
// an mbarrier go on: each has looked at one in vain, and none has arrived.
func (c *cta) despair() *Trap {
	window := 1
	if c.random != nil {
		window = turn / short
	}
	if c.polls > 0 {
		c.hopeless = 0 // another CTA may help
	}
	if c.rounds++; c.rounds%window != 0 {
		return nil
	}
	var waiter *warp
	idle := true
	for _, w := range c.warps {
		if w.ran && w.vain.op == nil {
			idle = false
		} else if w.ran && waiter == nil {
			waiter = w
		}
	}
	if c.hopeless++; !idle || waiter == nil {
		c.hopeless = 0
	}
	if c.hopeless > hope {
		v := waiter.vain
		waiter.trap(TrapDeadlock, v.op, v.lane, "the mbarrier waits for %d arrivals and %d bytes in vain", v.barrier.pending, v.barrier.tx)
		return waiter.fault
	}
	for _, w := range c.warps {
		w.ran, w.vain = false, vain{}
	}
	return nil
}
