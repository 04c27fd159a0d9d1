package accel

import (
	"fmt"

	"github.com/lockstep-go/lockstep/accel/internal/kv"
	"github.com/lockstep-go/lockstep/model"
)

// snapshot is a copy of a session's first positions. It shares full pages with the session
// until the cache needs them and swaps them out. The rest is in host memory.
type snapshot struct {
	engine   *Engine
	longRope bool // of the session
	kv       *kv.Snapshot
}

// Len implements model.Snapshot.
func (s *snapshot) Len() int { return s.kv.Len() }

// Bytes implements model.Snapshot.
func (s *snapshot) Bytes() int64 { return s.engine.cache.Bytes(s.Len()) }

// Close implements model.Snapshot. It can be called after the engine's Close.
func (s *snapshot) Close() error {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.engine.cache.Release(s.kv)
	return nil
}

// Snapshot implements model.Session.
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
	snap, err := e.cache.Snapshot(&s.table, n)
	if err != nil {
		return nil, e.failed(err)
	}
	return &snapshot{engine: e, longRope: s.longRope, kv: snap}, nil
}

// Restore implements model.Session. An error leaves the session as it was.
func (s *session) Restore(from model.Snapshot, n int) error {
	snap, ok := from.(*snapshot)
	switch {
	case s.closed:
		return fmt.Errorf("accel: %w", model.ErrClosed)
	case !ok || snap.engine != s.engine:
		return fmt.Errorf("accel: restore: the snapshot is of another engine")
	case snap.longRope != s.longRope:
		return fmt.Errorf("accel: restore: only one of the two sessions uses the RoPE factors for long contexts")
	case n < 0 || n > snap.Len():
		return fmt.Errorf("accel: restore %d: the snapshot holds %d positions", n, snap.Len())
	case n > s.capacity:
		return fmt.Errorf("accel: restore: %w", model.CheckCapacity(n, s.capacity))
	}
	e := s.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(); err != nil {
		return err
	}
	table, err := e.cache.Restore(snap.kv, n)
	if err != nil {
		return e.cacheFailed(err)
	}
	e.cache.Pool.Shrink(&s.table, 0)
	s.table, s.length, s.slot = table, n, noSlot
	return nil
}
