package emu

import (
	"math/rand/v2"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
)

// cta is a block of threads that runs on one worker.
type cta struct {
	grid     *grid
	worker   *worker
	number   int // in the grid
	id       driver.Dim3
	warps    []*warp
	shared   *segment
	barriers [16]barrier
	groups   []warpgroup // whole ones
	inUse    inUse
	arrivals map[int]*mbarrier // by offset in shared memory
	random   *rand.Rand        // of an adversarial schedule, else nil
	rounds   int               // of turns, see despair
	hopeless int               // windows in a row in which nothing but mbarriers was looked at
	polls    int               // strong loads and atomics: a sign that it waits for another CTA
}

// newCTA makes the registers and the shared memory of a CTA; start gives it its place.
func newCTA(g *grid, wk *worker) *cta {
	n := threads(g.block)
	c := &cta{grid: g, worker: wk, arrivals: map[int]*mbarrier{}, groups: make([]warpgroup, n/(warpSize*groupWarps))}
	c.shared = newSegment("shared memory", sharedBase, g.sharedBytes)
	for i := range (n + warpSize - 1) / warpSize {
		w := &warp{cta: c, index: i, started: uint32(ones(min(warpSize, n-i*warpSize)))}
		w.regs = newRegisters(g.prog.regs)
		w.def = make([]uint32, g.prog.regs)
		w.preds = make([]uint32, g.prog.preds)
		w.pdef = make([]uint32, g.prog.preds)
		w.fill(0, 0)
		for _, k := range g.prog.consts {
			w.fill(k.reg, k.value)
		}
		for _, a := range g.prog.arguments {
			w.fill(a.reg, g.argument(a))
		}
		w.specials()
		c.warps = append(c.warps, w)
	}
	return c
}

// registerFiles keeps the registers' memory, most of what a CTA takes, from one
// launch to the next. What is left in it cannot be seen: def says what was written.
var registerFiles sync.Pool

func newRegisters(n int) []vec {
	if old, ok := registerFiles.Get().(*[]vec); ok && cap(*old) >= n {
		return (*old)[:n]
	}
	return make([]vec, n)
}

// free lets other CTAs have the registers.
func (c *cta) free() {
	for _, w := range c.warps {
		regs := w.regs // a pointer into w would keep all of it
		registerFiles.Put(&regs)
	}
}

// fill sets a register in all lanes.
func (w *warp) fill(reg int32, v uint64) {
	for l := range w.regs[reg] {
		w.regs[reg][l] = v
	}
}

// specials sets the special registers that do not depend on the CTA.
func (w *warp) specials() {
	g := w.cta.grid
	fill := func(s special, f func(lane int) uint32) {
		if r := g.prog.specials[s]; r >= 0 {
			for l := range warpSize {
				w.regs[r][l] = uint64(f(l))
			}
		}
	}
	same := func(s special, v uint32) { fill(s, func(int) uint32 { return v }) }
	fill(tidX, func(l int) uint32 { return w.thread(l).X })
	fill(tidY, func(l int) uint32 { return w.thread(l).Y })
	fill(tidZ, func(l int) uint32 { return w.thread(l).Z })
	same(ntidX, g.block.X)
	same(ntidY, g.block.Y)
	same(ntidZ, g.block.Z)
	same(nctaidX, g.dim.X)
	same(nctaidY, g.dim.Y)
	same(nctaidZ, g.dim.Z)
	same(warpID, uint32(w.index))
	fill(laneID, func(l int) uint32 { return uint32(l) })
	fill(lanemaskEq, func(l int) uint32 { return 1 << l })
	fill(lanemaskLt, func(l int) uint32 { return 1<<l - 1 })
	fill(lanemaskLe, func(l int) uint32 { return 2<<l - 1 })
	fill(lanemaskGt, func(l int) uint32 { return ^uint32(2<<l - 1) })
	fill(lanemaskGe, func(l int) uint32 { return ^uint32(1<<l - 1) })
}

// start makes it the CTA of that number, with fresh registers and shared memory.
func (c *cta) start(number int) {
	g := c.grid
	n := uint32(number)
	c.number = number
	c.id = driver.Dim3{X: n % g.dim.X, Y: n / g.dim.X % g.dim.Y, Z: n / g.dim.X / g.dim.Y}
	c.shared.forget()
	c.shared.history.epoch++
	c.barriers = [16]barrier{}
	c.rounds, c.hopeless = 0, 0
	clear(c.arrivals)
	clear(c.groups)
	c.inUse.start(g.prog, len(c.shared.data))
	if g.schedule.Adversarial {
		c.random = rand.New(rand.NewPCG(g.schedule.Seed, uint64(number)))
	}
	for _, w := range c.warps {
		w.start()
	}
}

func (w *warp) start() {
	g := w.cta.grid
	clear(w.def)
	clear(w.pdef)
	w.def[0], w.pdef[0], w.preds[0] = allLanes, allLanes, allLanes
	for _, k := range g.prog.consts {
		w.def[k.reg] = allLanes
	}
	for _, a := range g.prog.arguments {
		w.def[a.reg] = allLanes
	}
	for _, r := range g.prog.specials {
		if r >= 0 {
			w.def[r] = allLanes
		}
	}
	for i, v := range [...]uint32{w.cta.id.X, w.cta.id.Y, w.cta.id.Z} {
		if r := g.prog.specials[ctaidX+special(i)]; r >= 0 {
			w.fill(r, uint64(v))
		}
	}
	w.gid = uint32(w.cta.number*len(w.cta.warps) + w.index)
	w.clock.start(len(w.cta.warps))
	w.async = asyncCopies{}
	w.flight.start(g.prog)
	w.ran, w.vain, w.waited = false, vain{}, !g.overlaps
	w.live, w.waiting, w.pcs, w.ahead, w.fault = w.started, 0, [warpSize]int32{}, 0, nil
}

// turn is how many instructions a warp runs before the next one has its turn, short
// how many at most in an adversarial schedule.
const (
	turn  = 1 << 12
	short = 64
)

// run executes up to so many instructions and returns how many it did. It is done
// when all its warps have ended, or one has trapped.
func (c *cta) run(budget int) (ran int, done bool, fault *Trap) {
	order := make([]int, len(c.warps))
	for i := range order {
		order[i] = i
	}
	for ran < budget {
		if c.random != nil {
			c.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		before, live := ran, false
		for _, i := range order {
			w := c.warps[i]
			if w.live == 0 {
				continue
			}
			slice := turn
			if c.random != nil {
				slice = 1 + c.random.IntN(short)
			}
			live = true
			n := w.run(slice)
			ran += n
			w.ran = w.ran || n > 0
			if w.fault != nil {
				return ran, true, w.fault
			}
		}
		switch {
		case !live:
			return ran, true, nil
		case ran == before:
			return ran, true, c.deadlock()
		}
		if fault = c.despair(); fault != nil {
			return ran, true, fault
		}
	}
	return ran, false, nil
}
