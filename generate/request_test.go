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
	"github.com/lockstep-go/lockstep/model/sampling"
)

// Impossible requests must be refused before the engine is used.
func TestRefusedBeforeCompute(t *testing.T) {
	tests := []struct {
		name, reason string
		prompt       []int
		p            Params
		opts         Options
		pages        int // of 4 positions
		sentinel     error
		text         string
	}{
		{"empty prompt", "there is nothing to continue", nil, Params{MaxTokens: 1}, Options{}, 0, model.ErrEmptyPrompt, "empty prompt"},
		{"empty prompt, no tokens wanted", "refused even without tokens to generate", nil, Params{}, Options{}, 0, model.ErrEmptyPrompt, ""},
		{"token beyond the vocabulary", "the error has its index", []int{1, tiny.Vocab}, Params{MaxTokens: 1}, Options{}, 0, model.ErrBadToken, "at index 1"},
		{"negative token", "the error has its index", []int{-1}, Params{MaxTokens: 1}, Options{}, 0, model.ErrBadToken, "at index 0"},
		{"prompt beyond the context", "the error has both numbers", make([]int, tiny.Context+1), Params{}, Options{}, 0, model.ErrContextLimit, "97 positions and there are 96"},
		{"prompt beyond the context, until it is full", "the error has both numbers", make([]int, tiny.Context+1), Params{MaxTokens: -1}, Options{}, 0, model.ErrContextLimit, "97 positions and there are 96"},
		{"new tokens beyond the context", "the error has both numbers", make([]int, 10), Params{MaxTokens: 87}, Options{}, 0, model.ErrContextLimit, "97 positions and there are 96"},
		{"beyond the capacity", "the generator's limit is smaller", make([]int, 10), Params{MaxTokens: 7}, Options{Capacity: 16}, 0, model.ErrContextLimit, "17 positions and there are 16"},
		{"beyond the cache", "it could never run, so it does not wait", make([]int, 10), Params{MaxTokens: 11}, Options{}, 5, model.ErrContextLimit, "21 positions and there are 20"},
		{"endless", "the sum of both must not overflow", make([]int, 10), Params{MaxTokens: math.MaxInt}, Options{}, 0, model.ErrContextLimit, "there are 96"},
		{"bad parameter", "parameters are checked first", []int{1}, Params{MinTokens: -1}, Options{}, 0, ErrBadParams, "MinTokens"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t)
			e.limits.Pages = tt.pages
			g := newTest(t, e, tt.opts)
			stats := Stats{Finish: FinishLength}
			tt.p.Stats = &stats
			got := collect(g.Tokens(t.Context(), tt.prompt, tt.p))
			batch := g.BatchTokens(t.Context(), [][]int{tt.prompt}, tt.p)[0].Err
			for _, err := range []error{got.Err, batch} {
				if !errors.Is(err, tt.sentinel) || !strings.HasPrefix(err.Error(), "generate: ") || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%s: error %v, want %v with %q", tt.reason, err, tt.sentinel, tt.text)
				}
			}
			if len(got.IDs) > 0 || e.opened > 0 || stats.Finish != FinishError {
				t.Errorf("%d tokens, %d sequences, finish %v: something was computed", len(got.IDs), e.opened, stats.Finish)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	e := newFake(t)
	for _, o := range []Options{{Capacity: -1}, {PromptTokens: -1}, {MaxWaiting: -1}} {
		if _, err := New(e, o); !errors.Is(err, ErrBadParams) || !strings.Contains(err.Error(), "-1") {
			t.Errorf("%+v gave %v", o, err)
		}
	}
	for _, tt := range []struct{ capacity, pages, limit int }{{tiny.Context + 1, 0, tiny.Context}, {41, 10, 40}} {
		e.limits.Pages = tt.pages
		if _, err := New(e, Options{Capacity: tt.capacity}); !errors.Is(err, model.ErrContextLimit) {
			t.Errorf("a capacity of %d with %d pages gave %v", tt.capacity, tt.pages, err)
		}
		g, err := New(e, Options{Capacity: tt.limit})
		if err != nil {
			t.Fatalf("the largest capacity gave %v", err)
		}
		if err := g.Close(); err != nil {
			t.Errorf("closing an unused generator gave %v", err)
		}
	}
}

// The engine computes a prompt once, then each token but the last. It computes one row more
// than needed if the end is a surprise. The first token comes from the prompt.
func TestRows(t *testing.T) {
	prompt := fakeRow{0, []int{7, 8, 9}, true, model.WantToken}
	steps := []fakeRow{prompt, {3, nil, false, model.WantToken}, {4, nil, false, model.WantToken}, {5, nil, false, model.WantToken}, {6, nil, false, model.WantToken}}
	tests := []struct {
		name, reason string
		p            Params
		opts         Options
		want         []fakeRow
	}{
		{"one token", "no step at all", Params{MaxTokens: 1}, Options{}, steps[:1]},
		{"three tokens", "two steps", Params{MaxTokens: 3}, Options{}, steps[:3]},
		{"until the end", "one step is queued ahead of the stop token", Params{MaxTokens: 50}, Options{}, steps},
		{"no token", "nothing is computed", Params{}, Options{}, nil},
		{"prompt in parts", "only the last wants a token", Params{MaxTokens: 1}, Options{PromptTokens: 2},
			[]fakeRow{{0, []int{7, 8}, true, model.WantNothing}, {2, []int{9}, true, model.WantToken}}},
		{"hook", "the next row waits for the choice, and knows the token only on the device",
			Params{MaxTokens: 2, Logits: func([]int, []float32) {}}, Options{},
			[]fakeRow{{0, []int{7, 8, 9}, true, model.WantLogits}, {3, nil, false, model.WantLogits}}},
		{"mask", "no logits come back", Params{MaxTokens: 2, Mask: anything}, Options{},
			[]fakeRow{prompt, {3, nil, false, model.WantToken}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t).speak(3, "abc")
			g := newTest(t, e, tt.opts)
			if got := collect(g.Tokens(t.Context(), []int{7, 8, 9}, tt.p)); got.Err != nil {
				t.Fatal(got.Err)
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, e.rows()); diff != "" {
				t.Errorf("%s: rows (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}

// All sequences have one capacity, except that short requests keep the RoPE factors for short
// contexts.
func TestSequenceCapacity(t *testing.T) {
	for _, tt := range []struct{ option, long, max, want int }{
		{0, 0, 5, tiny.Context}, {0, 0, -1, tiny.Context},
		{16, 0, 5, 16}, {16, 0, -1, 16}, {16, 10, 5, 16},
		{0, 10, 7, 10}, {0, 10, 8, tiny.Context}, {0, 10, -1, tiny.Context},
	} {
		e := newFake(t)
		e.model.Config.LongContext = tt.long
		g := newTest(t, e, Options{Capacity: tt.option})
		var capacity int
		e.before = func(op string, _ []int) error {
			if op == "row" {
				capacity = e.open[0].capacity
			}
			return nil
		}
		if got := collect(g.Tokens(t.Context(), []int{1, 2, 3}, Params{MaxTokens: tt.max})); got.Err != nil {
			t.Fatal(got.Err)
		}
		if capacity != tt.want {
			t.Errorf("%+v: a sequence of %d positions", tt, capacity)
		}
	}
}

func TestSeeds(t *testing.T) {
	g := newTest(t, newFake(t), Options{})
	text := func(seed uint64, choice uint32) []int {
		p := Params{MaxTokens: 20, Sampling: sampling.Params{Temperature: 1.5, Seed: seed, Choice: choice}}
		got := collect(g.Tokens(t.Context(), []int{1}, p))
		if got.Err != nil {
			t.Fatal(got.Err)
		}
		return got.IDs
	}
	if diff := cmp.Diff(text(3, 0), text(3, 0)); diff != "" {
		t.Errorf("the same seed gave two texts:\n%s", diff)
	}
	if cmp.Equal(text(3, 0), text(4, 0)) || cmp.Equal(text(3, 0), text(3, 1)) {
		t.Error("two seeds or choices gave the same text")
	}
}

// Ranging over a sequence again generates again.
func TestSequenceTwice(t *testing.T) {
	e := newFake(t)
	seq := Tokens(t.Context(), e, []int{1, 2}, Params{MaxTokens: 5, Sampling: sampling.Params{Temperature: 1}})
	if diff := cmp.Diff(collect(seq), collect(seq)); diff != "" {
		t.Errorf("second range (-first +second):\n%s", diff)
	}
}

// The caller may change a prompt after the generation.
func TestPromptIsCopied(t *testing.T) {
	g := newTest(t, newFake(t), Options{})
	prompt := []int{1, 2, 3}
	collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: 2}))
	prompt[0] = 9
	collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: 2}))
	if s := g.Load().Prefix; s.Hits != 0 || s.Misses != 2 {
		t.Errorf("the cache shares memory with the caller: %+v", s)
	}
}

