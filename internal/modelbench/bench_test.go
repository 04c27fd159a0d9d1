package modelbench

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/kernelbench"
	"github.com/lockstep-go/lockstep/model"
)

// measured runs the cases and checks that every sequence is closed.
func measured(t *testing.T, e *fakeEngine, o Options) []Result {
	t.Helper()
	o.now = e.now
	list, err := Run(t.Context(), e, o)
	if err != nil {
		t.Fatal(err)
	}
	if e.open != 0 {
		t.Errorf("%d of %d sequences are still open", e.open, len(e.opened))
	}
	return list
}

// greedyChain returns an error unless calls are repeats of n greedy steps, each repeat from
// position fill and each step with the token of the one before.
func greedyChain(calls []call, fill, n, vocab int) error {
	for i, c := range calls {
		if want := fill + i%n; c.at != want || len(c.tokens) != 1 || c.want != model.WantToken {
			return fmt.Errorf("pass %d: %d tokens at %d for %v, want one at %d", i, len(c.tokens), c.at, c.want, want)
		}
		first := calls[0].tokens[0]
		if want := (first + i%n) % vocab; c.tokens[0] != want {
			return fmt.Errorf("pass %d is fed %d, want %d", i, c.tokens[0], want)
		}
	}
	return nil
}

func TestDecodeIsFed(t *testing.T) {
	for _, depth := range []int{0, 1, 37} {
		e := newFake(t, "llama", 200)
		got := measured(t, e, Options{Depths: []int{depth}, Steps: 6, Repeats: 3})[0]
		s, fill := e.opened[0], max(1, depth)
		if c := s.calls[0]; c.at != 0 || len(c.tokens) != fill || c.want != model.WantNothing {
			t.Errorf("depth %d: filled with %d tokens at %d for %v", depth, len(c.tokens), c.at, c.want)
		}
		if err := greedyChain(s.calls[1:], fill, 8, e.model.Config.Vocab); err != nil {
			t.Errorf("depth %d: %v", depth, err)
		}
		if want := 1 + 8*(1+3); len(s.calls) != want { // with a warm-up repeat and two untimed steps per repeat
			t.Errorf("depth %d: %d calls, want %d", depth, len(s.calls), want)
		}
		if got.Repeats != 3 || got.Passes != 6 || got.Rate != 1000 || got.Least != 1000 || got.Most != 1000 {
			t.Errorf("depth %d: %+v", depth, got)
		}
	}
}

// TestGreedyChainSees checks greedyChain itself.
func TestGreedyChainSees(t *testing.T) {
	good := []call{{5, []int{8}, model.WantToken}, {6, []int{9}, model.WantToken}, {5, []int{8}, model.WantToken}}
	if err := greedyChain(good, 5, 2, 100); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(c *call){
		"another token":  func(c *call) { c.tokens = []int{8} },
		"another place":  func(c *call) { c.at = 5 },
		"nothing wanted": func(c *call) { c.want = model.WantNothing },
	} {
		bad := slices.Clone(good)
		spoil(&bad[1])
		if greedyChain(bad, 5, 2, 100) == nil {
			t.Errorf("%s: not seen", name)
		}
	}
}

func TestPromptsAreWhole(t *testing.T) {
	e := newFake(t, "llama", 200)
	got := measured(t, e, Options{Prompts: []int{50}, Repeats: 2})[0]
	calls := e.opened[0].calls
	if len(calls) != 3 || got.Rate != 1000 || got.Passes != 1 || got.Repeats != 2 {
		t.Errorf("%d calls, %+v", len(calls), got)
	}
	for _, c := range calls {
		if c.at != 0 || len(c.tokens) != 50 || c.want != model.WantToken || !slices.Equal(c.tokens, calls[0].tokens) {
			t.Errorf("%d tokens at %d for %v", len(c.tokens), c.at, c.want)
		}
	}
}

