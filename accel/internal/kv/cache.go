// Package kv is the paged KV cache of an engine. A sequence has a table of its pages, each of
// attention.PageTokens positions. Snapshots share pages with sequences. When the cache is full,
// it swaps out the pages of snapshots to host memory.
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

// Cache is the KV cache of an engine. Pool is safe for concurrent use. The caller of any
// method holds the engine's mutex, because methods use the stream and the staging buffer.
type Cache struct {
	Pool     *Pool
	geometry Geometry
	layers   []Layer
	stream   driver.Stream
	staging  driver.Pinned // holds at least one page of one layer

	snapshots []*Snapshot // those with pages on the device, the oldest first
	open      int         // snapshots that are not closed
	swapOuts  int
}

// New returns an empty cache. pages is its number of pages; each layer has device memory for as
// many.
func New(g Geometry, layers []Layer, pages int, stream driver.Stream, staging driver.Pinned) *Cache {
	return &Cache{Pool: NewPool(pages), geometry: g, layers: layers, stream: stream, staging: staging}
}

// OpenSnapshots returns how many snapshots are not closed.
func (c *Cache) OpenSnapshots() int { return c.open }

// SwapOuts returns how many snapshots were swapped out.
func (c *Cache) SwapOuts() int { return c.swapOuts }

// Extend grows a table to n positions. The caller will write the positions from first on.
// If first is in a shared page, Extend replaces that page by a copy.
//
// If too few pages are free, Extend swaps out snapshots, the oldest first. If even that
// would not free enough, it swaps out nothing, leaves the table unchanged and returns a
// *FullError.
func (c *Cache) Extend(t *Table, n, first int) error {
	i, have := first/attention.PageTokens, len(t.Pages)
	if i >= have || !c.Pool.Shared(t.Pages[i]) {
		return c.claim(t, n, nil)
	}
	// If there is no free page for a copy, but only snapshots share the page, swap them out:
	// then the table alone holds the page.
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
	// The copy is one page more than the table needs. It becomes the last page, and takes the
	// place of page i below.
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

// claim grows a table to n positions. If too few pages are free, it swaps out snapshots as
// Extend does, but never the snapshot except.
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
