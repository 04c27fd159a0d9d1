package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// submit queues a request, and starts the loop if there is none. After an error the request
// never began.
func (s *scheduler) submit(ctx context.Context, r *request) error {
	r.caller, r.unwatch = ctx, func() bool { return true }
	r.ctx, r.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.limits.Sequences - s.published.Running // slots that the next admission fills
	if s.cacheFull {
		free = 0
	}
	switch {
	case s.closed:
		r.cancel()
		return model.ErrClosed
	case r.maxTokens == 0 && r.pool == nil:
		if r.p.MaxTokens < 0 { // the prompt fills the context
			r.stats.Finish = FinishLength
		}
		r.finish(nil)
		return nil
	case s.maxWaiting > 0 && !r.batch && len(s.waiting) >= s.maxWaiting+free:
		r.cancel()
		return fmt.Errorf("%w: %d", ErrBusy, len(s.waiting))
	}
	s.waiting = append(s.waiting, r)
	r.unwatch = context.AfterFunc(r.ctx, func() { s.contextEnded(r) })
	if s.loopDone == nil {
		s.loopDone = make(chan struct{})
		go s.loop()
	}
	return nil
}

// contextEnded reacts to the end of a request's context. A request that was never admitted ends at
// once. The loop ends others in expire; contextEnded cancels the passes that no request needs any
// more.
func (s *scheduler) contextEnded(r *request) {
	s.mu.Lock()
	i := slices.Index(s.waiting, r)
	neverRan := i >= 0 && r.sequence == nil
	if neverRan {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	for _, p := range s.inFlight {
		p.cancelIfUnwanted()
	}
	s.mu.Unlock()
	if neverRan {
		r.finish(r.ctx.Err())
	}
}

// shutdown ends all requests, waits for the loop and drops the prefix cache.
func (s *scheduler) shutdown() error {
	s.mu.Lock()
	s.closed = true
	loopDone := s.loopDone
	for _, p := range s.inFlight {
		p.cancel()
	}
	s.mu.Unlock()
	if loopDone != nil {
		<-loopDone
	}
	return s.prefix.close()
}

// expire ends the requests whose contexts have ended, or all if the scheduler is closed.
func (s *scheduler) expire() {
	var expired []*request
	s.mu.Lock()
	check := func(r *request) bool {
		over := s.closed || r.ctx.Err() != nil
		if over {
			expired = append(expired, r)
		}
		return over
	}
	for _, r := range s.running {
		check(r)
	}
	s.waiting = slices.DeleteFunc(s.waiting, check)
	s.mu.Unlock()
	for _, r := range expired {
		s.end(r, cmp.Or(r.ctx.Err(), errClosed))
	}
}

// admit lets waiting requests run, as long as there are slots and pages.
func (s *scheduler) admit() {
	for {
		r, at := s.takeWaiting()
		if r == nil {
			return
		}
		err := guard(func() error { return s.open(r) })
		switch {
		case err == nil:
			s.running = append(s.running, r)
		case errors.Is(err, model.ErrCacheFull) && len(s.running)+len(s.inFlight) > 0:
			s.waitForPages(r, at)
			return
		default:
			s.load.StepError = err
			s.end(r, err)
		}
	}
}

// takeWaiting takes the first request that may run out of the waiting ones; at was its index. It looks
// at as many requests as there are free slots, and skips those that await a running one's prompt. From now on,
// submit counts the request as running.
func (s *scheduler) takeWaiting() (r *request, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cacheFull {
		return nil, 0
	}
	slots := s.limits.Sequences - len(s.running)
	for i, r := range s.waiting[:min(slots, len(s.waiting))] {
		if !slices.ContainsFunc(s.running, func(q *request) bool { return s.prefix.awaits(r, q) }) {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			s.published.Running++
			return r, i
		}
	}
	return nil, 0
}

// waitForPages inserts a request into the waiting ones. None is admitted until a request ends.
func (s *scheduler) waitForPages(r *request, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.Insert(s.waiting, min(at, len(s.waiting)), r)
	s.published.Running--
	s.cacheFull = true
}

// open gives a request its sequence, with the pages of its prompt and one more. If there are too
// few, the error is a model.ErrCacheFull and the request is unchanged.
func (s *scheduler) open(r *request) error {
	if r.preempted {
		return s.resume(r)
	}
	return s.evicting(func() (err error) {
		if r.sequence, r.computed, err = s.prefix.fork(s.engine, r); err != nil {
			return err
		}
		if r.pool == nil {
			err = r.sequence.SetSampling(&r.p.Sampling, r.prompt, nil)
		}
		if err == nil {
			err = r.sequence.Reserve(s.oneMorePage(r, len(r.prompt)))
		}
		if err != nil {
			s.release(r)
			return err
		}
		r.noteAdmitted(time.Now())
		s.prefix.count(r, r.computed)
		return nil
	})
}

// resume moves the pages of a preempted request back to the engine, and reserves one more. If
// there are too few, the error is a model.ErrCacheFull and the request is unchanged.
func (s *scheduler) resume(r *request) error {
	if err := s.evicting(r.sequence.SwapIn); err != nil {
		return err
	}
	err := s.evicting(func() error { return r.sequence.Reserve(s.oneMorePage(r, r.computed)) })
	if errors.Is(err, model.ErrCacheFull) {
		return cmp.Or(r.sequence.SwapOut(), err)
	}
	r.preempted = false
	return err
}

// oneMorePage returns n rounded up to whole pages, plus one page, but not more positions than the request can use.
func (s *scheduler) oneMorePage(r *request, n int) int {
	page := s.limits.PageTokens
	return min(len(r.prompt)+r.maxTokens, (n+page-1)/page*page+page)
}

// evicting calls f. If f finds too few pages, evicting drops an entry of the prefix cache and calls f again.
func (s *scheduler) evicting(f func() error) error {
	for {
		if err := f(); !errors.Is(err, model.ErrCacheFull) || !s.evictPrefix() {
			return err
		}
	}
}

// evictPrefix drops the least recently used entry of the prefix cache. It returns false if there is none.
func (s *scheduler) evictPrefix() bool {
	ok, err := s.prefix.evict()
	s.note(err)
	return ok
}

// note stores the error of storing or closing a sequence, which is not the error of a request.
func (s *scheduler) note(err error) {
	if err != nil {
		s.load.StepError = err
	}
}
