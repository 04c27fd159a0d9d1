package kv

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// newTestCache returns a cache of one layer on an emulated device.
func newTestCache(t *testing.T, pages int) *Cache {
	t.Helper()
	dev, err := emu.Open(emu.Options{SMs: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	g := Geometry{Layers: 1, KVHeads: 2, HeadDim: 8, Format: quant.F16}
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	staging, err := dev.AllocPinned(g.LayerPageBytes())
	if err != nil {
		t.Fatal(err)
	}
	var at [2]ptx.Address // of keys and values
	for i := range at {
		b, err := dev.Alloc(int64(pages * g.LayerPageBytes()))
		if err != nil {
			t.Fatal(err)
		}
		at[i] = ptx.Address(b.Address())
	}
	return New(g, []Layer{{K: at[0], V: at[1]}}, pages, stream, staging)
}

// write fills the keys and values of a page with bytes that depend on the position.
func write(t *testing.T, c *Cache, page uint32, seed int) {
	t.Helper()
	for i, base := range []ptx.Address{c.layers[0].K, c.layers[0].V} {
		data := make([]byte, c.geometry.LayerPageBytes())
		for j := range data {
			data[j] = byte(seed + 7*i + j/3)
		}
		if err := c.stream.Write(c.address(base, page), data); err != nil {
			t.Fatal(err)
		}
	}
}

// contents returns the keys and values of the first n positions of a table.
func contents(t *testing.T, c *Cache, table *Table, n int) (all []byte) {
	t.Helper()
	for _, base := range []ptx.Address{c.layers[0].K, c.layers[0].V} {
		for i := range n {
			data, err := c.Read(base, table, i)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data...)
		}
	}
	return all
}

// TestSwapOut: a snapshot restores the same keys and values from the device, from host memory
// and in part.
func TestSwapOut(t *testing.T) {
	const length = attention.PageTokens + 10
	c := newTestCache(t, 3)
	p := testPool{t, c.Pool}
	var table, other Table
	p.grow(&table, length)
	for i, page := range table.Pages {
		write(t, c, page, 50*i)
	}
	want := contents(t, c, &table, length)
	s, err := c.Snapshot(&table, length)
	if err != nil {
		t.Fatal(err)
	}
	p.pool.Shrink(&table, 0)
	check := func(where string, n int) {
		t.Helper()
		got, err := c.Restore(s, n)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		half := len(want) / 2
		if part := n * half / length; !bytes.Equal(contents(t, c, &got, n), slices.Concat(want[:part], want[half:][:part])) {
			t.Errorf("%s: %d positions differ from the snapshot", where, n)
		}
		p.pool.Shrink(&got, 0)
	}
	for range 2 {
		for _, n := range []int{length, length - 3, attention.PageTokens, 20} {
			check("restored", n)
		}
		if c.SwapOuts() > 0 {
			break
		}
		p.inUse("the snapshot's whole page", 1)
		if err := c.Extend(&other, 3*attention.PageTokens, 0); err != nil {
			t.Fatal(err)
		}
		p.inUse("the snapshot is swapped out", 3)
		for _, page := range other.Pages {
			write(t, c, page, 99)
		}
		p.pool.Shrink(&other, 0)
	}
	if c.SwapOuts() != 1 {
		t.Errorf("%d swap-outs, want 1", c.SwapOuts())
	}
	c.Release(s)
	p.inUse("nothing", 0)
}

// TestSnapshotReferences: a page is free again when its last reference is released, whether a
// sequence or a snapshot had it, and releasing a snapshot twice releases its pages once.
func TestSnapshotReferences(t *testing.T) {
	c := newTestCache(t, 4)
	p := testPool{t, c.Pool}
	var table Table
	p.grow(&table, 2*attention.PageTokens)
	var snapshots []*Snapshot
	for range 2 {
		s, err := c.Snapshot(&table, 2*attention.PageTokens)
		if err != nil {
			t.Fatal(err)
		}
		snapshots = append(snapshots, s)
	}
	pages := slices.Clone(table.Pages)
	p.pool.Shrink(&table, attention.PageTokens)
	p.inUse("a page of the sequence and the snapshots, a page of the snapshots", 2)
	for range 2 {
		c.Release(snapshots[0])
	}
	p.inUse("one snapshot is left", 2)
	if !p.pool.Shared(pages[0]) || p.pool.Shared(pages[1]) || c.OpenSnapshots() != 1 {
		t.Errorf("page 0 is shared: %v, page 1: %v, %d snapshots are open", p.pool.Shared(pages[0]), p.pool.Shared(pages[1]), c.OpenSnapshots())
	}
	if free, first := p.pool.swappable(c.snapshots); free != 3 || first != snapshots[1] {
		t.Errorf("swapping out would free %d pages, want 3, from the open snapshot: %v", free, first == snapshots[1])
	}
	c.Release(snapshots[1])
	p.inUse("the page of the sequence", 1)
	if _, err := c.Restore(snapshots[1], 1); !errors.Is(err, model.ErrClosed) {
		t.Errorf("restoring a released snapshot: error %v", err)
	}
	p.pool.Shrink(&table, 0)
	p.inUse("nothing", 0)
	if c.OpenSnapshots() != 0 || len(c.snapshots) != 0 {
		t.Errorf("%d snapshots are open, %d hold pages", c.OpenSnapshots(), len(c.snapshots))
	}
}
