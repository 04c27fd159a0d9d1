package emu

import (
	"math/rand/v2"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
)

// cta is a cooperative thread array (a thread block) that runs on one worker.
type cta struct {
	grid       *grid
	worker     *worker
	number     int // in the grid
	id         driver.Dim3
	warps      []*warp
	shared     *allocation
	barriers   [16]barrier
	mbarriers  map[int]*mbarrier // by offset in shared memory
	warpgroups []warpgroup
	wgmmaReads wgmmaReads
	registers  int        // free registers, per thread of a warp: see setmaxnreg
	random     *rand.Rand // of an adversarial schedule, else nil
	rounds     int        // of turns of all warps since the CTA started, see livelock
	idleChecks int        // consecutive checks in which all warps only polled, see livelock
	polls      int        // strong loads and atomics executed; they may wait for another CTA
}

// newCTA allocates the registers and the shared memory of a CTA. start assigns it a number.
func newCTA(g *grid, wk *worker) *cta {
	n := volume(g.block)
	c := &cta{grid: g, worker: wk, mbarriers: map[int]*mbarrier{}, warpgroups: make([]warpgroup, n/(warpSize*warpgroupWarps))}
	c.shared = newAllocation("shared memory", sharedBase, g.sharedBytes)
	for i := range (n + warpSize - 1) / warpSize {
		w := &warp{cta: c, index: i, exists: uint32(ones(min(warpSize, n-i*warpSize)))}
		w.regs = newRegisters(g.prog.regs)
		w.written = make([]uint32, g.prog.regs)
		w.preds = make([]uint32, g.prog.preds)
		w.predsWritten = make([]uint32, g.prog.preds)
		w.fill(0, 0)
		for _, k := range g.prog.consts {
			w.fill(k.reg, k.value)
		}
		for _, a := range g.prog.arguments {
			w.fill(a.reg, g.argument(a))
		}
		w.fillSpecials()
		c.warps = append(c.warps, w)
	}
	return c
}

// registerFiles recycles the registers of warps, most of the memory of a CTA, across launches.
// Old values are invisible because warp.written starts empty.
var registerFiles sync.Pool

func newRegisters(n int) []vec {
	if old, ok := registerFiles.Get().(*[]vec); ok && cap(*old) >= n {
		return (*old)[:n]
	}
	return make([]vec, n)
}

// free recycles the registers.
func (c *cta) free() {
	for _, w := range c.warps {
		regs := w.regs // a pointer to the field would keep the warp alive
		registerFiles.Put(&regs)
	}
}

// fillSpecials sets the special registers that are the same for every CTA.
func (w *warp) fillSpecials() {
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

// thread is %tid of a lane.
func (w *warp) thread(lane int) driver.Dim3 {
	n, b := uint32(w.index*warpSize+lane), w.cta.grid.block
	return driver.Dim3{X: n % b.X, Y: n / b.X % b.Y, Z: n / b.X / b.Y}
}

// start resets c to be the CTA of a number in the grid.
func (c *cta) start(number int) {
	g := c.grid
	n := uint32(number)
	c.number = number
	c.id = driver.Dim3{X: n % g.dim.X, Y: n / g.dim.X % g.dim.Y, Z: n / g.dim.X / g.dim.Y}
	c.shared.undefineAll()
	c.shared.history.epoch++
	c.barriers = [16]barrier{}
	c.rounds, c.idleChecks, c.registers = 0, 0, 0
	clear(c.mbarriers)
	clear(c.warpgroups)
	c.wgmmaReads.start(g.prog, len(c.shared.data))
	if g.schedule.Adversarial {
		c.random = rand.New(rand.NewPCG(g.schedule.Seed, uint64(number)))
	}
	for _, w := range c.warps {
		w.start()
	}
}

// A turn is a number of instructions that a warp executes before the next warp runs: fixedTurn,
// or in an adversarial schedule a random number from 1 to maxRandomTurn.
const (
	fixedTurn     = 1 << 12
	maxRandomTurn = 64
)

// run gives each warp a turn, over and over, until at least budget instructions have run or done, and returns the number of
// instructions. done reports that all warps have ended, that one has trapped, or that they wait for each other.
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
			turn := fixedTurn
			if c.random != nil {
				turn = 1 + c.random.IntN(maxRandomTurn)
			}
			live = true
			n := w.run(turn)
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
		if fault = c.livelock(); fault != nil {
			return ran, true, fault
		}
	}
	return ran, false, nil
}
