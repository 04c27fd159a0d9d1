// Package kv is the paged KV cache of an engine. Sequences hold pages of attention.PageTokens
// positions by tables; snapshots share pages with them, and swap them out to host memory
// when the cache is full.
package kv

import (
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// Layer is the device memory of one layer's keys and values: [pages, kv heads,
// attention.PageTokens, head dim] each.
type Layer struct{ K, V ptx.Address }

// Geometry is the shape of a page.
type Geometry struct {
	Layers, KVHeads, HeadDim int
	Format                   quant.Format // of the elements
}

// HeadBytes returns the bytes of one head's key at one position. A value has as many.
func (g Geometry) HeadBytes() int { return g.HeadDim * g.Format.BlockBytes() }

// LayerPageBytes returns the bytes of a page of one layer's keys. Its values have as many.
func (g Geometry) LayerPageBytes() int { return attention.PageTokens * g.KVHeads * g.HeadBytes() }

// PageBytes returns the bytes of a page in all layers.
func (g Geometry) PageBytes() int64 { return 2 * int64(g.Layers) * int64(g.LayerPageBytes()) }

// Cache is the pages of an engine. Pool is safe for concurrent use. All other methods need
// the engine's mutex: they use the stream and the staging buffer.
type Cache struct {
	Pool     *Pool
	geometry Geometry
	layers   []Layer
	stream   driver.Stream
	staging  driver.Pinned // holds at least one page of one layer

	snapshots []*Snapshot // that hold pages on the device, the oldest first
	open      int         // snapshots that are not closed
	swapOuts  int
}

// New returns a cache of the pages that the layers have room for.
func New(g Geometry, layers []Layer, pages int, stream driver.Stream, staging driver.Pinned) *Cache {
	return &Cache{Pool: NewPool(pages), geometry: g, layers: layers, stream: stream, staging: staging}
}

// OpenSnapshots returns how many snapshots are not closed.
func (c *Cache) OpenSnapshots() int { return c.open }

// SwapOuts returns how many snapshots were swapped out.
func (c *Cache) SwapOuts() int { return c.swapOuts }

// Extend grows a table to n positions, of which those from position first on will be
// written. If first is in a shared page, a copy replaces the page. Snapshots are swapped
// out, the oldest first, if too few pages are free; none is if that would not suffice. The
// error is then a *FullError, and the table is unchanged.
func (c *Cache) Extend(t *Table, n, first int) error {
	i, have := first/attention.PageTokens, len(t.Pages)
	if i >= have || !c.Pool.Shared(t.Pages[i]) {
		return c.claim(t, n, nil)
	}
	// If there is no room for a copy, but only snapshots share the page, they are swapped
	// out, and the page becomes the table's own.
	free, _ := c.Pool.swappable(c.snapshots)
	var sharing []*Snapshot
	for _, s := range c.snapshots {
		if slices.Contains(s.pages, t.Pages[i]) {
			sharing = append(sharing, s)
		}
	}
	if free == max(0, pagesOf(n)-have) && c.Pool.references(t.Pages[i]) == 1+len(sharing) {
		for _, s := range sharing {
			if err := c.swapOut(s); err != nil {
				return err
			}
		}
		return c.claim(t, n, nil)
	}
	if err := c.claim(t, max(n, have*attention.PageTokens)+attention.PageTokens, nil); err != nil {
		return err
	}
	last := len(t.Pages) - 1
	if c.Pool.Shared(t.Pages[i]) { // claim may have swapped out the snapshots that shared it
		if err := c.copyPage(t.Pages[last], t.Pages[i]); err != nil {
			c.Pool.Shrink(t, have*attention.PageTokens)
			return err
		}
		t.Pages[i], t.Pages[last] = t.Pages[last], t.Pages[i]
	}
	c.Pool.Shrink(t, last*attention.PageTokens)
	return nil
}

// claim grows a table to n positions and swaps out snapshots for it as Extend does, except
// for one of them.
func (c *Cache) claim(t *Table, n int, except *Snapshot) error {
	for {
		err := c.Pool.Grow(t, n)
		if err == nil {
			return nil
		}
		others := slices.DeleteFunc(slices.Clone(c.snapshots), func(s *Snapshot) bool { return s == except })
		free, oldest := c.Pool.swappable(others)
		if need := pagesOf(n) - len(t.Pages); need > free {
			return &FullError{Need: need, Free: free, Pages: c.Pool.pages}
		}
		if oldest == nil {
			continue // another sequence has released enough pages
		}
		if err := c.swapOut(oldest); err != nil {
			return err
		}
	}
}
