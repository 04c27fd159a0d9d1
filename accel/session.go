package accel

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

// session is one sequence. It implements model.Session.
type session struct {
	engine   *Engine
	capacity int
	long     bool     // rotates by the factors for long contexts
	length   int      // positions that count
	pages    []uint32 // of the cache
	logits   []float32
	closed   bool

	request request // the step that it waits for
	place   int     // its row of the last step; noPlace once its cache changed otherwise
	ahead   bool    // its last page is one that it was promised, and got with this call
}

// noPlace is behind all places.
const noPlace = mostRows

var _ model.Session = (*session)(nil)

// Len is the number of positions in the cache.
func (s *session) Len() int { return s.length }

// Cap is the most positions that the session takes.
func (s *session) Cap() int { return s.capacity }

// Forward appends tokens and computes what is wanted; see model.Session and
// Options.Prefill. Beyond the errors of model.Session there are *KVFullError and those of
// the device; after driver.ErrDeviceLost every call fails with it.
func (s *session) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	if err := s.check(tokens); err != nil {
		return model.Output{}, err
	}
	if err := ctx.Err(); err != nil {
		return model.Output{}, err
	}
	out, err := model.Output{}, s.reserve(s.length+len(tokens))
	if err == nil {
		out, err = s.compute(ctx, tokens, want)
	}
	if err != nil {
		s.pages = s.engine.pool.shrink(s.pages, s.length)
		return model.Output{}, err
	}
	s.length += len(tokens)
	return out, nil
}

// reserve gets pages for n positions, of which those that will be written are the
// session's alone.
func (s *session) reserve(n int) error {
	e, last := s.engine, s.length/page
	s.ahead = e.pool.redeem(s, n)
	pages, full := e.pool.grow(s.pages, n)
	s.pages = pages
	shared := s.length%page != 0 && e.pool.shared(pages[last])
	if full == nil && !shared {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.usable()
	if err == nil {
		s.pages, err = e.extend(s.pages, n, last)
	}
	return err
}

func (s *session) check(tokens []int) error {
	if s.closed {
		return fmt.Errorf("accel: %w", model.ErrClosed)
	}
	if need := s.length + len(tokens); need > s.capacity {
		return fmt.Errorf("accel: %w", &model.ContextError{Need: need, Limit: s.capacity})
	}
	if err := model.CheckTokens(tokens, s.engine.model.Config.Vocab); err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	return nil
}

// compute runs the tokens through the model, and leaves the length as it is.
func (s *session) compute(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	e := s.engine
	s.logits = slices.Grow(s.logits[:0], logitRows(want, len(tokens))*e.cfg.Vocab) // not with the device held: it may be large
	fast := e.o.Prefill == PrefillF16 && (s.length == 0 || len(tokens) > 1)
	if len(tokens) == 1 && !fast {
		return e.stepOne(ctx, row{s, tokens[0], s.length}, want)
	}
	return s.prefill(ctx, tokens, want, fast)
}

// prefill computes tokens in chunks.
func (s *session) prefill(ctx context.Context, tokens []int, want model.Want, fast bool) (out model.Output, err error) {
	e := s.engine
	s.place = noPlace // it may be given up with a part of its keys and values written
	rows := make([]row, len(tokens))
	for i, t := range tokens {
		rows[i] = row{s, t, s.length + i}
	}
	part := e.stepPart
	if fast {
		part = e.chunkPart
	}
	for len(rows) > 0 {
		n := min(len(rows), e.o.Chunk)
		wanted := want
		if n < len(rows) && want != model.WantAll {
			wanted = model.WantNothing
		}
		if err := part(ctx, rows[:n], wanted, &out); err != nil {
			return model.Output{}, err
		}
		rows = rows[n:]
	}
	if want != model.WantNothing && want != model.WantGreedy {
		out.Logits = s.logits
	}
	return out, nil
}

// begin takes the device for a part of a sequence; other sequences go on between parts.
// The caller unlocks, even after an error.
func (e *Engine) begin(ctx context.Context) error {
	e.mu.Lock()
	if err := e.usable(); err != nil {
		return err
	}
	return ctx.Err()
}

// stepPart computes rows of one sequence with the kernels of decoding.
func (e *Engine) stepPart(ctx context.Context, rows []row, want model.Want, out *model.Output) error {
	defer e.mu.Unlock()
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := e.step(ctx, rows, want != model.WantNothing); err != nil {
		return err
	}
	if want == model.WantNothing {
		return e.failed(e.stream.Synchronize())
	}
	return rows[0].session.take(len(rows), e.stepToken(len(rows)-1, rows[len(rows)-1].position), want, out)
}

// chunkPart computes rows of one sequence with the kernels of prefill.
func (e *Engine) chunkPart(ctx context.Context, rows []row, want model.Want, out *model.Output) error {
	defer e.mu.Unlock()
	if err := e.begin(ctx); err != nil {
		return err
	}
	if err := e.chunk(ctx, rows); err != nil {
		return err
	}
	from := len(rows) - 1
	switch want {
	case model.WantNothing:
		return e.failed(e.stream.Synchronize())
	case model.WantAll:
		from = 0
	}
	for from < len(rows) {
		n := min(headColumns, len(rows)-from)
		if err := e.head(ctx, rows[from:from+n], from); err != nil {
			return err
		}
		if err := rows[0].session.take(n, e.promptToken(n-1), want, out); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// take waits for n rows whose logits were queued, and reads what is wanted of them; the token
// of the last will be at the given place.
func (s *session) take(n, token int, want model.Want, out *model.Output) error {
	var from []int
	for i := range n {
		if want == model.WantAll || want == model.WantLast && i == n-1 {
			from = append(from, i)
		}
	}
	if err := s.engine.readLogits(s.room(len(from)), from); err != nil {
		return s.engine.failed(err)
	}
	out.Greedy = s.engine.chosen(token)
	return nil
}

// logitRows is how many rows of logits are wanted of n positions.
func logitRows(want model.Want, n int) int {
	switch want {
	case model.WantAll:
		return n
	case model.WantLast:
		return 1
	}
	return 0
}

// room adds n rows to the logits, of those for which compute made room.
func (s *session) room(n int) (rows [][]float32) {
	have, vocab := len(s.logits), s.engine.cfg.Vocab
	s.logits = s.logits[:have+n*vocab]
	for i := range n {
		rows = append(rows, s.logits[have+i*vocab:][:vocab])
	}
	return rows
}

// Truncate forgets positions n and later, and gives back their pages.
func (s *session) Truncate(n int) error {
	if s.closed {
		return fmt.Errorf("accel: %w", model.ErrClosed)
	}
	if n < 0 || n > s.length {
		return fmt.Errorf("accel: truncate to %d: the session holds %d positions", n, s.length)
	}
	if n < s.length {
		s.length, s.pages, s.place = n, s.engine.pool.shrink(s.pages, n), noPlace
	}
	return nil
}

// Close gives the cache back.
func (s *session) Close() error {
	s.closed, s.length, s.logits = true, 0, nil
	s.pages = s.engine.pool.shrink(s.pages, 0)
	return nil
}
