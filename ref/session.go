package ref

import (
	"context"
	"fmt"

	"github.com/lockstep-go/lockstep/model"
)

// chunk is how many positions are computed together: enough to share the cost of
// dequantizing, few enough that canceling is prompt and memory small.
const chunk = 32

// Session is one sequence. It implements model.Session.
type Session struct {
	engine   *Engine
	capacity int
	length   int
	cache    cache
	release  func() // of the model
	closed   bool
}

var _ model.Session = (*Session)(nil)

// Len is the number of positions in the cache.
func (s *Session) Len() int { return s.length }

// Cap is the most positions that the session takes.
func (s *Session) Cap() int { return s.capacity }

// Forward appends tokens and computes what is wanted; see model.Session.
func (s *Session) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	if err := s.check(tokens); err != nil {
		return model.Output{}, err
	}
	// Weights behind a closed file cannot be touched, not even inside a guard.
	if err := s.engine.model.File.Check(); err != nil {
		return model.Output{}, err
	}
	before := s.length
	var logits []float32
	for from := 0; from < len(tokens); from += chunk {
		to := min(from+chunk, len(tokens))
		part, err := s.forward(ctx, tokens[from:to], chunkWant(want, to == len(tokens)))
		if err != nil {
			s.Truncate(before) // cannot fail: the positions were there before
			return model.Output{}, err
		}
		logits = append(logits, part...)
	}
	// A file cut short inside its last page reads as zeros, without a fault.
	if err := s.engine.model.File.Check(); err != nil {
		s.Truncate(before)
		return model.Output{}, err
	}
	if want == model.WantNothing {
		return model.Output{}, nil
	}
	vocab := s.engine.model.Config.Vocab
	out := model.Output{Greedy: model.Argmax(logits[len(logits)-vocab:])}
	if want != model.WantGreedy {
		out.Logits = logits
	}
	return out, nil
}

// chunkWant is what a chunk must compute so that the whole gives want.
func chunkWant(want model.Want, last bool) model.Want {
	switch {
	case want == model.WantAll:
		return model.WantAll
	case want == model.WantNothing || !last:
		return model.WantNothing
	default:
		return model.WantLast
	}
}

func (s *Session) check(tokens []int) error {
	if s.closed {
		return fmt.Errorf("ref: session: %w", model.ErrClosed)
	}
	if need := s.length + len(tokens); need > s.capacity {
		return fmt.Errorf("ref: %w", &model.ContextError{Need: need, Limit: s.capacity})
	}
	if err := model.CheckTokens(tokens, s.engine.model.Config.Vocab); err != nil {
		return fmt.Errorf("ref: %w", err)
	}
	return nil
}

// Truncate forgets positions n and later.
func (s *Session) Truncate(n int) error {
	if s.closed {
		return fmt.Errorf("ref: session: %w", model.ErrClosed)
	}
	if n < 0 || n > s.length {
		return fmt.Errorf("ref: truncate to %d: the session holds %d positions", n, s.length)
	}
	s.cache = s.cache.prefix(n, &s.engine.model.Config)
	s.length = n
	return nil
}

// Snapshot copies the first n positions.
func (s *Session) Snapshot(n int) (model.Snapshot, error) {
	if s.closed {
		return nil, fmt.Errorf("ref: session: %w", model.ErrClosed)
	}
	if n < 0 || n > s.length {
		return nil, fmt.Errorf("ref: snapshot of %d: the session holds %d positions", n, s.length)
	}
	return &snapshot{
		engine: s.engine, longRope: s.longRope(), length: n,
		cache: copyOf(s.cache, n, &s.engine.model.Config),
	}, nil
}

func (s *Session) longRope() bool { return s.engine.model.Config.LongRope(s.capacity) }

// Restore replaces the cache by the first n positions of a snapshot of a session of
// the same engine.
func (s *Session) Restore(from model.Snapshot, n int) error {
	snap, ok := from.(*snapshot)
	switch {
	case s.closed:
		return fmt.Errorf("ref: session: %w", model.ErrClosed)
	case !ok || snap.engine != s.engine:
		return fmt.Errorf("ref: restore: the snapshot is of another engine")
	case snap.closed:
		return fmt.Errorf("ref: restore: snapshot: %w", model.ErrClosed)
	case snap.longRope != s.longRope():
		return fmt.Errorf("ref: restore: one of the two sessions rotates by the factors for long contexts, the other does not")
	case n < 0 || n > snap.length:
		return fmt.Errorf("ref: restore %d: the snapshot holds %d positions", n, snap.length)
	case n > s.capacity:
		return fmt.Errorf("ref: restore: %w", &model.ContextError{Need: n, Limit: s.capacity})
	}
	s.cache = copyOf(snap.cache, n, &s.engine.model.Config)
	s.length = n
	return nil
}

// Close gives the cache back.
func (s *Session) Close() error {
	s.closed, s.cache, s.length = true, cache{}, 0
	s.release()
	return nil
}
