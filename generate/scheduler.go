package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// errClosed ends the requests that run when the generator is closed.
var errClosed = fmt.Errorf("generate: %w", model.ErrClosed)

// scheduler runs requests on an engine. One goroutine, its loop, owns the engine as long as
// there are requests. Each round admits requests in order of arrival, queues a step of all
// that run, and delivers results: those of the step before while an asynchronous engine
// computes, else those of the step itself.
type scheduler struct {
	engine     model.Engine
	limits     model.Limits
	budget     int // prompt tokens per step
	maxWaiting int // requests that may wait; 0: any number

	// Fields of the loop.
	running []*request // in order of admission
	prefix  prefixCache
	now     Load
	last    time.Time // when the last pass ended

	mu       sync.Mutex
	waiting  []*request // in order of arrival; those with a sequence were preempted
	inFlight []*pass    // changed by the loop only
	full     bool       // a waiting request found too few pages; none is admitted until a request ends
	load     Load       // of the last round
	closed   bool
	looping  chan struct{} // closed when the loop ends; nil: there is none
	close    func() error
}

func newScheduler(engine model.Engine, o Options) *scheduler {
	s := &scheduler{engine: engine, limits: engine.Limits(), maxWaiting: o.MaxWaiting}
	s.budget = min(cmp.Or(o.PromptTokens, s.limits.PromptTokens), s.limits.PromptTokens)
	s.prefix.limit = cmp.Or(o.PrefixTokens, s.limits.Pages*s.limits.PageTokens, hostPrefixTokens)
	s.close = sync.OnceValue(s.shut)
	s.load = Load{Pages: s.limits.Pages, FreePages: s.limits.FreePages}
	return s
}

// hostPrefixTokens is the default of Options.PrefixTokens for a cache without pages.
const hostPrefixTokens = 8192

// loop runs until no request is left.
func (s *scheduler) loop() {
	for s.admit() {
		p := s.step()
		if p != nil && s.limits.Async {
			s.deliver(len(s.inFlight) - 1)
		}
		if p != nil {
			s.choose(p.masked())
		}
		if p == nil || !s.limits.Async {
			s.deliver(len(s.inFlight))
		}
	}
}

// schedule returns the rows of the next step: a token of each running sequence, and prompts
// within the budget.
func (s *scheduler) schedule() (rows []model.Row, requests []*request) {
	var left []int // tokens of prompts
	for _, r := range s.running {
		left = append(left, len(r.prompt)-r.computed)
	}
	for i, n := range share(left, s.budget) {
		if row, ok := s.running[i].next(n); ok {
			rows, requests = append(rows, row), append(requests, s.running[i])
		}
	}
	return rows, requests
}

// share divides a budget of tokens among prompts that need the given numbers: one half in
// order of arrival, so that each prompt ends, the other half shortest first, so that a long
// prompt does not keep short ones waiting.
func share(need []int, budget int) []int {
	out, byNeed := make([]int, len(need)), make([]int, len(need))
	give := func(i, most int) int {
		n := max(0, min(need[i]-out[i], most))
		out[i] += n
		return most - n
	}
	first := (budget + 1) / 2
	rest := budget - first
	for i := range need {
		first, byNeed[i] = give(i, first), i
	}
	slices.SortStableFunc(byNeed, func(i, j int) int { return cmp.Compare(need[i], need[j]) })
	rest += first
	for _, i := range byNeed {
		rest = give(i, rest)
	}
	return out
}

// step queues a step and returns it; nil if no request can go on. If there are too few pages
// for it, step drops prefixes, delivers the passes that are queued, and preempts the newest
// request, in this order.
func (s *scheduler) step() *pass {
	for {
		rows, requests := s.schedule()
		if len(rows) == 0 {
			return nil
		}
		p, err := s.run(rows, requests, func(ctx context.Context) (model.Pass, error) { return s.engine.Step(ctx, rows) })
		full := errors.Is(err, model.ErrCacheFull)
		_, panicked := err.(*panicError)
		switch {
		case err == nil:
			for i, r := range requests {
				r.queued(rows[i])
			}
			return p
		case full && s.prefix.drop():
		case len(s.inFlight) > 0 && !panicked: // a result may free pages, or explain the error
			s.deliver(len(s.inFlight))
		case full && len(s.running) > 1:
			s.preempt()
		default:
			s.measure(p, err)
			for _, r := range requests {
				s.end(r, err)
			}
		}
	}
}