func TestStats(t *testing.T) {
	e := newFake(t).speak(3, "abc")
	g := newTest(t, e, Options{})
	const pass = 2 * time.Millisecond // at least
	e.before = func(op string, _ []int) error {
		if op == "wait" {
			time.Sleep(pass)
		}
		return nil
	}
	var s Stats
	for _, reused := range []int{0, 2} {
		begin := time.Now()
		collect(g.Tokens(t.Context(), []int{1, 2, 3}, Params{MaxTokens: 9, Stats: &s}))
		took := time.Since(begin)
		want := Stats{PromptTokens: 3, ReusedTokens: reused, GeneratedTokens: 3, Steps: 3, Finish: FinishStopToken}
		got := s
		if sum := s.Waited + s.Prefill; s.FirstToken != sum || s.FirstToken+s.Decode > took {
			t.Errorf("phases %v, first token %v, decode %v, in all %v", sum, s.FirstToken, s.Decode, took)
		}
		if s.Waited < 0 || s.Decode < 3*pass || s.Prefill < pass {
			t.Errorf("waited %v, prefill %v, decode %v", s.Waited, s.Prefill, s.Decode)
		}
		got.Waited, got.Prefill, got.FirstToken, got.Decode = 0, 0, 0, 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if s.PrefillRate() <= 0 || s.DecodeRate() <= 0 || (Stats{}).PrefillRate() != 0 || (Stats{}).DecodeRate() != 0 {
		t.Errorf("rates %v, %v", s.PrefillRate(), s.DecodeRate())
	}
}

// Penalties count generated tokens.
func TestPenaltiesSeeGeneratedTokens(t *testing.T) {
	e := newFake(t)
	p := Params{MaxTokens: 90, IgnoreEOS: true, Sampling: sampling.Params{PresencePenalty: 1000}}
	got := collect(Tokens(t.Context(), e, []int{1, 2, 3}, p))
	if got.Err != nil || len(got.IDs) != 90 {
		t.Fatalf("%d tokens, error %v", len(got.IDs), got.Err)
	}
	seen := map[int]bool{}
	for i, id := range got.IDs {
		if seen[id] {
			t.Errorf("token %d, %d, is repeated", i, id)
		}
		seen[id] = true
	}
}

func TestLogProbs(t *testing.T) {
	e := newFake(t).speak(1, "abc")
	p := Params{MaxTokens: 3, Sampling: sampling.Params{LogProb: true, TopLogProbs: 2}}
	var all []Token // the engine reuses its memory
	for token, err := range Tokens(t.Context(), e, []int{1}, p) {
		if all = append(all, token); err != nil {
			t.Fatal(err)
		}
	}
	for _, token := range all {
		top := sampling.LogProb{Token: token.ID, LogProb: 100}
		if token.LogProb != 100 || len(token.Top) != 2 || token.Top[0] != top {
			t.Errorf("token %+v", token)
		}
	}
	if len(all) != 3 {
		t.Errorf("%d tokens", len(all))
	}
}

// Before MinTokens neither an end token nor a stop string ends the text.
func TestMinTokens(t *testing.T) {
	tests := []struct {
		name, reason string
		says         string
		p            Params
		want         string
		finish       FinishReason
	}{
		{"end token", "another is chosen until then", "a", Params{MaxTokens: 5, MinTokens: 3}, "a??", FinishStopToken},
		{"reached", "the end is free", "abc", Params{MaxTokens: 5, MinTokens: 3}, "abc", FinishStopToken},
		{"stop token", "of the caller", "axb", Params{MaxTokens: 5, MinTokens: 2, StopTokens: []int{'x'}}, "a?b", FinishStopToken},
		{"ignored end", "it is an ordinary token", "a", Params{MaxTokens: 3, MinTokens: 3, IgnoreEOS: true}, "a", FinishLength},
		{"stop string", "ordinary text until then", "xaxb", Params{MaxTokens: 5, MinTokens: 3, Stop: []string{"x"}}, "xa", FinishStopString},
		{"held back", "a stop string that ended too early does not count later", "abxab", Params{MaxTokens: 6, MinTokens: 3, Stop: []string{"ab", "abyz"}}, "abx", FinishStopString},
		{"stop string across", "it ends at the token that completes it", "aENDb", Params{MaxTokens: 5, MinTokens: 4, Stop: []string{"END"}}, "a", FinishStopString},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newFake(t)
			e.script = func(history []int) []float32 {
				logits := make([]float32, tiny.Vocab)
				logits['?'] = 1 // the second best
				if i := len(history) - 1; i < len(tt.says) {
					logits[tt.says[i]] = 2
				} else {
					logits[tiny.End] = 2
				}
				return logits
			}
			var stats Stats
			tt.p.Stats = &stats
			got := collect(Tokens(t.Context(), e, []int{1}, tt.p))
			if got.Err != nil || got.Text != tt.want || stats.Finish != tt.finish {
				t.Errorf("%s: %q, finish %v, error %v; want %q, %v", tt.reason, got.Text, stats.Finish, got.Err, tt.want, tt.finish)
			}
		})
	}
}

