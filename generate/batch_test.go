package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

func TestBatchEqualsAlone(t *testing.T) {
	prompts := []string{"a", "the end", "in the another", "x", "a", "éé", "then", "in"}
	for name, p := range map[string]Params{
		"greedy": {MaxTokens: 12},
		"drawn":  {MaxTokens: 12, Sampling: sampling.Params{Temperature: 1, Seed: 4}, Stop: []string{"a"}},
	} {
		for _, limits := range []model.Limits{
			{Sequences: 1, PromptTokens: 64, PageTokens: 4},
			{Sequences: 3, PromptTokens: 2, PageTokens: 1},
			{Sequences: 99, PromptTokens: 64, PageTokens: 4, Pages: 8},
		} {
			t.Run(fmt.Sprintf("%s/%+v", name, limits), func(t *testing.T) {
				e := newFake(t)
				e.limits = limits
				g := newTest(t, e, Options{})
				got := g.BatchText(t.Context(), prompts, p)
				for i, prompt := range prompts {
					alone := collect(Text(t.Context(), newFake(t), prompt, p))
					want := Result{Text: alone.Text}
					for _, id := range alone.IDs {
						if id != NoToken {
							want.Tokens = append(want.Tokens, id)
						}
					}
					if diff := gocmp.Diff(want, got[i], cmpopts.IgnoreFields(Result{}, "Stats")); diff != "" {
						t.Errorf("%q (-alone +batch):\n%s", prompt, diff)
					}
					if got[i].Stats.GeneratedTokens == 0 {
						t.Errorf("%q: no stats", prompt)
					}
				}
			})
		}
	}
}

func TestBatchEdges(t *testing.T) {
	g := newTest(t, newFake(t), Options{})
	if got := g.BatchText(t.Context(), nil, Params{MaxTokens: 2}); got == nil || len(got) != 0 {
		t.Errorf("no prompts gave %v", got)
	}
	got := g.BatchTokens(t.Context(), [][]int{{1}, {}, {2, tiny.Vocab}, make([]int, 99), {3}}, Params{MaxTokens: 2})
	for i, want := range []error{nil, model.ErrEmptyPrompt, model.ErrBadToken, model.ErrContextLimit, nil} {
		if !errors.Is(got[i].Err, want) {
			t.Errorf("prompt %d: error %v, want %v", i, got[i].Err, want)
		}
		if n := len(got[i].Tokens); (want == nil) != (n == 2) {
			t.Errorf("prompt %d: %d tokens", i, n)
		}
	}
	for _, r := range g.BatchText(t.Context(), []string{"a", "b"}, Params{MaxTokens: 2, MinTokens: 3}) {
		if !errors.Is(r.Err, ErrBadParams) {
			t.Errorf("bad parameters gave %v", r.Err)
		}
	}
}

// Text that is held back until the end belongs to the text of a result, but is no token.
func TestBatchHeldBackText(t *testing.T) {
	g := newTest(t, newFake(t).speak(1, "aEN"), Options{})
	got := g.BatchTokens(t.Context(), [][]int{{1}}, Params{MaxTokens: 9, Stop: []string{"END"}})[0]
	got.Stats = Stats{}
	if diff := gocmp.Diff(Result{Tokens: []int{'a', 'E', 'N'}, Text: "aEN"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// All slots of the engine are used, and no more. The limit on waiting requests is not for
// batches.
func TestBatchFillsTheEngine(t *testing.T) {
	for _, slots := range []int{1, 3, 20} {
		e := newFake(t)
		e.limits.Sequences = slots
		g := newTest(t, e, Options{PrefixTokens: -1, MaxWaiting: 1})
		e.together(g, 12)
		for i, r := range g.BatchText(t.Context(), slices.Repeat([]string{"a"}, 12), Params{MaxTokens: 9, IgnoreEOS: true}) {
			if r.Err != nil {
				t.Errorf("prompt %d: %v", i, r.Err)
			}
		}
		most := 0
		for _, step := range e.steps {
			most = max(most, len(step))
		}
		if most != min(slots, 12) {
			t.Errorf("%d slots: %d rows in a step", slots, most)
		}
	}
}

func TestBatchCancel(t *testing.T) {
	e := newFake(t)
	e.limits.Sequences = 2
	ctx, cancel := context.WithCancel(t.Context())
	rows := 0
	e.before = func(op string, _ []int) error {
		if op == "row" {
			if rows++; rows == 9 {
				cancel()
			}
		}
		return nil
	}
	g := newTest(t, e, Options{})
	for i, r := range g.BatchText(ctx, make([]string, 20), Params{MaxTokens: 50, IgnoreEOS: true}) {
		if r.Err != context.Canceled {
			t.Errorf("prompt %d: %d tokens, error %v", i, len(r.Tokens), r.Err)
		}
	}
}

// Many concurrent calls give the same tokens as each call alone.
func TestManyGoroutines(t *testing.T) {
	const calls, kinds = 500, 20
	prompt := func(kind int) []int { return []int{1, kind % 3, kind} }
	params := func(kind int) Params {
		return Params{MaxTokens: 1 + kind%5, Sampling: sampling.Params{Temperature: float64(kind % 2), Seed: uint64(kind)}}
	}
	var want [kinds]collected
	for k := range kinds {
		want[k] = collect(Tokens(t.Context(), newFake(t), prompt(k), params(k)))
	}
	e := newFake(t)
	e.limits.Pages = 20
	g := newTest(t, e, Options{})
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			k := i % kinds
			if diff := gocmp.Diff(want[k], collect(g.Tokens(t.Context(), prompt(k), params(k)))); diff != "" {
				t.Errorf("call %d (-alone +together):\n%s", i, diff)
			}
		})
	}
	wg.Wait()
	if s := g.Load().Prefix; s.Hits+s.Misses != calls {
		t.Errorf("counters %+v", s)
	}
}