func TestBatchStepsTogether(t *testing.T) {
	e := newFake(t, "llama", 200)
	got := measured(t, e, Options{Batches: []int{4}, BatchDepths: []int{0}, Steps: 5, Repeats: 2})[0]
	if len(e.opened) != 4 {
		t.Fatalf("%d sequences", len(e.opened))
	}
	for i, s := range e.opened {
		if err := greedyChain(s.calls[1:], 1, 7, e.model.Config.Vocab); err != nil || len(s.calls) != 1+7*3 {
			t.Errorf("sequence %d: %d calls, %v", i, len(s.calls), err)
		}
	}
	if got.Rate != 1000 { // the fake clock advances by 1 ms per token of any sequence
		t.Errorf("%+v", got)
	}
}

// TestBatchesAtDepth checks that each sequence of a batch has tokens of its own, that the batches
// of one depth share sequences, and that prompts share steps.
func TestBatchesAtDepth(t *testing.T) {
	e := newFake(t, "llama", 200)
	e.promptTokens = 50
	got := measured(t, e, Options{Batches: []int{2, 4}, BatchDepths: []int{30, 0}, Steps: 1, Repeats: 1})
	var names []string
	for _, r := range got {
		names = append(names, r.String())
		if r.Rate != 1000 || r.Err != "" {
			t.Errorf("%+v", r)
		}
	}
	if want := []string{"batch 2 at 0", "batch 4 at 0", "batch 2 at 30", "batch 4 at 30"}; !slices.Equal(names, want) {
		t.Errorf("measured %q, want %q", names, want)
	}
	if want := []int{2, 2, 50, 10, 50, 10}; !slices.Equal(e.prompts, want) {
		t.Errorf("steps of %d prompt tokens, want %d", e.prompts, want)
	}
	if len(e.opened) != 8 {
		t.Fatalf("%d sequences, want four of each depth", len(e.opened))
	}
	seen := map[string]bool{}
	for i, s := range e.opened {
		var fill []int
		for len(fill) < 30 && s.calls[0].want == model.WantNothing {
			fill, s.calls = append(fill, s.calls[0].tokens...), s.calls[1:]
		}
		depth := 1
		if i >= 4 {
			depth = 30
			if text := fmt.Sprint(fill); seen[text] {
				t.Errorf("sequence %d has the tokens of another", i)
			} else {
				seen[text] = true
			}
		}
		if len(fill) != depth {
			t.Errorf("sequence %d: %d cached positions, want %d", i, len(fill), depth)
		}
		if err := greedyChain(s.calls, depth, 3, e.model.Config.Vocab); err != nil {
			t.Errorf("sequence %d: %v", i, err)
		}
	}
	e = newFake(t, "llama", 200)
	measured(t, e, Options{Batches: []int{3}, BatchDepths: []int{5, 9}, Steps: 1, Repeats: 1})
	if want := []int{15, 27}; !slices.Equal(e.prompts, want) {
		t.Errorf("one batch at two depths: steps of %d prompt tokens, want %d", e.prompts, want)
	}
}

func TestMedian(t *testing.T) {
	e := newFake(t, "llama", 200)
	// The fill, then a warm-up and four repeats, each with two untimed steps.
	slow := []time.Duration{0, 8, 8, 9, 8, 8, 1, 8, 8, 5, 8, 8, 2, 8, 8, 4}
	e.fail = func(int, []int) error {
		e.tick, slow = slow[0]*time.Millisecond, slow[1:]
		return nil
	}
	got := measured(t, e, Options{Depths: []int{7}, Steps: 1, Repeats: 4})[0]
	if got.Rate != 1000./4 || got.Least != 200 || got.Most != 1000 || got.Repeats != 4 {
		t.Errorf("%+v", got)
	}
}

