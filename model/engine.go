package model

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/model/sampling"
)

// Engine computes one model for many sequences. ref.New and accel.New return engines.
//
// One goroutine at a time may use an engine and its sequences. Package generate shares an
// engine among any number of goroutines.
type Engine interface {
	// Model returns the model that the engine computes.
	Model() *Model
	// Limits returns how much a step and the cache can hold.
	Limits() Limits
	// NewSequence returns an empty sequence of at most capacity positions. 0 means the
	// model's context, which capacity must not exceed.
	NewSequence(capacity int) (Sequence, error)
	// Step queues rows, which belong to different sequences, and appends
	// their tokens to the sequences. The results of a row never depend on other rows.
	//
	// Step n+1 may be queued before Wait of step n. Once ctx ends, the engine may stop a pass
	// that runs; all of its rows then fail. Errors: ErrEmptyPrompt, ErrContextLimit,
	// ErrBadToken, ErrCacheFull, ErrClosed, ctx.Err(). After an error no row is queued and each
	// sequence is unchanged, but choices that its rows held may be dropped. If Step waits for an
	// earlier pass that fails, it returns that error, and sequences are as after its Wait.
	Step(ctx context.Context, rows []Row) (Pass, error)
	// Choose queues a pass that chooses the tokens of rows with Hold. It may be called as soon as
	// their step is queued, and the next Step as soon as Choose returns. A choice is held until
	// Choose makes it, or until Truncate or another row of its sequence drops it. Other steps,
	// SetSampling, SwapOut and SwapIn keep it.
	//
	// Errors: ErrClosed, ctx.Err(), and those of impossible choices. After these errors all
	// choices are still held. If the device fails, the choices are dropped.
	Choose(ctx context.Context, choices []Choose) (Pass, error)
	// Close releases everything that the engine holds, but not the model. Close its
	// sequences first.
	Close() error
}

// Limits are the sizes of an engine.
type Limits struct {
	Sequences    int // rows of one generated token each, per step
	PromptTokens int // tokens of prompt rows, per step
	PageTokens   int // positions per page of the KV cache
	Pages        int // pages of the KV cache; 0: as many as the host's memory holds
	FreePages    int // pages that no sequence holds at present
	// Async means that Step returns while its pass still runs, so that step n+1 should be queued
	// before Wait of step n.
	Async bool
}

// Row is a sequence's part of a step.
type Row struct {
	Sequence Sequence
	// Tokens continue the sequence. Nil means the token of the sequence's last row, also while
	// the pass that chooses it still runs.
	Tokens []int
	// Prompt marks tokens of a prompt: they are counted against Limits.PromptTokens. A token has
	// the same bits either way, and however a prompt is cut into rows.
	Prompt bool
	Want   Want
	// Hold leaves the choice of the token to Engine.Choose. It has no effect with WantNothing and WantHidden.
	Hold bool
}

// Choose is the choice for a row with Hold. Engine.Choose does not keep its slices.
type Choose struct {
	Sequence Sequence
	Mask     []uint32  // bit id%32 of element id/32 permits a token; nil permits all
	Logits   []float32 // [vocab] replaces the logits; nil: those of the row
}

// Check returns an error if Mask or Logits do not have the size that a vocabulary needs.
func (c *Choose) Check(vocab int) error {
	if n := sampling.MaskLen(vocab); c.Mask != nil && len(c.Mask) != n {
		return fmt.Errorf("Mask: %d elements, want %d", len(c.Mask), n)
	}
	if c.Logits != nil && len(c.Logits) != vocab {
		return fmt.Errorf("Logits: %d, want %d", len(c.Logits), vocab)
	}
	return nil
}

// Want selects the results of a row.
type Want int

// The results that a row can have.
const (
	WantNothing Want = iota // fill the cache only
	WantToken               // the token that follows, chosen by the sequence's sampling parameters
	WantLogits              // the token, and the logits of the last position
	WantAll                 // the token, and the logits of every position
	WantHidden              // the states of every position after the final norm; no token
)

// Pass is a queued call of Step or Choose.
type Pass interface {
	// Wait waits until the pass has ended and returns its results, one per row. They are valid until two
	// later calls of Step, or three of Step and Choose together. After an error, each sequence of
	// the pass and of later passes has the length that it had before the pass.
	Wait() ([]Result, error)
}

