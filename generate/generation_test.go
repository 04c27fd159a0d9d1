package generate

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// Impossible requests must be refused before the engine is used.
func TestRefusedBeforeCompute(t *testing.T) {
	tests := []struct {
		name, reason string
		prompt       []int
		p            Params
		opts         Options
		sentinel     error
		text         string
	}{
		{"empty prompt", "there is nothing to continue", nil, Params{MaxTokens: 1}, Options{}, model.ErrEmptyPrompt, "empty prompt"},
		{"empty prompt, no tokens wanted", "refused even without tokens to generate", nil, Params{}, Options{}, model.ErrEmptyPrompt, ""},
		{"token beyond the vocabulary", "the error has its index", []int{1, tiny.Vocab}, Params{MaxTokens: 1}, Options{}, model.ErrBadToken, "at index 1"},
		{"negative token", "the error has its index", []int{-1}, Params{MaxTokens: 1}, Options{}, model.ErrBadToken, "at index 0"},
		{"prompt beyond the context", "the error has both numbers", make([]int, tiny.Context+1), Params{}, Options{}, model.ErrContextLimit, "97 positions and there are 96"},
		{"prompt beyond the context, until it is full", "the error has both numbers", make([]int, tiny.Context+1), Params{MaxTokens: -1}, Options{}, model.ErrContextLimit, "97 positions and there are 96"},
		{"new tokens beyond the context", "the error has both numbers", make([]int, 10), Params{MaxTokens: 87}, Options{}, model.ErrContextLimit, "97 positions and there are 96"},
		{"beyond the capacity", "the generator's limit is smaller", make([]int, 10), Params{MaxTokens: 7}, Options{Capacity: 16}, model.ErrContextLimit, "17 positions and there are 16"},
		{"endless", "the sum of both must not overflow", make([]int, 10), Params{MaxTokens: math.MaxInt}, Options{}, model.ErrContextLimit, "there are 96"},
		{"bad parameter", "parameters are checked first", []int{1}, Params{Temperature: -1}, Options{}, ErrBadParams, "Temperature"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t)
			g, err := New(e, tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			got := collect(g.Tokens(t.Context(), tt.prompt, tt.p))
			if !errors.Is(got.Err, tt.sentinel) || !strings.HasPrefix(got.Err.Error(), "generate: ") || !strings.Contains(got.Err.Error(), tt.text) {
				t.Errorf("%s: error %v, want %v with %q", tt.reason, got.Err, tt.sentinel, tt.text)
			}
			if len(got.IDs) > 0 || e.opened > 0 {
				t.Errorf("%d tokens, %d sessions: something was computed", len(got.IDs), e.opened)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	e := newFake(t)
	if _, err := New(e, Options{Capacity: tiny.Context + 1}); !errors.Is(err, model.ErrContextLimit) {
		t.Errorf("a capacity beyond the context gave %v", err)
	}
	g, err := New(e, Options{Capacity: tiny.Context})
	if err != nil {
		t.Fatalf("a capacity of the context gave %v", err)
	}
	if err := g.Close(); err != nil {
		t.Errorf("closing without a prefix cache gave %v", err)
	}
	for _, o := range []Options{{Capacity: -1}, {Parallel: -1}, {PrefixBytes: -1}} {
		if _, err := New(e, o); !errors.Is(err, ErrBadParams) {
			t.Errorf("%+v gave %v", o, err)
		}
	}
}

// The engine must compute the prompt once, and one step for each token but the last. The
// first token comes from the prompt.
func TestForwardCalls(t *testing.T) {
	all := []fakeCall{
		{0, []int{7, 8, 9}, model.WantGreedy}, {3, []int{'a'}, model.WantGreedy}, {4, []int{'b'}, model.WantGreedy}, {5, []int{'c'}, model.WantGreedy},
	}
	tests := []struct {
		name, reason string
		p            Params
		want         []fakeCall
		capacity     int
	}{
		{"one token", "no step at all", Params{MaxTokens: 1}, all[:1], 4},
		{"three tokens", "two steps", Params{MaxTokens: 3}, all[:3], 6},
		{"until the end", "the stop token is chosen, not computed with", Params{MaxTokens: 50}, all, 53},
		{"no token", "nothing is computed", Params{}, nil, 0},
		{"until the context is full", "a session of the whole context", Params{MaxTokens: -1}, all, tiny.Context},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t).speak(3, "abc")
			if got := collect(Tokens(t.Context(), e, []int{7, 8, 9}, tt.p)); got.Err != nil {
				t.Fatal(got.Err)
			}
			if diff := cmp.Diff(tt.want, e.forwards); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tt.reason, diff)
			}
			if tt.capacity > 0 && e.caps[0] != tt.capacity {
				t.Errorf("%s: a session of %d positions, want %d", tt.reason, e.caps[0], tt.capacity)
			}
			e.idle(t)
		})
	}
}

// A session has the positions of its request, or Options.Capacity.
func TestSessionCapacity(t *testing.T) {
	for _, tt := range []struct{ option, max, want int }{
		{0, 5, 8}, {0, tiny.Context - 3, tiny.Context}, {0, -1, tiny.Context},
		{16, 5, 16}, {16, 13, 16}, {16, -1, 16},
	} {
		e := newFake(t)
		g, err := New(e, Options{Capacity: tt.option})
		if err != nil {
			t.Fatal(err)
		}
		if got := collect(g.Tokens(t.Context(), []int{1, 2, 3}, Params{MaxTokens: tt.max})); got.Err != nil {
			t.Fatal(got.Err)
		}
		if diff := cmp.Diff([]int{tt.want}, e.caps); diff != "" {
			t.Errorf("%+v: capacities (-want +got):\n%s", tt, diff)
		}
	}
}

