package accel

import (
	"runtime"
	"slices"
	"weak"
)

// keep lets a snapshot share pages, until nobody has it any more or it is moved to host
// memory. The lock is held.
func (e *Engine) keep(snap *snapshot, pages []uint32) {
	if len(pages) == 0 {
		return
	}
	snap.pages = slices.Clone(pages)
	e.pool.share(snap.pages)
	pool := e.pool
	snap.drop = runtime.AddCleanup(snap, func(pages []uint32) { pool.shrink(pages, 0) }, snap.pages)
	gone := func(w weak.Pointer[snapshot]) bool { return w.Value() == nil }
	e.snapshots = append(slices.DeleteFunc(e.snapshots, gone), weak.Make(snap))
}

// claim appends pages to a table until it covers n positions, or leaves it as it is. When
// none are free, snapshots make room, the oldest first, but for one. The lock is held.
func (e *Engine) claim(table []uint32, n int, except *snapshot) ([]uint32, error) {
	for {
		grown, full := e.pool.grow(table, n)
		if full == nil {
			return grown, nil
		}
		if ceilDiv(n, page) > e.pool.pages {
			return table, full // whatever makes room
		}
		i := slices.IndexFunc(e.snapshots, func(w weak.Pointer[snapshot]) bool {
			s := w.Value()
			return s != nil && s != except
		})
		if i < 0 {
			return table, full
		}
		oldest := e.snapshots[i].Value()
		e.snapshots = slices.Delete(e.snapshots, i, i+1)
		if oldest == nil {
			continue // it has gone since
		}
		if err := e.spill(oldest); err != nil {
			return table, e.failed(err)
		}
	}
}

// spill moves a snapshot's pages to host memory.
func (e *Engine) spill(s *snapshot) error {
	positions := s.full * page
	head := make([]byte, e.pool.pageBytes()*int64(s.full))
	if err := e.save(e.spans(s.pages, 0, positions, positions), head); err != nil {
		e.snapshots = append(e.snapshots, weak.Make(s))
		return err
	}
	s.drop.Stop()
	e.pool.shrink(s.pages, 0)
	s.pages, s.head = nil, head
	e.stats.Spills++
	return nil
}

// own replaces page i of a table, which is shared, by a copy. The lock is held.
func (e *Engine) own(table []uint32, i int) error {
	copied, err := e.claim(nil, 1, nil)
	if !e.pool.shared(table[i]) { // the other owner was a snapshot that made room
		e.pool.shrink(copied, 0)
		return nil
	}
	if err != nil {
		return err
	}
	if err := e.copyPage(copied[0], table[i]); err != nil {
		e.pool.shrink(copied, 0)
		return e.failed(err)
	}
	e.pool.shrink(table[i:i+1], 0)
	table[i] = copied[0]
	return nil
}
