package generate

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// The last prompt's rows show what it reused.
func TestPrefixReuse(t *testing.T) {
	tests := []struct {
		name, reason string
		prompts      [][]int
		row          fakeRow // of the last prompt
		stats        PrefixStats
		max          int // tokens per answer; 0: 1
	}{
		{"miss", "the first has nothing to reuse", [][]int{{1, 2, 3}},
			fakeRow{0, []int{1, 2, 3}, true, model.WantToken}, PrefixStats{Misses: 1, Entries: 1, Positions: 3}, 0},
		{"unrelated", "another first token", [][]int{{1, 2, 3}, {2, 2, 3}},
			fakeRow{0, []int{2, 2, 3}, true, model.WantToken}, PrefixStats{Misses: 2, Entries: 2, Positions: 6}, 0},
		{"longer", "the whole earlier prompt is reused, and its entry replaced", [][]int{{1, 2, 3}, {1, 2, 3, 4, 5}},
			fakeRow{3, []int{4, 5}, true, model.WantToken}, PrefixStats{Misses: 1, Hits: 1, Reused: 3, Entries: 1, Positions: 5}, 0},
		{"differs at the end", "one token is computed, as a prompt", [][]int{{1, 2, 3, 4}, {1, 2, 9}},
			fakeRow{2, []int{9}, true, model.WantToken}, PrefixStats{Misses: 1, Hits: 1, Reused: 2, Entries: 2, Positions: 5}, 0},
		{"differs far from the end", "the common prefix is reused", [][]int{{1, 2, 3, 4}, {1, 2, 9, 9}},
			fakeRow{2, []int{9, 9}, true, model.WantToken}, PrefixStats{Misses: 1, Hits: 1, Reused: 2, Entries: 2, Positions: 6}, 0},
		{"shorter", "its last token is computed again, for its logits", [][]int{{1, 2, 3, 4}, {1, 2, 3}},
			fakeRow{2, []int{3}, true, model.WantToken}, PrefixStats{Misses: 1, Hits: 1, Reused: 2, Entries: 1, Positions: 4}, 0},
		{"exact", "its last token is computed again", [][]int{{1, 2, 3}, {1, 2, 3}},
			fakeRow{2, []int{3}, true, model.WantToken}, PrefixStats{Misses: 1, Hits: 1, Reused: 2, Entries: 1, Positions: 3}, 0},
		{"one token", "nothing is left to reuse", [][]int{{1}, {1}},
			fakeRow{0, []int{1}, true, model.WantToken}, PrefixStats{Misses: 2, Entries: 1, Positions: 1}, 0},
		{"most in common", "with a neighbor before it", [][]int{{1, 2, 3, 4, 5}, {1, 9, 9, 9, 9}, {1, 2, 3, 4, 6}},
			fakeRow{4, []int{6}, true, model.WantToken}, PrefixStats{Misses: 1, Hits: 2, Reused: 5, Entries: 3, Positions: 10}, 0},
		{"most in common, after", "with a neighbor after it", [][]int{{1, 2, 3, 4, 5}, {1, 1, 9, 9, 9}, {1, 2, 3, 4, 4}},
			fakeRow{4, []int{4}, true, model.WantToken}, PrefixStats{Misses: 1, Hits: 2, Reused: 5, Entries: 3, Positions: 10}, 0},
		{"generated tokens", "all but the last were computed", [][]int{{1, 2}, {1, 2, 'a', 'b'}},
			fakeRow{3, []int{'b'}, true, model.WantToken}, PrefixStats{Misses: 1, Hits: 1, Reused: 3, Entries: 1, Positions: 5}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t)
			e.choose = func(h []int) int { return 'a' + len(h)%2 }
			g := newTest(t, e, Options{})
			for _, prompt := range tt.prompts {
				e.steps = nil
				if got := collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: max(tt.max, 1)})); got.Err != nil {
					t.Fatal(got.Err)
				}
			}
			if err := g.Close(); err != nil { // so that the counters are final
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.row, e.rows()[0]); diff != "" {
				t.Errorf("%s: row (-want +got):\n%s", tt.reason, diff)
			}
			stats := g.Load().Prefix
			if diff := cmp.Diff(tt.stats, stats); diff != "" {
				t.Errorf("%s: counters (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// A prompt reuses an earlier one up to where the engine resumes, and computes what follows as a prompt.
func TestPrefixResumes(t *testing.T) {
	for _, c := range []struct {
		prompt []int
		row    fakeRow
		reused int
	}{
		{[]int{1, 2, 3, 4, 5, 6, 9}, fakeRow{4, []int{5, 6, 9}, true, model.WantToken}, 4},
		{[]int{1, 2, 3, 9}, fakeRow{0, []int{1, 2, 3, 9}, true, model.WantToken}, 0},
		{[]int{1, 2, 3, 4, 5, 6, 7, 8}, fakeRow{7, []int{8}, true, model.WantToken}, 7},
	} {
		e := newFake(t)
		e.checkpoint = 4
		g := newTest(t, e, Options{})
		for _, prompt := range [][]int{{1, 2, 3, 4, 5, 6, 7}, c.prompt} {
			e.steps = nil
			if got := collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: 1})); got.Err != nil {
				t.Fatal(got.Err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.row, e.rows()[0]); diff != "" {
			t.Errorf("%v: row (-want +got):\n%s", c.prompt, diff)
		}
		if got := g.Load().Prefix.Reused; got != c.reused {
			t.Errorf("%v: %d positions reused, want %d", c.prompt, got, c.reused)
		}
	}
}

// The next prompt of a conversation reuses the last one, its answer and the token that ended it.
func TestPrefixAfterAnswer(t *testing.T) {
	for _, stop := range []bool{false, true} {
		e := newFake(t)
		e.checkpoint = 100
		g := newTest(t, e, Options{})
		p := Params{MaxTokens: 4, IgnoreEOS: true}
		prompt := []int{1, 2, 3}
		whole := collect(g.Tokens(t.Context(), prompt, p))
		if whole.Err != nil || len(whole.IDs) != 4 {
			t.Fatalf("%+v", whole)
		}
		g.Close()
		e = newFake(t)
		e.checkpoint = 100
		g = newTest(t, e, Options{})
		computed := append(slices.Clone(prompt), whole.IDs[:3]...) // the last token is not computed
		if stop {
			p.StopTokens, computed = whole.IDs[3:], append(slices.Clone(prompt), whole.IDs...)
			p.MaxTokens = 9
		}
		if got := collect(g.Tokens(t.Context(), prompt, p)); got.Err != nil {
			t.Fatal(got.Err)
		}
		var s Stats
		if got := collect(g.Tokens(t.Context(), append(computed, 9), Params{MaxTokens: 1, Stats: &s})); got.Err != nil {
			t.Fatal(got.Err)
		}
		if s.ReusedTokens != len(computed) {
			t.Errorf("stopped by a token: %v: %d tokens reused, want %d", stop, s.ReusedTokens, len(computed))
		}
		g.Close()
	}
}

// Generations with and without a prefix cache, which is so small that it evicts all the time,
// are equal. The random prompts share prefixes.
func TestPrefixHitEqualsMiss(t *testing.T) {
	e, alone := newFake(t), newFake(t)
	e.limits.Pages = 30
	g, plain := newTest(t, e, Options{PrefixTokens: 40}), newTest(t, alone, Options{PrefixTokens: -1})
	random := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		prompt := make([]int, 1+random.IntN(12))
		for i := range prompt {
			prompt[i] = random.IntN(2)
		}
		p := Params{MaxTokens: random.IntN(4)}
		if random.IntN(2) == 0 {
			p.Sampling = sampling.Params{Temperature: 1, Seed: random.Uint64()}
		}
		want, got := collect(plain.Tokens(t.Context(), prompt, p)), collect(g.Tokens(t.Context(), prompt, p))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("prompt %v (-miss +cached):\n%s", prompt, diff)
		}
		if s := g.Load().Prefix; s.Positions > 40 {
			t.Fatalf("the cache holds %d positions", s.Positions)
		}
	}
	if s := g.Load().Prefix; s.Hits == 0 || s.Misses == 0 || s.Evictions == 0 {
		t.Errorf("the test did not reach everything: %+v", s)
	}
	if s := plain.Load().Prefix; s != (PrefixStats{}) {
		t.Errorf("without a cache: %+v", s)
	}
}

