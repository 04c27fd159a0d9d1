package ref

import (
	"context"
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

const (
	// checkpointTokens is the distance of the positions, counted from 0, after which a sequence keeps its states.
	checkpointTokens = 256
	// maxCheckpoints is the number of checkpoints that a sequence keeps, the latest ones.
	maxCheckpoints = 4
	// unknownPosition means that states are those of no position, because a forward pass failed.
	unknownPosition = -1
)

// states are the states of a sequence's Gated DeltaNets, by layer; nil in layers with attention. Unlike keys and values
// they are those of one position only. To go back to another, a sequence computes its tokens again from the last
// checkpoint before it. The bits are the same, because each sum has one order.
type states []*deltaNetState

// checkpoint is the states after a number of positions. They are not changed.
type checkpoint struct {
	position int
	states   states
}

// newStates returns the states before the first position; nil if the model has none.
func newStates(cfg *model.Config) states {
	if cfg.Recurrent == nil {
		return nil
	}
	out := make(states, cfg.Layers)
	for l := range out {
		if cfg.IsRecurrent(l) {
			out[l] = newDeltaNetState(&cfg.DeltaNet)
		}
	}
	return out
}

func (s states) clone() states {
	out := make(states, len(s))
	for l, x := range s {
		if x != nil {
			out[l] = &deltaNetState{window: tensor{x.window.rows, x.window.cols, slices.Clone(x.window.data)}, s: slices.Clone(x.s)}
		}
	}
	return out
}

// untilCheckpoint returns how many of n further tokens come before the next checkpoint.
func (s *sequence) untilCheckpoint(n int) int {
	if s.states == nil {
		return n
	}
	return min(n, checkpointTokens-s.length%checkpointTokens)
}

// keepStates keeps the states if the sequence has the length of a checkpoint.
func (s *sequence) keepStates() {
	if s.states == nil || s.length%checkpointTokens != 0 {
		return
	}
	s.checkpoints = append(slices.Clip(s.checkpoints), checkpoint{s.length, s.states.clone()})
	s.checkpoints = s.checkpoints[max(0, len(s.checkpoints)-maxCheckpoints):]
}

// checkpointsUntil returns the checkpoints of the first n positions.
func (s *sequence) checkpointsUntil(n int) []checkpoint {
	i := len(s.checkpoints)
	for i > 0 && s.checkpoints[i-1].position > n {
		i--
	}
	return slices.Clip(s.checkpoints[:i])
}

// ResumesAt implements model.Resumer.
func (s *sequence) ResumesAt(n int) int {
	if s.states == nil || n == s.length && s.statesAt == n {
		return n
	}
	if n > s.length { // later checkpoints may replace those up to n
		return 0
	}
	if list := s.checkpointsUntil(n); len(list) > 0 {
		return list[len(list)-1].position
	}
	return 0
}

// findStates makes the states those of the sequence's length. After an error the sequence is unchanged.
func (s *sequence) findStates(ctx context.Context) error {
	if s.states == nil || s.statesAt == s.length {
		return nil
	}
	cfg := &s.engine.model.Config
	again := &sequence{engine: s.engine, capacity: s.capacity}
	if n := len(s.checkpoints); n > 0 {
		last := s.checkpoints[n-1]
		again.length, again.statesAt, again.states = last.position, last.position, last.states.clone()
	} else {
		again.states = newStates(cfg)
	}
	again.cache = s.cache.prefix(again.length, cfg)
	for again.length < s.length {
		n := min(s.engine.chunk, s.length-again.length)
		if _, err := again.forward(ctx, s.tokens[again.length:][:n], model.WantNothing); err != nil {
			return err
		}
	}
	s.states, s.statesAt = again.states, s.length
	return nil
}
