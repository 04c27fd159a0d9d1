package ref

import (
	"context"
	"fmt"

	"github.com/lockstep-go/lockstep/model"
)

// session is one sequence. It implements model.Session, whose comments apply.
type session struct {
	engine   *Engine
	capacity int // positions
	length   int // positions in the cache
	cache    cache
	release  func() // releases the model
	closed   bool
}

func (s *session) Len() int { return s.length }
func (s *session) Cap() int { return s.capacity }

func (s *session) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	if err := s.check(tokens); err != nil {
		return model.Output{}, err
	}
	before, done := s.length, false
	defer func() {
		if !done { // an error, or a panic of Options.Tap
			s.truncate(before)
		}
	}()
	logits, err := s.chunks(ctx, tokens, want)
	if err != nil {
		return model.Output{}, err
	}
	done = true
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

// chunks runs forward on chunk after chunk and returns the wanted logits.
func (s *session) chunks(ctx context.Context, tokens []int, want model.Want) ([]float32, error) {
	file, chunk := s.engine.model.File, s.engine.chunk
	if err := file.Check(); err != nil { // gguf.Guard cannot recover from a read of a closed file
		return nil, err
	}
	var logits []float32
	for from := 0; from < len(tokens); from += chunk {
		to := min(from+chunk, len(tokens))
		part, err := s.forward(ctx, tokens[from:to], chunkWant(want, to == len(tokens)))
		if err != nil {
			return nil, err
		}
		logits = append(logits, part...)
	}
	// If the file became shorter within its last page, reads gave zeros without a fault.
	return logits, file.Check()
}

// chunkWant returns what one chunk must compute so that all chunks together give want.
// Except with WantAll, only the last chunk computes logits.
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

func (s *session) check(tokens []int) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	if err := model.CheckCapacity(s.length+len(tokens), s.capacity); err != nil {
		return fmt.Errorf("ref: forward: %w", err)
	}
	if err := s.engine.need.checkCache(s.length + len(tokens)); err != nil {
		return fmt.Errorf("ref: forward: %w", err)
	}
	if err := model.CheckTokens(tokens, s.engine.model.Config.Vocab); err != nil {
		return fmt.Errorf("ref: forward: %w", err)
	}
	return nil
}

func (s *session) checkOpen() error {
	if s.closed {
		return fmt.Errorf("ref: session: %w", model.ErrClosed)
	}
	return nil
}

func (s *session) Truncate(n int) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	if n < 0 || n > s.length {
		return fmt.Errorf("ref: truncate to %d: the session holds %d positions", n, s.length)
	}
	s.truncate(n)
	return nil
}

func (s *session) truncate(n int) {
	s.cache = s.cache.prefix(n, &s.engine.model.Config)
	s.length = n
}

func (s *session) Snapshot(n int) (model.Snapshot, error) {
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	if n < 0 || n > s.length {
		return nil, fmt.Errorf("ref: snapshot of %d: the session holds %d positions", n, s.length)
	}
	return &snapshot{
		engine:   s.engine,
		longRope: s.longRope(),
		length:   n,
		cache:    s.cache.clone(n, &s.engine.model.Config),
	}, nil
}

func (s *session) longRope() bool { return s.engine.model.Config.LongRope(s.capacity) }

func (s *session) Restore(from model.Snapshot, n int) error {
	if err := s.checkOpen(); err != nil {
		return err
	}
	snap, ok := from.(*snapshot)
	switch {
	case !ok || snap.engine != s.engine:
		return fmt.Errorf("ref: restore: the snapshot is of another engine")
	case snap.closed:
		return fmt.Errorf("ref: restore: snapshot: %w", model.ErrClosed)
	case snap.longRope != s.longRope():
		return fmt.Errorf("ref: restore: only one of the two sessions uses the RoPE factors for long contexts")
	case n < 0 || n > snap.length:
		return fmt.Errorf("ref: restore %d: the snapshot holds %d positions", n, snap.length)
	}
	if err := model.CheckCapacity(n, s.capacity); err != nil {
		return fmt.Errorf("ref: restore: %w", err)
	}
	s.cache = snap.cache.clone(n, &s.engine.model.Config)
	s.length = n
	return nil
}

func (s *session) Close() error {
	s.closed, s.cache, s.length = true, nil, 0
	s.release()
	return nil
}
