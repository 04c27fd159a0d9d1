package generate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// pass is a pass of the engine: a step, or choices for rows with Hold.
type pass struct {
	requests []*request
	rows     []model.Row    // of a step, one per request
	choices  []model.Choose // if it is not a step, one per request

	queued   model.Pass
	queuedAt time.Time
	ctx      context.Context // ends when those of all requests have ended
	cancel   context.CancelFunc
}

// cancelIfUnwanted cancels a pass if the contexts of all of its requests have ended.
func (p *pass) cancelIfUnwanted() {
	if !slices.ContainsFunc(p.requests, func(r *request) bool { return r.ctx.Err() == nil }) {
		p.cancel()
	}
}

// queue hands a pass to the engine. Unless there is an error, the pass is then in flight.
func (s *scheduler) queue(p *pass) error {
	p.queuedAt = time.Now()
	p.ctx, p.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	s.inFlight = append(s.inFlight, p) // before the engine has it, so that it can be canceled
	p.cancelIfUnwanted()
	if s.closed {
		p.cancel()
	}
	s.mu.Unlock()
	err := guard(func() (err error) {
		if p.rows != nil {
			p.queued, err = s.engine.Step(p.ctx, p.rows)
		} else {
			p.queued, err = s.engine.Choose(p.ctx, p.choices)
		}
		return err
	})
	if err != nil {
		s.remove(p)
		return err
	}
	for _, r := range p.requests {
		r.inFlight++
	}
	return nil
}

// retire waits for the first pass in flight, takes it out of flight and returns its results, one
// per request. It closes the sequences of ended requests that no other pass in flight uses.
func (s *scheduler) retire() (p *pass, results []model.Result, err error) {
	p = s.inFlight[0]
	err = guard(func() (err error) {
		results, err = p.queued.Wait()
		return err
	})
	if err == nil && len(results) != len(p.requests) {
		err = fmt.Errorf("generate: the engine gave %d results for %d rows", len(results), len(p.requests))
	}
	s.measure(p, err)
	s.remove(p)
	for _, r := range p.requests {
		if r.inFlight--; r.ended {
			s.release(r)
		}
	}
	return p, results, err
}

// remove takes a pass out of flight.
func (s *scheduler) remove(p *pass) {
	p.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = slices.DeleteFunc(s.inFlight, func(q *pass) bool { return q == p })
}