// Each way to sample requests the smallest output that it needs.
func TestWantedOutput(t *testing.T) {
	tests := []struct {
		name, reason string
		p            Params
		want         model.Want
	}{
		{"greedy", "one token comes back", Params{}, model.WantGreedy},
		{"top-k 1", "greedy too", Params{Temperature: 1, TopK: 1}, model.WantGreedy},
		{"penalty that changes nothing", "greedy too", Params{RepeatPenalty: 1}, model.WantGreedy},
		{"drawn", "needs all logits", Params{Temperature: 1}, model.WantLast},
		{"biased", "the engine knows no bias", Params{LogitBias: map[int]float32{1: 1}}, model.WantLast},
		{"penalized", "the engine knows no penalty", Params{RepeatPenalty: 2}, model.WantLast},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t)
			tt.p.MaxTokens = 3
			if got := collect(Tokens(t.Context(), e, []int{1}, tt.p)); got.Err != nil {
				t.Fatal(got.Err)
			}
			for i, c := range e.forwards {
				if c.Want != tt.want {
					t.Errorf("%s: call %d wants %d, not %d", tt.reason, i, c.Want, tt.want)
				}
			}
		})
	}
}

func TestGreedyPathsAgree(t *testing.T) {
	e := newFake(t)
	want := collect(Tokens(t.Context(), e, []int{1, 2}, Params{MaxTokens: 30}))
	for name, p := range map[string]Params{
		"top-k 1": {TopK: 1, Temperature: 2},
		"no bias": {LogitBias: map[int]float32{3: 0}},
	} {
		p.MaxTokens = 30
		if diff := cmp.Diff(want.IDs, collect(Tokens(t.Context(), e, []int{1, 2}, p)).IDs); diff != "" {
			t.Errorf("%s differs from greedy (-want +got):\n%s", name, diff)
		}
	}
}

func TestSeeds(t *testing.T) {
	e := newFake(t)
	text := func(seed uint64) []int {
		got := collect(Tokens(t.Context(), e, []int{1}, Params{MaxTokens: 20, Temperature: 1.5, Seed: seed}))
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		return got.IDs
	}
	if diff := cmp.Diff(text(3), text(3)); diff != "" {
		t.Errorf("the same seed gave two texts:\n%s", diff)
	}
	if cmp.Equal(text(3), text(4)) {
		t.Error("two seeds gave the same text")
	}
}

// Ranging over a sequence again generates again.
func TestSequenceTwice(t *testing.T) {
	e := newFake(t)
	seq := Tokens(t.Context(), e, []int{1, 2}, Params{MaxTokens: 5, Temperature: 1})
	if diff := cmp.Diff(collect(seq), collect(seq)); diff != "" {
		t.Errorf("second range (-first +second):\n%s", diff)
	}
}

// The caller may change a prompt after the generation.
func TestPromptIsCopied(t *testing.T) {
	e := newFake(t)
	g, err := New(e, Options{PrefixBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	prompt := []int{1, 2, 3}
	collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: 2}))
	prompt[0] = 9
	collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: 2}))
	if s := g.PrefixStats(); s.Hits != 0 || s.Misses != 2 {
		t.Errorf("the cache shares memory with the caller: %+v", s)
	}
}

func TestStats(t *testing.T) {
	e := newFake(t).speak(3, "abc")
	g, err := New(e, Options{PrefixBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	const pass = 2 * time.Millisecond // at least
	e.before = func(op string, _ []int) error {
		if op == "forward" {
			time.Sleep(pass)
		}
		return nil
	}
	var s Stats
	for _, reused := range []int{0, 3} {
		begin := time.Now()
		collect(g.Tokens(t.Context(), []int{1, 2, 3}, Params{MaxTokens: 9, Stats: &s}))
		took := time.Since(begin)
		want := Stats{PromptTokens: 3, ReusedTokens: reused, GeneratedTokens: 3, Steps: 3, Finish: FinishStopToken}
		got := s
		if phases := s.Prepare + s.Prefill + s.Store; !(s.FirstToken >= phases) || s.FirstToken+s.Decode > took {
			t.Errorf("phases %v, first token %v, decode %v, in all %v", phases, s.FirstToken, s.Decode, took)
		}
		if computed := reused == 0; s.Prepare <= 0 || s.Decode < 3*pass || (s.Prefill >= pass) != computed || (s.Store > 0) != computed {
			t.Errorf("prepare %v, prefill %v, store %v, decode %v", s.Prepare, s.Prefill, s.Store, s.Decode)
		}
		got.Prepare, got.Prefill, got.Store, got.FirstToken, got.Decode = 0, 0, 0, 0, 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if s.PrefillRate() != 0 || s.DecodeRate() <= 0 {
		t.Errorf("rates of a full hit: %v, %v", s.PrefillRate(), s.DecodeRate())
	}
}

// Penalties count prompt and generated tokens.
func TestPenaltiesSeeGeneratedTokens(t *testing.T) {
	e := newFake(t)
	prompt := []int{1, 2, 3}
	got := collect(Tokens(t.Context(), e, prompt, Params{MaxTokens: 90, PresencePenalty: 1000, IgnoreEOS: true}))
	if got.Err != nil || len(got.IDs) != 90 {
		t.Fatalf("%d tokens, error %v", len(got.IDs), got.Err)
	}
	seen := map[int]bool{1: true, 2: true, 3: true}
	for i, id := range got.IDs {
		if seen[id] {
			t.Errorf("token %d, %d, is repeated", i, id)
		}
		seen[id] = true
	}
}
