package accel

import (
	"time"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// asyncStep is the step that the device computes before it is asked for: the sequences of
// the previous step, each with the token chosen for it. That step leaves tokens, positions
// and lengths where the next one reads them. So the next step is the same graph again, and
// the device need not wait for the host in between.
//
// A request for exactly this step gets its results; no other request can see them. The step
// writes keys and values of one position behind each sequence: in a page that is the
// sequence's alone when the step is queued, or in a free page that is reserved for it. If
// another sequence gets that page later, it writes later in the same stream, and reads only
// what it wrote.
type asyncStep struct {
	next    []slot       // the next token of each slot of the last step; empty if some slot wanted logits
	pass    *pass        // of the last step
	running bool         // the step of next is queued
	start   time.Time    // when the device began that step, or the last one
	stepEnd driver.Event // the end of the step before it; nil if no step runs ahead
}

// predicts reports whether a request is for a slot of the next step, and for no more than
// its token.
func (a *asyncStep) predicts(r *request) bool {
	s := r.slot.session
	if r.want != model.WantGreedy || s.slot >= len(a.next) || a.next[s.slot] != r.slot {
		return false
	}
	return !a.running || r.slot.position%attention.PageTokens != 0 || s.committed
}

// async reports whether steps can run ahead: they need graphs.
func (o *Options) async() bool { return !o.SyncScheduling && o.graphs() }

// canRunAhead reports whether the step after the one of this batch can be queued: there is a
// graph for its pages, every sequence has room, and no other sequence waits. It reserves
// pages for the sequences that need one.
func (e *Engine) canRunAhead(batch []slot) bool {
	if !e.options.async() || e.schedule.length() > 0 {
		return false
	}
	longest := 0
	for _, b := range batch {
		next := b.position + 1
		if next >= b.session.capacity {
			return false
		}
		longest = max(longest, next+1)
	}
	return e.hasGraph(longest) && e.reservePages(batch)
}

// hasGraph finds a graph that repeats the last step for sequences of up to n positions. It
// captures none, because sequences wait for the last step.
func (e *Engine) hasGraph(n int) bool {
	p := e.async.pass
	if pages := e.layout.PagesFor(n); pages > p.shape.Pages {
		longer := p.shape
		longer.Pages = pages
		if p = e.passes[longer]; p == nil {
			return false
		}
		e.async.pass = p
	}
	return p.list.Captured()
}

// runAhead queues the step after the last one, which had this batch. The mutex is held.
func (e *Engine) runAhead(batch []slot) error {
	if err := e.stream.Record(e.async.stepEnd); err != nil {
		return err
	}
	for i, b := range batch {
		if !b.needsPage() {
			continue
		}
		if err := e.inputs.sendReserved(e.stream, i, (b.position+1)/attention.PageTokens); err != nil {
			return err
		}
	}
	e.async.running = true
	return e.async.pass.list.Launch(e.stream)
}

// acceptAhead counts the step that ran ahead, of n tokens, as asked for.
func (e *Engine) acceptAhead(n int) {
	e.async.running = false
	e.stats.AsyncSteps++
	e.stats.GraphLaunches++
	e.countStep(n)
}

// discardAhead drops the step that runs ahead, if there is one. Work that is queued later may
// overwrite everything that it leaves.
func (e *Engine) discardAhead() {
	if e.async.running {
		e.stats.AsyncDiscarded++
	}
	e.cache.Pool.CancelReservations()
	e.async.running, e.async.next = false, e.async.next[:0]
}

// needsPage reports whether the position after a slot's is the first of a page.
func (b slot) needsPage() bool { return (b.position+1)%attention.PageTokens == 0 }

// reservePages reserves and stages a page for each sequence that needs one for its next
// position. If there are too few, it reserves none. The mutex is held.
func (e *Engine) reservePages(batch []slot) bool {
	for i, b := range batch {
		if !b.needsPage() {
			continue
		}
		page, ok := e.cache.Pool.Reserve(&b.session.table)
		if !ok {
			e.cache.Pool.CancelReservations()
			return false
		}
		e.inputs.stageReserved(i, page)
	}
	return true
}
