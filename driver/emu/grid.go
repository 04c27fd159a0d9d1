package emu

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
)

// grid is one launch of a kernel.
type grid struct {
	prog        *program
	dim, block  driver.Dim3
	params      []byte
	sharedBytes int
	resident    int // how many CTAs fit on the device at once
	memory      *memory
	schedule    Schedule
	lateCopies  bool
	approx      alu.Approx
	tensor      alu.Accumulate
	parallel    bool   // several workers run CTAs
	races       bool   // detect races
	launch      uint64 // number of the launch, the epoch of the access history of global memory
	overlaps    bool   // launched with driver.Launch.Overlaps
	chain       uint32 // number of its chain, see dependentlaunch.go
	missingWait missingWait
	stop        func() bool // ends the launch if it returns true; may be nil
	stopped     atomic.Bool // it returned true

	next      atomic.Int64 // the CTA to start next
	remaining atomic.Int64 // instructions until the launch is a runaway
	fault     struct {
		sync.Mutex
		number int // of the lowest CTA that trapped
		trap   *Trap
	}
}

// argument returns bytes of the parameter block as a register holds them.
func (g *grid) argument(a argument) uint64 {
	var b [8]byte
	copy(b[:], g.params[a.offset:a.offset+a.bytes])
	return binary.LittleEndian.Uint64(b[:])
}

// run executes the grid on a number of workers. It returns the trap of the lowest CTA that trapped.
func (g *grid) run(workers int) *Trap {
	n := volume(g.dim)
	g.fault.number = math.MaxInt
	workers = min(workers, n)
	g.parallel = workers > 1
	all := make([]*worker, workers)
	var wg sync.WaitGroup
	for i := range all {
		wk := &worker{grid: g}
		all[i] = wk
		wg.Go(func() { wk.run(n, (g.resident+workers-1)/workers) })
	}
	wg.Wait()
	for _, wk := range all {
		for _, c := range wk.spare {
			c.free()
		}
	}
	if g.fault.trap == nil && !g.stopped.Load() {
		return g.missingWait.fault()
	}
	return g.fault.trap
}

// interrupted asks stop whether the launch ends early.
func (g *grid) interrupted() bool {
	if g.stop != nil && !g.stopped.Load() && g.stop() {
		g.stopped.Store(true)
	}
	return g.stopped.Load()
}

// lowestFault is the number of the lowest CTA that has trapped, or math.MaxInt.
func (g *grid) lowestFault() int {
	g.fault.Lock()
	defer g.fault.Unlock()
	return g.fault.number
}

// fail records the trap of a CTA. The trap of the lowest CTA wins, so that the outcome does not
// depend on the workers.
func (g *grid) fail(number int, t *Trap) {
	g.fault.Lock()
	defer g.fault.Unlock()
	if number < g.fault.number {
		g.fault.number, g.fault.trap = number, t
	}
}

// worker is one goroutine that runs CTAs.
type worker struct {
	grid  *grid
	spare []*cta // ended, to be reused
}

// ctaTurn is how many instructions a CTA executes before another one of the worker may run.
// An adversarial schedule draws the number from 1 to maxRandomCTATurn.
const (
	ctaTurn          = 1 << 16
	maxRandomCTATurn = 512
)

// interleaved is how many CTAs a worker interleaves in an adversarial schedule even if none of
// them waits for another. A few are enough for accesses of different CTAs to mix.
const interleaved = 4

// run executes CTAs until the grid has no more. Normally a CTA runs to its end before the next
// one starts. While it polls memory, as if it waited for another CTA, further ones start beside
// it, up to resident ones.
func (wk *worker) run(n, resident int) {
	var running []*cta
	g := wk.grid
	for !g.interrupted() {
		if len(running) == 0 {
			if running = wk.admit(running, n); len(running) == 0 {
				return
			}
		}
		previous := running
		running = running[:0:0]
		limit := 0
		for _, c := range previous {
			if c.number > g.lowestFault() {
				continue
			}
			c.polls = 0
			done, trap := wk.turn(c)
			switch {
			case trap != nil:
				g.fail(c.number, trap)
			case done:
				wk.spare = append(wk.spare, c)
			default:
				running = append(running, c)
				if c.polls > 0 {
					limit = resident
				} else if c.random != nil {
					limit = max(limit, min(interleaved, resident))
				}
			}
		}
		if len(running) < limit {
			running = wk.admit(running, n)
		}
	}
}

