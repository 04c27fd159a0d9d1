package accel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// mutex is a mutex for which one can wait beside other things.
type mutex chan struct{}

func newMutex() mutex   { return make(mutex, 1) }
func (g mutex) Lock()   { g <- struct{}{} }
func (g mutex) Unlock() { <-g }

// request is a position of a sequence that waits for a step.
type request struct {
	ctx  context.Context
	slot slot
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
	expected   int           // those who may wait for the next step
	last       int           // those who had an answer from the last one
	stragglers int           // those who waited then, and did not have one
	took       time.Duration // the last step, of which it is known when the device began and ended it
	batch      []*request    // those of the step that is computed
	timer      *time.Timer   // of gather
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
		case len(batch) < n && (len(batch) == 0 || r.slot.session.longRope == batch[0].slot.session.longRope):
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
func (e *Engine) stepOne(ctx context.Context, b slot, want model.Want) (model.Output, error) {
	req := &b.session.request
	select {
	case <-req.done: // of a step in which a tap or a timer panicked
	default:
	}
	req.ctx, req.slot, req.want, req.out = ctx, b, want, model.Output{}
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
	most := e.options.MaxSequences
	if e.options.Tap != nil {
		most = 1
	} else {
		q.gather(most, e.maxQueueDelay())
	}
	batch := q.take(most)
	if len(batch) == 0 {
		return
	}
	batch, known := e.predicted(batch)
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

// predicted brings requests into the order that their sequences had in the last step, so
// that what the device knows of its rows stays. If the device computes some of them already,
// the step is theirs alone, and the others wait for the next one: they would have to wait
// for the device anyway.
func (e *Engine) predicted(batch []*request) (step []*request, known bool) {
	place := func(r *request) int {
		if e.async.running && !e.async.predicts(r) {
			return noSlot + r.slot.session.slot
		}
		return r.slot.session.slot
	}
	slices.SortStableFunc(batch, func(a, b *request) int { return place(a) - place(b) })
	n := 0
	for e.async.running && n < len(batch) && e.async.predicts(batch[n]) {
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
	rows, logits, greedy, goOn := e.batch[:0], false, true, len(batch) == len(e.async.next)
	for _, r := range batch {
		rows = append(rows, r.slot)
		logits = logits || r.want != model.WantNothing
		greedy = greedy && r.want == model.WantGreedy
		goOn = goOn && e.async.predicts(r)
	}
	e.batch = rows
	// The contexts of those who wait differ; what has begun is finished.
	over := false
	if known {
		over = time.Since(e.async.start) >= e.schedule.took
		e.acceptAhead(len(rows))
	} else if err := e.step(context.Background(), rows, logits); err != nil {
		return err
	}
	begin := e.async.start
	if err := e.await(batch, rows, goOn && e.canRunAhead(rows)); err != nil {
		return e.failed(err)
	}
	if !over { // else nobody saw it end: it may have been asked for a minute later
		e.schedule.took = time.Since(begin)
	}
	if logits {
		e.answer(batch, known)
	}
	if !greedy {
		e.async.next = e.async.next[:0]
	}
	return nil
}

// await reads the logits that requests want, and waits for the step: with the next one
// behind it, or not.
func (e *Engine) await(batch []*request, rows []slot, ahead bool) error {
	if ahead {
		if err := e.runAhead(rows); err != nil {
			return err
		}
		err := e.async.stepEnd.Synchronize()
		e.async.start = time.Now()
		return err
	}
	var into [][]float32
	var from []int // the rows whose logits are wanted
	for i, r := range batch {
		if r.want == model.WantLast || r.want == model.WantAll {
			r.out.Logits = r.slot.session.appendLogits(1)[0]
			into, from = append(into, r.out.Logits), append(from, i)
		}
	}
	return e.readLogits(into, from)
}

// answer gives each request the token that was chosen for it, and notes what that lets expect.
func (e *Engine) answer(batch []*request, known bool) {
	next := e.async.next[:0]
	for i, r := range batch {
		s, at := r.slot.session, i
		if known {
			at = s.slot
		}
		if r.want != model.WantNothing {
			r.out.Greedy = e.inputs.stepToken(at, r.slot.position)
		}
		next = append(next, slot{s, r.out.Greedy, r.slot.position + 1})
		s.slot = i
	}
	e.async.next = next
}

// gather waits for those who were in the step before, beside those who waited then, as they
// come back within moments if they go on: for n of them at most, and no longer than it is
// given. If it counted the former alone, a sequence that came late once would stay apart.
func (q *schedule) gather(n int, most time.Duration) {
	n = min(n, q.expected)
	if q.length() >= n {
		return
	}
	if q.timer == nil {
		q.timer = time.NewTimer(0)
	}
	q.timer.Reset(most)
	defer q.timer.Stop()
	for q.length() < n {
		select {
		case <-q.arrived:
		case <-q.timer.C:
			return
		}
	}
}

// expect notes, after a step, who may wait for the next one. If all of its batch had come too
// late for the step before, those of that step may be waiting for them: a caller that lets
// its sequences go on when all have an answer. It looks no further back: who has not come for
// two steps may have ended.
func (q *schedule) expect(batch int) {
	waiting := q.length()
	q.expected = batch + waiting
	if batch <= q.stragglers {
		q.expected = max(q.expected, q.last+q.stragglers)
	}
	q.last, q.stragglers = batch, waiting
}

// maxQueueDelay is how long a step waits for sequences to come: a small part of what a step
// takes, after the end of one that is computed ahead, as nobody has an answer before.
func (e *Engine) maxQueueDelay() time.Duration {
	const part, most = 8, time.Millisecond
	took := e.schedule.took
	wait := min(took/part, most)
	if e.async.running {
		wait += max(0, took-time.Since(e.async.start))
	}
	return wait
}
