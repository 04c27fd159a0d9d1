package generate

import (
	"fmt"
	"sync"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// Rows of a request have Hold if it has Params.Mask or Params.Logits, or before MinTokens: the engine computes
// the logits, and the choice of the token is held until Engine.Choose. A mask depends on the tokens before,
// so the loop computes it while the engine computes the logits. The hook Params.Logits runs when the
// logits are delivered.

// heldWithoutLogits returns the requests of a step that have held choices and need no logits for them.
func (p *pass) heldWithoutLogits() (requests []*request) {
	for _, r := range p.requests {
		if r.choiceHeld && !r.ended && r.p.Logits == nil {
			requests = append(requests, r)
		}
	}
	return requests
}

// choose calls Params.Mask and Params.Logits of requests with held choices, all at the same
// time, and queues the choices.
func (s *scheduler) choose(requests []*request) {
	choices, errs := make([]model.Choose, len(requests)), make([]error, len(requests))
	var callbacks sync.WaitGroup
	for i, r := range requests {
		callbacks.Go(func() {
			errs[i] = guard(func() (err error) {
				choices[i], err = r.choice()
				return err
			})
		})
	}
	callbacks.Wait()
	p := &pass{}
	for i, r := range requests {
		if errs[i] != nil {
			s.end(r, errs[i])
			continue
		}
		p.choices, p.requests = append(p.choices, choices[i]), append(p.requests, r)
	}
	if len(p.requests) == 0 {
		return
	}
	err := s.queue(p)
	for _, r := range p.requests {
		if r.choiceHeld = false; err != nil {
			s.end(r, err)
		}
	}
}

// setLogits copies the logits of the next token for Params.Logits. If the hook has changed an earlier
// copy, because the pass of the choice was dropped, that one stays.
func (r *request) setLogits(logits []float32) {
	if !r.constrained {
		r.logits = append(r.logits[:0], logits...)
	}
}

// choice returns the choice of the next token, for a row with Hold.
func (r *request) choice() (model.Choose, error) {
	if !r.constrained {
		if err := r.constrain(); err != nil {
			return model.Choose{}, err
		}
		r.constrained = true
	}
	c := model.Choose{Sequence: r.sequence, Mask: r.mask}
	if len(r.generated) < r.p.MinTokens {
		c.Mask = r.withoutEnds(c.Mask)
	}
	if r.p.Logits != nil {
		c.Logits = r.logits
	}
	return c, nil
}

// constrain calls Params.Mask and Params.Logits for the next token.
func (r *request) constrain() (err error) {
	if r.p.Mask != nil {
		if r.nextMask == nil {
			r.nextMask = r.p.Mask()
		}
		if r.mask, err = r.nextMask(r.generated); err == nil && len(r.mask) != sampling.MaskLen(r.vocab) {
			err = fmt.Errorf("%w: %d elements, want %d for a vocabulary of %d", ErrBadParams, len(r.mask), sampling.MaskLen(r.vocab), r.vocab)
		}
		if err != nil {
			return fmt.Errorf("generate: Params.Mask: %w", err)
		}
	}
	if r.p.Logits != nil {
		r.p.Logits(r.generated, r.logits)
	}
	return nil
}

// withoutEnds removes the end tokens from a mask, unless it permits nothing else.
func (r *request) withoutEnds(mask []uint32) []uint32 {
	if r.maskNoEnds == nil {
		r.maskNoEnds = make([]uint32, len(r.endTokens))
	}
	left := uint32(0)
	for i, end := range r.endTokens {
		r.maskNoEnds[i] = ^end
		if mask != nil {
			r.maskNoEnds[i] &= mask[i]
		}
		left |= r.maskNoEnds[i]
	}
	if left == 0 {
		return mask
	}
	return r.maskNoEnds
}
