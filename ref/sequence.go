package ref

import (
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// sequence implements model.Sequence.
type sequence struct {
	engine   *Engine
	capacity int // positions
	length   int // positions in the cache
	cache    cache
	tokens   []int // of all positions

	states      states
	statesAt    int          // the number of positions after which the states are; unknownPosition: a forward pass failed
	checkpoints []checkpoint // in order

	sampler *sampling.Sampler // nil: greedy
	last    int               // the token that was chosen last; sampling.NoToken if there is none
	held    []float32         // logits of the last row if it left the choice to Engine.Choose
	release func()            // releases the model
	closed  bool
}

var _ model.Sequence = (*sequence)(nil)

func (s *sequence) Len() int { return s.length }
func (s *sequence) Cap() int { return s.capacity }

func (s *sequence) checkOpen() error {
	if s.closed {
		return fmt.Errorf("ref: sequence: %w", model.ErrClosed)
	}
	return nil
}

// checkRoom returns an error if n positions are more than the sequence or its memory may have.
func (s *sequence) checkRoom(n int) error {
	if err := model.CheckCapacity(n, s.capacity); err != nil {
		return err
	}
	return s.engine.need.checkCache(n)
}

// Reserve only checks n: memory grows with the sequence.
func (s *sequence) Reserve(n int) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	if err := s.checkRoom(n); err != nil {
		return fmt.Errorf("ref: sequence: %w", err)
	}
	return nil
}

func (s *sequence) Truncate(n int) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	if n < 0 || n > s.length {
		return fmt.Errorf("ref: truncate to %d: the sequence holds %d positions", n, s.length)
	}
	if n < s.length {
		s.last, s.held = sampling.NoToken, nil
	}
	s.truncate(n)
	return nil
}

func (s *sequence) truncate(n int) {
	s.cache = s.cache.prefix(n, &s.engine.model.Config)
	s.length, s.tokens, s.checkpoints = n, slices.Clip(s.tokens[:n]), s.checkpointsUntil(n)
}

func (s *sequence) Fork(n int) (model.Sequence, error) {
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	if n < 0 || n > s.length {
		return nil, fmt.Errorf("ref: fork of %d: the sequence holds %d positions", n, s.length)
	}
	fork, err := s.engine.newSequence(s.capacity)
	if err != nil {
		return nil, err
	}
	fork.cache, fork.length = s.cache.prefix(n, &s.engine.model.Config), n
	fork.tokens, fork.checkpoints = slices.Clip(s.tokens[:n]), s.checkpointsUntil(n)
	if s.states != nil && s.statesAt == n {
		fork.states, fork.statesAt = s.states.clone(), n
	}
	return fork, nil
}

func (s *sequence) SetSampling(p *sampling.Params, prompt, generated []int) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	vocab := s.engine.model.Config.Vocab
	if err := p.Check(vocab); err != nil {
		return fmt.Errorf("ref: sequence: %w", err)
	}
	s.sampler = sampling.New(p, vocab)
	for _, t := range prompt {
		s.sampler.Add(t, false)
	}
	for _, t := range generated {
		s.sampler.Add(t, true)
	}
	return nil
}

// SwapOut does nothing: the cache is in host memory.
func (s *sequence) SwapOut() error { return s.checkOpen() }

// SwapIn does nothing.
func (s *sequence) SwapIn() error { return s.checkOpen() }

func (s *sequence) Close() error {
	if !s.closed {
		s.closed, s.cache, s.held, s.sampler, s.length, s.tokens, s.states, s.checkpoints = true, nil, nil, nil, 0, nil, nil, nil
		s.release()
	}
	return nil
}
