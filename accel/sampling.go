package accel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// The device chooses tokens by the argmax kernel or, with other parameters, by those of package
// ptxgen/sample; see samplingstate.go. The host chooses for sequences with more than plan.MaxBiases biases,
// and for rows that find no free sampling state.

// SetSampling implements model.Sequence.
func (s *sequence) SetSampling(p *sampling.Params, prompt, generated []int) error {
	if err := s.usable(); err != nil {
		return err
	}
	vocab := s.engine.model.Config.Vocab
	if err := p.Check(vocab); err != nil {
		return fmt.Errorf("accel: sequence: %w", err)
	}
	if err := s.waitForTokens(); err != nil { // a token that is still to be chosen depends on the old parameters
		return err
	}
	if err := s.leaveSamplingState(p); err != nil {
		return err
	}
	s.params, s.sampler, s.argmax = *p, sampling.New(p, vocab), isArgmax(p)
	for _, t := range prompt {
		s.sampler.Add(t, false)
	}
	for _, t := range generated {
		s.sampler.Add(t, true)
	}
	return nil
}

// leaveSamplingState frees the sampling state of the sequence, because its parameters change to p. While the state has the logits of a
// held choice it stays, and its parameters are sent again. If p has too many biases for the device, these logits move to the host.
func (s *sequence) leaveSamplingState(p *sampling.Params) error {
	e := s.engine
	if s.heldBy == nil || !s.heldOnDevice {
		s.dropSamplingState()
		return nil
	}
	e.inputs.samplingStates[s.samplingIndex].stale = true
	if len(p.Bias) <= plan.MaxBiases {
		return nil
	}
	e.drain()
	if s.heldBy != nil {
		vocab := e.model.Config.Vocab
		logits, err := e.readFloats(e.layout.Buffers.SavedLogits+ptx.Address(4*vocab*s.samplingIndex), vocab)
		if err != nil {
			return e.deviceFailed(err)
		}
		s.heldLogits, s.heldOnDevice = logits, false
	}
	s.dropSamplingState()
	return nil
}

// isArgmax reports whether parameters choose the largest of the unmodified logits, and ask for
// nothing else.
func isArgmax(p *sampling.Params) bool {
	return p.Greedy() && !p.Penalizes() && len(p.Bias) == 0 && !p.LogProb && p.TopLogProbs == 0
}

// waitForTokens waits for the passes that choose tokens of the sequence.
func (s *sequence) waitForTokens() error {
	e := s.engine
	for i := len(e.inFlight) - 1; i >= 0; i-- {
		if p := e.inFlight[i]; p.chooses(s) {
			return e.finish(p)
		}
	}
	return nil
}

// chooses reports whether a row of the pass chooses a token of a sequence.
func (p *pass) chooses(s *sequence) bool {
	return slices.ContainsFunc(p.rows, func(r row) bool { return r.sequence == s && r.computesLogits() && !r.hold })
}

// choose chooses the token at a position from logits.
func (s *sequence) choose(logits []float32, position int, mask []uint32) sampling.Choice {
	if s.sampler == nil {
		s.sampler = sampling.New(&sampling.Params{}, len(logits))
	}
	c := s.sampler.Choose(logits, position, mask)
	s.count(c.Token)
	s.staleSamplingState()
	return c
}

// count counts a chosen token for the penalties.
func (s *sequence) count(token int) {
	if token >= 0 && s.sampler != nil {
		s.sampler.Add(token, true)
	}
}

// Choose implements model.Engine. It waits if too many passes are in flight, if the device needs the
// counts of tokens that are not chosen yet, or if the host chooses a token.
func (e *Engine) Choose(ctx context.Context, list []model.Choose) (model.Pass, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for len(e.inFlight) == maxInFlight {
		if err := e.finish(e.inFlight[0]); err != nil {
			return nil, err
		}
	}
	p := e.newPass(ctx)
	p.isChoose = true
	e.calls++
	for i := range list {
		r, err := e.checkChoice(&list[i])
		if err != nil {
			return nil, fmt.Errorf("accel: choice %d: %w", i, err)
		}
		p.rows = append(p.rows, r)
	}
	if err := e.run(p); err != nil {
		return nil, err
	}
	p.commit()
	return p, nil
}

// checkChoice checks a choice and returns its row, which has no tokens.
func (e *Engine) checkChoice(c *model.Choose) (row, error) {
	s, err := e.own(c.Sequence)
	switch {
	case err != nil:
		return row{}, err
	case s.lastCall == e.calls:
		return row{}, errors.New("the sequence has another choice in this call")
	case s.heldBy == nil:
		return row{}, errors.New("the sequence's last row did not hold its choice")
	}
	if err := c.Check(e.model.Config.Vocab); err != nil {
		return row{}, err
	}
	s.lastCall = e.calls
	r := row{
		sequence: s, want: model.WantToken, onDevice: s.heldOnDevice, samplingIndex: noSamplingState, start: s.length, startPages: len(s.table.Pages),
		startNext: s.next, choice: sampling.Choice{Token: sampling.NoToken}, tokenAt: noOffset, mask: c.Mask, replacement: c.Logits,
	}
	if r.onDevice {
		r.samplingIndex = s.samplingIndex
		e.inputs.samplingStates[s.samplingIndex].lastCall = e.calls
		return r, r.waitForCounts()
	}
	if err := e.finish(s.heldBy); err != nil {
		return row{}, err
	}
	if r.lastLogits = slices.Clone(s.heldLogits); c.Logits != nil {
		copy(r.lastLogits, c.Logits)
	}
	r.mask = slices.Clone(c.Mask)
	return r, nil
}
