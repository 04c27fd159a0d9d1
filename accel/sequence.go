package accel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/accel/internal/kv"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// sequence implements model.Sequence.
type sequence struct {
	engine    *Engine
	capacity  int
	longRope  bool     // uses the RoPE factors for long contexts
	length    int      // positions, those of queued steps included
	table     kv.Table // pages of the cache
	swappedKV []byte   // contents while it is swapped out
	swapped   bool
	closed    bool
	lastCall  int // the last call of Step or Choose with a row of the sequence

	next          nextToken
	params        sampling.Params
	sampler       *sampling.Sampler // nil: greedy, until the host chooses a token
	argmax        bool              // the sequence's tokens are the largest logits, and nothing else is asked for
	samplingIndex int               // its sampling state on the device; noSamplingState: none
	heldBy        *pass             // the step that left the sequence's choice to Engine.Choose; nil: none
	heldOnDevice  bool              // the device keeps the logits of that row
	heldLogits    []float32         // logits of that row, if the device does not

	// Of models with Gated DeltaNets; see recurrent.go.
	past               []int32           // all tokens; sampling.NoToken: a pass in flight computes it, and only the device knows it
	current            *recurrentState   // nil: none
	checkpoints        []*recurrentState // in order; some may be lost
	hostRecurrentState []byte            // the current state while the sequence is swapped out; nil: it was lost

	slot      int // batch slot in the last decode step; noSlot: none
	sentPages int // leading pages of table that the slot's page table has
}

// nextToken is the token that follows a sequence.
type nextToken struct {
	pass   *pass // in flight, which chooses the token; nil: token is known
	row    int   // of the pass
	token  int   // sampling.NoToken: the last row chose none
	inSlot bool  // a decode step leaves it in the sequence's batch slot
}

const (
	// noSlot is greater than every slot.
	noSlot = maxSlots
	// noSamplingState means that a sequence or a row has no sampling state.
	noSamplingState = -1
)

var _ model.Sequence = (*sequence)(nil)

// NewSequence implements model.Engine. The sequence allocates pages of the KV cache as it grows.
func (e *Engine) NewSequence(capacity int) (model.Sequence, error) {
	limit := e.model.Config.Context
	switch {
	case e.closed:
		return nil, fmt.Errorf("accel: engine: %w", model.ErrClosed)
	case capacity < 0:
		return nil, fmt.Errorf("accel: sequence: capacity: %d, want at least 0", capacity)
	case capacity > limit:
		return nil, fmt.Errorf("accel: sequence: capacity: %w", model.CheckCapacity(capacity, limit))
	case capacity == 0:
		capacity = limit
	}
	return e.newSequence(capacity), nil
}

func (e *Engine) newSequence(capacity int) *sequence {
	e.stats.Sequences++
	return &sequence{
		engine: e, capacity: capacity, longRope: e.model.Config.LongRope(capacity),
		next: nextToken{token: sampling.NoToken}, argmax: true, samplingIndex: noSamplingState, slot: noSlot,
	}
}

func (s *sequence) Len() int { return s.length }
func (s *sequence) Cap() int { return s.capacity }

// usable returns an error if the sequence is closed or swapped out.
func (s *sequence) usable() error {
	switch {
	case s.closed:
		return fmt.Errorf("accel: sequence: %w", model.ErrClosed)
	case s.swapped:
		return fmt.Errorf("accel: sequence: it is swapped out")
	}
	return nil
}

// Reserve implements model.Sequence. If n is more than Len and the last page is partly filled and shared, Reserve copies that
// page.
func (s *sequence) Reserve(n int) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := model.CheckCapacity(n, s.capacity); err != nil {
		return fmt.Errorf("accel: sequence: %w", err)
	}
	return s.reserve(n)
}

func (s *sequence) reserve(n int) error {
	copied, err := s.engine.cache.Extend(&s.table, n, s.length)
	if copied >= 0 { // the slot has the page that the copy replaces
		s.sentPages = min(s.sentPages, copied)
	}
	if err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	return nil
}

