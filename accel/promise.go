package accel

import (
	"encoding/binary"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
)

// promise is a page that a sequence gets if it is the next to ask for just one: the step
// that is computed ahead of it writes there. Until then the page is free, and counts as
// free; others get it when there is no other.
//
// Without the promise, sequences that ask at the same time would get each other's pages.
// And a page that another had, wrote and gave back in the meantime would look like the
// one that the step wrote.
type promise struct {
	to   *session
	page uint32
}

// promise picks a page for a sequence, if one is free that is promised to nobody.
func (p *pool) promise(to *session) (n uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free() == len(p.promises) {
		return 0, false
	}
	n = p.take()
	p.promises = append(p.promises, promise{to, n})
	return n, true
}

// redeem is grow for a sequence that needs one page, and was promised one.
func (p *pool) redeem(s *session, n int) (redeemed bool) {
	if ceilDiv(n, page) != len(s.pages)+1 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.promises, func(m promise) bool { return m.to == s })
	if i < 0 {
		return false
	}
	s.pages = append(s.pages, p.promises[i].page)
	p.promises = slices.Delete(p.promises, i, i+1)
	return true
}

// release takes back what is promised: the pages are as others, the first to be promised
// again in their order.
func (p *pool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range slices.Backward(p.promises) {
		p.back = append(p.back, m.page)
	}
	clear(p.promises)
	p.promises = p.promises[:0]
}

// needsPage reports whether the position behind a row is the first of a page.
func (r row) needsPage() bool { return (r.position+1)%page == 0 }

// promisePages has a page promised to each sequence that needs one for the position behind
// its row, and stages its number; or to none, if there are too few. The lock is held.
func (e *Engine) promisePages(rows []row) bool {
	for i, r := range rows {
		if !r.needsPage() {
			continue
		}
		n, ok := e.pool.promise(r.session)
		if !ok {
			e.pool.release()
			return false
		}
		binary.LittleEndian.PutUint32(e.rowsHost.Bytes()[e.promisedAt(i):], n)
	}
	return true
}

// writePromises queues telling the device which pages were promised.
func (e *Engine) writePromises(rows []row) error {
	for i, r := range rows {
		if !r.needsPage() {
			continue
		}
		at := (r.position + 1) / page
		if err := e.stream.WriteAsync(e.tables.entry(e.buffers.stepTables, i, at), e.rowsHost, e.promisedAt(i), 4); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(e.rowsHost.Bytes()[e.promisedAt(i):])
		e.tables.rows[i] = append(e.tables.rows[i][:at], n)
	}
	return nil
}

// promisedAt is where the page is staged that is promised to the sequence of a row. It is
// there until the device has it: a row needs another 64 steps later, and rows of other
// sequences come with a step that is waited for alone.
func (s *shape) promisedAt(row int) int { return s.inputBytes() + 4*row }

// entry is where the device has the number of a page of a row.
func (t *tables) entry(table uint64, row, i int) driver.Address {
	return driver.Address(table + uint64(4*(row*t.width+i)))
}
