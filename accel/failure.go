package accel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// After an error of Step or Choose, nothing of the call is queued. If a pass in flight fails, so do
// those behind it, and each of their sequences gets the length, pages and next token that it had
// before the first of them.

// abort drops a pass that is being queued. Passes in flight fail only if their work may be lost.
func (e *Engine) abort(p *pass, err error) error {
	waited := e.stream.Synchronize()
	p.releasePages()
	p.dropRecurrentStates()
	switch {
	case e.dev.Err() != nil || errors.Is(errors.Join(err, waited), driver.ErrInterrupted):
		e.failAll(errors.Join(err, waited))
	case waited == nil: // the device is idle, so the results of passes in flight are there
		for _, q := range e.inFlight {
			q.readTokens()
		}
		if e.reads.owner != p {
			e.reads.take(e.staging)
		}
		e.invalidateInputs()
	default: // the passes in flight get the stream's error when they are waited for
		e.inputs.invalidate()
		if e.reads.owner == p {
			e.reads.reset()
		}
	}
	return p.failure(err)
}

// failAll ends the passes in flight with an error. It waits for the stream, because queued work
// may still use memory that the next pass writes.
func (e *Engine) failAll(err error) {
	_ = e.stream.Synchronize()
	e.invalidateInputs()
	list := e.inFlight
	e.inFlight = nil
	for i, p := range slices.Backward(list) {
		p.restore()
		p.release()
		p.ended, p.err = true, p.failure(err)
		if i > 0 && p.ctx.Err() == nil {
			p.err = fmt.Errorf("accel: an earlier step failed: %w", err)
		}
	}
	e.interruptIf()
}

// invalidateInputs forgets which inputs the device has, and drops queued reads. The stream must be
// idle.
func (e *Engine) invalidateInputs() {
	e.inputs.invalidate()
	e.inputs.readStep = e.inputs.lastStep
	e.reads.reset()
}

// restore gives each sequence the length, pages and next token that it had before the pass, unless
// its length is less than that by now.
func (p *pass) restore() {
	p.dropRecurrentStates()
	for i := range p.rows {
		r := &p.rows[i]
		s := r.sequence
		if s.heldBy == p {
			s.heldBy = nil
		}
		if !s.closed && s.length >= r.start {
			s.length, s.next = r.start, r.startNext
			s.shrink(r.startPages * attention.PageTokens)
			s.truncateHistory(r.start)
		}
	}
	for _, f := range p.forks {
		if s := f.sequence; !s.closed && s.length > f.start {
			s.length, s.next = f.start, nextToken{token: sampling.NoToken}
			s.shrink(f.start)
			s.truncateHistory(f.start)
		}
	}
}

// failure returns the error of a pass that fails with err: that of the device if it is lost, that of
// the context if a kernel was stopped because the context ended, else err.
func (p *pass) failure(err error) error {
	if lost := p.engine.dev.Err(); lost != nil {
		err = lost
	} else if ended := p.ctx.Err(); ended != nil && errors.Is(err, driver.ErrInterrupted) {
		return ended
	}
	return fmt.Errorf("accel: %w", err)
}

// deviceFailed waits for the stream and wraps a device error of work that is not a pass. If the device
// is lost, it returns that error instead.
func (e *Engine) deviceFailed(err error) error {
	_ = e.stream.Synchronize()
	if lost := e.dev.Err(); lost != nil {
		err = lost
	}
	return fmt.Errorf("accel: %w", err)
}