// The cache keeps what was used last, up to its limit exactly. A prompt that exceeds the limit
// evicts nothing.
func TestPrefixEviction(t *testing.T) {
	g := newTest(t, newFake(t), Options{PrefixTokens: 9})
	ask := func(prompt ...int) (reused int) {
		t.Helper()
		var s Stats
		if got := collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: 1, Stats: &s})); got.Err != nil {
			t.Fatal(got.Err)
		}
		return s.ReusedTokens
	}
	for a := 1; a <= 3; a++ {
		ask(a, a, a)
	}
	if s := g.Load().Prefix; s.Evictions != 0 {
		t.Errorf("three prompts of three tokens: %+v", s)
	}
	ask(1, 1, 1) // so 2 is the least recently used
	ask(4, 4, 4)
	for _, tt := range []struct{ id, reused int }{{1, 2}, {3, 2}, {4, 2}, {2, 0}} {
		if got := ask(tt.id, tt.id, tt.id); got != tt.reused {
			t.Errorf("prompt %d: %d tokens reused, want %d", tt.id, got, tt.reused)
		}
	}
	ask(make([]int, 10)...)
	if got := ask(4, 4, 4); got != 2 {
		t.Errorf("after a prompt that is too long to keep: %d tokens reused", got)
	}
}

