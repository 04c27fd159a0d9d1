package kv

import (
	"errors"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// testPool is a pool with assertions.
type testPool struct {
	*testing.T
	pool *Pool
}

func newTestPool(t *testing.T, pages int) testPool { return testPool{t, NewPool(pages)} }

func (p testPool) inUse(when string, want int) {
	p.Helper()
	if got := p.pool.InUse(); got != want {
		p.Errorf("%s: %d pages in use, want %d", when, got, want)
	}
}

func (p testPool) grow(t *Table, n int) {
	p.Helper()
	if err := p.pool.Grow(t, n); err != nil {
		p.Fatal(err)
	}
}

// reserve wants the given page to be reserved; -1 for none.
func (p testPool) reserve(t *Table, want int) {
	p.Helper()
	if page, ok := p.pool.Reserve(t); ok != (want >= 0) || ok && int(page) != want {
		p.Errorf("reserved page %d: %v, want %d", page, ok, want)
	}
}

func (p testPool) commit(t *Table, n int, want bool) {
	p.Helper()
	if got := p.pool.Commit(t, n); got != want {
		p.Errorf("committed a page to a table for %d positions: %v, want %v", n, got, want)
	}
}

func TestPool(t *testing.T) {
	p := newTestPool(t, 4)
	var a, b, c Table
	p.grow(&a, 2*attention.PageTokens)
	p.grow(&a, attention.PageTokens) // has more already
	p.grow(&b, 1)
	if !slices.Equal(a.Pages, []uint32{0, 1}) || !slices.Equal(b.Pages, []uint32{2}) {
		t.Errorf("tables %v and %v", a.Pages, b.Pages)
	}
	err := p.pool.Grow(&b, 3*attention.PageTokens)
	var e *FullError
	if !errors.As(err, &e) || *e != (FullError{Need: 2, Free: 1, Pages: 4}) || !slices.Equal(b.Pages, []uint32{2}) {
		t.Errorf("growing by two pages with one free: table %v, error %v", b.Pages, err)
	}
	p.inUse("after a full pool", 3)

	p.pool.retain(a.Pages[:1])
	if !p.pool.Shared(a.Pages[0]) || p.pool.Shared(a.Pages[1]) {
		t.Error("want two references to the first page, one to the second")
	}
	shared := Table{slices.Clone(a.Pages[:1])}
	p.pool.Shrink(&a, 0)
	p.inUse("after one of two references is released", 2)
	if p.pool.Shared(shared.Pages[0]) || len(a.Pages) != 0 {
		t.Error("want one reference to the page")
	}
	if p.grow(&c, 2*attention.PageTokens); slices.Contains(c.Pages, shared.Pages[0]) {
		t.Errorf("a page in use was allocated: %v", c.Pages)
	}
	p.pool.Shrink(&shared, 0)
	p.inUse("after the last reference is released", 3)
}

// TestReservations: a reserved page counts as free, but is the last that another table gets.
func TestReservations(t *testing.T) {
	p := newTestPool(t, 4)
	var a, b, c, d Table
	p.grow(&b, attention.PageTokens)
	p.reserve(&a, 1)
	p.reserve(&b, 2)
	p.inUse("two reserved", 1)
	p.commit(&b, 3*attention.PageTokens, false) // needs more than one page
	p.commit(&b, attention.PageTokens, false)   // needs none
	p.commit(&b, attention.PageTokens+1, true)
	if !slices.Equal(b.Pages, []uint32{0, 2}) {
		t.Errorf("the table is %v", b.Pages)
	}
	p.commit(&d, 1, false) // reserved none
	p.commit(&b, 2*attention.PageTokens+1, false)
	p.inUse("one committed", 2)

	var e *FullError
	if err := p.pool.Grow(&d, 3*attention.PageTokens); !errors.As(err, &e) || *e != (FullError{Need: 3, Free: 2, Pages: 4}) {
		t.Errorf("growing by three pages with two free: %v", err)
	}
	if p.grow(&c, 2*attention.PageTokens); !slices.Equal(c.Pages, []uint32{3, 1}) {
		t.Errorf("the last free pages are %v", c.Pages)
	}
	p.commit(&a, 1, false)
	p.reserve(&a, -1)
}

// TestCancelReservations: canceled pages are reserved again in their order.
func TestCancelReservations(t *testing.T) {
	p := newTestPool(t, 3)
	tables := make([]Table, 4)
	for range 2 {
		for i := range 3 {
			p.reserve(&tables[i], i)
		}
		p.reserve(&tables[3], -1)
		p.pool.CancelReservations()
		p.inUse("canceled", 0)
	}
	p.commit(&tables[0], 1, false)
	var all Table
	if p.grow(&all, 3*attention.PageTokens); !slices.Equal(all.Pages, []uint32{0, 1, 2}) {
		t.Errorf("the pages are %v", all.Pages)
	}
}
