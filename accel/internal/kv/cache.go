// Package kv is the paged KV cache of an engine. A sequence has a table of its pages, each of
// attention.PageTokens positions. Sequences share pages; the first that writes to a shared
// page gets a copy of it. A sequence can be moved to host memory and back.
//
// All device work is queued in one stream. So a page may be released, and given to another
// sequence, while a queued pass still reads or writes it: the other sequence's work runs
// later, writes each position before it reads it, and never reads beyond its own length.
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

// Cache is the KV cache of an engine.
type Cache struct {
	Pool     *Pool
	geometry Geometry
	layers   []Layer
	stream   driver.Stream
	staging  driver.Pinned // holds at least one page of one layer
}

// New returns an empty cache. pages is its number of pages; each layer has device memory for as
// many.
func New(g Geometry, layers []Layer, pages int, stream driver.Stream, staging driver.Pinned) *Cache {
	return &Cache{Pool: NewPool(pages), geometry: g, layers: layers, stream: stream, staging: staging}
}

// Extend grows a table to n positions. The caller will write positions first to n-1; the table
// covers those before. If first is inside a shared page, Extend replaces that page by a copy and
// returns its index in the table; else it returns -1. If there are too few pages, the error is a
// *model.CacheFullError and the table is unchanged.
func (c *Cache) Extend(t *Table, n, first int) (copied int, err error) {
	i, have := first/attention.PageTokens, len(t.Pages)
	if first%attention.PageTokens == 0 || first >= n || !c.Pool.Shared(t.Pages[i]) {
		return -1, c.Pool.Grow(t, n)
	}
	// Grow by one page more than the table needs, for the copy. Then swap it with page i, and
	// release that one.
	if err := c.Pool.Grow(t, max(n, have*attention.PageTokens)+attention.PageTokens); err != nil {
		return -1, err
	}
	last := len(t.Pages) - 1
	if err := c.copyPage(t.Pages[last], t.Pages[i]); err != nil {
		c.Pool.Shrink(t, have*attention.PageTokens)
		return -1, err
	}
	t.Pages[i], t.Pages[last] = t.Pages[last], t.Pages[i]
	c.Pool.Shrink(t, last*attention.PageTokens)
	return i, nil
}

// Share returns a table of the first n positions of t. Both tables share the pages.
func (c *Cache) Share(t *Table, n int) Table {
	shared := Table{slices.Clone(t.Pages[:pagesOf(n)])}
	c.Pool.retain(shared.Pages)
	return shared
}

// bytes returns the memory of n positions in all layers.
func (c *Cache) bytes(n int) int64 { return c.geometry.PageBytes() / attention.PageTokens * int64(n) }

// Save waits for the stream and returns the first n positions of a table: [layers, 2 (keys,
// values), pages, kv heads, positions of the page, head dim]. The staging buffer must be free.
func (c *Cache) Save(t *Table, n int) ([]byte, error) {
	host := make([]byte, c.bytes(n))
	return host, c.save(c.layerPages(t.Pages, n), host)
}

// Load returns a table of n positions with contents that Save returned. If there are too few
// pages, the error is a *model.CacheFullError. The staging buffer must be free.
func (c *Cache) Load(host []byte, n int) (t Table, err error) {
	if err := c.Pool.Grow(&t, n); err != nil {
		return Table{}, err
	}
	if err := c.load(c.layerPages(t.Pages, n), host); err != nil {
		c.Pool.Shrink(&t, 0)
		return Table{}, err
	}
	return t, nil
}
