package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// errorBehaviors cover invalid requests. Each gives a typed error, leaves
// the length unchanged, and the next request works.
var errorBehaviors = []Behavior{
	{"empty input", "an empty prompt is an error", emptyInput},
	{"token outside the vocabulary", "an error with the token and its index", tokenOutsideVocabulary},
	{"cache overflow", "an error with needed and available positions, and no write past the end", cacheOverflow},
	{"capacity beyond the context", "an error with both numbers", capacityBeyondContext},
	{"truncate out of range", "an error, not clamping", truncateOutOfRange},
	{"invalid fork", "more positions than there are", invalidFork},
	{"invalid rows", "a sequence twice, of another engine, or without a token to continue with; no row is computed", invalidRows},
	{"invalid choice", "no held choice, or a mask or logits of another size", invalidChoice},
	{"swapped out at once", "swapping in restores it, and closing releases it", swappedOut},
	{"reserve beyond the capacity", "an error with both numbers", reserveBeyondCapacity},
	{"canceled before a step", "nothing is computed", canceledBefore},
	{"canceled during a step", "a partly written cache does not count", canceledInside},
	{"closed sequence", "the released cache is not used", closedSequence},
}

// startedSequence returns a sequence that holds some tokens.
func (r *fixture) startedSequence(capacity int) (text, []int) {
	r.t.Helper()
	s, tokens := r.sequence(capacity), r.tokens(6, 20)
	r.forward(s, tokens, model.WantNothing)
	return s, tokens
}

// try runs a step of one row. Unlike text.Forward, it leaves to the engine what an error leaves.
func (r *fixture) try(ctx context.Context, row model.Row) error {
	p, err := r.engine.Step(ctx, []model.Row{row})
	if err == nil {
		_, err = p.Wait()
	}
	return err
}

// fails demands that a step fails with a sentinel and that the sequence can continue.
func (r *fixture) fails(ctx context.Context, input []int, sentinel error) error {
	r.t.Helper()
	s, tokens := r.startedSequence(minContext)
	err := r.try(ctx, s.row(input, model.WantLogits))
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
	s, tokens := r.startedSequence(10)
	err := r.try(r.t.Context(), s.row(r.tokens(5, 21), model.WantLogits))
	if !errors.Is(err, model.ErrContextLimit) || !containsAll(err.Error(), 11, 10) {
		r.t.Errorf("5 tokens after 6 in 10: error %v, want an ErrContextLimit with 11 and 10", err)
	}
	r.continues("after an overflow", s, tokens)
	r.forward(s, r.tokens(2, 22), model.WantNothing)
	if err := r.try(r.t.Context(), s.row([]int{1}, model.WantToken)); !errors.Is(err, model.ErrContextLimit) {
		r.t.Errorf("one token beyond the capacity: error %v", err)
	}
	r.length("full", s, 10)
}

func capacityBeyondContext(r *fixture) {
	limit := r.engine.Model().Config.Context
	_, err := r.engine.NewSequence(limit + 1)
	if !errors.Is(err, model.ErrContextLimit) || !containsAll(err.Error(), limit+1, limit) {
		r.t.Errorf("one position more than the context: error %v, want an ErrContextLimit with both numbers", err)
	}
	if _, err := r.engine.NewSequence(-1); err == nil {
		r.t.Errorf("a sequence of -1 positions opened")
	}
}

func truncateOutOfRange(r *fixture) {
	s, tokens := r.startedSequence(minContext)
	for _, n := range []int{-1, len(tokens) + 1} {
		if err := s.Truncate(n); err == nil {
			r.t.Errorf("truncating %d positions to %d gave no error", len(tokens), n)
		}
	}
	r.continues("after wrong truncations", s, tokens)
}

func invalidFork(r *fixture) {
	s, tokens := r.startedSequence(minContext)
	for _, n := range []int{-1, len(tokens) + 1} {
		if _, err := s.Fork(n); err == nil {
			r.t.Errorf("a fork of %d of %d positions gave no error", n, len(tokens))
		}
	}
	r.continues("after wrong forks", s, tokens)
}

// otherSequence is a sequence of another engine.
type otherSequence struct{ model.Sequence }

func (otherSequence) Len() int { return 0 }

