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
	resident    int // CTAs that may run at a time
	memory      *memory
	schedule    Schedule
	late        bool // asynchronous copies arrive late
	approx      alu.Approx
	tensor      alu.Accumulate
	parallel    bool   // several workers
	races       bool   // look for races
	epoch       uint64 // of the history of global memory: the launch
	overlaps    bool   // it may have begun before those of its chain ended
	chain       uint32
	early       early

	next  atomic.Int64 // the CTA to start next
	left  atomic.Int64 // instructions until it is a runaway
	fault struct {
		sync.Mutex
		at   int // the lowest CTA that trapped
		trap *Trap
	}
}

// worker runs CTAs, one after the other.
type worker struct {
	grid      *grid
	loadBytes uint64
	spare     []*cta
}

// quantum is how many instructions a CTA runs before others may have a turn.
const quantum = 1 << 16

// argument gives a parameter as a register holds it.
func (g *grid) argument(a argument) uint64 {
	var b [8]byte
	copy(b[:], g.params[a.offset:a.offset+a.bytes])
	return binary.LittleEndian.Uint64(b[:])
}

// run executes the grid with workers goroutines. It returns the number of bytes that
// global loads asked for, and the trap of the lowest CTA, if any.
func (g *grid) run(workers int) (loadBytes uint64, trap *Trap) {
	n := threads(g.dim)
	g.fault.at = math.MaxInt
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
		loadBytes += wk.loadBytes
		for _, c := range wk.spare {
			c.free()
		}
	}
	if g.fault.trap == nil {
		return loadBytes, g.early.fault()
	}
	return loadBytes, g.fault.trap
}

// failed is the lowest CTA that has trapped, or a number above all.
func (g *grid) failed() int {
	g.fault.Lock()
	defer g.fault.Unlock()
	return g.fault.at
}

// fail records a trap. Of several the one of the lowest CTA stands, so that the
// outcome does not depend on the workers.
func (g *grid) fail(at int, t *Trap) {
	g.fault.Lock()
	defer g.fault.Unlock()
	if at < g.fault.at {
		g.fault.at, g.fault.trap = at, t
	}
}

// mingled is how many CTAs of an adversarial schedule take turns on a worker though
// none waits for another: enough to part their accesses, few enough to be cheap.
const mingled = 4

// run takes CTAs until there are no more. A CTA runs to its end, unless it seems
// to wait for another one: then further ones start beside it, up to so many.
func (wk *worker) run(n, resident int) {
	var active []*cta
	g := wk.grid
	for {
		if len(active) == 0 {
			if active = wk.admit(active, n); len(active) == 0 {
				return
			}
		}
		running := active
		active = active[:0:0]
		room := 0
		for _, c := range running {
			if c.number > g.failed() {
				continue
			}
			c.polls = 0
			done, trap := wk.slice(c)
			switch {
			case trap != nil:
				g.fail(c.number, trap)
			case done:
				wk.spare = append(wk.spare, c)
			default:
				active = append(active, c)
				if c.polls > 0 {
					room = resident
				} else if c.random != nil {
					room = max(room, min(mingled, resident))
				}
			}
		}
		if len(active) < room {
			active = wk.admit(active, n)
		}
	}
}

// slice lets a CTA run for its quantum.
func (wk *worker) slice(c *cta) (done bool, trap *Trap) {
	n := quantum
	if c.random != nil {
		n = 1 + c.random.IntN(512)
	}
	ran, done, trap := c.run(n)
	if left := wk.grid.left.Add(-int64(ran)); left < 0 && trap == nil && !done {
		return true, c.runaway()
	}
	return done, trap
}

// runaway traps: the launch has executed more instructions than it may.
func (c *cta) runaway() *Trap {
	for _, w := range c.warps {
		if w.live != 0 {
			mask, _ := w.lowest(w.live, 0)
			for l := range lanesOf(mask) {
				w.trap(TrapRunaway, &c.grid.prog.ops[w.pc], l, "the launch has executed all the instructions that it may")
				return w.fault
			}
		}
	}
	return nil
}

// admit starts the grid's next CTA.
func (wk *worker) admit(active []*cta, n int) []*cta {
	number := wk.grid.next.Add(1) - 1
	if number >= int64(n) || int(number) > wk.grid.failed() {
		return active
	}
	var c *cta
	if k := len(wk.spare); k > 0 {
		c, wk.spare = wk.spare[k-1], wk.spare[:k-1]
	} else {
		c = newCTA(wk.grid, wk)
	}
	c.start(int(number))
	return append(active, c)
}

// check refuses a launch that does not fit the kernel or the device.
func (p *program) check(l *driver.Launch, props *driver.Properties) error {
	refuse := func(format string, args ...any) error {
		return invalid("Launch", "kernel %s: %s", p.name, fmt.Sprintf(format, args...))
	}
	if want := p.entry.ParamBytes(); len(l.Params) != want {
		return refuse("%d bytes of parameters, it takes %d", len(l.Params), want)
	}
	g, b := l.Grid, l.Block
	if g.X == 0 || g.Y == 0 || g.Z == 0 || b.X == 0 || b.Y == 0 || b.Z == 0 {
		return refuse("an extent of zero: grid %v, block %v", g, b)
	}
	if g.X > math.MaxInt32 || g.Y > 65535 || g.Z > 65535 {
		return refuse("grid %v is larger than %d×65535×65535", g, math.MaxInt32)
	}
	if b.X > 1024 || b.Y > 1024 || b.Z > 64 || threads(b) > maxThreadsPerCTA {
		return refuse("block %v is larger than 1024×1024×64 or %d threads", b, maxThreadsPerCTA)
	}
	if m := p.entry.MaxNTID; m[0] != 0 && threads(b) > int(m[0]*m[1]*m[2]) {
		return refuse("%d threads, .maxntid allows %d", threads(b), m[0]*m[1]*m[2])
	}
	if r := p.entry.ReqNTID; r[0] != 0 && (b != driver.Dim3{X: r[0], Y: r[1], Z: r[2]}) {
		return refuse("block %v, .reqntid wants %v", b, r)
	}
	if total := p.dynamic + int(l.Shared); total > props.SharedPerCTA {
		return refuse("%d bytes of shared memory (%d static), a CTA may have %d", total, p.dynamic, props.SharedPerCTA)
	}
	return nil
}

// checkPointers traps if a parameter declared as a pointer points to no live buffer,
// or is not aligned as declared. Null is allowed: it stands for an absent operand,
// and its use traps.
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