// shrink releases the pages beyond n positions.
func (s *sequence) shrink(n int) {
	s.engine.cache.Pool.Shrink(&s.table, n)
	s.sentPages = min(s.sentPages, len(s.table.Pages))
}

// Truncate implements model.Sequence. It releases the pages beyond n positions.
func (s *sequence) Truncate(n int) error {
	if err := s.usable(); err != nil {
		return err
	}
	if n < 0 || n > s.length {
		return fmt.Errorf("accel: truncate to %d: the sequence holds %d positions", n, s.length)
	}
	if n < s.length {
		s.shrink(n)
		s.truncateHistory(n)
		s.length, s.next, s.heldBy = n, nextToken{token: sampling.NoToken}, nil
	}
	return nil
}

// Fork implements model.Sequence. The sequences share all pages. The first that writes to a shared page gets a copy of it.
// If the model has recurrent states, Fork may wait for passes in flight.
func (s *sequence) Fork(n int) (model.Sequence, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if n < 0 || n > s.length {
		return nil, fmt.Errorf("accel: fork of %d: the sequence holds %d positions", n, s.length)
	}
	if err := s.awaitTokens(n); err != nil {
		return nil, err
	}
	if err := s.checkpointAtEnd(n); err != nil {
		return nil, err
	}
	f := s.engine.newSequence(s.capacity)
	f.table, f.length = s.engine.cache.Share(&s.table, n), n
	f.past = slices.Clip(s.past[:min(n, len(s.past))])
	f.setCheckpoints(s.checkpointsUntil(n))
	for _, p := range s.engine.inFlight {
		p.forked(s, f)
	}
	return f, nil
}

// SwapOut implements model.Sequence. It waits for all steps. Pages that other sequences share
// are copied too.
func (s *sequence) SwapOut() error {
	if err := s.usable(); err != nil {
		return err
	}
	e := s.engine
	e.drain()
	if err := e.usable(); err != nil {
		return err
	}
	host, err := e.cache.Save(&s.table, s.length)
	if err != nil {
		return e.deviceFailed(err)
	}
	if s.hostRecurrentState, err = s.saveRecurrentState(); err != nil {
		return e.deviceFailed(err)
	}
	e.recurrentStates.drop(s.current)
	s.shrink(0)
	s.swappedKV, s.swapped = host, true
	e.stats.SwapOuts++
	return nil
}

// SwapIn implements model.Sequence. It waits for all steps. After an error the sequence is still
// swapped out.
func (s *sequence) SwapIn() error {
	e := s.engine
	switch {
	case s.closed:
		return s.usable()
	case !s.swapped:
		return fmt.Errorf("accel: sequence: it is not swapped out")
	}
	e.drain()
	if err := e.usable(); err != nil {
		return err
	}
	table, err := e.cache.Load(s.swappedKV, s.length)
	if errors.Is(err, model.ErrCacheFull) {
		return fmt.Errorf("accel: %w", err)
	}
	if err != nil {
		return e.deviceFailed(err)
	}
	s.table = table
	if err := s.loadRecurrentState(s.hostRecurrentState); err != nil {
		s.shrink(0)
		return e.deviceFailed(err)
	}
	s.swappedKV, s.hostRecurrentState, s.swapped = nil, nil, false
	return nil
}

// Close implements model.Sequence. It releases all pages. It can be called after the engine's
// Close.
func (s *sequence) Close() error {
	if !s.closed {
		s.shrink(0)
		s.dropSamplingState()
		s.engine.recurrentStates.drop(s.current)
		s.setCheckpoints(nil)
		s.past, s.current, s.hostRecurrentState = nil, nil, nil
		s.closed, s.length, s.swappedKV, s.heldLogits, s.sampler, s.heldBy = true, 0, nil, nil, nil, nil
		s.engine.stats.Sequences--
	}
	return nil
}
