package emu

import (
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Programmatic dependent launch: on a GPU, a kernel launched with driver.Launch.Overlaps may begin
// while earlier kernels still run. Here kernels run one after the other, and traps enforce the
// rules that make the overlap safe:
//
//   - Until a warp has executed griddepcontrol.wait, it writes no global memory.
//   - Until then, it does not read what an earlier kernel of its chain has written. A chain begins
//     with a kernel that starts after all earlier ones have ended. The overlapping kernels after it
//     belong to the chain. Copies and the start of a graph also begin a chain.
//   - At least one warp of the grid waits. The next kernel waits only for this grid to end. If this
//     grid did not wait, the next one could read what earlier kernels still write.

// writtenBlock is the number of bytes for which one chain of the last write is recorded. A CTA may read bytes next to a block
// that another CTA has written.
const writtenBlock = 16

func newWriterChains(bytes int64) []atomic.Uint32 {
	return make([]atomic.Uint32, (bytes+writtenBlock-1)/writtenBlock)
}

// checkOverlap traps if an access to global memory comes before griddepcontrol.wait and is unsafe.
// It records writes.
func (w *warp) checkOverlap(o *op, s *allocation, at, n, lane int, kind accessKind) bool {
	chain := w.cta.grid.chain
	if kind < accessWrite && w.waitedForGrid {
		return true
	}
	for i := at / writtenBlock; i <= (at+n-1)/writtenBlock; i++ {
		switch last := s.writerChain[i].Load(); {
		case kind < accessWrite:
			if last == chain {
				w.trap(TrapRace, o, lane, "%d bytes at offset %d of %s are read before griddepcontrol.wait, and an earlier kernel may still write them", n, at, s.name)
				return false
			}
		case !w.waitedForGrid:
			w.trap(TrapRace, o, lane, "%d bytes at offset %d of %s are written before griddepcontrol.wait", n, at, s.name)
			return false
		case last != chain:
			s.writerChain[i].Store(chain)
		}
	}
	return true
}

// buildGridDependency decodes griddepcontrol. launch_dependents does nothing here.
func buildGridDependency(_ *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	waits := q.has("wait")
	return op{kind: opRun, run: func(w *warp, _ *op, _ uint32) result {
		if waits && !w.waitedForGrid {
			w.waitedForGrid = true
			w.cta.grid.missingWait.waited.Store(true)
		}
		return resultNext
	}}, wantOperands(in, 0)
}

// missingWait holds the trap for an overlapping grid in which no warp waits. The warp with the
// lowest number provides it.
type missingWait struct {
	sync.Mutex
	waited atomic.Bool // a warp has executed griddepcontrol.wait
	warp   uint32
	trap   *Trap
}

// noteMissingWait records that a warp ends without having waited.
func (w *warp) noteMissingWait(o *op, lane int) {
	m := &w.cta.grid.missingWait
	if w.waitedForGrid || m.waited.Load() {
		return
	}
	m.Lock()
	defer m.Unlock()
	if m.trap == nil || w.gridIndex < m.warp {
		m.warp = w.gridIndex
		m.trap = w.newTrap(TrapRace, o, lane, "the kernel ends and no warp has executed griddepcontrol.wait: earlier kernels may still write what the next one reads")
	}
}

func (m *missingWait) fault() *Trap {
	if m.waited.Load() {
		return nil
	}
	return m.trap
}