func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name, reason    string
		o               Options
		context         int
		passes, repeats int
	}{
		{"fills it", "a warm-up and two repeats share 150 ms", Options{Depths: []int{3}, Repeats: 2, Budget: 150 * time.Millisecond}, 500, 50, 2},
		{"at most 128", "a second would allow 500", Options{Depths: []int{3}, Repeats: 1, Budget: time.Second}, 500, 128, 1},
		{"context ends", "7 positions are left after two steps", Options{Depths: []int{31}, Repeats: 1}, 40, 7, 1},
		{"one position", "the last one", Options{Depths: []int{37}, Repeats: 2}, 40, 1, 2},
		{"at least one", "a step is longer than the budget", Options{Depths: []int{3}, Repeats: 7, Budget: time.Microsecond}, 500, 1, 1},
		{"stops", "two repeats of 20 ms are more than 30", Options{Depths: []int{3}, Repeats: 7, Steps: 20, Budget: 30 * time.Millisecond}, 500, 20, 2},
		{"steps end", "the context has fewer positions", Options{Depths: []int{30}, Repeats: 1, Steps: 50}, 40, 8, 1},
	} {
		e := newFake(t, "llama", c.context)
		if got := measured(t, e, c.o)[0]; got.Passes != c.passes || got.Repeats != c.repeats || got.Skipped != "" || got.Err != "" {
			t.Errorf("%s: %d × %d, want %d × %d: %s (%+v)", c.name, got.Repeats, got.Passes, c.repeats, c.passes, c.reason, got)
		}
	}
}

func TestSkips(t *testing.T) {
	for _, c := range []struct {
		name, want string
		o          Options
	}{
		{"depth", "needs 103 positions; the context has 100", Options{Depths: []int{100}}},
		{"prompt", "needs 101 positions; the context has 100", Options{Prompts: []int{101}}},
		{"sequences", "the engine steps 8 sequences together", Options{Batches: []int{9}, BatchDepths: []int{0}, Sequences: 8}},
		{"cache", "needs room for 48 positions; the KV cache has 32", Options{Batches: []int{3}, BatchDepths: []int{0}, Steps: 8, Cache: Cache{2, 16}}},
	} {
		e := newFake(t, "llama", 100)
		if got := measured(t, e, c.o)[0]; got.Skipped != c.want || got.Rate != 0 || len(e.opened) != 0 {
			t.Errorf("%s: %q, want %q; %d sequences", c.name, got.Skipped, c.want, len(e.opened))
		}
	}
	e := newFake(t, "llama", 5000)
	got := measured(t, e, Options{Prompts: []int{10, 200}, Depths: []int{50, 150}, Repeats: 1, Steps: 1, Budget: 10 * time.Millisecond})
	for i, want := range []string{"", "take about 0 s", "", "take about 0 s"} { // more than ten budgets
		if !strings.Contains(got[i].Skipped, want) || (want == "") != (got[i].Skipped == "") {
			t.Errorf("%v: %q, want %q", got[i].Case, got[i].Skipped, want)
		}
	}
}

// TestFillTime checks the estimated time of prompts. It uses the rate of the prompt that is nearest
// in length, and counts only the sequences that a batch adds.
func TestFillTime(t *testing.T) {
	e := newFake(t, "llama", 5000)
	e.fail = func(length int, tokens []int) error {
		e.tick = time.Millisecond
		if len(tokens) == 1000 {
			e.tick = 100 * time.Millisecond
		}
		return nil
	}
	got := measured(t, e, Options{
		Prompts: []int{10, 100, 1000}, Batches: []int{6, 12, 24}, BatchDepths: []int{100}, Repeats: 1, Steps: 1, Budget: 100 * time.Millisecond,
	})
	for i, want := range []string{"", "", "", "", "", "its prompts would take about 1 s"} {
		if got[i].Skipped != want || got[i].Err != "" {
			t.Errorf("%v: %q, want %q", got[i].Case, got[i].Skipped, want)
		}
	}
}

