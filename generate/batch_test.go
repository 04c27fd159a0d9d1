package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

func TestBatchEqualsAlone(t *testing.T) {
	prompts := []string{"a", "the end", "in the another", "x", "a", "éé", "then", "in"}
	for name, p := range map[string]Params{
		"greedy": {MaxTokens: 12},
		"drawn":  {MaxTokens: 12, Temperature: 1, TopP: 0.9, Seed: 4, Stop: []string{"a"}},
	} {
		for _, o := range []Options{{Parallel: 1}, {Parallel: 3}, {Parallel: 99, PrefixBytes: 1 << 20}, {}} {
			t.Run(fmt.Sprintf("%s/%+v", name, o), func(t *testing.T) {
				e := newFake(t)
				g, err := New(e, o)
				if err != nil {
					t.Fatal(err)
				}
				got := g.BatchText(t.Context(), prompts, p)
				for i, prompt := range prompts {
					alone := collect(Text(t.Context(), e, prompt, p))
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
				e.idle(t)
			})
		}
	}
}

func TestBatchEdges(t *testing.T) {
	e := newFake(t)
	g, err := New(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
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
	for _, r := range g.BatchText(t.Context(), []string{"a", "b"}, Params{MaxTokens: 2, TopP: 7}) {
		if !errors.Is(r.Err, ErrBadParams) {
			t.Errorf("bad parameters gave %v", r.Err)
		}
	}
	e.idle(t)
}

// Text that is held back until the end belongs to the text of a result, but is no token.
func TestBatchHeldBackText(t *testing.T) {
	g, err := New(newFake(t).speak(1, "aEN"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := g.BatchTokens(t.Context(), [][]int{{1}}, Params{MaxTokens: 9, Stop: []string{"END"}})[0]
	got.Stats = Stats{}
	if diff := gocmp.Diff(Result{Tokens: []int{'a', 'E', 'N'}, Text: "aEN"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// At most Options.Parallel sessions may be open at once.
func TestBatchIsBounded(t *testing.T) {
	for _, parallel := range []int{0, 1, 3} {
		e, most := newFake(t), 0
		e.before = func(op string, _ []int) error {
			if op == "forward" {
				time.Sleep(time.Millisecond) // lets other prompts start
				e.mu.Lock()
				defer e.mu.Unlock()
				most = max(most, e.open)
			}
			return nil
		}
		g, err := New(e, Options{Parallel: parallel})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range g.BatchText(t.Context(), make([]string, 20), Params{MaxTokens: 3}) {
			if r.Err != nil {
				t.Errorf("prompt %d: %v", i, r.Err)
			}
		}
		if limit := cmp.Or(parallel, runtime.GOMAXPROCS(0)); most > limit {
			t.Errorf("Parallel %d: %d sessions at once, want at most %d", parallel, most, limit)
		}
	}
}

func TestBatchCancel(t *testing.T) {
	e := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	var once sync.Once
	e.before = func(op string, tokens []int) error {
		if op == "forward" && len(tokens) == 1 && tokens[0] != tiny.Begin {
			once.Do(cancel)
		}
		return nil
	}
	g, err := New(e, Options{Parallel: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range g.BatchText(ctx, make([]string, 20), Params{MaxTokens: 50, IgnoreEOS: true}) {
		if r.Err != context.Canceled {
			t.Errorf("prompt %d: %d tokens, error %v", i, len(r.Tokens), r.Err)
		}
	}
	e.idle(t)
}

// Many concurrent calls through one prefix cache give the same tokens as each call alone.
func TestManyGoroutines(t *testing.T) {
	const calls, kinds = 500, 20
	e := newFake(t)
	prompt := func(kind int) []int { return []int{1, kind % 3, kind} }
	params := func(kind int) Params {
		return Params{MaxTokens: 1 + kind%5, Temperature: float64(kind % 2), Seed: uint64(kind)}
	}
	var want [kinds]collected
	for k := range kinds {
		want[k] = collect(Tokens(t.Context(), e, prompt(k), params(k)))
	}
	g, err := New(e, Options{PrefixBytes: 8000})
	if err != nil {
		t.Fatal(err)
	}
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
	if s := g.PrefixStats(); s.Hits+s.Misses != calls || s.Evictions == 0 {
		t.Errorf("counters %+v", s)
	}
	e.idle(t)
}
