package emu

import (
	"math"
	"math/bits"
)

// maxSpin is how many instructions lanes may run while others of their warp wait
// further on: a spin must not starve the lanes that would end it.
const maxSpin = 1 << 12

// pick chooses the lanes that run next: those with the lowest program counter,
// until they come to limit, where others wait for them.
func (w *warp) pick(budget int) (mask uint32, limit int32, slice int) {
	ready := w.live &^ w.waiting
	if ready == 0 {
		return 0, 0, 0
	}
	if w.cta.random != nil {
		return w.pickAny(ready, budget)
	}
	mask, limit = w.lowest(ready, w.ahead)
	if mask == 0 {
		mask, limit = w.lowest(ready, 0)
	}
	w.ahead = 0
	if limit < math.MaxInt32 {
		budget = min(budget, maxSpin)
	}
	return mask, limit, budget
}

// lowest finds the lanes with the lowest program counter from least on, and the next higher one.
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

// Lanes part by chance once in so many picks: often enough to show within a loop or
// two, and seldom because those that have parted run one after the other.
const parting = 16

// pickAny chooses some of the lanes that share a program counter, for a few
// instructions: no order of lanes may be relied on.
func (w *warp) pickAny(ready uint32, budget int) (mask uint32, limit int32, slice int) {
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
	if r.IntN(parting) == 0 {
		if some := mask & r.Uint32(); some != 0 {
			mask = some
		}
	}
	return mask, math.MaxInt32, min(budget, 1+r.IntN(32))
}