// Cases that fit exactly are measured.
func TestPages(t *testing.T) {
	o := Options{Depths: []int{0, 40, 500}, Prompts: []int{90}, Batches: []int{2, 3}, BatchDepths: []int{5}, Steps: 20}
	for _, c := range []struct{ context, positions, want int }{
		{100, 16, 6}, // 3 sequences of 27 positions: two pages each
		{100, 64, 3},
		{100, 1, 90},
		{10, 16, 3},
	} {
		got := o.Pages(c.context, c.positions)
		if got != c.want {
			t.Errorf("context %d, pages of %d: %d pages, want %d", c.context, c.positions, got, c.want)
		}
		e := newFake(t, "llama", c.context)
		fits := o
		fits.Cache = Cache{got, c.positions}
		for _, r := range measured(t, e, fits) {
			if strings.Contains(r.Skipped, "KV cache") {
				t.Errorf("%v: %s", r.Case, r.Skipped)
			}
		}
	}
}

func TestOrder(t *testing.T) {
	e := newFake(t, "llama", 200)
	var shown []string
	measured(t, e, Options{
		Depths: []int{9, 0, 9}, Prompts: []int{4, 2}, Batches: []int{3, 1}, BatchDepths: []int{7, 0}, Steps: 1, Repeats: 1,
		Show: func(r Result) { shown = append(shown, r.String()) },
	})
	want := []string{"prefill 2", "prefill 4", "decode at 0", "decode at 9", "batch 1 at 0", "batch 3 at 0", "batch 1 at 7", "batch 3 at 7"}
	if !slices.Equal(shown, want) {
		t.Errorf("shown %q, want %q", shown, want)
	}
}

func TestRatios(t *testing.T) {
	decode := Case{Kind: Decode, Depth: 5, Sequences: 1}
	batch := Case{Kind: Batch, Depth: 5, Sequences: 1}
	earlier := Report{Results: []Result{{Case: decode, Rate: 200}, {Case: batch, Skipped: "no room"}}}
	for _, c := range []struct {
		name, reason string
		now          Result
		want         float64
	}{
		{"faster", "above 1", Result{Case: decode, Rate: 500}, 2.5},
		{"slower", "below 1", Result{Case: decode, Rate: 100}, 0.5},
		{"failed", "nothing was measured", Result{Case: decode, Err: "broken"}, 0},
		{"skipped before", "nothing was measured", Result{Case: batch, Rate: 500}, 0},
		{"new", "the earlier run has no such depth", Result{Case: Case{Kind: Decode, Depth: 6, Sequences: 1}, Rate: 500}, 0},
	} {
		if got := (Report{Results: []Result{{}, c.now}}).Ratios(earlier); len(got) != 2 || got[1] != c.want {
			t.Errorf("%s: %v, want %v: %s", c.name, got, c.want, c.reason)
		}
	}
}

func TestReportJSON(t *testing.T) {
	e := newFake(t, "llama", 200)
	limits := &kernelbench.Limits{ReadPlain: 4e12, MMA: 6e14}
	o := Options{Depths: []int{3, 500}, Steps: 2, Repeats: 1, Limits: limits}
	rep := Report{Version: Version, Date: "2030-01-02", Model: Describe(e.model, "tiny", "f32"), Limits: limits, Results: measured(t, e, o)}
	text, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"version":3`, `"date":"2030-01-02"`, `"kind":"decode","depth":3,`, `"tokens_per_second":1000`, `"limit":"read"`, `"share_of_limit":`,
		`"skipped":"needs 503 positions; the context has 200"`, `"token_bytes":`, `"read_plain_bytes_per_second":4000000000000`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	for _, absent := range []string{"joules", `"error"`} {
		if strings.Contains(string(text), absent) {
			t.Errorf("%s in %s", absent, text)
		}
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back.Results, rep.Results) {
		t.Errorf("read back %+v, want %+v (%v)", back.Results[0], rep.Results[0], err)
	}
}
