package accel

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstep-go/lockstep/accel/internal/kv"
	"github.com/lockstep-go/lockstep/accel/internal/plan"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

// ErrKVFull is the sentinel of KVFullError.
var ErrKVFull = errors.New("KV cache is full")

// KVFullError means that the sequences together need more pages than the KV cache has. The
// session is unchanged, and can go on when another is closed or truncated.
type KVFullError struct {
	Need  int // pages that were asked for
	Free  int // pages that were free, or that swapping out snapshots could free
	Pages int // pages of the cache
}

// Error gives the number of pages that are needed, available and in all.
func (e *KVFullError) Error() string {
	return fmt.Sprintf("%v: need %d pages of %d positions, %d of %d available", ErrKVFull, e.Need, attention.PageTokens, e.Free, e.Pages)
}

// Unwrap returns ErrKVFull.
func (e *KVFullError) Unwrap() error { return ErrKVFull }

// session is one sequence.
type session struct {
	engine   *Engine
	capacity int
	longRope bool     // uses the RoPE factors for long contexts
	length   int      // positions
	table    kv.Table // pages of the cache
	logits   []float32
	closed   bool

	request   request // the decode step that it waits for
	slot      int     // its slot in the last step; noSlot once its cache changed otherwise
	committed bool    // whether this call of Forward added the page that was reserved for the step that runs ahead
}

// noSlot sorts after all slots.
const noSlot = maxSlots

var _ model.Session = (*session)(nil)

// Len implements model.Session.
func (s *session) Len() int { return s.length }

// Cap implements model.Session.
func (s *session) Cap() int { return s.capacity }

// Forward implements model.Session; see Options.Prefill. Besides the errors listed there,
// it returns *KVFullError and device errors. After driver.ErrDeviceLost every call fails.
//
// If ctx ends, a prompt stops before its next chunk, and on the emulator within a kernel. A GPU
// finishes what is queued: at most a chunk, or a step that other sequences may share.
func (s *session) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	if err := s.check(tokens); err != nil {
		return model.Output{}, err
	}
	if err := ctx.Err(); err != nil {
		return model.Output{}, err
	}
	defer func() { // after an error, or if a tap or a timer panics
		s.engine.cache.Pool.Shrink(&s.table, s.length)
	}()
	out, err := model.Output{}, s.extend(ctx, s.length+len(tokens))
	if err == nil {
		out, err = s.compute(ctx, tokens, want)
	}
	if ended := ctx.Err(); ended != nil && errors.Is(err, driver.ErrInterrupted) {
		err = ended
	}
	if err != nil {
		return model.Output{}, err
	}
	s.length += len(tokens)
	return out, nil
}

func (s *session) check(tokens []int) error {
	if s.closed {
		return fmt.Errorf("accel: %w", model.ErrClosed)
	}
	if need := s.length + len(tokens); need > s.capacity {
		return fmt.Errorf("accel: %w", model.CheckCapacity(need, s.capacity))
	}
	if err := model.CheckTokens(tokens, s.engine.model.Config.Vocab); err != nil {
		return fmt.Errorf("accel: %w", err)
	}
	return nil
}

// extend grows the session's table to n positions, and makes sure that nothing else shares
// the pages that will be written. It locks the engine's mutex only if it must swap out
// snapshots or copy a page.
func (s *session) extend(ctx context.Context, n int) error {
	e, pool := s.engine, s.engine.cache.Pool
	s.committed = pool.Commit(&s.table, n)
	full := pool.Grow(&s.table, n)
	sharesLast := s.length%attention.PageTokens != 0 && pool.Shared(s.table.Pages[s.length/attention.PageTokens])
	if full == nil && !sharesLast {
		return nil
	}
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.end()
	return e.cacheFailed(e.cache.Extend(&s.table, n, s.length))
}

// cacheFailed handles an error of the cache: a full cache is a *KVFullError, anything else
// an error of the device. The mutex is held.
func (e *Engine) cacheFailed(err error) error {
	var full *kv.FullError
	switch {
	case errors.As(err, &full):
		return fmt.Errorf("accel: %w", &KVFullError{Need: full.Need, Free: full.Free, Pages: full.Pages})
	case errors.Is(err, model.ErrClosed):
		return fmt.Errorf("accel: %w", err)
	}
	return e.failed(err)
}

