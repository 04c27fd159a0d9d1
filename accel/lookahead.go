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
// alone when the step is queued. Whoever gets the page later writes it later in the same
// stream, and reads nothing of it that he did not write.
type lookahead struct {
	next    []row        // by row of the last step, what it goes on with; none if not all rows wanted just their token
	again   *program     // of the last step
	running bool         // the step of next is queued
	since   time.Time    // when it was
	before  driver.Event // the end of the step before it
}

// foresees reports whether a request is for a row of the step that is next, and for no
// more than its token.
func (a *lookahead) foresees(r *request) bool {
	at := r.row.session.place
	return r.want == model.WantGreedy && at < len(a.next) && a.next[at] == r.row
}

// looksAhead reports whether an engine has steps to look ahead from: graphs.
func (o *Options) looksAhead() bool {
	return !o.NoLookahead && !o.Eager && o.Tap == nil && o.Timer == nil
}

// mayLookAhead reports whether the step behind one of these rows can be queued: it is the
// same graph, every sequence has room in the page that it writes now, and nobody else
// waits. A page is never taken ahead, as somebody might then find none who else would.
func (e *Engine) mayLookAhead(rows []row) bool {
	if !e.o.looksAhead() || e.ahead.again.graph == nil || e.schedule.length() > 0 {
		return false
	}
	for _, r := range rows {
		if next := r.position + 1; next%page == 0 || next >= r.session.capacity {
			return false
		}
	}
	return true
}

// lookAhead queues the step behind the last one. The lock is held.
func (e *Engine) lookAhead() error {
	if err := e.stream.Record(e.ahead.before); err != nil {
		return err
	}
	e.ahead.running, e.ahead.since = true, time.Now()
	return e.replay(e.ahead.again)
}

// wanted says that the step which was computed ahead was asked for, for so many rows.
func (e *Engine) wanted(rows int) {
	e.ahead.running = false
	e.stats.LookaheadSteps++
	e.stats.GraphLaunches++
	e.countStep(rows)
}

// forget throws away a step that was computed ahead, if there is one. What is queued behind it
// may write over all that it has left.
func (e *Engine) forget() {
	if e.ahead.running {
		e.stats.LookaheadWasted++
	}
	e.ahead.running, e.ahead.next = false, e.ahead.next[:0]
}
