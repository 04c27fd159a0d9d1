package accel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

// snapshot is a copy of a sequence's first positions. Whole pages stay on the device,
// shared with the sequence; the rest is in host memory. When the cache has no page left,
// those pages go to host memory too. But for that nothing changes it.
type snapshot struct {
	engine *Engine
	long   bool
	length int
	full   int    // whole pages
	kept   *kept  // they, while they are on the device
	head   []byte // what they hold, when they are not
	tail   []byte // what is behind them
	closed bool
}

// Len is the number of positions.
func (s *snapshot) Len() int { return s.length }

// Bytes is the memory held, of the device and of the host.
func (s *snapshot) Bytes() int64 { return s.engine.pool.pageBytes() / page * int64(s.length) }

// Close gives the pages back to the cache.
func (s *snapshot) Close() error {
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.kept != nil {
		e.snapshots = slices.DeleteFunc(e.snapshots, func(k *kept) bool { return k == s.kept })
		s.kept.giveBack(e.pool)
	}
	s.kept, s.head, s.tail, s.closed = nil, nil, nil, true
	return nil
}

// Snapshot copies the first n positions. Whole pages of them stay on the device, shared,
// until the cache needs the room.
func (s *session) Snapshot(n int) (model.Snapshot, error) {
	if s.closed {
		return nil, fmt.Errorf("accel: %w", model.ErrClosed)
	}
	if n < 0 || n > s.length {
		return nil, fmt.Errorf("accel: snapshot of %d: the session holds %d positions", n, s.length)
	}
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return nil, err
	}
	snap := &snapshot{engine: e, long: s.long, length: n, full: n / page}
	snap.tail = make([]byte, int(e.pool.pageBytes())/page*(n%page))
	if err := e.save(e.spans(s.pages, snap.full, n, n), snap.tail); err != nil {
		return nil, e.failed(err)
	}
	e.keep(snap, s.pages[:snap.full])
	return snap, nil
}

// Restore replaces the cache by the first n positions of a snapshot of a session of the
// same engine. The session's own pages are given up last, so that a failure changes
// nothing.
func (s *session) Restore(from model.Snapshot, n int) error {
	snap, ok := from.(*snapshot)
	switch {
	case s.closed:
		return fmt.Errorf("accel: %w", model.ErrClosed)
	case !ok || snap.engine != s.engine:
		return fmt.Errorf("accel: restore: the snapshot is of another engine")
	case snap.long != s.long:
		return fmt.Errorf("accel: restore: one of the two sessions rotates by the factors for long contexts, the other does not")
	case n < 0 || n > snap.length:
		return fmt.Errorf("accel: restore %d: the snapshot holds %d positions", n, snap.length)
	case n > s.capacity:
		return fmt.Errorf("accel: restore: %w", &model.ContextError{Need: n, Limit: s.capacity})
	}
	table, err := s.engine.restored(snap, n)
	if err != nil {
		return err
	}
	s.engine.pool.shrink(s.pages, 0)
	s.pages, s.length, s.place = table, n, noPlace
	return nil
}

// restored is a table of the first n positions of a snapshot: whole pages that are on the
// device are shared, what else there is goes to pages of its own.
func (e *Engine) restored(snap *snapshot, n int) (table []uint32, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return nil, err
	}
	if snap.closed {
		return nil, fmt.Errorf("accel: restore: snapshot: %w", model.ErrClosed)
	}
	table, err = e.sharing(snap, n)
	if !errors.Is(err, ErrKVFull) || snap.kept == nil {
		return table, err
	}
	// The snapshot's own pages are in the way, if all snapshots together could make room.
	if could, _ := e.pool.without(e.keepers()); ceilDiv(n, page) > could {
		return nil, err
	}
	if err := e.spill(snap); err != nil {
		return nil, e.failed(err)
	}
	return e.sharing(snap, n)
}

// sharing is a table that shares what it can with a snapshot.
func (e *Engine) sharing(snap *snapshot, n int) (table []uint32, err error) {
	if snap.kept != nil {
		table = slices.Clone(snap.kept.pages[:min(n/page, snap.full)])
		e.pool.share(table)
	}
	if table, err = e.claim(table, n, snap); err == nil {
		err = e.failed(e.fill(table, snap, n))
	}
	if err != nil {
		e.pool.shrink(table, 0)
		return nil, err
	}
	return table, nil
}

// fill copies what a table does not share with the snapshot.
func (e *Engine) fill(table []uint32, snap *snapshot, n int) error {
	switch whole := n / page; {
	case snap.kept == nil && snap.full > 0:
		if err := e.load(e.spans(table, 0, min(n, snap.full*page), snap.full*page), snap.head); err != nil {
			return err
		}
	case whole < snap.full && n%page > 0: // a part of a whole page
		if err := e.copyPage(table[whole], snap.kept.pages[whole]); err != nil {
			return err
		}
	}
	if n <= snap.full*page {
		return e.stream.Synchronize()
	}
	return e.load(e.spans(table, snap.full, n, snap.length), snap.tail)
}