// Sequences with other RoPE factors compute another function and must not share pages.
func TestPrefixLongContext(t *testing.T) {
	e := newFake(t)
	e.model.Config.LongContext = 10
	g := newTest(t, e, Options{})
	for i, tt := range []struct{ max, reused int }{{2, 0}, {3, 2}, {20, 0}, {21, 2}, {4, 2}} {
		var s Stats
		collect(g.Tokens(t.Context(), []int{1, 2, 3}, Params{MaxTokens: tt.max, Stats: &s}))
		if s.ReusedTokens != tt.reused {
			t.Errorf("request %d, %d new tokens: %d reused, want %d", i, tt.max, s.ReusedTokens, tt.reused)
		}
	}
}

// Requests of one prompt that arrive together compute it once and share its pages.
func TestPrefixShared(t *testing.T) {
	const n, length = 8, 40
	for name, prompt := range map[string]func(i int) []int{
		"equal prompts":    func(int) []int { return slices.Repeat([]int{7}, length) },
		"equal beginnings": func(i int) []int { return append(slices.Repeat([]int{7}, length-2), 100+i, 7) },
		"a system prompt": func(i int) []int {
			return append(slices.Repeat([]int{7}, length/2), slices.Repeat([]int{100 + i}, 15)...)
		},
		"nothing in common": func(i int) []int { return slices.Repeat([]int{100 + i}, length) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newFake(t)
			g := newTest(t, e, Options{})
			most := 0
			e.before = func(op string, _ []int) error {
				if op == "wait" {
					most = max(most, e.used)
				}
				return nil
			}
			var prompts [][]int
			different := map[int]bool{}
			for i := range n {
				p := prompt(i)
				prompts = append(prompts, p)
				different[p[0]] = true
			}
			reused := 0
			for i, r := range g.BatchTokens(t.Context(), prompts, Params{MaxTokens: 6, IgnoreEOS: true}) {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				reused += r.Stats.ReusedTokens
				alone := collect(Tokens(t.Context(), newFake(t), prompts[i], Params{MaxTokens: 6, IgnoreEOS: true}))
				if diff := cmp.Diff(alone.IDs, r.Tokens); diff != "" {
					t.Errorf("prompt %d (-alone +shared):\n%s", i, diff)
				}
			}
			if shared := len(different) == 1; shared != (reused >= (n-1)*length/2) {
				t.Errorf("%d tokens reused", reused)
			}
			if alone := n * (length/4 + 2); len(different) == 1 && most > alone*2/3 {
				t.Errorf("%d pages in use, without sharing %d", most, alone)
			}
		})
	}
}

