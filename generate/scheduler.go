package generate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// errClosed ends the requests that run or wait when the generator is closed.
var errClosed = fmt.Errorf("generate: %w", model.ErrClosed)

// scheduler runs requests on an engine. As long as there are requests, one goroutine, its loop,
// owns the engine.
//
// A request first waits for a slot of the engine and for pages of the KV cache (admission.go).
// Then it runs: it can have a row in each step, until it ends. If pages run out, the newest running
// request is preempted: its pages move to host memory, and it waits again. A step is in flight
// from Engine.Step until its results are delivered (pass.go).
type scheduler struct {
	engine       model.Engine
	limits       model.Limits
	promptBudget int // prompt tokens per step
	maxWaiting   int // requests; 0: no limit
	close        func() error

	// Fields of the loop.
	running []*request // in order of admission
	prefix  prefixCache
	load    Load      // published as it is now, by publish
	lastEnd time.Time // when the last pass ended

	// Fields that all goroutines share.
	mu        sync.Mutex
	waiting   []*request // preempted requests first; the others in order of arrival
	inFlight  []*pass    // in the order in which the engine computes them; only the loop changes it
	cacheFull bool       // pages ran out; no request is admitted until one ends
	published Load       // what Generator.Load returns
	closed    bool
	loopDone  chan struct{} // closed when the loop ends; nil: there is none
}

func newScheduler(engine model.Engine, o Options) *scheduler {
	s := &scheduler{engine: engine, limits: engine.Limits(), maxWaiting: o.MaxWaiting}
	s.promptBudget = min(cmp.Or(o.PromptTokens, s.limits.PromptTokens), s.limits.PromptTokens)
	s.prefix.limit, s.prefix.async = cmp.Or(o.PrefixTokens, s.limits.Pages*s.limits.PageTokens, hostPrefixTokens), s.limits.Async
	s.close = sync.OnceValue(s.shutdown)
	s.published = Load{Pages: s.limits.Pages, FreePages: s.limits.FreePages}
	return s
}

// hostPrefixTokens is the default of Options.PrefixTokens for a cache without pages: one in host memory.
const hostPrefixTokens = 8192

// loop runs rounds until no request is left. A round admits requests, queues a step, delivers results
// and queues the held choices of the step. If the engine is asynchronous, a round delivers the results of
// the step of the round before. So the engine is idle only while a choice is held.
func (s *scheduler) loop() {
	for {
		s.expire()
		s.admit()
		s.publish()
		if s.stopIfIdle() {
			return
		}
		p := s.step()
		switch {
		case p == nil:
			s.deliver(len(s.inFlight))
		case s.limits.Async:
			s.deliver(len(s.inFlight) - 1)
			s.choose(p.heldWithoutLogits())
		default:
			s.choose(p.heldWithoutLogits())
			s.deliver(len(s.inFlight))
		}
	}
}

// stopIfIdle reports whether no request is left. If so, it marks the loop as ended, and the loop must
// return; submit starts another.
func (s *scheduler) stopIfIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running)+len(s.waiting)+len(s.inFlight) > 0 {
		return false
	}
	close(s.loopDone)
	s.loopDone = nil
	return true
}

// schedule returns the rows of the next step and their requests: one token of each running
// request, and prompts within the budget.
func (s *scheduler) schedule() (rows []model.Row, requests []*request) {
	remaining := make([]int, len(s.running)) // tokens of prompts
	for i, r := range s.running {
		remaining[i] = len(r.prompt) - r.computed
	}
	budgets := splitBudget(remaining, s.promptBudget)
	for i, r := range s.running {
		if row, ok := r.nextRow(budgets[i]); ok {
			rows, requests = append(rows, row), append(requests, r)
		}
	}
	return rows, requests
}

// splitBudget divides a budget of tokens among prompts, given how many tokens of each remain. One
// half goes to the prompts in their order, so that each one ends. The other half, with what is left
// of the first, goes to the shortest first, so that a long prompt does not delay short ones.
func splitBudget(remaining []int, budget int) []int {
	out, order := make([]int, len(remaining)), make([]int, len(remaining))
	for i := range order {
		order[i] = i
	}
	give := func(budget int) (rest int) {
		for _, i := range order {
			n := max(0, min(remaining[i]-out[i], budget))
			out[i] += n
			budget -= n
		}
		return budget
	}
	rest := give((budget + 1) / 2)
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(remaining[i], remaining[j]) })
	give(budget/2 + rest)
	return out
}