// only returns a mask of the given tokens.
func only(ids ...int) []uint32 {
	mask := make([]uint32, sampling.MaskLen(tiny.Vocab))
	for _, id := range ids {
		mask[id/32] |= 1 << (id % 32)
	}
	return mask
}

// A mask sees each token once, and limits the next.
func TestMask(t *testing.T) {
	const says = "aab"
	p := Params{MaxTokens: 8, Mask: func() func([]int) ([]uint32, error) {
		calls := 0
		return func(generated []int) ([]uint32, error) {
			if len(generated) != calls {
				t.Errorf("call %d with %d tokens", calls, len(generated))
			}
			if calls++; calls > len(says) {
				return only(tiny.End), nil
			}
			return only(int(says[calls-1])), nil
		}
	}}
	for name, change := range map[string]func(p *Params){
		"alone":                        func(*Params) {},
		"with a hook":                  func(p *Params) { p.Logits = func([]int, []float32) {} },
		"nothing but the end, too few": func(p *Params) { p.MinTokens = 6 },
	} {
		t.Run(name, func(t *testing.T) {
			p := p
			change(&p)
			for range 2 { // each generation has a constraint of its own
				if got := collect(Tokens(t.Context(), newFake(t), []int{1}, p)); got.Err != nil || got.Text != says {
					t.Errorf("%q, error %v", got.Text, got.Err)
				}
			}
		})
	}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		mask []uint32
		err  error
		want error
		text string
	}{
		{"failed", nil, broken, broken, "generate: Params.Mask: broken"},
		{"too short", []uint32{1}, nil, ErrBadParams, "1 elements, want 9 for a vocabulary of 264"},
		{"nothing", only(), nil, ErrNoChoice, ""},
	} {
		p.Mask = func() func([]int) ([]uint32, error) {
			return func([]int) ([]uint32, error) { return tt.mask, tt.err }
		}
		if got := collect(Tokens(t.Context(), newFake(t), []int{1}, p)); !errors.Is(got.Err, tt.want) || !strings.Contains(got.Err.Error(), tt.text) {
			t.Errorf("%s: error %v", tt.name, got.Err)
		}
	}
}

