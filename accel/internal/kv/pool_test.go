package kv

import (
	"errors"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/model"
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
	var e *model.CacheFullError
	if !errors.As(err, &e) || *e != (model.CacheFullError{Need: 2, Free: 1, Pages: 4, PageTokens: attention.PageTokens}) || !slices.Equal(b.Pages, []uint32{2}) {
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
