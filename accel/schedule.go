package accel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// gate is a mutex for which one can wait beside other things.
type gate chan struct{}

func newGate() gate    { return make(gate, 1) }
func (g gate) Lock()   { g <- struct{}{} }
func (g gate) Unlock() { <-g }

// request is a position of a sequence that waits for a step.
type request struct {
	ctx  context.Context
	row  row
	want model.Want
	out  model.Output
	err  error
	done chan struct{} // has something when out and err are there
}

func (r *request) finish(err error) {
	r.err = err
	r.done <- struct{}{}
}

func (r *request) finished() bool { return len(r.done) > 0 }

// schedule joins the steps of sequences that wait at the same time: who gets the device
// first computes for all of them, so that one read of the weights serves all. There is
// no goroutine of its own. Prompts take the device chunk by chunk, so that steps go on
// between chunks. With whom a sequence steps never shows in its results.
type schedule struct {
	mu      sync.Mutex
	waiting []*request
	arrived chan struct{} // has room for one: somebody came since it was looked at

	// With the device's lock held.
	expected int           // those who may wait for the next step
	last     int           // those who had an answer from the last one
	late     int           // those who waited then, and did not have one
	took     time.Duration // the last step, of which it is known when the device began and ended it
	batch    []*request    // those of the step that is computed
	timer    *time.Timer   // of gather
}

func newSchedule() *schedule { return &schedule{arrived: make(chan struct{}, 1)} }

func (q *schedule) add(r *request) {
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	q.mu.Unlock()
	select {
	case q.arrived <- struct{}{}:
	default:
	}
}

func (q *schedule) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// take removes up to n requests that can share a step with the first, in the order in
// which they came. Those whose context has ended are done.
func (q *schedule) take(n int) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch, rest := q.batch[:0], q.waiting[:0]
	for _, r := range q.waiting {
		switch {
		case r.ctx.Err() != nil:
			r.finish(r.ctx.Err())
		case len(batch) < n && (len(batch) == 0 || r.row.session.long == batch[0].row.session.long):
			batch = append(batch, r)
		default:
			rest = append(rest, r)
		}
	}
	clear(q.waiting[len(rest):])
	q.waiting, q.batch = rest, batch
	return batch
}

// putBack lets requests wait for the next step.
func (q *schedule) putBack(list []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Insert(q.waiting, 0, list...)
}

// withdraw takes back a request, unless a step has it already.
func (q *schedule) withdraw(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// stepOne computes one position of a sequence, together with others that wait.
func (e *Engine) stepOne(ctx context.Context, r row, want model.Want) (model.Output, error) {
	req := &r.session.request
	select {
	case <-req.done: // of a step in which a tap or a timer panicked
	default:
	}
	req.ctx, req.row, req.want, req.out = ctx, r, want, model.Output{}
	defer func() { req.ctx = nil }()
	e.schedule.add(req)
	for {
		select {
		case <-req.done:
			return req.out, req.err
		case <-ctx.Done():
			if e.schedule.withdraw(req) {
				return model.Output{}, ctx.Err()
			}
			// What has begun is finished: its pages are in use until then. But who leads may have
			// taken the request only to put it back.
			select {
			case <-req.done:
				return req.out, req.err
			case e.mu <- struct{}{}:
				e.lead(req)
			}
		case e.mu <- struct{}{}:
			e.lead(req)
		}
	}
}

// lead computes a step, unless somebody has done so for the request. The lock is held, and
// given up even if a tap or a timer panics.
func (e *Engine) lead(req *request) {
	defer e.mu.Unlock()
	if !req.finished() {
		e.turn()
	}
}

// errPanicked is what those who shared a step with one that panicked are told.
var errPanicked = errors.New("accel: a tap or a timer panicked in a step of several sequences")

// turn computes a step for some of those who wait. The lock is held.
func (e *Engine) turn() {
	q := e.schedule
	most := e.o.MaxSequences
	if e.o.Tap != nil {
		most = 1
	} else {
		q.gather(most, e.patience())
	}
	batch := q.take(most)
	if len(batch) == 0 {
		return
	}
	batch, known := e.foreseen(batch)
	err := errPanicked
	defer func() {
		q.expect(len(batch))
		for _, r := range batch {
			r.finish(err)
		}
	}()
	if err = e.usable(); err == nil {
		// Until it returns err is what a panic leaves.
		err = errPanicked
		err = e.stepBatch(batch, known)
	}
}

// foreseen brings requests into the order that their sequences had in the last step, so
// that what the device knows of its rows stays. If the device computes some of them already,
// the step is theirs alone, and the others wait for the next one: they would have to wait
// for the device anyway.
func (e *Engine) foreseen(batch []*request) (step []*request, known bool) {
	place := func(r *request) int {
		if e.ahead.running && !e.ahead.foresees(r) {
			return noPlace + r.row.session.place
		}
		return r.row.session.place
	}
	slices.SortStableFunc(batch, func(a, b *request) int { return place(a) - place(b) })
	n := 0
	for e.ahead.running && n < len(batch) && e.ahead.foresees(batch[n]) {
		n++
	}
	if n == 0 {
		return batch, false
	}
	e.schedule.putBack(batch[n:])
	return batch[:n], true
}

// stepBatch computes the rows of requests, unless the device knows them already, and reads what
// each wants. Where they may go on as they came, the next step is queued with this one.
func (e *Engine) stepBatch(batch []*request, known bool) error {
	rows, head, greedy, goOn := e.rows[:0], false, true, len(batch) == len(e.ahead.next)
	for _, r := range batch {
		rows = append(rows, r.row)
		head = head || r.want != model.WantNothing
		greedy = greedy && r.want == model.WantGreedy
		goOn = goOn && e.ahead.foresees(r)
	}
	e.rows = rows
	// The contexts of those who wait differ; what has begun is finished.
	over := false
	if known {
		over = time.Since(e.ahead.since) >= e.schedule.took
		e.wanted(len(rows))
	} else if err := e.step(context.Background(), rows, head); err != nil {
		return err
	}
	begin := e.ahead.since
	if err := e.await(batch, rows, goOn && e.mayLookAhead(rows)); err != nil {
		return e.failed(err)
	}
	if !over { // else nobody saw it end: it may have been asked for a minute later
		e.schedule.took = time.Since(begin)
	}
	if head {
		e.answer(batch, known)
	}
	if !greedy {
		e.ahead.next = e.ahead.next[:0]
	}
	return nil
}

// await reads the logits that requests want, and waits for the step: with the next one
// behind it, or not.
func (e *Engine) await(batch []*request, rows []row, lookAhead bool) error {
	if lookAhead {
		if err := e.lookAhead(rows); err != nil {
			return err
		}
		err := e.ahead.before.Synchronize()
		e.ahead.since = time.Now()
		return err
	}
	var into [][]float32
	var from []int // the rows whose logits are wanted
	for i, r := range batch {
		if r.want == model.WantLast || r.want == model.WantAll {
			r.out.Logits = r.row.session.room(1)[0]
			into, from = append(into, r.out.Logits), append(from, i)
		}
	}
	return e.readLogits(into, from)
}

// answer gives each request the token that was chosen for it, and notes what that lets expect.
func (e *Engine) answer(batch []*request, known bool) {
	next := e.ahead.next[:0]
	for i, r := range batch {
		s, at := r.row.session, i
		if known {
			at = s.place
		}
		if r.want != model.WantNothing {
			r.out.Greedy = e.chosen(e.stepToken(at, r.row.position))
		}
		next = append(next, row{s, r.out.Greedy, r.row.position + 1})
		s.place = i
	}
	e.ahead.next = next
}
