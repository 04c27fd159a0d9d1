package accel

import (
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
)

// lookahead is the step that the device computes before anyone has asked for it: that of
// the sequences of the step before, each with the token chosen for it. That step has left
// tokens, positions and lengths where the next one finds them, so the next one is the
// same graph again, and the device need not wait for the host between the two.
//
// Whoever asks for just this step gets it, and to nobody else does it show. It writes
// keys and values of one position behind a sequence, in a page that is the sequence's
// alone when the step is queued, or that is free and promised to it. Whoever gets the page
// later writes it later in the same stream, and reads nothing of it that he did not write.
type lookahead struct {
	next    []row        // by row of the last step, what it goes on with; none if not all rows wanted just their token
	again   *program     // of the last step
	running bool         // the step of next is queued
	since   time.Time    // when the device came to that step, or to the last one
	before  driver.Event // the end of the step before it
}

// foresees reports whether a request is for a row of the step that is next, and for no
// more than its token.
func (a *lookahead) foresees(r *request) bool {
	s := r.row.session
	if r.want != model.WantGreedy || s.place >= len(a.next) || a.next[s.place] != r.row {
		return false
	}
	return !a.running || r.row.position%page != 0 || s.ahead
}

// looksAhead reports whether an engine has steps to look ahead from: graphs.
func (o *Options) looksAhead() bool {
	return !o.SyncScheduling && !o.Eager && o.Tap == nil && o.Timer == nil
}

// mayLookAhead reports whether the step behind one of these rows can be queued: there is a
// graph that goes over so many pages, every sequence has room, and nobody else waits. If
// so, pages are promised to those who need one.
func (e *Engine) mayLookAhead(rows []row) bool {
	if !e.o.looksAhead() || e.schedule.length() > 0 {
		return false
	}
	deepest := 0
	for _, r := range rows {
		next := r.position + 1
		if next >= r.session.capacity {
			return false
		}
		deepest = max(deepest, next+1)
	}
	return e.hasGraph(deepest) && e.promisePages(rows)
}

// hasGraph finds a graph that does the last step again over sequences of so many positions.
// None is captured ahead: somebody waits for the step before.
func (e *Engine) hasGraph(positions int) bool {
	p := e.ahead.again
	if pages := e.grid(positions); pages > p.pages {
		longer := p.pass
		longer.pages = pages
		if p = e.programs[longer]; p == nil {
			return false
		}
		e.ahead.again = p
	}
	return p.graph != nil
}

// lookAhead queues the step behind the last one, which was of these rows. The lock is held.
func (e *Engine) lookAhead(rows []row) error {
	if err := e.stream.Record(e.ahead.before); err != nil {
		return err
	}
	if err := e.writePromises(rows); err != nil {
		return err
	}
	e.ahead.running = true
	return e.ahead.again.graph.Launch(e.stream)
}

// wanted says that the step which was computed ahead was asked for, for so many rows.
func (e *Engine) wanted(rows int) {
	e.ahead.running = false
	e.stats.AsyncSteps++
	e.stats.GraphLaunches++
	e.countStep(rows)
}

// forget throws away a step that was computed ahead, if there is one. What is queued behind it
// may write over all that it has left.
func (e *Engine) forget() {
	if e.ahead.running {
		e.stats.AsyncDiscarded++
	}
	e.pool.release()
	e.ahead.running, e.ahead.next = false, e.ahead.next[:0]
}
