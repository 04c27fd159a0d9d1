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
	done chan struct{} // closed when out and err are there
}

func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

func (r *request) finished() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// schedule joins the steps of sequences that wait at the same time: who gets the device
// first computes for all of them, so that one read of the weights serves all. There is
// no goroutine of its own. Prompts take the device chunk by chunk, so that steps go on
// between chunks. With whom a sequence steps never shows in its results.
type schedule struct {
	mu      sync.Mutex
	waiting []*request
	arrived chan struct{} // has room for one: somebody came since it was looked at

	// Of the step before, with the device's lock held.
	before int           // rows
	took   time.Duration //
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

// gather waits for those who were in the step before, as they come back within moments
// if they go on: but no longer than a small part of what a step takes.
func (q *schedule) gather() {
	const part, most = 8, time.Millisecond
	if q.length() >= q.before {
		return
	}
	timer := time.NewTimer(min(q.took/part, most))
	defer timer.Stop()
	for q.length() < q.before {
		select {
		case <-q.arrived:
		case <-timer.C:
			return
		}
	}
}

// take removes up to n requests that can share a step with the first, in the order in
// which they came. Those whose context has ended are done.
func (q *schedule) take(n int) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	var batch, rest []*request
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
	q.waiting = rest
	return batch
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
	req := &request{ctx: ctx, row: r, want: want, done: make(chan struct{})}
	e.schedule.add(req)
	for {
		select {
		case <-req.done:
			return req.out, req.err
		case <-ctx.Done():
			if e.schedule.withdraw(req) {
				return model.Output{}, ctx.Err()
			}
			<-req.done // what has begun is finished: its pages are in use until then
			return req.out, req.err
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
		q.gather()
	}
	batch := q.take(most)
	if len(batch) == 0 {
		return
	}
	begin, err := time.Now(), errPanicked
	defer func() {
		for _, r := range batch {
			r.finish(err)
		}
	}()
	if err = e.usable(); err == nil {
		// Until it returns err is what a panic leaves.
		err = errPanicked
		err = e.stepBatch(batch)
	}
	q.before, q.took = len(batch), time.Since(begin)
}

// stepBatch computes the rows of requests, and reads what each wants.
func (e *Engine) stepBatch(batch []*request) error {
	rows := make([]row, len(batch))
	var into [][]float32
	var from []int // the rows whose logits are wanted
	head := false
	for i, r := range batch {
		rows[i] = r.row
		head = head || r.want != model.WantNothing
		if r.want == model.WantLast || r.want == model.WantAll {
			r.out.Logits = r.row.session.room(1)[0]
			into, from = append(into, r.out.Logits), append(from, i)
		}
	}
	// The contexts of those who wait differ; what has begun is finished.
	if err := e.step(context.Background(), rows, head); err != nil {
		return err
	}
	if err := e.readLogits(into, from); err != nil {
		return e.failed(err)
	}
	if !head {
		return nil
	}
	chosen := e.chosen(len(rows))
	for i, r := range batch {
		if r.want != model.WantNothing {
			r.out.Greedy = chosen[i]
		}
	}
	return nil
}
