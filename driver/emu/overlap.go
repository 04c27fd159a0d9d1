package emu

import (
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
	"sync"
	"sync/atomic"
)

// Kernels of a stream run one after the other here. Those that a device may begin while
// the ones before still run (driver.Launch.Overlaps) are held to what makes that safe:
// until a warp has waited (griddepcontrol.wait) it writes no global memory, and reads
// none that a kernel has written which may still run. That is any since the last that
// began when all before it had ended, with it: a chain; the first of a graph begins one,
// too. And a warp of the grid waits, some one: the kernel after waits for this grid alone,
// and were that to end before those before it, would read what they still write.

// tellApart is how many bytes of a buffer are taken to be written together: what buffers
// are aligned to.
const tellApart = granule

func newWritten(bytes int64) []atomic.Uint32 {
	return make([]atomic.Uint32, (bytes+tellApart-1)/tellApart)
}

// settled tells whether an access to global memory comes neither too early nor to memory
// that may still be written, and remembers what is.
func (w *warp) settled(o *op, s *segment, at, n, lane int, kind accessKind) bool {
	chain := w.cta.grid.chain
	if kind < accessWrite && w.waited {
		return true
	}
	for i := at / tellApart; i <= (at+n-1)/tellApart; i++ {
		switch have := s.written[i].Load(); {
		case kind < accessWrite:
			if have == chain {
				w.trap(TrapRace, o, lane, "%d bytes at offset %d of %s are read before griddepcontrol.wait, which a kernel before may still write", n, at, s.name)
				return false
			}
		case !w.waited:
			w.trap(TrapRace, o, lane, "%d bytes at offset %d of %s are written before griddepcontrol.wait", n, at, s.name)
			return false
		case have != chain:
			s.written[i].Store(chain)
		}
	}
	return true
}

// buildDependency decodes the instructions of overlapping kernels.
func buildDependency(_ *decoder, in *syntax.Instruction, q quals) (op, error) {
	waits := q.has("wait")
	return op{kind: opRun, run: func(w *warp, _ *op, _ uint32) step {
		if waits && !w.waited {
			w.waited = true
			w.cta.grid.early.waited.Store(true)
		}
		return stepNext
	}}, count(in, 0)
}

// early is where the first warp ended of those that had not waited, for the case that
// none does.
type early struct {
	sync.Mutex
	waited atomic.Bool // a warp has
	warp   uint32
	trap   *Trap
}

// ended remembers the end of a warp.
func (w *warp) ended(o *op, lane int) {
	e := &w.cta.grid.early
	if w.waited || e.waited.Load() {
		return
	}
	e.Lock()
	defer e.Unlock()
	if e.trap == nil || w.gid < e.warp {
		e.warp = w.gid
		e.trap = w.newTrap(TrapRace, o, lane, "the kernel ends and no warp has come to griddepcontrol.wait: those before it may still write what the next one reads")
	}
}

// fault is the trap of a grid that overlaps and did not wait.
func (e *early) fault() *Trap {
	if e.waited.Load() {
		return nil
	}
	return e.trap
}
