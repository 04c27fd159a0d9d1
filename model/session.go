package model

import (
	"context"
	"math"
)

// Engine computes with one model. ref.New and accel.New return one.
// Any goroutine may call it.
type Engine interface {
	// Model is the model that the engine computes.
	Model() *Model
	// NewSession returns an empty session that holds at most capacity positions;
	// 0 means the model's context. The capacity may not exceed that context.
	NewSession(capacity int) (Session, error)
	// Close gives back everything that the engine holds, but not the model.
	Close() error
}

// Want says what Forward is to return.
type Want int

const (
	WantNothing Want = iota // fill the cache only
	WantGreedy              // the id of the largest logit at the last position; lowest id on a tie, NaN never
	WantLast                // logits of the last position
	WantAll                 // logits of every position given
)

// Output is what Forward computed.
type Output struct {
	Greedy int       // WantGreedy, WantLast and WantAll: argmax of the last position
	Logits []float32 // WantLast: [vocab]; WantAll: [positions, vocab]; valid until the next call
}

// Session is one sequence with its KV cache: the seam between the generation loop
// and an engine. A session is used by one goroutine at a time; different sessions
// may run at once, and their results do not depend on each other.
//
// Forward(a, b, c, …) fills the cache and gives logits bit for bit as calls with
// parts of at least two tokens each would. An engine whose steps are prefills too
// (ref; accel.PrefillExact) gives the same bits for any parts; else a single token behind
// others is a step, which may round differently than a prompt. Neighbors never
// matter. An error leaves the length as it was, and the session usable.
type Session interface {
	// Len is the number of positions in the cache.
	Len() int
	// Cap is the most positions that the cache holds.
	Cap() int
	// Forward appends tokens at positions Len, Len+1, … and computes what is
	// wanted. Errors: ErrEmptyPrompt for no tokens, *ContextError when they do
	// not fit, *TokenError for an id outside the vocabulary, ctx.Err().
	Forward(ctx context.Context, tokens []int, want Want) (Output, error)
	// Truncate forgets positions n and later. n must be in [0, Len].
	Truncate(n int) error
	// Snapshot copies the first n positions, to host memory or to the engine's own. The
	// caller must close the snapshot.
	Snapshot(n int) (Snapshot, error)
	// Restore replaces the cache by the first n positions of a snapshot that a
	// session of the same engine took.
	Restore(s Snapshot, n int) error
	// Close gives the cache back. Only Close may be called after it.
	Close() error
}

// Snapshot is a read-only copy of the first positions of a session's KV cache.
// Any goroutines may restore from it at once. The owner must close it, but not
// while a Restore from it runs; it may outlive the session and the engine.
type Snapshot interface {
	// Len is the number of positions.
	Len() int
	// Bytes is the memory held on the host and on the device, in bytes.
	Bytes() int64
	// Close releases the memory. A Restore from a closed snapshot returns
	// ErrClosed; closing it again does nothing.
	Close() error
}

// Argmax is the index of the largest logit, the lowest on a tie. NaN never wins.
// It is -1 when no logit is larger than -Inf: there is nothing to choose.
func Argmax(logits []float32) int {
	best, at := float32(math.Inf(-1)), -1
	for i, x := range logits {
		if x > best {
			best, at = x, i
		}
	}
	return at
}
