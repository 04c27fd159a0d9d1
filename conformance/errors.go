package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/lockstep-go/lockstep/model"
)

// errorBehaviors cover invalid requests to a session. Each gives a typed error, leaves
// the length unchanged, and the next request works.
var errorBehaviors = []Behavior{
	{"empty input", "an empty prompt is an error", emptyInput},
	{"token outside the vocabulary", "an error with the token and its index", tokenOutsideVocabulary},
	{"cache overflow", "an error with needed and available positions, and no write past the end", cacheOverflow},
	{"capacity beyond the context", "an error with both numbers", capacityBeyondContext},
	{"truncate out of range", "an error, not clamping", truncateOutOfRange},
	{"invalid restore", "too many positions, too small a session, a closed or foreign snapshot", invalidRestore},
	{"canceled before Forward", "nothing is computed", canceledBefore},
	{"canceled during Forward", "a partly written cache does not count", canceledInside},
	{"closed session", "the released cache is not used", closedSession},
}

// startedSession returns a session that holds some tokens.
func (r *fixture) startedSession(capacity int) (model.Session, []int) {
	r.t.Helper()
	s, tokens := r.session(capacity), r.tokens(6, 20)
	r.forward(s, tokens, model.WantNothing)
	return s, tokens
}

// fails demands that Forward fails with a sentinel and that the session can continue.
func (r *fixture) fails(ctx context.Context, input []int, sentinel error) error {
	r.t.Helper()
	s, tokens := r.startedSession(minContext)
	_, err := s.Forward(ctx, input, model.WantLast)
	if !errors.Is(err, sentinel) {
		r.t.Errorf("error %v, want %v", err, sentinel)
	}
	r.continues("after the error", s, tokens)
	return err
}

func emptyInput(r *fixture) {
	r.fails(r.t.Context(), nil, model.ErrEmptyPrompt)
	r.fails(r.t.Context(), []int{}, model.ErrEmptyPrompt)
}

// containsAll reports whether a text contains the values as they print.
func containsAll(text string, values ...any) bool {
	for _, v := range values {
		if !strings.Contains(text, fmt.Sprint(v)) {
			return false
		}
	}
	return true
}

func tokenOutsideVocabulary(r *fixture) {
	for _, id := range []int{-1, r.vocab, math.MaxInt} {
		err := r.fails(r.t.Context(), []int{0, 1, id, 0}, model.ErrBadToken)
		if !errors.Is(err, model.ErrBadToken) || !containsAll(err.Error(), "index 2", id, r.vocab) {
			r.t.Errorf("token %d: error %v, want an ErrBadToken with index, ID and vocabulary", id, err)
		}
	}
}

func cacheOverflow(r *fixture) {
	s, tokens := r.startedSession(10)
	_, err := s.Forward(r.t.Context(), r.tokens(5, 21), model.WantLast)
	if !errors.Is(err, model.ErrContextLimit) || !containsAll(err.Error(), 11, 10) {
		r.t.Errorf("5 tokens after 6 in 10: error %v, want an ErrContextLimit with 11 and 10", err)
	}
	r.continues("after an overflow", s, tokens)
	r.forward(s, r.tokens(2, 22), model.WantNothing)
	if _, err := s.Forward(r.t.Context(), []int{1}, model.WantGreedy); !errors.Is(err, model.ErrContextLimit) {
		r.t.Errorf("one token beyond the capacity: error %v", err)
	}
	r.length("full", s, 10)
}

func capacityBeyondContext(r *fixture) {
	limit := r.engine.Model().Config.Context
	_, err := r.engine.NewSession(limit + 1)
	if !errors.Is(err, model.ErrContextLimit) || !containsAll(err.Error(), limit+1, limit) {
		r.t.Errorf("one position more than the context: error %v, want an ErrContextLimit with both numbers", err)
	}
	if _, err := r.engine.NewSession(-1); err == nil {
		r.t.Errorf("a session of -1 positions opened")
	}
}

func truncateOutOfRange(r *fixture) {
	s, tokens := r.startedSession(minContext)
	for _, n := range []int{-1, len(tokens) + 1} {
		if err := s.Truncate(n); err == nil {
			r.t.Errorf("truncating %d positions to %d gave no error", len(tokens), n)
		}
	}
	r.continues("after wrong truncations", s, tokens)
}

// otherSnapshot is a snapshot of another engine.
type otherSnapshot struct{}

func (otherSnapshot) Len() int     { return 3 }
func (otherSnapshot) Bytes() int64 { return 3 }
func (otherSnapshot) Close() error { return nil }

func invalidRestore(r *fixture) {
	s, tokens := r.startedSession(minContext)
	for _, n := range []int{-1, len(tokens) + 1} {
		if _, err := s.Snapshot(n); err == nil {
			r.t.Errorf("a snapshot of %d of %d positions gave no error", n, len(tokens))
		}
	}
	snap, err := s.Snapshot(5)
	if err != nil {
		r.t.Fatalf("snapshot: %v", err)
	}
	for _, n := range []int{-1, 6} {
		if err := s.Restore(snap, n); err == nil {
			r.t.Errorf("restoring %d positions of a snapshot of 5 gave no error", n)
		}
	}
	if err := s.Restore(otherSnapshot{}, 3); err == nil {
		r.t.Errorf("restoring a snapshot of another engine gave no error")
	}
	r.continues("after wrong restores", s, tokens)
	small := r.session(4)
	if err := small.Restore(snap, 5); !errors.Is(err, model.ErrContextLimit) {
		r.t.Errorf("restoring 5 positions into 4: error %v", err)
	}
	r.length("after a restore that does not fit", small, 0)
	if err := errors.Join(snap.Close(), snap.Close()); err != nil {
		r.t.Errorf("closing a snapshot twice: %v", err)
	}
	other := r.session(minContext)
	if err := other.Restore(snap, 5); !errors.Is(err, model.ErrClosed) {
		r.t.Errorf("restoring from a closed snapshot: error %v", err)
	}
	r.continues("after a restore from a closed snapshot", other, nil)
}

func canceledBefore(r *fixture) {
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel()
	r.fails(ctx, r.tokens(5, 23), context.Canceled)
}

func canceledInside(r *fixture) {
	input := r.tokens(40, 24)
	for n := 0; ; n++ {
		s, tokens := r.startedSession(minContext)
		ctx, cancel := newCountdown(r.t.Context(), n)
		_, err := s.Forward(ctx, input, model.WantLast)
		cancel()
		if err == nil {
			if n == 0 {
				r.t.Errorf("the engine never checks its context")
			}
			return // finished before the context was canceled
		}
		if !errors.Is(err, context.Canceled) {
			r.t.Fatalf("canceled at query %d: %v", n, err)
		}
		r.continues("after a canceled forward pass", s, tokens)
		if n > 8 { // later queries, at larger intervals
			n += n / 4
		}
	}
}

func closedSession(r *fixture) {
	s, _ := r.startedSession(minContext)
	if err := s.Close(); err != nil {
		r.t.Fatalf("close: %v", err)
	}
	if _, err := s.Forward(r.t.Context(), []int{1}, model.WantGreedy); !errors.Is(err, model.ErrClosed) {
		r.t.Errorf("a closed session: error %v", err)
	}
	if err := s.Close(); err != nil {
		r.t.Errorf("closing twice: %v", err)
	}
}
