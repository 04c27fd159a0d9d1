package generate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/model"
)

// pass is a pass of the engine whose results are not delivered yet.
type pass struct {
	queued   model.Pass
	rows     []model.Row // of a step; nil: choices
	requests []*request
	ctx      context.Context // ends with those of all requests
	cancel   context.CancelFunc
	begin    time.Time
	dropped  bool // a pass before it failed
}

// check ends the context of a pass if those of all its requests have ended.
func (p *pass) check() {
	if !slices.ContainsFunc(p.requests, func(r *request) bool { return r.ctx.Err() == nil }) {
		p.cancel()
	}
}

// run queues a pass of requests.
func (s *scheduler) run(rows []model.Row, requests []*request, queue func(context.Context) (model.Pass, error)) (*pass, error) {
	p := &pass{rows: rows, requests: requests, begin: time.Now()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	s.mu.Lock()
	s.inFlight = append(s.inFlight, p)
	if p.check(); s.closed {
		p.cancel()
	}
	s.mu.Unlock()
	err := guard(func() (err error) {
		p.queued, err = queue(p.ctx)
		return err
	})
	if err != nil {
		s.forget(p)
		return p, err
	}
	for _, r := range requests {
		r.inFlight++
	}
	return p, nil
}

// wait waits for the results of a pass, one per request.
func (p *pass) wait() (results []model.Result, err error) {
	err = guard(func() (err error) {
		results, err = p.queued.Wait()
		return err
	})
	if err == nil && len(results) != len(p.requests) {
		err = fmt.Errorf("generate: the engine gave %d results for %d rows", len(results), len(p.requests))
	}
	return results, err
}

// masked returns the requests of a step whose choice needs a mask and no logits.
func (p *pass) masked() (requests []*request) {
	for i, r := range p.requests {
		if p.rows[i].Hold && r.held && !r.ended && r.p.Logits == nil {
			requests = append(requests, r)
		}
	}
	return requests
}

// forget removes a pass that has ended.
func (s *scheduler) forget(p *pass) {
	p.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = slices.DeleteFunc(s.inFlight, func(q *pass) bool { return q == p })
}