// A prefix gives way to requests that need its pages.
func TestPrefixGivesWay(t *testing.T) {
	e := newFake(t)
	e.limits.Pages = 8
	g := newTest(t, e, Options{})
	for i := range 6 {
		prompt := slices.Repeat([]int{i}, 10)
		if got := collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: 22, IgnoreEOS: true})); got.Err != nil || len(got.IDs) != 22 {
			t.Errorf("%d tokens, error %v", len(got.IDs), got.Err)
		}
	}
	if s := g.Load(); s.Prefix.Evictions == 0 || s.Preemptions != 0 {
		t.Errorf("%+v", s)
	}
}

// A fork that fails when a prompt is reused ends the request. The next one works.
func TestPrefixForkError(t *testing.T) {
	e := newFake(t)
	broken := errors.New("broken")
	g := newTest(t, e, Options{})
	p := Params{MaxTokens: 3}
	want := collect(g.Tokens(t.Context(), []int{1, 2}, p))
	for _, planted := range []error{broken, &model.CacheFullError{}} {
		e.before = func(op string, _ []int) error {
			if op == "fork" {
				return planted
			}
			return nil
		}
		got := collect(g.Tokens(t.Context(), []int{1, 2}, p))
		if full := planted != broken; full != (got.Err == nil) {
			t.Errorf("%v: %+v", planted, got)
		}
		e.before = nil
		if diff := cmp.Diff(want, collect(g.Tokens(t.Context(), []int{1, 2}, p))); diff != "" {
			t.Errorf("afterwards (-want +got):\n%s", diff)
		}
	}
}

func TestNoPrefixCache(t *testing.T) {
	for _, pages := range []int{0, 1000} {
		e, o := newFake(t), Options{PrefixTokens: -1}
		e.limits.Pages = pages
		e.before = func(op string, _ []int) error {
			if op == "fork" {
				t.Error("a fork without a prefix cache")
			}
			return nil
		}
		g := newTest(t, e, o)
		for range 2 {
			collect(g.Tokens(t.Context(), make([]int, tiny.Context/2), Params{MaxTokens: 2}))
		}
		if diff := cmp.Diff(PrefixStats{}, g.Load().Prefix); diff != "" {
			t.Error(diff)
		}
	}
}

// A request waits for the prompt of another only if that is worth it.
func TestPrefixAwaits(t *testing.T) {
	for _, tt := range []struct {
		name           string
		shared         int // tokens that the prompts begin with
		waits, running int // further tokens
		computed       int // of the running prompt
		checkpoint     int // distance of recurrent states; 0: the model has none
		async          bool
		want           bool
	}{
		{"equal", 20, 0, 0, 0, 0, false, true},
		{"another end", 20, 5, 5, 0, 0, false, true},
		{"nothing in common", 0, 20, 20, 0, 0, false, false},
		{"a BOS token", 1, 20, 20, 0, 0, false, false},
		{"half of the other", 20, 5, 20, 0, 0, false, true},
		{"less than half of the other", 20, 5, 21, 0, 0, false, false},
		{"a long prompt that is nearly done", 20, 5, 60, 50, 0, false, true},
		{"a state within", 20, 5, 5, 0, 16, false, true},
		{"no state within", 20, 5, 5, 0, 32, false, false},
		{"the beginning of the other", 20, 5, 0, 0, 32, false, true},
		{"the beginning of the other, a step behind it", 20, 5, 0, 0, 32, true, false},
	} {
		e := newFake(t)
		e.checkpoint = tt.checkpoint
		c := prefixCache{limit: 1000, async: tt.async}
		prompt := func(other, n int) []int {
			return append(slices.Repeat([]int{7}, tt.shared), slices.Repeat([]int{other}, n)...)
		}
		s, err := e.NewSequence(96)
		if err != nil {
			t.Fatal(err)
		}
		r, q := &request{prompt: prompt(1, tt.waits), capacity: 96}, &request{prompt: prompt(2, tt.running), capacity: 96, computed: tt.computed, sequence: s}
		if got := c.awaits(r, q); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
		c.entries = []*prefixEntry{{tokens: r.prompt, sequence: s}}
		if tt.checkpoint == 0 && c.awaits(r, q) {
			t.Errorf("%s: it waits for what the cache has", tt.name)
		}
	}
}