// compute runs the tokens through the model. It does not change the length.
func (s *session) compute(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	e := s.engine
	s.logits = slices.Grow(s.logits[:0], logitRows(want, len(tokens))*e.model.Config.Vocab) // before the mutex is held: it may be large
	prefill := e.options.Prefill == PrefillF16 && (s.length == 0 || len(tokens) > 1)
	if len(tokens) == 1 && !prefill {
		return e.stepOne(ctx, slot{s, tokens[0], s.length}, want)
	}
	compute := e.exactChunk
	if prefill {
		compute = e.prefillChunk
	}
	return s.prompt(ctx, tokens, want, compute)
}

// prompt computes tokens chunk by chunk.
func (s *session) prompt(ctx context.Context, tokens []int, want model.Want, compute func(context.Context, []slot, model.Want, *model.Output) error) (out model.Output, err error) {
	s.slot = noSlot // after an error, some keys and values may be written
	batch := make([]slot, len(tokens))
	for i, t := range tokens {
		batch[i] = slot{s, t, s.length + i}
	}
	for len(batch) > 0 {
		n := min(len(batch), s.engine.options.Chunk)
		chunkWant := want
		if n < len(batch) && want != model.WantAll {
			chunkWant = model.WantNothing
		}
		if err := compute(ctx, batch[:n], chunkWant, &out); err != nil {
			return model.Output{}, err
		}
		batch = batch[n:]
	}
	if want != model.WantNothing && want != model.WantGreedy {
		out.Logits = s.logits
	}
	return out, nil
}

// exactChunk computes a chunk of one sequence with the decode kernels.
func (e *Engine) exactChunk(ctx context.Context, batch []slot, want model.Want, out *model.Output) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.end()
	if err := e.step(ctx, batch, want != model.WantNothing); err != nil {
		return err
	}
	if want == model.WantNothing {
		return e.failed(e.stream.Synchronize())
	}
	last := len(batch) - 1
	if err := batch[0].session.readResults(len(batch), want); err != nil {
		return err
	}
	out.Greedy = e.inputs.stepToken(last, batch[last].position)
	return nil
}

// prefillChunk computes a chunk of one sequence with the prefill kernels.
func (e *Engine) prefillChunk(ctx context.Context, batch []slot, want model.Want, out *model.Output) error {
	if err := e.begin(ctx); err != nil {
		return err
	}
	defer e.end()
	if err := e.chunk(ctx, batch); err != nil {
		return err
	}
	from := len(batch) - 1
	switch want {
	case model.WantNothing:
		return e.failed(e.stream.Synchronize())
	case model.WantAll:
		from = 0
	}
	for from < len(batch) {
		n := min(plan.PromptLogitRows, len(batch)-from)
		if err := e.promptLogits(ctx, batch[from:from+n], from); err != nil {
			return err
		}
		if err := batch[0].session.readResults(n, want); err != nil {
			return err
		}
		out.Greedy = e.inputs.promptToken(n - 1)
		from += n
	}
	return nil
}

// readResults waits for n queued rows of logits and appends the wanted ones to the session's
// logits.
func (s *session) readResults(n int, want model.Want) error {
	var rows []int
	for i := range n {
		if want == model.WantAll || want == model.WantLast && i == n-1 {
			rows = append(rows, i)
		}
	}
	return s.engine.failed(s.engine.readLogits(s.appendLogits(len(rows)), rows))
}

// logitRows returns how many rows of logits are wanted of n tokens.
func logitRows(want model.Want, n int) int {
	switch want {
	case model.WantAll:
		return n
	case model.WantLast:
		return 1
	}
	return 0
}

// appendLogits appends n rows to the session's logits, which have the capacity for them.
func (s *session) appendLogits(n int) (rows [][]float32) {
	have, vocab := len(s.logits), s.engine.model.Config.Vocab
	s.logits = s.logits[:have+n*vocab]
	for i := range n {
		rows = append(rows, s.logits[have+i*vocab:][:vocab])
	}
	return rows
}

// Truncate implements model.Session. It releases the pages beyond n positions.
func (s *session) Truncate(n int) error {
	if s.closed {
		return fmt.Errorf("accel: %w", model.ErrClosed)
	}
	if n < 0 || n > s.length {
		return fmt.Errorf("accel: truncate to %d: the session holds %d positions", n, s.length)
	}
	if n < s.length {
		s.engine.cache.Pool.Shrink(&s.table, n)
		s.length, s.slot = n, noSlot
	}
	return nil
}

// Close implements model.Session. It releases all pages.
func (s *session) Close() error {
	s.closed, s.length, s.logits = true, 0, nil
	s.engine.cache.Pool.Shrink(&s.table, 0)
	return nil
}