// Result is the result of a row.
type Result struct {
	sampling.Choice
	Logits []float32 // [vocab] with WantLogits, [positions, vocab] with WantAll, else nil
	Hidden []float32 // [positions, width] with WantHidden, else nil
}

// Sequence is the cached part of a text, with the parameters that choose its next token.
type Sequence interface {
	// Len is the number of positions, those of queued passes included.
	Len() int
	// Cap is the largest number of positions.
	Cap() int
	// Reserve makes room in the cache for n positions. If there are too few pages, the error
	// is a *CacheFullError, and the sequence is unchanged.
	Reserve(n int) error
	// Truncate drops positions n and later; n must be in [0, Len].
	Truncate(n int) error
	// Fork returns a sequence of the same first n positions and the same capacity. Both share
	// memory as long as neither writes to it.
	Fork(n int) (Sequence, error)
	// SetSampling sets the parameters that choose the sequence's tokens, and the tokens that
	// its penalties count so far. Later tokens are counted as rows choose them.
	SetSampling(p *sampling.Params, prompt, generated []int) error
	// SwapOut moves the sequence to host memory, so that it holds no pages. Only SwapIn,
	// Close, Len and Cap may follow.
	SwapOut() error
	// SwapIn moves the sequence back. The error may be a *CacheFullError.
	SwapIn() error
	// Close releases the sequence. Closing again does nothing.
	Close() error
}

// Resumer is an optional interface of a Sequence. A model with recurrent states has them at few positions. A fork at another
// one computes tokens again before its first row.
type Resumer interface {
	// ResumesAt returns the largest position, at most n, where a fork computes nothing again. If the sequence is
	// shorter than n, the answer is for the time when it has more positions than n, or 0 if that is not known.
	ResumesAt(n int) int
}

// ErrCacheFull is the sentinel of CacheFullError.
var ErrCacheFull = errors.New("KV cache is full")

// CacheFullError means that the sequences together need more pages than the KV cache has.
type CacheFullError struct {
	Need, Free, Pages int // pages that were asked for, that are free, and of the cache
	PageTokens        int // positions per page
}

// Error gives the number of pages that are needed, free and in all.
func (e *CacheFullError) Error() string {
	return fmt.Sprintf("%v: need %d pages of %d positions, %d of %d free", ErrCacheFull, e.Need, e.PageTokens, e.Free, e.Pages)
}

// Unwrap returns ErrCacheFull.
func (e *CacheFullError) Unwrap() error { return ErrCacheFull }

// Forward runs a step of one row and waits for it. It cuts a prompt into steps of at most
// Limits.PromptTokens. After an error the sequence has its old length. If a step of the prompt had run, the next row
// must have Tokens.
func Forward(ctx context.Context, e Engine, row Row) (Result, error) {
	before, tokens, want := row.Sequence.Len(), row.Tokens, row.Want
	var logits, hidden []float32
	for most := e.Limits().PromptTokens; ; tokens = tokens[len(row.Tokens):] {
		row.Tokens, row.Want = tokens, want
		if row.Prompt && len(tokens) > most {
			row.Tokens = tokens[:most]
			if want != WantAll && want != WantHidden {
				row.Want = WantNothing
			}
		}
		out, err := step(ctx, e, row)
		if err != nil {
			return Result{}, errors.Join(err, row.Sequence.Truncate(before))
		}
		hidden = append(hidden, out.Hidden...)
		logits = append(logits, out.Logits...)
		if len(row.Tokens) == len(tokens) {
			out.Logits, out.Hidden = logits, hidden
			return out, nil
		}
	}
}

// step runs a step of one row.
func step(ctx context.Context, e Engine, row Row) (Result, error) {
	pass, err := e.Step(ctx, []Row{row})
	if err != nil {
		return Result{}, err
	}
	results, err := pass.Wait()
	if err != nil {
		return Result{}, err
	}
	return results[0], nil
}

// Argmax returns the index of the largest logit, the lowest index on a tie. NaN never
// wins. It returns -1 if no logit is larger than -Inf.
func Argmax(logits []float32) int {
	best, at := float32(math.Inf(-1)), -1
	for i, x := range logits {
		if x > best {
			best, at = x, i
		}
	}
	return at
}
