package generate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

func TestSplitBudget(t *testing.T) {
	for _, tt := range []struct {
		name      string
		remaining []int
		budget    int
		want      []int
	}{
		{"nothing", nil, 8, []int{}},
		{"no prompts", []int{0, -1}, 8, []int{0, 0}},
		{"one", []int{20}, 8, []int{8}},
		{"short", []int{3}, 8, []int{3}},
		{"all fit", []int{3, 2, 1}, 8, []int{3, 2, 1}},
		{"equal: in their order", []int{8, 8, 8}, 8, []int{8, 0, 0}},
		{"a long one before short ones: half for each", []int{100, 2, 3}, 8, []int{4, 2, 2}},
		{"the rest of a half goes to the others", []int{100, 2, 1}, 8, []int{5, 2, 1}},
		{"a long one behind", []int{2, 100}, 8, []int{2, 6}},
		{"odd", []int{100, 2}, 1, []int{1, 0}},
		{"beside steps", []int{0, 100, 0, 3}, 8, []int{0, 5, 0, 3}},
	} {
		if diff := cmp.Diff(tt.want, splitBudget(tt.remaining, tt.budget)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// background runs a generation to its end.
type background struct {
	got   collected
	stats Stats
	done  chan struct{}
}

func start(ctx context.Context, g *Generator, prompt []int, p Params) *background {
	b := &background{done: make(chan struct{})}
	p.Stats = &b.stats
	go func() {
		defer close(b.done)
		b.got = collect(g.Tokens(ctx, prompt, p))
	}()
	return b
}

func (b *background) wait(t *testing.T) *background {
	t.Helper()
	select {
	case <-b.done:
	case <-time.After(10 * time.Second):
		t.Fatal("a generation does not end")
	}
	return b
}

// gate stops the engine in each Pass.Wait until step or open lets it go on.
type gate struct {
	begun  chan struct{} // a Wait has begun
	resume chan struct{} // it may go on
	opened chan struct{} // closed: all may go on
	open   func()
}

func newGate(t *testing.T, e *fakeEngine) *gate {
	g := &gate{begun: make(chan struct{}), resume: make(chan struct{}), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	t.Cleanup(g.open) // also if the test fails
	e.before = func(op string, _ []int) error {
		if op != "wait" {
			return nil
		}
		select {
		case g.begun <- struct{}{}:
			select {
			case <-g.resume:
			case <-g.opened:
			}
		case <-g.opened:
		}
		return nil
	}
	return g
}

// step waits until a Wait has begun, calls f, and lets that Wait go on.
func (g *gate) step(f func()) {
	<-g.begun
	f()
	g.resume <- struct{}{}
}

// A request that is being admitted has taken its slot.
func TestBusyWhileAdmitting(t *testing.T) {
	e := newFake(t)
	e.limits.Sequences = 1
	g := newTest(t, e, Options{MaxWaiting: 1})
	opening, resume := make(chan struct{}), make(chan struct{})
	first := true
	e.before = func(op string, _ []int) error {
		if op == "open" && first {
			first = false
			close(opening)
			<-resume
		}
		return nil
	}
	p := Params{MaxTokens: 2, IgnoreEOS: true}
	all := []*background{start(t.Context(), g, []int{1}, p)}
	<-opening
	all = append(all, start(t.Context(), g, []int{2}, p))
	for g.Load().Waiting < 1 {
		runtime.Gosched()
	}
	if l := g.Load(); l.Running != 1 {
		t.Errorf("%d running", l.Running)
	}
	refused := start(t.Context(), g, []int{3}, p)
	select {
	case <-refused.done:
	case <-time.After(time.Second):
	}
	close(resume)
	if refused.wait(t); !errors.Is(refused.got.Err, ErrBusy) {
		t.Errorf("error %v", refused.got.Err)
	}
	for _, b := range all {
		if b.wait(t); b.got.Err != nil {
			t.Error(b.got.Err)
		}
	}
}

// Requests are admitted in order of arrival, and refused beyond those that may wait. Nothing
// else is lost.
func TestAdmissionOrder(t *testing.T) {
	e := newFake(t)
	e.limits.Sequences = 2
	g := newTest(t, e, Options{MaxWaiting: 3})
	gate := newGate(t, e)
	p := Params{MaxTokens: 3, IgnoreEOS: true}
	var all []*background
	next := func(i int) { all = append(all, start(t.Context(), g, []int{i}, p)) }
	next(1)
	gate.step(func() {
		for i := 2; i <= 5; i++ { // a free slot, and three that wait
			next(i)
			for g.Load().Waiting < i-1 {
				runtime.Gosched()
			}
		}
		_, err := g.Embed(t.Context(), []int{1})
		for _, err := range []error{err, collect(g.Tokens(t.Context(), []int{9}, p)).Err} {
			if !errors.Is(err, ErrBusy) {
				t.Errorf("beyond the queue: error %v", err)
			}
		}
		if l := g.Load(); l.Running != 1 || l.Waiting != 4 {
			t.Errorf("%+v", l)
		}
	})
	gate.open()
	for i, b := range all {
		if b.wait(t); b.got.Err != nil || len(b.got.IDs) != 3 {
			t.Errorf("request %d: %+v", i, b.got)
		}
	}
	var order []int
	for _, row := range e.rows() {
		if row.Prompt {
			order = append(order, row.Tokens[0])
		}
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5}, order); diff != "" {
		t.Errorf("prompts (-arrived +computed):\n%s", diff)
	}
}

// A request that waits ends as soon as its context does.
func TestCancelWaiting(t *testing.T) {
	e := newFake(t)
	e.limits.Sequences = 1
	g := newTest(t, e, Options{PrefixTokens: -1})
	gate := newGate(t, e)
	first := start(t.Context(), g, []int{1}, Params{MaxTokens: 3})
	gate.step(func() {
		ctx, cancel := context.WithCancel(t.Context())
		second := start(ctx, g, []int{2}, Params{MaxTokens: 3})
		for g.Load().Waiting == 0 {
			runtime.Gosched()
		}
		cancel()
		if second.wait(t); second.got.Err != context.Canceled || second.stats.Finish != FinishError {
			t.Errorf("%+v, finish %v", second.got, second.stats.Finish)
		}
	})
	gate.open()
	if first.wait(t); first.got.Err != nil || e.opened != 1 {
		t.Errorf("the other: %+v, %d sequences", first.got, e.opened)
	}
}

// When pages run out, the newest request waits with its pages in host memory, and each ends
// with the tokens that it has alone.
func TestPreemption(t *testing.T) {
	e := newFake(t)
	e.limits = model.Limits{Sequences: 4, PromptTokens: 64, PageTokens: 4, Pages: 12, Async: true}
	g := newTest(t, e, Options{PrefixTokens: -1})
	p := Params{MaxTokens: 30, IgnoreEOS: true}
	prompts := [][]int{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {3, 2, 1}}
	var swaps []string
	e.before = func(op string, _ []int) error {
		if op == "swap out" || op == "swap in" {
			swaps = append(swaps, op)
		}
		return nil
	}
	e.together(g, len(prompts))
	preempted := 0
	for i, r := range g.BatchTokens(t.Context(), prompts, p) {
		if diff := cmp.Diff(collect(Tokens(t.Context(), newFake(t), prompts[i], p)).IDs, r.Tokens); diff != "" || r.Err != nil {
			t.Errorf("prompt %d: error %v (-alone +together):\n%s", i, r.Err, diff)
		}
		if preempted += r.Stats.Preemptions; i == 0 && r.Stats.Preemptions > 0 {
			t.Error("the oldest request was preempted")
		}
	}
	if l := g.Load(); l.Preemptions == 0 || l.Preemptions != preempted || l.Preempted != 0 || l.Running != 0 {
		t.Errorf("%+v, %d in all requests", l, preempted)
	}
	if n := len(swaps); preempted > 8 || n > 16 {
		t.Errorf("%d preemptions, %d swaps: %v", preempted, n, swaps)
	}
}

// If pages cannot be moved, the request ends and the others go on.
func TestPreemptionFails(t *testing.T) {
	broken := errors.New("broken")
	for _, op := range []string{"swap out", "swap in"} {
		e := newFake(t)
		e.limits = model.Limits{Sequences: 4, PromptTokens: 64, PageTokens: 4, Pages: 12, Async: true}
		failed := false
		e.before = func(o string, _ []int) error {
			if o == op && !failed {
				failed = true
				return broken
			}
			return nil
		}
		g := newTest(t, e, Options{})
		prompts := [][]int{{1}, {2}, {3}}
		e.together(g, len(prompts))
		errs := 0
		for _, r := range g.BatchTokens(t.Context(), prompts, Params{MaxTokens: 30, IgnoreEOS: true}) {
			switch {
			case errors.Is(r.Err, broken):
				errs++
			case r.Err != nil || len(r.Tokens) != 30:
				t.Errorf("%s: %d tokens, error %v", op, len(r.Tokens), r.Err)
			}
		}
		if errs != 1 {
			t.Errorf("%s: %d requests failed", op, errs)
		}
	}
}

// A pass that fails ends its requests only. A request that is only in the passes behind it goes
// on from where it was, and its mask and its hook are called once per token nevertheless.
func TestFailedPass(t *testing.T) {
	broken := errors.New("broken")
	once := func(t *testing.T, callback string) func(generated []int) {
		calls := 0
		return func(generated []int) {
			if calls++; calls != len(generated)+1 {
				t.Errorf("call %d of the %s has %d tokens", calls, callback, len(generated))
			}
		}
	}
	for _, tt := range []struct {
		name       string
		mask, hook bool
		wait       int // that fails: 2, when the second prompt is behind it; 4, when its choice is
	}{
		{"prompt", false, false, 2},
		{"prompt with a mask", true, false, 2},
		{"prompt with a hook", false, true, 2},
		{"choice", false, true, 4},
		{"choice with a mask", true, true, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			params := func() Params {
				p := Params{MaxTokens: 4, IgnoreEOS: true}
				if tt.mask {
					p.Mask = func() func([]int) ([]uint32, error) {
						check, permit := once(t, "mask"), anything()
						return func(generated []int) ([]uint32, error) {
							check(generated)
							return permit(generated)
						}
					}
				}
				if tt.hook {
					check := once(t, "hook")
					p.Logits = func(generated []int, logits []float32) {
						check(generated)
						for i := range logits {
							logits[i] = -logits[i]
						}
					}
				}
				return p
			}
			e := newFake(t)
			g := newTest(t, e, Options{})
			var second *background
			waits := 0
			e.before = func(op string, _ []int) error {
				if op != "wait" {
					return nil
				}
				switch waits++; waits {
				case 1:
					second = start(t.Context(), g, []int{2, 2}, params())
					for g.Load().Waiting == 0 {
						runtime.Gosched()
					}
				case tt.wait:
					return broken
				}
				return nil
			}
			first := start(t.Context(), g, []int{1}, Params{MaxTokens: 9, IgnoreEOS: true}).wait(t)
			if first.got.Err != broken || len(first.got.IDs) != tt.wait-1 {
				t.Errorf("the request of the pass: %+v", first.got)
			}
			want := collect(Tokens(t.Context(), newFake(t), []int{2, 2}, params()))
			if diff := cmp.Diff(want, second.wait(t).got); diff != "" {
				t.Errorf("the request behind it (-want +got):\n%s", diff)
			}
			if l := g.Load(); e.dropped == 0 || l.FailedSteps == 0 {
				t.Errorf("%d rows computed again, %+v", e.dropped, l)
			}
		})
	}
}

// A request for which the engine has too few pages, although nothing else holds any, ends with
// the engine's error.
func TestTooLargeForCache(t *testing.T) {
	for _, op := range []string{"reserve", "row"} {
		e := newFake(t)
		n := 0
		e.before = func(o string, _ []int) error {
			if o == op {
				if n++; n > 1 {
					return &model.CacheFullError{Need: 1, Pages: 5, PageTokens: 4}
				}
			}
			return nil
		}
		g := newTest(t, e, Options{})
		first := start(t.Context(), g, []int{1}, Params{MaxTokens: 1}).wait(t)
		second := start(t.Context(), g, []int{2}, Params{MaxTokens: 4, IgnoreEOS: true}).wait(t)
		if first.got.Err != nil || !errors.Is(second.got.Err, model.ErrCacheFull) {
			t.Errorf("%s: errors %v and %v", op, first.got.Err, second.got.Err)
		}
	}
}

// Two requests run at once if the cache has the pages of their prompts and one more for each,
// but none that they cannot use.
func TestAdmissionByPages(t *testing.T) {
	for _, tt := range []struct {
		name               string
		prompt, max, pages int
		together           bool
	}{
		{"within its pages", 6, 2, 4, true},
		{"one page more", 7, 9, 6, true},
		{"one page too few", 7, 9, 5, false},
		{"full pages", 8, 8, 6, true},
		{"full pages, one too few", 8, 8, 5, false},
	} {
		e := newFake(t)
		e.limits.Pages = tt.pages
		g := newTest(t, e, Options{PrefixTokens: -1, MaxWaiting: 1})
		p := Params{MaxTokens: tt.max, IgnoreEOS: true}
		var second *background
		var busy error
		waits, running := 0, 0
		e.before = func(op string, _ []int) error {
			if op != "wait" {
				return nil
			}
			if waits++; waits == 1 {
				second = start(t.Context(), g, make([]int, tt.prompt), p)
				for g.Load().Waiting == 0 {
					runtime.Gosched()
				}
			}
			if running = max(running, g.Load().Running); waits == 2 && !tt.together {
				_, err := g.start(t.Context(), []int{1}, p, false)
				busy = err
			}
			return nil
		}
		first := start(t.Context(), g, make([]int, tt.prompt), p).wait(t)
		if second.wait(t); first.got.Err != nil || second.got.Err != nil {
			t.Errorf("%s: errors %v and %v", tt.name, first.got.Err, second.got.Err)
		}
		if tt.together != (running == 2) {
			t.Errorf("%s: %d requests ran at once", tt.name, running)
		}
		if tt.together != (busy == nil) || busy != nil && !errors.Is(busy, ErrBusy) {
			t.Errorf("%s: a third request gave %v", tt.name, busy)
		}
	}
}

// A step stops when all of its requests have ended, and not before.
func TestContextOfStep(t *testing.T) {
	e := newFake(t)
	g := newTest(t, e, Options{})
	gate := newGate(t, e)
	p := Params{MaxTokens: 50, IgnoreEOS: true}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ctx2, cancel2 := context.WithCancel(t.Context())
	defer cancel2()
	all := []*background{start(ctx, g, []int{1}, p)}
	gate.step(func() {
		all = append(all, start(ctx2, g, []int{2}, p))
		for g.Load().Waiting == 0 {
			runtime.Gosched()
		}
	})
	gate.step(func() {})
	gate.step(func() {
		if rows := e.steps[len(e.steps)-1]; len(rows) != 2 {
			t.Errorf("the step has %d rows", len(rows))
		}
		step := e.passes[len(e.passes)-1].ctx
		cancel()
		time.Sleep(time.Millisecond)
		if step.Err() != nil {
			t.Error("one context ended, and so did the step's")
		}
		cancel2()
		<-step.Done()
	})
	gate.open()
	for _, b := range all {
		if b.wait(t); b.got.Err != context.Canceled {
			t.Errorf("error %v", b.got.Err)
		}
	}
	if l := g.Load(); l.FailedSteps != 0 || l.StepError != nil {
		t.Errorf("a canceled step counts as failed: %+v", l)
	}
}

// A reader that does not read stops no other request.
func TestSlowReader(t *testing.T) {
	g := newTest(t, newFake(t), Options{})
	p := Params{MaxTokens: 90, IgnoreEOS: true}
	n := 0
	for _, err := range g.Tokens(t.Context(), []int{1}, p) {
		if n++; err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			if got := start(t.Context(), g, []int{2}, p).wait(t).got; got.Err != nil || len(got.IDs) != 90 {
				t.Errorf("the other: %d tokens, error %v", len(got.IDs), got.Err)
			}
		}
	}
	if n != 90 {
		t.Errorf("%d tokens", n)
	}
}

// A long prompt does not keep short ones and other sequences waiting.
func TestLongPrompt(t *testing.T) {
	e := newFake(t)
	g := newTest(t, e, Options{PromptTokens: 8})
	gate := newGate(t, e)
	p := Params{MaxTokens: 6, IgnoreEOS: true}
	all := []*background{start(t.Context(), g, []int{7, 7}, p)}
	gate.step(func() {
		for i, prompt := range [][]int{slices.Repeat([]int{1}, 80), {2, 3}, {4, 5}} {
			all = append(all, start(t.Context(), g, prompt, p))
			for g.Load().Waiting <= i {
				runtime.Gosched()
			}
		}
	})
	gate.open()
	for _, b := range all {
		if b.wait(t); b.got.Err != nil || len(b.got.IDs) != 6 {
			t.Errorf("%+v", b.got)
		}
	}
	ends := map[int]int{} // the steps that end prompts, by first token
	for i, step := range e.steps {
		n := 0
		for _, row := range step {
			if row.Prompt {
				n += len(row.Tokens)
			}
			if row.Prompt && row.Want == model.WantToken {
				ends[row.Tokens[0]] = i
			}
		}
		if n > 8 {
			t.Errorf("step %d has %d tokens of prompts", i, n)
		}
	}
	if long := ends[1]; ends[7] != 0 || ends[2] > 2 || ends[4] > 2 || long < 10 || long > 14 {
		t.Errorf("prompts end in steps %v", ends)
	}
}

// Close ends what runs and what waits, and refuses what follows. No goroutine is left, and
// none runs without requests.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	e := newFake(t)
	e.limits.Sequences = 2
	gate := newGate(t, e)
	g, err := New(e, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all []*background
	for i := range 5 {
		all = append(all, start(t.Context(), g, []int{i}, Params{MaxTokens: 90, IgnoreEOS: true}))
	}
	var wg sync.WaitGroup
	gate.step(func() {
		for range 3 {
			wg.Go(func() {
				if err := g.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		for closed := false; !closed; runtime.Gosched() {
			g.scheduler.mu.Lock()
			closed = g.scheduler.closed
			g.scheduler.mu.Unlock()
		}
		_, err := g.Embed(t.Context(), []int{1})
		batch := g.BatchTokens(t.Context(), [][]int{{1}}, Params{MaxTokens: 1})[0].Err
		none := collect(g.Tokens(t.Context(), []int{1}, Params{})).Err
		for _, err := range []error{err, batch, none, collect(g.Tokens(t.Context(), []int{1}, Params{MaxTokens: 1})).Err} {
			if !errors.Is(err, model.ErrClosed) {
				t.Errorf("a request after Close gave %v", err)
			}
		}
	})
	gate.open()
	wg.Wait()
	for i, b := range all {
		if b.wait(t); !errors.Is(b.got.Err, model.ErrClosed) {
			t.Errorf("request %d: error %v", i, b.got.Err)
		}
	}
	e.idle(t, g)
	for begin := time.Now(); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Since(begin) > 5*time.Second {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// An engine that computes within Step is not asked for a step before the token of the one
// before it is known: it would delay that token, and the last step would be for nothing. An
// asynchronous engine is, even if the token is a held choice.
func TestSynchronousEngine(t *testing.T) {
	words := sampling.MaskLen(newFake(t).model.Config.Vocab)
	mask := func() func([]int) ([]uint32, error) {
		return func([]int) ([]uint32, error) { return slices.Repeat([]uint32{^uint32(0)}, words), nil }
	}
	for _, tt := range []struct {
		async bool
		mask  func() func([]int) ([]uint32, error)
		want  []int
	}{
		{false, nil, []int{1, 2, 3}}, {false, mask, []int{1, 2, 3}},
		{true, nil, []int{2, 3, 4, 4}}, {true, mask, []int{2, 3, 4, 4}},
	} {
		e := newFake(t).speak(3, "ab")
		e.limits.Async = tt.async
		var steps []int // queued when each token arrives
		e.before = func(op string, _ []int) error {
			if op == "wait" {
				steps = append(steps, len(e.steps))
			}
			return nil
		}
		g := newTest(t, e, Options{})
		name := fmt.Sprintf("async %v, mask %v", tt.async, tt.mask != nil)
		if got := collect(g.Tokens(t.Context(), []int{1, 2, 3}, Params{MaxTokens: 9, Mask: tt.mask})); got.Text != "ab" || got.Err != nil {
			t.Fatalf("%s: %+v", name, got)
		}
		if err := g.Close(); err != nil { // it waits for the last pass
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, steps); diff != "" {
			t.Errorf("%s: steps queued at each wait (-want +got):\n%s", name, diff)
		}
	}
}

func TestLoad(t *testing.T) {
	e := newFake(t).speak(5, "abcdef")
	e.limits = model.Limits{Sequences: 3, PromptTokens: 64, PageTokens: 4, Pages: 20, Async: true}
	g := newTest(t, e, Options{})
	if diff := cmp.Diff(Load{Pages: 20, FreePages: 20}, g.Load()); diff != "" {
		t.Errorf("unused (-want +got):\n%s", diff)
	}
	gate := newGate(t, e)
	b := start(t.Context(), g, make([]int, 5), Params{MaxTokens: 4})
	gate.step(func() {})
	gate.step(func() {})
	gate.step(func() {
		l := g.Load()
		if l.StepTime <= 0 {
			t.Errorf("the last step took %v", l.StepTime)
		}
		l.StepTime = 0
		want := Load{
			Running: 1, Pages: 20, FreePages: 16, Prefix: PrefixStats{Misses: 1, Entries: 1, Positions: 5},
			Steps: 2, PromptTokens: 5, GeneratedTokens: 2, StepRows: 1,
		}
		if diff := cmp.Diff(want, l); diff != "" {
			t.Errorf("while it runs (-want +got):\n%s", diff)
		}
	})
	gate.open()
	b.wait(t)
	if l := g.Load(); l.Running != 0 || l.GeneratedTokens != 4 || l.Steps != 4 || l.PromptTokens != 5 {
		t.Errorf("at the end: %+v", l)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

// A lost device fails each request, and the load says so, also after a request that is canceled.
func TestDeviceLost(t *testing.T) {
	lost := errors.New("lost")
	e := newFake(t)
	g := newTest(t, e, Options{})
	collect(g.Tokens(t.Context(), []int{1}, Params{MaxTokens: 2}))
	e.before = func(op string, _ []int) error {
		if op != "close" {
			return lost
		}
		return nil
	}
	for range 3 {
		if got := collect(g.Tokens(t.Context(), []int{1}, Params{MaxTokens: 2})); got.Err != lost {
			t.Errorf("error %v", got.Err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.before = func(op string, _ []int) error {
		if op == "wait" {
			cancel()
			<-e.passes[0].ctx.Done() // the next pass; the one that is waited for has ended before
		}
		return nil
	}
	if got := collect(g.Tokens(ctx, []int{1}, Params{MaxTokens: 2})); !errors.Is(got.Err, context.Canceled) {
		t.Errorf("error %v", got.Err)
	}
	if err := g.Close(); err != nil { // so that the load is final
		t.Fatal(err)
	}
	if l := g.Load(); l.StepError != lost || l.Running != 0 {
		t.Errorf("%+v", l)
	}
}