// The hook sees the tokens so far and changes the logits of this generation only.
func TestLogitsHook(t *testing.T) {
	e := newFake(t).speak(2, "abc")
	g := newTest(t, e, Options{})
	calls := 0
	p := Params{MaxTokens: 4, Logits: func(generated []int, logits []float32) {
		if calls != len(generated) || len(logits) != tiny.Vocab || logits["abc"[min(calls, 2)]] < 50 && calls < 3 {
			t.Errorf("call %d with %d tokens and %d logits", calls, len(generated), len(logits))
		}
		calls++
		for i := range logits {
			logits[i] = 0
		}
		logits['x'] = 1
	}}
	if got := collect(g.Tokens(t.Context(), []int{1, 2}, p)); got.Err != nil || got.Text != "xxxx" || calls != 4 {
		t.Errorf("%q after %d calls, error %v", got.Text, calls, got.Err)
	}
	if got := collect(g.Tokens(t.Context(), []int{1, 2}, Params{MaxTokens: 9})); got.Err != nil || got.Text != "abc" {
		t.Errorf("without the hook, from the prefix cache: %q, error %v", got.Text, got.Err)
	}
}

// An embedding does not depend on chunks or on the prefix cache. It is the pooled states,
// scaled to length 1.
func TestEmbed(t *testing.T) {
	prompt := []int{1, 2, 3, 4, 5, 6, 7}
	states := func(e *fakeEngine) []float32 { // of all positions
		s, err := e.NewSequence(0)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		out, err := model.Forward(t.Context(), e, model.Row{Sequence: s, Tokens: prompt, Prompt: true, Want: model.WantHidden})
		if err != nil {
			t.Fatal(err)
		}
		return out.Hidden
	}(newFake(t))
	for pooling, weight := range map[model.Pooling]func(i int) float64{
		model.PoolMean:  func(int) float64 { return 1 / float64(len(prompt)) },
		model.PoolFirst: func(i int) float64 { return map[int]float64{0: 1}[i] },
		model.PoolLast:  func(i int) float64 { return map[int]float64{len(prompt) - 1: 1}[i] },
	} {
		want := make([]float64, tiny.Hidden)
		for i, x := range states {
			want[i%tiny.Hidden] += weight(i/tiny.Hidden) * float64(x)
		}
		length := 0.0
		for _, x := range want {
			length = math.Hypot(length, x)
		}
		for _, o := range []Options{{}, {PromptTokens: 2}, {PromptTokens: 1}} {
			e := newFake(t)
			e.model.Config.Pooling = pooling
			g := newTest(t, e, o)
			collect(g.Tokens(t.Context(), prompt, Params{MaxTokens: 1}))
			got, err := g.Embed(t.Context(), prompt)
			if err != nil || len(got) != tiny.Hidden {
				t.Fatalf("%d elements, error %v", len(got), err)
			}
			for i, x := range got {
				if math.Abs(float64(x)-want[i]/length) > 1e-6 {
					t.Fatalf("pooling %d, %+v: element %d is %v, want %v", pooling, o, i, x, want[i]/length)
				}
			}
		}
	}
	g := newTest(t, newFake(t), Options{})
	for _, tt := range []struct {
		prompt []int
		want   error
	}{{nil, model.ErrEmptyPrompt}, {[]int{tiny.Vocab}, model.ErrBadToken}, {make([]int, tiny.Context+1), model.ErrContextLimit}} {
		if _, err := g.Embed(t.Context(), tt.prompt); !errors.Is(err, tt.want) || !strings.HasPrefix(err.Error(), "generate: embed: ") {
			t.Errorf("%d tokens: error %v, want %v", len(tt.prompt), err, tt.want)
		}
	}
	if _, err := g.Embed(t.Context(), make([]int, tiny.Context)); err != nil {
		t.Errorf("a text of the whole context: %v", err)
	}
}

// After a dropped pass, an embedding computes all states again that it did not get, also if the
// engine has computed them.
func TestRewindEmbedding(t *testing.T) {
	e := newFake(t)
	s, err := e.NewSequence(0)
	if err != nil {
		t.Fatal(err)
	}
	prompt := make([]int, 6)
	if _, err := model.Forward(t.Context(), e, model.Row{Sequence: s, Tokens: prompt, Prompt: true}); err != nil {
		t.Fatal(err)
	}
	for _, delivered := range []int{4, 0} {
		r := &request{sequence: s, prompt: prompt, computed: len(prompt), pool: &pool{n: delivered}}
		if err := r.rewind(); err != nil || r.computed != delivered || s.Len() != delivered {
			t.Errorf("%d computed of %d, %d delivered, error %v", r.computed, s.Len(), delivered, err)
		}
	}
}
