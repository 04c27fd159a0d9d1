package model

import (
	"context"
	"math"
)

// Engine computes one model. ref.New and accel.New return engines. Any goroutine may
// call its methods.
type Engine interface {
	// Model returns the model that the engine computes.
	Model() *Model
	// NewSession returns an empty session of at most capacity positions. 0 means the
	// model's context, which capacity must not exceed.
	NewSession(capacity int) (Session, error)
	// Close releases everything that the engine holds, but not the model. Close its
	// sessions first.
	Close() error
}

// Want selects the output of Session.Forward.
type Want int

const (
	WantNothing Want = iota // fill the cache only
	WantGreedy              // the token with the largest logit at the last position
	WantLast                // the logits of the last position
	WantAll                 // the logits of every position of the call
)

// Output is the result of Session.Forward.
type Output struct {
	// Greedy is the Argmax of the last position's logits, except with WantNothing.
	Greedy int
	// Logits is [vocab] with WantLast and [positions, vocab] with WantAll, else nil. It
	// is valid until the session's next call.
	Logits []float32
}

// Session is one sequence and its KV cache. One goroutine at a time may use a session;
// different sessions may run concurrently, and never influence each other's results.
//
// A prompt may be split into several calls of Forward: with at least two tokens per
// call, cache and logits have the same bits as with one call. With calls of one token
// this holds for ref and for accel's exact prefill; otherwise a call of one token is a
// decode step, which may round differently than a prompt.
//
// A failed call leaves the length unchanged and the session usable.
type Session interface {
	// Len is the number of positions in the cache.
	Len() int
	// Cap is the largest number of positions in the cache.
	Cap() int
	// Forward appends tokens at positions Len, Len+1, … and computes the wanted output.
	// Errors: ErrEmptyPrompt, ErrContextLimit if the tokens do not fit, ErrBadToken,
	// ErrClosed, ctx.Err().
	Forward(ctx context.Context, tokens []int, want Want) (Output, error)
	// Truncate drops positions n and later; n must be in [0, Len].
	Truncate(n int) error
	// Snapshot copies the first n positions, to host memory or to the engine's own. The
	// caller must close the snapshot.
	Snapshot(n int) (Snapshot, error)
	// Restore replaces the cache by the first n positions of a snapshot from a session
	// of the same engine.
	Restore(s Snapshot, n int) error
	// Close releases the cache. Closing again does nothing.
	Close() error
}

// Snapshot is a read-only copy of the first positions of a session's KV cache. Any
// goroutines may restore from it concurrently. The owner must close it, but not while a
// Restore from it runs. It may outlive the session and the engine.
type Snapshot interface {
	// Len is the number of positions.
	Len() int
	// Bytes is the memory held on the host and on the device, in bytes.
	Bytes() int64
	// Close releases the memory. A later Restore from the snapshot returns ErrClosed.
	// Closing again does nothing.
	Close() error
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
