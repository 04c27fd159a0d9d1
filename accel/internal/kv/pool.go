package kv

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// FullError means that sequences together need more pages than the cache has. The table
// that was to grow is unchanged.
type FullError struct {
	Need  int // pages that were asked for
	Free  int // pages that were free, or that swapping out snapshots could free
	Pages int // pages of the cache
}

// Error gives the number of pages that are needed, available and in all.
func (e *FullError) Error() string {
	return fmt.Sprintf("KV cache is full: need %d pages of %d positions, %d of %d available", e.Need, attention.PageTokens, e.Free, e.Pages)
}

// Table lists the pages of a sequence: position i is in Pages[i/attention.PageTokens]. The zero value
// is an empty table. A Table is for one goroutine.
type Table struct{ Pages []uint32 }

// Pool counts the references to each page of a cache. It is safe for concurrent use.
//
// A page number is the same in all layers. Sequences and snapshots share pages; a page with
// several references must not be written.
type Pool struct {
	pages int

	mu           sync.Mutex
	firstUnused  int            // pages from this number on were never allocated
	free         []uint32       // released pages; allocate takes the last one
	reservations []reservation  // their pages count as free
	extra        map[uint32]int // references beyond the first
}

// reservation holds a free page that a step ahead writes, before the sequence's table has grown
// to that page. When the sequence takes the step, Commit adds the page to the table. The page
// still counts as free: another table gets it if no other page is left.
//
// Without a reservation, the table could grow by another page than the one that the step wrote.
// It could also get the right page after another sequence had allocated, overwritten and
// released it.
type reservation struct {
	table *Table
	page  uint32
}

// NewPool returns a pool of free pages.
func NewPool(pages int) *Pool { return &Pool{pages: pages, extra: map[uint32]int{}} }

// Pages returns the number of pages.
func (p *Pool) Pages() int { return p.pages }

// InUse returns how many pages sequences and snapshots hold.
func (p *Pool) InUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages - p.available()
}

// available returns how many pages can be allocated. The mutex is held.
func (p *Pool) available() int { return p.pages - p.firstUnused + len(p.free) + len(p.reservations) }

// allocate returns a free page: a released one first, a reserved one last. The mutex is
// held, and a page is available.
func (p *Pool) allocate() uint32 {
	if n := len(p.free) - 1; n >= 0 {
		page := p.free[n]
		p.free = p.free[:n]
		return page
	}
	if p.firstUnused < p.pages {
		p.firstUnused++
		return uint32(p.firstUnused - 1)
	}
	last := len(p.reservations) - 1
	page := p.reservations[last].page
	p.reservations = slices.Delete(p.reservations, last, last+1)
	return page
}

// Grow adds pages to a table until it covers n positions. If there are too few pages, it
// leaves the table as it is and returns a *FullError.
func (p *Pool) Grow(t *Table, n int) error {
	need := pagesOf(n) - len(t.Pages)
	if need <= 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if available := p.available(); need > available {
		return &FullError{Need: need, Free: available, Pages: p.pages}
	}
	for range need {
		t.Pages = append(t.Pages, p.allocate())
	}
	return nil
}

// Shrink releases the pages of a table beyond n positions.
func (p *Pool) Shrink(t *Table, n int) {
	if keep := pagesOf(n); keep < len(t.Pages) {
		p.release(t.Pages[keep:])
		t.Pages = t.Pages[:keep]
	}
}

// release gives up one reference to each page. The last page goes to the free list first,
// so that pages are allocated again in their order.
func (p *Pool) release(pages []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, page := range slices.Backward(pages) {
		switch p.extra[page] {
		case 0:
			p.free = append(p.free, page)
		case 1:
			delete(p.extra, page)
		default:
			p.extra[page]--
		}
	}
}

// retain adds one reference to each page.
func (p *Pool) retain(pages []uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, page := range pages {
		p.extra[page]++
	}
}

// references returns the references to a page that is in use.
func (p *Pool) references(page uint32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return 1 + p.extra[page]
}

// Shared reports whether a page in use has several references.
func (p *Pool) Shared(page uint32) bool { return p.references(page) > 1 }

// Reserve reserves a free page for a table. If all free pages are reserved, ok is false.
func (p *Pool) Reserve(t *Table) (page uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.available() == len(p.reservations) {
		return 0, false
	}
	page = p.allocate()
	p.reservations = append(p.reservations, reservation{t, page})
	return page, true
}

// Commit grows a table to n positions by the page that is reserved for it. If the table does not
// need exactly one page, or none is reserved for it, Commit changes nothing and returns false.
func (p *Pool) Commit(t *Table, n int) bool {
	if pagesOf(n) != len(t.Pages)+1 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.reservations, func(r reservation) bool { return r.table == t })
	if i < 0 {
		return false
	}
	t.Pages = append(t.Pages, p.reservations[i].page)
	p.reservations = slices.Delete(p.reservations, i, i+1)
	return true
}

// CancelReservations releases all reserved pages. The next reservations get them in the
// same order.
func (p *Pool) CancelReservations() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Backward(p.reservations) {
		p.free = append(p.free, r.page)
	}
	clear(p.reservations)
	p.reservations = p.reservations[:0]
}

// swappable returns how many pages would be free if all listed snapshots were swapped out, those
// that are free already included. first is the first of the snapshots to swap out: it has a page
// that neither a sequence nor an unlisted snapshot holds. It is nil if there is none.
func (p *Pool) swappable(list []*Snapshot) (free int, first *Snapshot) {
	held := map[uint32]int{}
	for _, s := range list {
		for _, page := range s.pages {
			held[page]++
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	onlyListed := func(page uint32) bool { return held[page] == 1+p.extra[page] }
	free = p.available()
	for page := range held {
		if onlyListed(page) {
			free++
		}
	}
	if i := slices.IndexFunc(list, func(s *Snapshot) bool { return slices.ContainsFunc(s.pages, onlyListed) }); i >= 0 {
		first = list[i]
	}
	return free, first
}

// pagesOf returns the pages that n positions take.
func pagesOf(n int) int { return (n + attention.PageTokens - 1) / attention.PageTokens }
