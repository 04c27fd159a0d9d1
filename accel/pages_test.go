package accel

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

// testPool is a pool of four pages.
type testPool struct {
	*testing.T
	*pool
}

func (p testPool) using(when string, want int) {
	p.Helper()
	if got := p.inUse(); got != want {
		p.Errorf("%s: %d pages in use, want %d", when, got, want)
	}
}

func (p testPool) grown(table []uint32, n int) []uint32 {
	p.Helper()
	table, err := p.grow(table, n)
	if err != nil {
		p.Fatal(err)
	}
	return table
}

func TestPool(t *testing.T) {
	p := testPool{t, &pool{pages: 4, extra: map[uint32]int{}}}
	a := p.grown(nil, 2*page)
	a = p.grown(a, page) // has more already
	b := p.grown(nil, 1)
	if !slices.Equal(a, []uint32{0, 1}) || !slices.Equal(b, []uint32{2}) {
		t.Errorf("tables %v and %v", a, b)
	}
	full, err := p.grow(b, 3*page)
	var e *KVFullError
	if !errors.As(err, &e) || *e != (KVFullError{Need: 2, Free: 1, Pages: 4}) || !slices.Equal(full, b) {
		t.Errorf("two pages more where one is free: %v, error %v", full, err)
	}
	p.using("after a refusal", 3)
	p.share(a[:1])
	if !p.shared(a[0]) || p.shared(a[1]) {
		t.Error("the first page has two owners, the second one")
	}
	kept := slices.Clone(a[:1])
	a = p.shrink(a, 0)
	p.using("one owner gone", 2)
	if p.shared(kept[0]) || len(a) != 0 {
		t.Error("the page has one owner")
	}
	if c := p.grown(nil, 2*page); slices.Contains(c, kept[0]) {
		t.Errorf("a page that is kept was given to another: %v", c)
	}
	p.shrink(kept, 0)
	p.using("all but the kept page", 3)
}

// TestKeptPages: whoever gives back a snapshot's pages, and however many do at once, they
// are given back once, and what others hold of them stays.
func TestKeptPages(t *testing.T) {
	p := testPool{t, &pool{pages: 4, extra: map[uint32]int{}}}
	table := p.grown(nil, 2*page)
	k := &kept{pages: slices.Clone(table)}
	p.share(table)
	table = p.shrink(table, page)
	p.using("one of the sequence's and the snapshot's, one of the snapshot's alone", 2)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { k.giveBack(p.pool) })
	}
	all.Wait()
	p.using("the sequence's page", 1)
	if p.shared(table[0]) || p.free() != 3 {
		t.Errorf("%d pages are free, and the sequence's has %d owners", p.free(), p.owners(table[0]))
	}
	p.shrink(table, 0)
	p.using("nobody's", 0)
}
