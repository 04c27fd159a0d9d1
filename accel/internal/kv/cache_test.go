package kv

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// newTestCache returns a cache of two layers of different sizes, and an empty one between them, on an emulated device.
func newTestCache(t *testing.T, pages int) *Cache {
	t.Helper()
	dev, err := emu.Open(emu.Options{SMs: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	layers := Layers{{KVHeads: 2, HeadDim: 8, Format: quant.F16}, {}, {KVHeads: 1, HeadDim: 24, Format: quant.F16}}
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	staging, err := dev.AllocPinned(layers.LargestPage())
	if err != nil {
		t.Fatal(err)
	}
	for i := range layers {
		l := &layers[i]
		if l.Empty() {
			continue
		}
		for _, at := range []*ptx.Address{&l.K, &l.V} {
			b, err := dev.Alloc(int64(pages * l.PageBytes()))
			if err != nil {
				t.Fatal(err)
			}
			*at = ptx.Address(b.Address())
		}
	}
	return New(layers, pages, stream, staging)
}

// write fills the keys and values of a page with bytes that depend on the position.
func write(t *testing.T, c *Cache, page uint32, seed int) {
	t.Helper()
	for n := range c.layers {
		l := &c.layers[n]
		if l.Empty() {
			continue
		}
		for i, base := range []ptx.Address{l.K, l.V} {
			data := make([]byte, l.PageBytes())
			for j := range data {
				data[j] = byte(seed + 7*i + 11*n + j/3)
			}
			if err := c.stream.Write(l.address(base, page), data); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// contents returns the keys and values of the first n positions of a table.
func contents(t *testing.T, c *Cache, table *Table, n int) (all []byte) {
	t.Helper()
	for layer, l := range c.layers {
		if l.Empty() {
			continue
		}
		for _, base := range []ptx.Address{l.K, l.V} {
			for i := range n {
				data, err := c.Read(layer, base, table, i)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, data...)
			}
		}
	}
	return all
}

// fill writes contents that depend on the seed to the pages of a table.
func fill(t *testing.T, c *Cache, table *Table, seed int) {
	t.Helper()
	for i, page := range table.Pages {
		write(t, c, page, seed+50*i)
	}
}

// TestSave: a table that is loaded has the contents of the one that was saved, whatever was in
// its pages before. What does not fit takes no page.
func TestSave(t *testing.T) {
	const length = attention.PageTokens + 10
	c := newTestCache(t, 3)
	p := testPool{t, c.Pool}
	for _, n := range []int{length, length - 3, attention.PageTokens, 20, 0} {
		var table, other Table
		p.grow(&table, length)
		fill(t, c, &table, n)
		want := contents(t, c, &table, n)
		host, err := c.Save(&table, n)
		if err != nil {
			t.Fatal(err)
		}
		p.pool.Shrink(&table, 0)
		p.grow(&other, 3*attention.PageTokens)
		fill(t, c, &other, 99)
		if n > 0 {
			if _, err := c.Load(host, n); !errors.Is(err, model.ErrCacheFull) {
				t.Errorf("loading %d positions into a full cache: error %v", n, err)
			}
		}
		p.inUse("full", 3)
		p.pool.Shrink(&other, 0)
		got, err := c.Load(host, n)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(contents(t, c, &got, n), want) {
			t.Errorf("%d loaded positions differ from the saved ones", n)
		}
		p.pool.Shrink(&got, 0)
		p.inUse("nothing", 0)
	}
}

// TestShare: the first of two tables that writes to a shared page gets a copy, and the other
// keeps the page. A page is free again when its last table releases it.
func TestShare(t *testing.T) {
	const length = attention.PageTokens + 10
	c := newTestCache(t, 4)
	p := testPool{t, c.Pool}
	var table Table
	p.grow(&table, length)
	fill(t, c, &table, 1)
	want, pages := contents(t, c, &table, length), slices.Clone(table.Pages)
	shared := c.Share(&table, length)
	p.inUse("both share two pages", 2)
	extend := func(t2 *Table, n, first, copied int) {
		t.Helper()
		if got, err := c.Extend(t2, n, first); err != nil || got != copied {
			t.Errorf("extending to %d from %d copies page %d, error %v; want page %d", n, first, got, err, copied)
		}
	}
	extend(&shared, 2*attention.PageTokens, length, 1)
	p.inUse("a copy of the second page", 3)
	if !slices.Equal(table.Pages, pages) || shared.Pages[0] != pages[0] || shared.Pages[1] == pages[1] {
		t.Errorf("pages %v and %v, at first %v", table.Pages, shared.Pages, pages)
	}
	if !bytes.Equal(contents(t, c, &shared, length), want) {
		t.Error("the copy has other contents")
	}
	write(t, c, shared.Pages[1], 77)
	if !bytes.Equal(contents(t, c, &table, length), want) {
		t.Error("writing to the copy changes the page")
	}
	extend(&table, length+1, length, -1) // its own page by now
	extend(&table, length, length, -1)   // nothing will be written
	extend(&shared, 2*attention.PageTokens+1, 2*attention.PageTokens, -1)
	p.inUse("a page more", 4)
	third := c.Share(&table, 5)
	var full *model.CacheFullError
	if _, err := c.Extend(&third, 6, 5); !errors.As(err, &full) || full.Need != 1 || !slices.Equal(third.Pages, pages[:1]) {
		t.Errorf("no page for a copy: pages %v, error %v", third.Pages, err)
	}
	for i, x := range []struct {
		table *Table
		inUse int
	}{{&shared, 2}, {&third, 2}, {&table, 0}} {
		p.pool.Shrink(x.table, 0)
		p.inUse(fmt.Sprintf("after %d tables are released", i+1), x.inUse)
	}
}
