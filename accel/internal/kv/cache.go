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

// Layer is the device memory of one layer's keys and values: [pages, KVHeads,
// attention.PageTokens, HeadDim] each.
type Layer struct {
	K, V             ptx.Address
	KVHeads, HeadDim int
	Format           quant.Format // of the elements
}

// HeadBytes returns the bytes of one head's key at one position. A value has as many.
func (l Layer) HeadBytes() int { return l.HeadDim * l.Format.BlockBytes() }

// PageBytes returns the bytes of a page of the layer's keys. Its values have as many.
func (l Layer) PageBytes() int { return attention.PageTokens * l.KVHeads * l.HeadBytes() }

// Empty reports whether the layer has no keys and values.
func (l Layer) Empty() bool { return l.KVHeads == 0 }

// Layers has an entry for each layer but the last ones that use the keys and values of earlier layers, as in Gemma 3n. Those of Gated
// DeltaNets are empty.
type Layers []Layer

// PageBytes returns the bytes of a page in all layers.
func (list Layers) PageBytes() int64 {
	n := int64(0)
	for _, l := range list {
		n += 2 * int64(l.PageBytes())
	}
	return n
}

// LargestPage returns the bytes of the largest page of one layer's keys.
func (list Layers) LargestPage() int {
	n := 0
	for _, l := range list {
		n = max(n, l.PageBytes())
	}
	return n
}

// Cache is the KV cache of an engine.
type Cache struct {
	Pool    *Pool
	layers  Layers
	stream  driver.Stream
	staging driver.Pinned // holds at least one page of one layer
}

// New returns an empty cache. pages is its number of pages; each layer has device memory for as
// many.
func New(layers Layers, pages int, stream driver.Stream, staging driver.Pinned) *Cache {
	return &Cache{Pool: NewPool(pages), layers: layers, stream: stream, staging: staging}
}

// Extend grows a table to n positions, before the caller writes positions first to n-1. Shared pages are
// copy-on-write: if first is inside one, Extend replaces it by a copy and returns its index in the table;
// else it returns -1. If there are too few pages, the error is a
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
func (c *Cache) bytes(n int) int64 { return c.layers.PageBytes() / attention.PageTokens * int64(n) }

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
