package accel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// mutex is a mutex that can be locked in a select.
type mutex chan struct{}

func newMutex() mutex   { return make(mutex, 1) }
func (m mutex) Lock()   { m <- struct{}{} }
func (m mutex) Unlock() { <-m }

// request is a token of a sequence that waits for a decode step.
type request struct {
	ctx  context.Context
	slot slot
	want model.Want
	out  model.Output
	err  error
	done chan struct{} // receives a value when out and err are set
}

func (r *request) finish(err error) {
	r.err = err
	r.done <- struct{}{}
}

func (r *request) finished() bool { return len(r.done) > 0 }

// schedule joins the requests of sequences that wait at the same time into one decode step,
// so that one read of the weights serves all. It has no goroutine: the caller that locks the
// engine first, the leader, computes the step for all of them. Prompts hold the engine one
// chunk at a time, so steps run between chunks. The results of a sequence never depend on
// the other sequences of its steps.
type schedule struct {
	mu      sync.Mutex
	waiting []*request
	arrived chan struct{} // of capacity 1: a request was added since the last receive

	// Guarded by the engine's mutex.
	expected   int           // requests that may arrive for the next step
	last       int           // requests that the last step answered
	stragglers int           // requests that were queued then and not answered
	took       time.Duration // of the last step whose begin and end are known
	batch      []*request    // of the current step
	timer      *time.Timer   // of the batching window
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

// take removes up to n requests that can share a step with the first, in order of arrival.
// It finishes requests whose context has ended.
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

// putBack queues requests again, before all others.
func (q *schedule) putBack(list []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.Insert(q.waiting, 0, list...)
}

// withdraw removes a request from the queue. It reports whether the request was there.
func (q *schedule) withdraw(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting, r)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// stepOne computes one token of a sequence, together with other requests.
func (e *Engine) stepOne(ctx context.Context, b slot, want model.Want) (model.Output, error) {
	req := &b.session.request
	select {
	case <-req.done: // left by a step in which a tap or a timer panicked
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
			// A step that has begun is finished, because it uses the sequence's pages. But the
			// leader may have taken the request only to put it back.
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

// lead computes a step unless the request is finished. It unlocks the mutex, even if a tap
// or a timer panics.
func (e *Engine) lead(req *request) {
	defer e.end()
	if !req.finished() {
		e.nextStep()
	}
}

// errPanicked is the error of requests in a step whose tap or timer panicked.
var errPanicked = errors.New("accel: a tap or a timer panicked in a step of several sequences")

// nextStep computes a step for some of the queued requests. The mutex is held.
func (e *Engine) nextStep() {
	q := e.schedule
	most := e.options.MaxSequences
	if e.options.Tap != nil {
		most = 1
	} else {
		q.waitForBatch(most, e.maxQueueDelay())
	}
	batch := q.take(most)
	if len(batch) == 0 {
		return
	}
	batch, ahead := e.predicted(batch)
	err := errPanicked
	defer func() {
		q.expect(len(batch))
		for _, r := range batch {
			r.finish(err)
		}
	}()
	if err = e.usable(); err == nil {
		e.interruptStep(batch)
		err = errPanicked // remains if stepBatch panics
		err = e.stepBatch(batch, ahead)
	}
}

// interruptStep lets the kernels of a step stop once the contexts of all its requests have ended.
func (e *Engine) interruptStep(batch []*request) {
	if e.interruptible == nil {
		return
	}
	var contexts []context.Context
	for _, r := range batch {
		contexts = append(contexts, r.ctx)
	}
	e.interruptIf(contexts...)
}

// predicted sorts requests by the slots of their sequences in the last step, so that page
// tables on the device stay valid. If the step that runs ahead has some of the requests, it
// serves only these, and the others are queued again: they would wait for the device anyway.
func (e *Engine) predicted(batch []*request) (step []*request, ahead bool) {
	order := func(r *request) int {
		if e.async.running && !e.async.predicts(r) {
			return noSlot + r.slot.session.slot
		}
		return r.slot.session.slot
	}
	slices.SortStableFunc(batch, func(a, b *request) int { return order(a) - order(b) })
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

// stepBatch computes a batch of requests, unless the step that runs ahead has them, and reads
// the results. If all can continue with their greedy tokens, it queues the next step too.
func (e *Engine) stepBatch(batch []*request, ahead bool) error {
	slots, logits, greedy, continues := e.batch[:0], false, true, len(batch) == len(e.async.next)
	for _, r := range batch {
		slots = append(slots, r.slot)
		logits = logits || r.want != model.WantNothing
		greedy = greedy && r.want == model.WantGreedy
		continues = continues && e.async.predicts(r)
	}
	e.batch = slots
	ended := false // whether the step that ran ahead has ended already
	if ahead {
		ended = time.Since(e.async.start) >= e.schedule.took
		e.acceptAhead(len(slots))
	} else if err := e.step(context.Background(), slots, logits); err != nil {
		return err
	}
	begin := e.async.start
	if err := e.await(batch, slots, continues && e.canRunAhead(slots)); err != nil {
		return e.failed(err)
	}
	if !ended { // else its end was not observed
		e.schedule.took = time.Since(begin)
	}
	if logits {
		e.answer(batch, ahead)
	}
	if !greedy {
		e.async.next = e.async.next[:0]
	}
	return nil
}

// await waits for the step: if queueNext is set, it queues the next step first, else it reads
// the logits that the requests want.
func (e *Engine) await(batch []*request, slots []slot, queueNext bool) error {
	if queueNext {
		if err := e.runAhead(slots); err != nil {
			return err
		}
		err := e.async.stepEnd.Synchronize()
		e.async.start = time.Now()
		return err
	}
	var into [][]float32
	var from []int // rows of logits
	for i, r := range batch {
		if r.want == model.WantLast || r.want == model.WantAll {
			r.out.Logits = r.slot.session.appendLogits(1)[0]
			into, from = append(into, r.out.Logits), append(from, i)
		}
	}
	return e.readLogits(into, from)
}

// answer returns each request its token, and predicts the next step from them.
func (e *Engine) answer(batch []*request, ahead bool) {
	next := e.async.next[:0]
	for i, r := range batch {
		s, at := r.slot.session, i
		if ahead {
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

// waitForBatch delays a step by at most window, until n requests are queued or as many as are
// expected: sequences of the previous step, which return at once if they continue, and its
// stragglers. Without the stragglers, a sequence that was late once would never join the
// others again.
func (q *schedule) waitForBatch(n int, window time.Duration) {
	n = min(n, q.expected)
	if q.length() >= n {
		return
	}
	if q.timer == nil {
		q.timer = time.NewTimer(0)
	}
	q.timer.Reset(window)
	defer q.timer.Stop()
	for q.length() < n {
		select {
		case <-q.arrived:
		case <-q.timer.C:
			return
		}
	}
}

// expect updates, after a step, how many requests may arrive for the next one. If the whole
// batch were stragglers of the previous step, the sequences of that step may be waiting for
// them: a caller may continue all of them together. It looks back no further, because a
// sequence that skipped two steps may have ended.
func (q *schedule) expect(batch int) {
	waiting := q.length()
	q.expected = batch + waiting
	if batch <= q.stragglers {
		q.expected = max(q.expected, q.last+q.stragglers)
	}
	q.last, q.stragglers = batch, waiting
}

// maxQueueDelay returns the batching window: a small part of the duration of a step. If a step
// runs ahead, the window begins at its end, because no sequence has a token before.
func (e *Engine) maxQueueDelay() time.Duration {
	const part, most = 8, time.Millisecond
	took := e.schedule.took
	wait := min(took/part, most)
	if e.async.running {
		wait += max(0, took-time.Since(e.async.start))
	}
	return wait
}
