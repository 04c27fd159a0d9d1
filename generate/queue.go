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

// submit puts a request into the queue. After an error the request never began.
func (s *scheduler) submit(ctx context.Context, r *request) error {
	r.caller, r.detach = ctx, func() bool { return true }
	r.ctx, r.cancel = context.WithCancel(ctx)
	if r.maxTokens == 0 && r.pool == nil {
		r.finish(nil)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.limits.Sequences - s.load.Running // slots that the loop will fill
	if s.full {
		free = 0
	}
	switch {
	case s.closed:
		r.cancel()
		return model.ErrClosed
	case s.maxWaiting > 0 && !r.batch && len(s.waiting) >= s.maxWaiting+free:
		r.cancel()
		return fmt.Errorf("%w: %d", ErrBusy, len(s.waiting))
	}
	s.waiting = append(s.waiting, r)
	r.detach = context.AfterFunc(r.ctx, func() { s.abandon(r) })
	if s.looping == nil {
		s.looping = make(chan struct{})
		go s.loop()
	}
	return nil
}

// abandon ends a request whose context has ended if it still waits for its first step. It
// stops the passes whose requests have all ended.
func (s *scheduler) abandon(r *request) {
	s.mu.Lock()
	i := slices.Index(s.waiting, r)
	fresh := i >= 0 && r.sequence == nil
	if fresh {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	for _, p := range s.inFlight {
		p.check()
	}
	s.mu.Unlock()
	if fresh {
		r.finish(r.ctx.Err())
	}
}

// shut ends all requests, waits for the loop and drops the prefix cache.
func (s *scheduler) shut() error {
	s.mu.Lock()
	s.closed = true
	looping := s.looping
	for _, p := range s.inFlight {
		p.cancel()
	}
	s.mu.Unlock()
	if looping != nil {
		<-looping
	}
	return s.prefix.close()
}

// admit drops requests whose contexts have ended and moves waiting requests to the running
// ones, as long as there are slots and pages. It returns false if no request is left.
func (s *scheduler) admit() bool {
	s.expire()
	for {
		r, at := s.first()
		if r == nil {
			break
		}
		err := guard(func() error { return s.open(r) })
		if errors.Is(err, model.ErrCacheFull) && len(s.running)+len(s.inFlight) > 0 {
			s.mu.Lock()
			s.waiting = slices.Insert(s.waiting, min(at, len(s.waiting)), r)
			s.full = true
			s.mu.Unlock()
			break
		}
		s.running = append(s.running, r)
		if err != nil {
			s.now.StepError = err
			s.end(r, err)
		}
	}
	return s.report()
}

// expire ends the requests whose contexts have ended, or all if the scheduler is closed.
func (s *scheduler) expire() {
	s.mu.Lock()
	var over []*request
	alive := func(r *request) bool {
		if s.closed || r.ctx.Err() != nil {
			over = append(over, r)
			return false
		}
		return true
	}
	for _, r := range s.running {
		alive(r)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(r *request) bool { return !alive(r) })
	s.mu.Unlock()
	for _, r := range over {
		s.end(r, cmp.Or(r.ctx.Err(), errClosed))
	}
}

// first takes the first request that may be admitted out of the queue. A request waits for a
// running one that computes the same beginning of a prompt, and lets others pass.
func (s *scheduler) first() (r *request, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := s.limits.Sequences - len(s.running)
	if s.full {
		return nil, 0
	}
	for i, r := range s.waiting[:min(slots, len(s.waiting))] {
		if !slices.ContainsFunc(s.running, func(q *request) bool { return s.prefix.awaits(r, q) }) {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			return r, i
		}
	}
	return nil, 0
}

// open gives a request its sequence, with pages for the prompt and one more. If there are
// too few, the error is a model.ErrCacheFull and the request is unchanged.
func (s *scheduler) open(r *request) error {
	if r.swapped {
		if err := s.makeRoom(r.sequence.SwapIn); err != nil {
			return err
		}
		err := s.makeRoom(func() error { return r.sequence.Reserve(s.room(r, r.computed)) })
		if errors.Is(err, model.ErrCacheFull) {
			return cmp.Or(r.sequence.SwapOut(), err)
		}
		if err == nil {
			r.swapped = false
			s.now.Preempted--
		}
		return err
	}
	return s.makeRoom(func() (err error) {
		if r.sequence, r.computed, err = s.prefix.fork(s.engine, r); err != nil {
			return err
		}
		if r.pool == nil {
			err = r.sequence.SetSampling(&r.p.Sampling, r.prompt, nil)
		}
		if err == nil {
			err = r.sequence.Reserve(s.room(r, len(r.prompt)))
		}
		if err != nil {
			return cmp.Or(s.release(r), err)
		}
		r.admit(time.Now())
		s.prefix.count(r, r.computed)
		return nil
	})
}

// room returns the number of positions of n positions' pages and one more page, at most
// those that a request can use.
func (s *scheduler) room(r *request, n int) int {
	page := s.limits.PageTokens
	return min(len(r.prompt)+r.maxTokens, (n+page-1)/page*page+page)
}

// makeRoom calls f. As long as f needs pages, it drops the prefix that was not used for
// longest.
func (s *scheduler) makeRoom(f func() error) error {
	for {
		if err := f(); !errors.Is(err, model.ErrCacheFull) || !s.prefix.drop() {
			return err
		}
	}
}
