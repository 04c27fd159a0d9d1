package kv

import (
	"slices"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// Table lists the pages of a sequence: position i is in Pages[i/attention.PageTokens]. The
// zero value is an empty table.
type Table struct{ Pages []uint32 }

// Pool counts the references to each page of a cache.
//
// A page number is the same in all layers. Tables share pages; a page with several references
// must not be written.
type Pool struct {
	pages       int
	firstUnused int            // pages from this number on were never allocated
	free        []uint32       // released pages; allocate takes the last one
	extra       map[uint32]int // references beyond the first
}

// NewPool returns a pool of free pages.
func NewPool(pages int) *Pool { return &Pool{pages: pages, extra: map[uint32]int{}} }

// Pages returns the number of pages.
func (p *Pool) Pages() int { return p.pages }

// InUse returns how many pages tables hold.
func (p *Pool) InUse() int { return p.pages - p.available() }

// available returns how many pages can be allocated.
func (p *Pool) available() int { return p.pages - p.firstUnused + len(p.free) }

// allocate returns a free page, a released one first. A page must be available.
func (p *Pool) allocate() uint32 {
	if n := len(p.free) - 1; n >= 0 {
		page := p.free[n]
		p.free = p.free[:n]
		return page
	}
	p.firstUnused++
	return uint32(p.firstUnused - 1)
}

// Grow adds pages to a table until it covers n positions. If there are too few pages, it
// leaves the table as it is and returns a *model.CacheFullError.
func (p *Pool) Grow(t *Table, n int) error {
	need := pagesOf(n) - len(t.Pages)
	if need <= 0 {
		return nil
	}
	if available := p.available(); need > available {
		return &model.CacheFullError{Need: need, Free: available, Pages: p.pages, PageTokens: attention.PageTokens}
	}
	for range need {
		t.Pages = append(t.Pages, p.allocate())
	}
	return nil
}

// Shrink releases the pages of a table beyond n positions. The last page goes to the free list
// first, so that pages are allocated again in their order.
func (p *Pool) Shrink(t *Table, n int) {
	keep := pagesOf(n)
	if keep >= len(t.Pages) {
		return
	}
	for _, page := range slices.Backward(t.Pages[keep:]) {
		switch p.extra[page] {
		case 0:
			p.free = append(p.free, page)
		case 1:
			delete(p.extra, page)
		default:
			p.extra[page]--
		}
	}
	t.Pages = t.Pages[:keep]
}

// retain adds one reference to each page.
func (p *Pool) retain(pages []uint32) {
	for _, page := range pages {
		p.extra[page]++
	}
}

// Shared reports whether a page in use has several references.
func (p *Pool) Shared(page uint32) bool { return p.extra[page] > 0 }

// pagesOf returns the pages that n positions take.
func pagesOf(n int) int { return (n + attention.PageTokens - 1) / attention.PageTokens }
