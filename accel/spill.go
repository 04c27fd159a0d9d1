package accel

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"weak"
)

// kept are pages that a snapshot shares. The engine has them and not only the snapshot:
// it may want them back when nobody has the snapshot any more and its cleanup is still to
// run.
type kept struct {
	by    weak.Pointer[snapshot]
	pages []uint32
	given atomic.Bool // back
}

// giveBack gives up the pages, once. Anybody may call it.
func (k *kept) giveBack(p *pool) {
	if k.given.CompareAndSwap(false, true) {
		p.shrink(k.pages, 0)
	}
}

// keep lets a snapshot share pages, until nobody has it any more or it is moved to host
// memory. The lock is held.
func (e *Engine) keep(snap *snapshot, pages []uint32) {
	e.keepers()
	if len(pages) == 0 {
		return
	}
	snap.kept = &kept{by: weak.Make(snap), pages: slices.Clone(pages)}
	e.pool.share(pages)
	e.snapshots = append(e.snapshots, snap.kept)
	pool := e.pool
	runtime.AddCleanup(snap, func(k *kept) { k.giveBack(pool) }, snap.kept)
}

// keepers are the snapshots that share pages, the oldest first. What others shared that
// are gone is given back. The lock is held.
func (e *Engine) keepers() (list []*snapshot) {
	e.snapshots = slices.DeleteFunc(e.snapshots, func(k *kept) bool {
		s := k.by.Value()
		if s == nil {
			k.giveBack(e.pool)
			return true
		}
		list = append(list, s)
		return false
	})
	return list
}

// claim appends pages to a table until it covers n positions, or leaves it as it is. When
// too few are free, snapshots make room, the oldest first, but for one; none does if all
// together could not make enough. The lock is held.
func (e *Engine) claim(table []uint32, n int, except *snapshot) ([]uint32, error) {
	for {
		list := slices.DeleteFunc(e.keepers(), func(s *snapshot) bool { return s == except })
		grown, full := e.pool.grow(table, n)
		if full == nil {
			return grown, nil
		}
		could, oldest := e.pool.without(list)
		if need := ceilDiv(n, page) - len(table); need > could {
			return table, fmt.Errorf("accel: %w", &KVFullError{Need: need, Free: could, Pages: e.pool.pages})
		}
		if oldest == nil {
			continue // somebody else has given back what is needed
		}
		if err := e.spill(oldest); err != nil {
			return table, e.failed(err)
		}
	}
}

// extend is claim for a table whose page i will be written: if others share it, a copy
// takes its place; if there is no room for a copy, but snapshots alone share it, they go to
// host memory. The lock is held.
func (e *Engine) extend(table []uint32, n, i int) ([]uint32, error) {
	if i >= len(table) || !e.pool.shared(table[i]) {
		return e.claim(table, n, nil)
	}
	have := len(table)
	list := e.keepers()
	could, _ := e.pool.without(list)
	sharing := slices.DeleteFunc(list, func(s *snapshot) bool { return !slices.Contains(s.kept.pages, table[i]) })
	if could == max(0, ceilDiv(n, page)-have) && e.pool.owners(table[i]) == 1+len(sharing) {
		for _, s := range sharing {
			if err := e.spill(s); err != nil {
				return table, e.failed(err)
			}
		}
		return e.claim(table, n, nil)
	}
	grown, err := e.claim(table, max(n, have*page)+page, nil)
	if err != nil {
		return table, err
	}
	last := len(grown) - 1
	if e.pool.shared(grown[i]) { // still: not all may have made room
		if err := e.copyPage(grown[last], grown[i]); err != nil {
			return e.pool.shrink(grown, have*page), e.failed(err)
		}
		grown[i], grown[last] = grown[last], grown[i]
	}
	return e.pool.shrink(grown, last*page), nil
}

// spill moves a snapshot's pages to host memory. The lock is held.
func (e *Engine) spill(s *snapshot) error {
	positions := s.full * page
	head := make([]byte, e.pool.pageBytes()*int64(s.full))
	if err := e.save(e.spans(s.kept.pages, 0, positions, positions), head); err != nil {
		return err
	}
	e.snapshots = slices.DeleteFunc(e.snapshots, func(k *kept) bool { return k == s.kept })
	s.kept.giveBack(e.pool)
	s.kept, s.head = nil, head
	e.stats.SwapOuts++
	return nil
}