// preempt moves the pages of the newest running request to host memory, and the request to
// the front of the queue. No pass may be queued.
func (s *scheduler) preempt() {
	r := s.running[len(s.running)-1]
	if err := guard(r.sequence.SwapOut); err != nil {
		s.end(r, err)
		return
	}
	s.running = s.running[:len(s.running)-1]
	r.preempted()
	s.now.Preempted++
	s.now.Preemptions++
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.Insert(s.waiting, 0, r)
	s.full = true
}

// deliver waits for the first n queued passes, in order, and hands their tokens to the
// requests. If a pass fails, its requests end with the error. The engine then drops all later
// passes, so deliver takes those too, and their other requests go on from where they were.
func (s *scheduler) deliver(n int) {
	for ; n > 0; n-- {
		p := s.inFlight[0]
		results, err := p.wait()
		s.measure(p, err)
		s.forget(p)
		if err != nil && !p.dropped {
			n = 1 + len(s.inFlight)
			for _, later := range s.inFlight {
				later.dropped = true
			}
		}
		var hooked []*request
		for i, r := range p.requests {
			r.inFlight--
			switch {
			case r.ended:
				if err := s.release(r); err != nil {
					s.now.StepError = err
				}
			case p.dropped && r.inFlight > 0:
			case p.dropped:
				if err := guard(r.rewind); err != nil {
					s.end(r, err)
				}
			case err != nil:
				s.end(r, err)
			case p.rows == nil:
				s.token(r, results[i].Choice)
			case s.result(r, p.rows[i], results[i]):
				hooked = append(hooked, r)
			}
		}
		s.choose(hooked)
	}
}

// result takes the result of a row. It reports whether the choice is up to Params.Logits.
func (s *scheduler) result(r *request, row model.Row, out model.Result) (hook bool) {
	if row.Prompt {
		s.now.PromptTokens += len(row.Tokens)
	}
	switch {
	case row.Want == model.WantNothing:
		return false
	case row.Want == model.WantHidden:
		if r.pool.add(out.Hidden) == len(r.prompt) {
			s.end(r, nil)
		}
		return false
	case row.Prompt:
		if err := guard(func() error { return s.prefix.store(r) }); err != nil {
			s.end(r, err)
			return false
		}
	}
	switch {
	case !row.Hold:
		s.token(r, out.Choice)
	case row.Want == model.WantLogits:
		r.logits = append(r.logits[:0], out.Logits...)
		return true
	}
	return false
}

// token gives a chosen token to its request.
func (s *scheduler) token(r *request, c sampling.Choice) {
	s.now.GeneratedTokens++
	if more, err := r.accept(c, time.Now()); !more {
		s.end(r, err)
	}
}

// choose queues the choices of rows with Hold.
func (s *scheduler) choose(requests []*request) {
	choices, errs := make([]model.Choose, len(requests)), make([]error, len(requests))
	var wg sync.WaitGroup
	for i, r := range requests {
		wg.Go(func() {
			errs[i] = guard(func() (err error) {
				choices[i], err = r.choice()
				return err
			})
		})
	}
	wg.Wait()
	var good []model.Choose
	var alive []*request
	for i, r := range requests {
		if errs[i] != nil {
			s.end(r, errs[i])
			continue
		}
		good, alive = append(good, choices[i]), append(alive, r)
	}
	if len(alive) == 0 {
		return
	}
	_, err := s.run(nil, alive, func(ctx context.Context) (model.Pass, error) { return s.engine.Choose(ctx, good) })
	for _, r := range alive {
		if r.held = false; err != nil {
			s.end(r, err)
		}
	}
}

// end ends a request: it takes no further part in steps. The end of its context and of the
// scheduler explain other errors.
func (s *scheduler) end(r *request, err error) {
	if r.ended {
		return
	}
	r.ended = true
	s.running = slices.DeleteFunc(s.running, func(q *request) bool { return q == r })
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if _, panicked := err.(*panicError); err != nil && !panicked {
		if err = cmp.Or(r.ctx.Err(), err); closed {
			err = errClosed
		}
	}
	if e := s.release(r); e != nil {
		err = errors.Join(err, e)
	}
	r.finish(err)
}

// release closes the sequence of an ended request as soon as no queued pass has a part in it.
func (s *scheduler) release(r *request) error {
	if r.inFlight > 0 {
		return nil
	}
	s.mu.Lock()
	s.full = false
	s.mu.Unlock()
	if r.swapped {
		r.swapped = false
		s.now.Preempted--
	}
	sequence := r.sequence
	if r.sequence = nil; sequence == nil {
		return nil
	}
	return guard(sequence.Close)
}
