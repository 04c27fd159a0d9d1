package kv

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// Snapshot is a copy of the first positions of a sequence. Pages that it covers entirely, its
// whole pages, are shared with the sequence. The positions after them are in host memory.
// Swapping it out copies the whole pages to host memory and drops its references to them.
type Snapshot struct {
	length  int
	whole   int      // number of whole pages
	pages   []uint32 // the whole pages; nil when they are swapped out
	swapped []byte   // contents of the whole pages when they are swapped out
	tail    []byte   // contents after the whole pages
	closed  bool
}

// Len returns the number of positions.
func (s *Snapshot) Len() int { return s.length }

// Snapshot returns a snapshot of the first n positions of a table. The caller releases it.
func (c *Cache) Snapshot(t *Table, n int) (*Snapshot, error) {
	s := &Snapshot{length: n, whole: n / attention.PageTokens, tail: make([]byte, c.Bytes(n%attention.PageTokens))}
	if err := c.save(c.layerPages(t.Pages, s.whole, n, n), s.tail); err != nil {
		return nil, err
	}
	c.open++
	if s.whole > 0 {
		s.pages = slices.Clone(t.Pages[:s.whole])
		c.Pool.retain(s.pages)
		c.snapshots = append(c.snapshots, s)
	}
	return s, nil
}

// Bytes returns the memory of n positions in all layers.
func (c *Cache) Bytes(n int) int64 { return c.geometry.PageBytes() / attention.PageTokens * int64(n) }

// Release gives up the memory of a snapshot. Releasing it again does nothing.
func (c *Cache) Release(s *Snapshot) {
	if s.closed {
		return
	}
	s.closed = true
	c.open--
	c.dropPages(s)
	s.swapped, s.tail = nil, nil
}

// dropPages gives up the references to the pages of a snapshot.
func (c *Cache) dropPages(s *Snapshot) {
	if i := slices.Index(c.snapshots, s); i >= 0 {
		c.snapshots = slices.Delete(c.snapshots, i, i+1)
		c.Pool.release(s.pages)
		s.pages = nil
	}
}

// swapOut moves the pages of a snapshot to host memory.
func (c *Cache) swapOut(s *Snapshot) error {
	positions := s.whole * attention.PageTokens
	swapped := make([]byte, c.Bytes(positions))
	if err := c.save(c.layerPages(s.pages, 0, positions, positions), swapped); err != nil {
		return err
	}
	c.dropPages(s)
	s.swapped = swapped
	c.swapOuts++
	return nil
}

// Restore returns a table of the first n positions of a snapshot. The table shares the
// snapshot's whole pages that are on the device; Restore copies the rest. If too few pages
// are free, it swaps out snapshots as Extend does. If the snapshot was released, the error
// is model.ErrClosed.
func (c *Cache) Restore(s *Snapshot, n int) (Table, error) {
	if s.closed {
		return Table{}, fmt.Errorf("snapshot: %w", model.ErrClosed)
	}
	t, err := c.restore(s, n)
	var full *FullError
	if !errors.As(err, &full) || s.pages == nil {
		return t, err
	}
	// The snapshot itself holds pages that the table needs. Swap it out if that frees enough.
	if free, _ := c.Pool.swappable(c.snapshots); pagesOf(n) > free {
		return Table{}, err
	}
	if err := c.swapOut(s); err != nil {
		return Table{}, err
	}
	return c.restore(s, n)
}

// restore is Restore without swapping out the snapshot itself.
func (c *Cache) restore(s *Snapshot, n int) (t Table, err error) {
	if s.pages != nil {
		t.Pages = slices.Clone(s.pages[:min(n/attention.PageTokens, s.whole)])
		c.Pool.retain(t.Pages)
	}
	if err = c.claim(&t, n, s); err == nil {
		err = c.fill(t.Pages, s, n)
	}
	if err != nil {
		c.Pool.Shrink(&t, 0)
	}
	return t, err
}

// fill copies the positions of a restored table that are not in shared pages.
func (c *Cache) fill(pages []uint32, s *Snapshot, n int) error {
	wholePositions := s.whole * attention.PageTokens
	switch last := n / attention.PageTokens; {
	case s.swapped != nil:
		if err := c.load(c.layerPages(pages, 0, min(n, wholePositions), wholePositions), s.swapped); err != nil {
			return err
		}
	case last < s.whole && n%attention.PageTokens > 0: // the table ends within a whole page of the snapshot
		if err := c.copyPage(pages[last], s.pages[last]); err != nil {
			return err
		}
	}
	if n <= wholePositions {
		return c.stream.Synchronize()
	}
	return c.load(c.layerPages(pages, s.whole, n, s.length), s.tail)
}
