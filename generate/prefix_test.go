package generate

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

func TestPrefixCalls(t *testing.T) {
	greedy, drawn := Params{MaxTokens: 2}, Params{MaxTokens: 2, Temperature: 1}
	type request struct {
		prompt []int
		p      Params
	}
	tests := []struct {
		name, reason string
		requests     []request
		prefills     []fakeCall // of the last request; nil: none
		stats        PrefixStats
	}{
		{"miss", "the first has nothing to reuse",
			[]request{{[]int{1, 2, 3}, greedy}},
			[]fakeCall{{0, []int{1, 2, 3}, model.WantGreedy}}, PrefixStats{Misses: 1}},
		{"unrelated", "another first token",
			[]request{{[]int{1, 2, 3}, greedy}, {[]int{2, 2, 3}, greedy}},
			[]fakeCall{{0, []int{2, 2, 3}, model.WantGreedy}}, PrefixStats{Misses: 2}},
		{"longer", "the whole earlier prompt is reused",
			[]request{{[]int{1, 2, 3}, greedy}, {[]int{1, 2, 3, 4, 5}, greedy}},
			[]fakeCall{{3, []int{4, 5}, model.WantGreedy}}, PrefixStats{Misses: 1, Hits: 1, Reused: 3}},
		{"differs at the end", "two tokens are computed again, as a prompt",
			[]request{{[]int{1, 2, 3, 4}, greedy}, {[]int{1, 2, 9}, greedy}},
			[]fakeCall{{1, []int{2, 9}, model.WantGreedy}}, PrefixStats{Misses: 1, Hits: 1, Reused: 1}},
		{"differs far from the end", "the common prefix is reused",
			[]request{{[]int{1, 2, 3, 4}, greedy}, {[]int{1, 2, 9, 9}, greedy}},
			[]fakeCall{{2, []int{9, 9}, model.WantGreedy}}, PrefixStats{Misses: 1, Hits: 1, Reused: 2}},
		{"shorter", "its last two tokens are computed again, as a prompt",
			[]request{{[]int{1, 2, 3, 4}, greedy}, {[]int{1, 2, 3}, greedy}},
			[]fakeCall{{1, []int{2, 3}, model.WantGreedy}}, PrefixStats{Misses: 1, Hits: 1, Reused: 1}},
		{"exact", "no prefill",
			[]request{{[]int{1, 2, 3}, greedy}, {[]int{1, 2, 3}, greedy}},
			nil, PrefixStats{Misses: 1, Hits: 1, FullHits: 1, Reused: 3}},
		{"exact after drawing", "logits hold the greedy choice too",
			[]request{{[]int{1, 2, 3}, drawn}, {[]int{1, 2, 3}, greedy}},
			nil, PrefixStats{Misses: 1, Hits: 1, FullHits: 1, Reused: 3}},
		{"exact but without logits", "the last two tokens are computed for them",
			[]request{{[]int{1, 2, 3}, greedy}, {[]int{1, 2, 3}, drawn}},
			[]fakeCall{{1, []int{2, 3}, model.WantLast}}, PrefixStats{Misses: 1, Hits: 1, Reused: 1}},
		{"then with logits", "they are stored",
			[]request{{[]int{1, 2, 3}, greedy}, {[]int{1, 2, 3}, drawn}, {[]int{1, 2, 3}, drawn}},
			nil, PrefixStats{Misses: 1, Hits: 2, FullHits: 1, Reused: 4}},
		{"one token, no logits", "nothing is left to reuse",
			[]request{{[]int{1}, greedy}, {[]int{1}, drawn}},
			[]fakeCall{{0, []int{1}, model.WantLast}}, PrefixStats{Misses: 2}},
		{"exact beside longer", "the exact one is preferred",
			[]request{{[]int{1, 2}, greedy}, {[]int{1, 2, 3}, greedy}, {[]int{1, 2}, greedy}},
			nil, PrefixStats{Misses: 1, Hits: 2, FullHits: 1, Reused: 3}},
		{"exact after longer", "the exact one is preferred wherever it lies",
			[]request{{[]int{1, 2, 3}, greedy}, {[]int{1, 2}, greedy}, {[]int{1, 2}, greedy}},
			nil, PrefixStats{Misses: 2, Hits: 1, FullHits: 1, Reused: 2}},
		{"exact after longer, one token", "the exact one is preferred for any length",
			[]request{{[]int{1, 2}, greedy}, {[]int{1}, greedy}, {[]int{1}, greedy}},
			nil, PrefixStats{Misses: 2, Hits: 1, FullHits: 1, Reused: 1}},
		{"as long as the prompt", "the longer common prefix counts",
			[]request{{[]int{1, 2, 3, 4, 5}, greedy}, {[]int{1, 9, 9, 9, 9}, greedy}, {[]int{1, 2, 3, 4, 6}, greedy}},
			[]fakeCall{{3, []int{4, 6}, model.WantGreedy}}, PrefixStats{Misses: 1, Hits: 2, Reused: 4}},
		{"two tokens, no logits", "nothing is left to reuse",
			[]request{{[]int{1, 2}, greedy}, {[]int{1, 2}, drawn}},
			[]fakeCall{{0, []int{1, 2}, model.WantLast}}, PrefixStats{Misses: 2}},
		{"generated tokens", "only prompts are kept",
			[]request{{[]int{1, 2}, greedy}, {[]int{1, 2, 'a', 'b'}, greedy}},
			[]fakeCall{{2, []int{'a', 'b'}, model.WantGreedy}}, PrefixStats{Misses: 1, Hits: 1, Reused: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t)
			e.choose = func(h []int) int { return 'a' + len(h)%2 }
			g, err := New(e, Options{PrefixBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range tt.requests {
				e.forwards = nil
				if got := collect(g.Tokens(t.Context(), r.prompt, r.p)); got.Err != nil {
					t.Fatal(got.Err)
				}
			}
			last := e.forwards[:len(e.forwards)-1] // the last call is the one step
			if diff := cmp.Diff(tt.prefills, append([]fakeCall(nil), last...)); diff != "" {
				t.Errorf("%s: prefill (-want +got):\n%s", tt.reason, diff)
			}
			stats := g.PrefixStats()
			stats.Entries, stats.Bytes = 0, 0
			if diff := cmp.Diff(tt.stats, stats); diff != "" {
				t.Errorf("%s: counters (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// TestPrefixHitEqualsMiss compares generations with and without a prefix cache, which is so
// small that it evicts all the time. The random prompts share prefixes.
func TestPrefixHitEqualsMiss(t *testing.T) {
	e := newFake(t)
	g, err := New(e, Options{PrefixBytes: 8000})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		prompt := make([]int, 1+random.IntN(8))
		for i := range prompt {
			prompt[i] = random.IntN(2)
		}
		p := Params{MaxTokens: random.IntN(4)}
		if random.IntN(2) == 0 {
			p.Temperature, p.Seed = 1, random.Uint64()
		}
		want, got := collect(Tokens(t.Context(), e, prompt, p)), collect(g.Tokens(t.Context(), prompt, p))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("prompt %v (-miss +cached):\n%s", prompt, diff)
		}
		if s := g.PrefixStats(); s.Bytes > 8000 {
			t.Fatalf("the cache holds %d bytes", s.Bytes)
		}
	}
	if s := g.PrefixStats(); s.Hits == 0 || s.FullHits == 0 || s.Misses == 0 || s.Evictions == 0 {
		t.Errorf("the test did not reach everything: %+v", s)
	}
	e.idle(t)
}

func TestPrefixEviction(t *testing.T) {
	e := newFake(t)
	// Entries of 2 tokens take 2·(100+8) bytes: three fit.
	g, err := New(e, Options{PrefixBytes: 3*216 + 215})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(a, b int) (reused int) {
		t.Helper()
		var s Stats
		if got := collect(g.Tokens(t.Context(), []int{a, b}, Params{MaxTokens: 1, Stats: &s})); got.Err != nil {
			t.Fatal(got.Err)
		}
		return s.ReusedTokens
	}
	for a := 1; a <= 3; a++ {
		ask(a, a)
	}
	ask(1, 1) // now 2 is the least recently used
	ask(4, 4)
	for _, tt := range []struct{ id, reused int }{{1, 2}, {3, 2}, {4, 2}, {2, 0}} {
		if got := ask(tt.id, tt.id); got != tt.reused {
			t.Errorf("prompt %d: %d tokens reused, want %d", tt.id, got, tt.reused)
		}
	}
	if s := g.PrefixStats(); s.Evictions != 2 || s.Entries != 3 || s.Bytes != 3*216 {
		t.Errorf("counters %+v", s)
	}
	// A prompt that does not fit must not evict others.
	collect(g.Tokens(t.Context(), make([]int, 20), Params{MaxTokens: 1}))
	if s := g.PrefixStats(); s.Entries != 3 || s.Evictions != 2 {
		t.Errorf("after a prompt too long to keep: %+v", s)
	}
}

// Entries that fill the cache exactly must stay.
func TestPrefixExactFit(t *testing.T) {
	for n := 1; n <= 3; n++ {
		g, err := New(newFake(t), Options{PrefixBytes: int64(n * 216)})
		if err != nil {
			t.Fatal(err)
		}
		for a := range n {
			collect(g.Tokens(t.Context(), []int{a, a}, Params{MaxTokens: 1}))
		}
		if s := g.PrefixStats(); s.Entries != n || s.Bytes != int64(n*216) || s.Evictions != 0 {
			t.Errorf("%d prompts in a cache of their size: %+v", n, s)
		}
	}
}

// A snapshot that cannot be closed must give an error where it is dropped.
func TestPrefixCloseError(t *testing.T) {
	broken := errors.New("broken")
	e := newFake(t)
	e.before = func(op string, _ []int) error {
		if op == "close snapshot" {
			return broken
		}
		return nil
	}
	g, err := New(e, Options{PrefixBytes: 216})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		prompt []int
		want   error
	}{
		{"stored", []int{1, 1}, nil},
		{"evicts", []int{2, 2}, broken},
		{"does not fit", []int{1, 2, 3}, broken},
	} {
		if got := collect(g.Tokens(t.Context(), tt.prompt, Params{MaxTokens: 1})); !errors.Is(got.Err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, got.Err, tt.want)
		}
	}
	if err := g.Close(); !errors.Is(err, broken) {
		t.Errorf("Close gave %v", err)
	}
	e.idle(t)
}

// A replaced entry must not count, and its snapshot must be closed.
func TestPrefixReplaced(t *testing.T) {
	e := newFake(t)
	g, err := New(e, Options{PrefixBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []float64{0, 1} { // the second needs logits
		collect(g.Tokens(t.Context(), []int{1, 2}, Params{MaxTokens: 1, Temperature: temperature}))
	}
	if s := g.PrefixStats(); s.Entries != 1 || s.Bytes != int64(2*(100+8)+4*tiny.Vocab) {
		t.Errorf("one prompt with its logits: %+v", s)
	}
	e.liveSnapshots(t, "one prompt, computed twice", 1)
}

// Sessions with other RoPE factors compute another function and must not share entries.
func TestPrefixLongContext(t *testing.T) {
	e := newFake(t)
	e.model.Config.LongContext = 10
	g, err := New(e, Options{PrefixBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct{ max, reused int }{{2, 0}, {3, 3}, {20, 0}, {21, 3}, {4, 3}} {
		var s Stats
		collect(g.Tokens(t.Context(), []int{1, 2, 3}, Params{MaxTokens: tt.max, Stats: &s}))
		if s.ReusedTokens != tt.reused {
			t.Errorf("request %d, %d new tokens: %d reused, want %d", i, tt.max, s.ReusedTokens, tt.reused)
		}
	}
}

func TestPrefixRestoreError(t *testing.T) {
	e := newFake(t)
	broken := errors.New("broken")
	fail := false
	e.before = func(op string, _ []int) error {
		if op == "restore" && fail {
			return broken
		}
		return nil
	}
	g, err := New(e, Options{PrefixBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	p := Params{MaxTokens: 3}
	want := collect(g.Tokens(t.Context(), []int{1, 2}, p))
	fail = true
	if got := collect(g.Tokens(t.Context(), []int{1, 2}, p)); !errors.Is(got.Err, broken) || len(got.IDs) > 0 {
		t.Errorf("%+v, want the engine's error", got)
	}
	fail = false
	if diff := cmp.Diff(want, collect(g.Tokens(t.Context(), []int{1, 2}, p))); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
	e.idle(t)
}

func TestNoPrefixCache(t *testing.T) {
	e := newFake(t)
	e.before = func(op string, _ []int) error {
		if op == "snapshot" || op == "restore" {
			t.Errorf("%s without a prefix cache", op)
		}
		return nil
	}
	g, err := New(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	collect(g.Tokens(t.Context(), make([]int, tiny.Context/2), Params{MaxTokens: 2}))
	if diff := cmp.Diff(PrefixStats{}, g.PrefixStats()); diff != "" {
		t.Error(diff)
	}
}

// liveSnapshots fails the test unless want snapshots are open.
func (e *fakeEngine) liveSnapshots(t *testing.T, when string, want int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.snapshots != want {
		t.Errorf("%s: %d snapshots are open, want %d", when, e.snapshots, want)
	}
}

// TestPrefixSnapshotsAreClosed closes a snapshot when its entry is evicted, replaced,
// never stored, or left in a cache that is closed.
func TestPrefixSnapshotsAreClosed(t *testing.T) {
	e := newFake(t)
	g, err := New(e, Options{PrefixBytes: 2*216 + 215}) // two prompts of two tokens
	if err != nil {
		t.Fatal(err)
	}
	ask := func(p Params, prompt ...int) {
		t.Helper()
		p.MaxTokens = 1
		if got := collect(g.Tokens(t.Context(), prompt, p)); got.Err != nil {
			t.Fatal(got.Err)
		}
	}
	ask(Params{}, 1, 1)
	ask(Params{}, 2, 2)
	e.liveSnapshots(t, "two prompts", 2)
	ask(Params{}, 1, 1)
	e.liveSnapshots(t, "after a full hit", 2)
	ask(Params{}, 3, 3)
	e.liveSnapshots(t, "after an eviction", 2)
	ask(Params{}, make([]int, 20)...)
	e.liveSnapshots(t, "after a prompt that does not fit", 2)
	if err := errors.Join(g.Close(), g.Close()); err != nil {
		t.Fatal(err)
	}
	e.liveSnapshots(t, "closed", 0)
	ask(Params{}, 1, 1)
	e.liveSnapshots(t, "a prompt after Close", 0)
	if s := g.PrefixStats(); s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("after Close: %+v", s)
	}
}

// TestPrefixEvictedWhileRestoring keeps a snapshot open until the last generation that
// restores from it has done so.
func TestPrefixEvictedWhileRestoring(t *testing.T) {
	e := newFake(t)
	g, err := New(e, Options{PrefixBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	prompt, p := []int{1, 2, 3}, Params{MaxTokens: 1}
	want := collect(g.Tokens(t.Context(), prompt, p))
	e.before = func(op string, _ []int) error {
		if op == "restore" {
			e.liveSnapshots(t, "before Close", 1)
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			e.liveSnapshots(t, "closed while a generation restores", 1)
		}
		return nil
	}
	if diff := cmp.Diff(want, collect(g.Tokens(t.Context(), prompt, p))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e.liveSnapshots(t, "restored", 0)
}

// TestPrefixConcurrentEviction lets many generations hit, evict and restore at once.
func TestPrefixConcurrentEviction(t *testing.T) {
	e := newFake(t)
	g, err := New(e, Options{PrefixBytes: 1000, Parallel: 8})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(8, 9))
	prompts := make([][]int, 400)
	for i := range prompts {
		prompts[i] = []int{random.IntN(2), random.IntN(2), random.IntN(2), 1, random.IntN(2)}
	}
	for i, r := range g.BatchTokens(t.Context(), prompts, Params{MaxTokens: 1}) {
		if r.Err != nil {
			t.Fatalf("prompt %d: %v", i, r.Err)
		}
	}
	s := g.PrefixStats()
	if s.Hits == 0 || s.Evictions == 0 {
		t.Errorf("the test did not reach everything: %+v", s)
	}
	e.liveSnapshots(t, "all done", s.Entries)
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	e.liveSnapshots(t, "closed", 0)
	e.idle(t)
}