// step queues the next step and returns it; nil if no request has a row.
//
// If there are too few pages, step frees some and schedules again. It tries in order: evict a prefix, deliver the
// passes in flight, preempt the newest request. After another error it delivers the passes in flight and schedules
// again. If nothing is in flight, the error ends the requests of the step.
func (s *scheduler) step() *pass {
	for {
		rows, requests := s.schedule()
		if len(rows) == 0 {
			return nil
		}
		p := &pass{rows: rows, requests: requests}
		err := s.queue(p)
		if err == nil {
			for i, r := range requests {
				r.scheduled(rows[i])
			}
			return p
		}
		full := errors.Is(err, model.ErrCacheFull)
		switch {
		case full && s.evictPrefix():
		case len(s.inFlight) > 0 && !isPanic(err): // the results may free pages, or explain the error
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

// preempt moves the pages of the newest running request to host memory, and the request to the
// front of the waiting ones. Nothing may be in flight.
func (s *scheduler) preempt() {
	last := len(s.running) - 1
	r := s.running[last]
	if err := guard(r.sequence.SwapOut); err != nil {
		s.end(r, err)
		return
	}
	s.running = s.running[:last]
	s.load.Preemptions++
	r.notePreempted()
	s.waitForPages(r, 0)
}

// deliver waits for the first n passes in flight, in order, and gives their results to the
// requests. It stops after a pass that fails.
func (s *scheduler) deliver(n int) {
	for ; n > 0; n-- {
		p, results, err := s.retire()
		if err != nil {
			s.fail(p, err)
			return
		}
		var hooked []*request
		for i, r := range p.requests {
			switch {
			case r.ended:
			case p.rows == nil:
				s.accept(r, results[i].Choice)
			case s.deliverRow(r, p.rows[i], results[i]):
				hooked = append(hooked, r)
			}
		}
		s.choose(hooked)
	}
}

// fail ends the requests of a failed pass. The engine drops all passes behind it, so fail takes
// them out of flight, and their other requests continue after their last token.
func (s *scheduler) fail(p *pass, err error) {
	for _, r := range p.requests {
		s.end(r, err)
	}
	var dropped []*request
	for len(s.inFlight) > 0 {
		p, _, _ := s.retire()
		dropped = append(dropped, p.requests...)
	}
	for _, r := range dropped {
		if r.ended {
			continue
		}
		if err := guard(r.rewind); err != nil {
			s.end(r, err)
		}
	}
}

// deliverRow gives the result of a row to its request. It returns true if Params.Logits is to be
// called with the row's logits.
func (s *scheduler) deliverRow(r *request, row model.Row, out model.Result) (hook bool) {
	switch row.Want {
	case model.WantNothing:
		return false
	case model.WantHidden:
		if r.pool.add(out.Hidden) == len(r.prompt) {
			s.end(r, nil)
		}
		return false
	}
	if row.Prompt { // it is complete
		if err := s.store(r, r.prompt); isPanic(err) {
			s.end(r, err)
			return false
		}
	}
	switch {
	case !row.Hold:
		s.accept(r, out.Choice)
	case row.Want == model.WantLogits:
		r.setLogits(out.Logits)
		return true
	}
	return false
}

// accept gives a chosen token to its request.
func (s *scheduler) accept(r *request, c sampling.Choice) {
	more, err := r.accept(c, time.Now())
	if err == nil {
		s.load.GeneratedTokens++
	}
	if !more {
		s.end(r, err)
	}
}

// end ends a request: it has no further row or token. If its context has ended or the generator is
// closed, that is its error, unless a callback panicked. The load is published first, so that the
// caller finds its request in the counters.
func (s *scheduler) end(r *request, err error) {
	if r.ended {
		return
	}
	r.ended, r.succeeded = true, err == nil
	s.running = slices.DeleteFunc(s.running, func(q *request) bool { return q == r })
	if err != nil && !isPanic(err) {
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if err = cmp.Or(r.ctx.Err(), err); closed {
			err = errClosed
		}
	}
	s.release(r)
	s.publish()
	r.finish(err)
}

// release closes the sequence of a request, unless a pass in flight uses it: then retire does. If the request has succeeded, the tokens
// that the sequence has computed enter the prefix cache first. The request keeps its result if that fails.
func (s *scheduler) release(r *request) {
	if r.inFlight > 0 {
		return
	}
	s.mu.Lock()
	s.cacheFull = false
	s.mu.Unlock()
	sequence := r.sequence
	if sequence == nil {
		return
	}
	if r.succeeded && s.prefix.serves(r) {
		s.store(r, r.computedTokens())
	}
	r.sequence = nil
	s.note(guard(sequence.Close))
}

// store adds tokens that the sequence of a request has computed to the prefix cache. An error costs later requests time, but not this one
// its result.
func (s *scheduler) store(r *request, tokens []int) error {
	err := guard(func() error { return s.prefix.store(r, tokens) })
	s.note(err)
	return err
}