func invalidRows(r *fixture) {
	s, tokens := r.startedSequence(minContext)
	good, prompt := r.startedSequence(minContext)
	row := good.row([]int{1}, model.WantToken)
	for _, c := range []struct {
		what string
		bad  model.Row
		is   error
	}{
		{"the same sequence twice", row, nil},
		{"a sequence of another engine", model.Row{Sequence: otherSequence{}, Tokens: []int{1}}, nil},
		{"no chosen token", model.Row{Sequence: s.Sequence, Want: model.WantToken}, model.ErrEmptyPrompt},
		{"no tokens", model.Row{Sequence: s.Sequence, Tokens: []int{}, Want: model.WantToken}, model.ErrEmptyPrompt},
		{"a bad token", model.Row{Sequence: s.Sequence, Tokens: []int{r.vocab}}, model.ErrBadToken},
		{"too many tokens", model.Row{Sequence: s.Sequence, Tokens: r.tokens(minContext, 26), Prompt: true}, model.ErrContextLimit},
	} {
		_, err := r.engine.Step(r.t.Context(), []model.Row{row, c.bad})
		if err == nil || c.is != nil && !errors.Is(err, c.is) {
			r.t.Errorf("%s: error %v, want %v", c.what, err, c.is)
		}
		r.length(c.what+", the row beside it", good, len(prompt))
	}
	r.continues("after invalid rows", s, tokens)
	r.continues("beside invalid rows", good, prompt)
	truncated := r.sequence(minContext)
	r.forward(truncated, prompt, model.WantToken)
	if err := truncated.Truncate(len(prompt) - 1); err != nil {
		r.t.Fatalf("truncate: %v", err)
	}
	if _, err := r.engine.Step(r.t.Context(), []model.Row{{Sequence: truncated.Sequence}}); !errors.Is(err, model.ErrEmptyPrompt) {
		r.t.Errorf("continuing a truncated sequence with its token: error %v", err)
	}
}

func invalidChoice(r *fixture) {
	s, _ := r.startedSequence(minContext)
	free, tokens := r.sequence(minContext), r.tokens(3, 27)
	row := s.row([]int{1}, model.WantToken)
	row.Hold = true
	r.step(row, free.row(tokens, model.WantToken))
	for what, c := range map[string]model.Choose{
		"a row that was not held":      {Sequence: free.Sequence},
		"a mask of another size":       {Sequence: s.Sequence, Mask: make([]uint32, sampling.MaskLen(r.vocab)+1)},
		"logits of another vocabulary": {Sequence: s.Sequence, Logits: make([]float32, r.vocab-1)},
	} {
		if _, err := r.engine.Choose(r.t.Context(), []model.Choose{c}); err == nil {
			r.t.Errorf("%s: no error", what)
		}
	}
	if _, err := r.engine.Choose(r.t.Context(), []model.Choose{{Sequence: s.Sequence}, {Sequence: s.Sequence}}); err == nil {
		r.t.Errorf("choosing twice in one call gave no error")
	}
	if _, err := r.engine.Step(r.t.Context(), []model.Row{{Sequence: s.Sequence}}); !errors.Is(err, model.ErrEmptyPrompt) {
		r.t.Errorf("continuing before the choice: error %v", err)
	}
	if _, err := r.engine.Choose(r.t.Context(), []model.Choose{{Sequence: s.Sequence}}); err != nil {
		r.t.Errorf("choosing after errors: %v", err)
	}
	if _, err := r.engine.Choose(r.t.Context(), []model.Choose{{Sequence: s.Sequence}}); err == nil {
		r.t.Errorf("choosing twice gave no error")
	}
}

func swappedOut(r *fixture) {
	s, tokens := r.startedSequence(minContext)
	if err := errors.Join(s.SwapOut(), s.SwapIn()); err != nil {
		r.t.Fatalf("swapping: %v", err)
	}
	r.continues("swapped in", s, tokens)
	if err := errors.Join(s.SwapOut(), s.Close(), s.Close()); err != nil {
		r.t.Errorf("closing a sequence that is swapped out: %v", err)
	}
}

func reserveBeyondCapacity(r *fixture) {
	s, tokens := r.startedSequence(10)
	if err := s.Reserve(11); !errors.Is(err, model.ErrContextLimit) || !containsAll(err.Error(), 11, 10) {
		r.t.Errorf("reserving 11 positions of 10: error %v, want an ErrContextLimit with both numbers", err)
	}
	r.continues("after reserving too many", s, tokens)
}

func canceledBefore(r *fixture) {
	ctx, cancel := context.WithCancel(r.t.Context())
	cancel()
	r.fails(ctx, r.tokens(5, 23), context.Canceled)
}

func canceledInside(r *fixture) {
	input := r.tokens(40, 24)
	for n := 0; ; n++ {
		s, tokens := r.startedSequence(minContext)
		ctx, cancel := newCountdown(r.t.Context(), n)
		err := r.try(ctx, s.row(input, model.WantLogits))
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

func closedSequence(r *fixture) {
	s, _ := r.startedSequence(minContext)
	if err := s.Close(); err != nil {
		r.t.Fatalf("close: %v", err)
	}
	if err := r.try(r.t.Context(), s.row([]int{1}, model.WantToken)); !errors.Is(err, model.ErrClosed) {
		r.t.Errorf("a closed sequence: error %v", err)
	}
	if err := s.Close(); err != nil {
		r.t.Errorf("closing twice: %v", err)
	}
}