// turn executes a CTA for one turn.
func (wk *worker) turn(c *cta) (done bool, trap *Trap) {
	n := ctaTurn
	if c.random != nil {
		n = 1 + c.random.IntN(maxRandomCTATurn)
	}
	ran, done, trap := c.run(n)
	if left := wk.grid.remaining.Add(-int64(ran)); left < 0 && trap == nil && !done {
		return true, c.runaway()
	}
	return done, trap
}

// admit starts the next CTA of the grid, if there is one.
func (wk *worker) admit(running []*cta, n int) []*cta {
	number := wk.grid.next.Add(1) - 1
	if number >= int64(n) || int(number) > wk.grid.lowestFault() {
		return running
	}
	var c *cta
	if k := len(wk.spare); k > 0 {
		c, wk.spare = wk.spare[k-1], wk.spare[:k-1]
	} else {
		c = newCTA(wk.grid, wk)
	}
	c.start(int(number))
	return append(running, c)
}

// check refuses a launch that does not fit the kernel or the device.
func (p *program) check(l *driver.Launch, props *driver.Properties) error {
	refuse := func(format string, args ...any) error {
		return invalid("Launch", "kernel %s: %s", p.name, fmt.Sprintf(format, args...))
	}
	if want := p.entry.ParamBytes(); len(l.Params) != want {
		return refuse("%d bytes of parameters, the entry takes %d", len(l.Params), want)
	}
	g, b := l.Grid, l.Block
	if g.X == 0 || g.Y == 0 || g.Z == 0 || b.X == 0 || b.Y == 0 || b.Z == 0 {
		return refuse("an extent of zero: grid %v, block %v", g, b)
	}
	if g.X > math.MaxInt32 || g.Y > 65535 || g.Z > 65535 {
		return refuse("grid %v is larger than %d×65535×65535", g, math.MaxInt32)
	}
	if b.X > 1024 || b.Y > 1024 || b.Z > 64 || volume(b) > maxThreadsPerCTA {
		return refuse("block %v is larger than 1024×1024×64 or %d threads", b, maxThreadsPerCTA)
	}
	if m := p.entry.MaxNTID; m[0] != 0 && volume(b) > int(m[0]*m[1]*m[2]) {
		return refuse("%d threads, .maxntid allows %d", volume(b), m[0]*m[1]*m[2])
	}
	if r := p.entry.ReqNTID; r[0] != 0 && (b != driver.Dim3{X: r[0], Y: r[1], Z: r[2]}) {
		return refuse("block %v, .reqntid requires %v", b, r)
	}
	if total := p.static + int(l.Shared); total > props.SharedPerCTA {
		return refuse("%d bytes of shared memory (%d static), a CTA may have %d", total, p.static, props.SharedPerCTA)
	}
	return nil
}

// checkPointers traps if a parameter declared .ptr is outside every live buffer, or not aligned as
// declared. Null is allowed for an absent operand; an access to it traps.
func (g *grid) checkPointers() *Trap {
	for _, q := range g.prog.entry.Params {
		addr := uint64(0)
		if q.Pointer {
			addr = g.argument(argument{offset: q.Offset, bytes: q.Bytes})
		}
		if addr == 0 {
			continue
		}
		_, _, _, err := g.memory.find(addr, 1)
		if err == nil && addr%uint64(q.Align) != 0 {
			err = fmt.Errorf("%#x is not a multiple of %d", addr, q.Align)
		}
		if err != nil {
			return &Trap{Kind: TrapArgument, Kernel: g.prog.name, Detail: fmt.Sprintf("parameter %s: %v", q.Name, err)}
		}
	}
	return nil
}
