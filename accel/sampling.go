package accel

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// The device chooses tokens by the argmax kernel or, with other parameters, by those of package
// ptxgen/sample; see states.go. The host chooses for Engine.Choose, for sequences with more
// than plan.MaxBiases biases, and for rows that find no free sampling state.

// SetSampling implements model.Sequence.
func (s *sequence) SetSampling(p *sampling.Params, prompt, generated []int) error {
	if err := s.usable(); err != nil {
		return err
	}
	vocab := s.engine.model.Config.Vocab
	if err := p.Check(vocab); err != nil {
		return fmt.Errorf("accel: sequence: %w", err)
	}
	if err := s.settle(); err != nil { // a token that is still to be chosen depends on the old parameters
		return err
	}
	s.dropState()
	s.params, s.sampler, s.argmax = *p, sampling.New(p, vocab), isArgmax(p)
	for _, t := range prompt {
		s.sampler.Add(t, false)
	}
	for _, t := range generated {
		s.sampler.Add(t, true)
	}
	return nil
}

// isArgmax reports whether parameters choose the largest of the unmodified logits, and ask for
// nothing else.
func isArgmax(p *sampling.Params) bool {
	return p.Greedy() && !p.Penalizes() && len(p.Bias) == 0 && !p.LogProb && p.TopLogProbs == 0
}

// settle waits for the steps that choose tokens of the sequence.
func (s *sequence) settle() error {
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
	return slices.ContainsFunc(p.rows, func(r row) bool { return r.sequence == s && r.computesLogits() })
}

// choose chooses the token at a position from logits.
func (s *sequence) choose(logits []float32, position int, mask []uint32) sampling.Choice {
	if s.sampler == nil {
		s.sampler = sampling.New(&sampling.Params{}, len(logits))
	}
	c := s.sampler.Choose(logits, position, mask)
	s.count(c.Token)
	s.staleState()
	return c
}

// count counts a chosen token for the penalties.
func (s *sequence) count(token int) {
	if token >= 0 && s.sampler != nil {
		s.sampler.Add(token, true)
	}
}

// choices is a pass that has ended.
type choices []model.Result

// Wait implements model.Pass.
func (c choices) Wait() ([]model.Result, error) { return c, nil }

// Choose implements model.Engine. It waits for the steps of the rows.
func (e *Engine) Choose(ctx context.Context, list []model.Choose) (model.Pass, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	vocab := e.model.Config.Vocab
	for i, c := range list {
		s, err := e.own(c.Sequence)
		switch {
		case err != nil:
		case s.holding == nil:
			err = fmt.Errorf("the sequence's last row did not hold its choice")
		default:
			if err = c.Check(vocab); err == nil {
				err = e.finish(s.holding)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("accel: choice %d: %w", i, err)
		}
	}
	out := make(choices, len(list))
	for i, c := range list {
		s := c.Sequence.(*sequence)
		logits := s.held
		if c.Logits != nil {
			logits = c.Logits
		}
		out[i].Choice = s.choose(logits, s.length, c.Mask)
		s.chosen, s.holding = choice{token: out[i].Token}, nil
	}
	return out, nil
}
