package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
)

// asyncCase is a series of calls. Their results must not depend on whether the engine
// queues steps ahead.
type asyncCase struct {
	name, reason string
	o            accel.Options
	used, wasted int // steps queued ahead that the engine accepts and discards
	run          func(r *asyncFixture)
}

var asyncCases = []asyncCase{
	{"continues", "each step from the second on was queued ahead", accel.Options{}, 4, 0, func(r *asyncFixture) {
		r.open(0, 5).greedy(6)
	}},
	{"synchronous", "SyncScheduling queues nothing ahead", accel.Options{SyncScheduling: true}, 0, 0, func(r *asyncFixture) {
		r.open(0, 5).greedy(4)
	}},
	{"eager", "eager mode queues nothing ahead", accel.Options{Eager: true}, 0, 0, func(r *asyncFixture) {
		r.open(0, 5).greedy(4)
	}},
	{"few steps", "one or two steps queue nothing ahead", accel.Options{}, 0, 0, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(1)
		q.next = q.other()
		q.greedy(1)
	}},
	{"another token", "the caller chooses another token", accel.Options{}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		q.next = q.other()
		q.greedy(1)
		q.logits(1)
	}},
	{"logits", "greedy steps, steps with logits, and greedy steps", accel.Options{}, 3, 2, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		q.logits(2)
		q.greedy(4)
		q.logits(1)
	}},
	{"no output", "the expected token without output", accel.Options{}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(q.s.Forward(r.Context(), []int{q.next}, model.WantNothing))
		q.logits(1)
	}},
	{"truncated", "continuing at an earlier position", accel.Options{}, 2, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(model.Output{}, q.s.Truncate(6))
		q.greedy(1)
		q.logits(2)
	}},
	{"truncated to the same length", "truncating to the current length changes nothing", accel.Options{}, 3, 0, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(model.Output{}, q.s.Truncate(q.s.Len()))
		q.greedy(1)
	}},
	{"restored", "the expected token and position in another cache", accel.Options{}, 1, 1, func(r *asyncFixture) {
		q, p := r.open(0, 5), r.open(0, 8)
		q.greedy(3)
		snap, err := p.s.Snapshot(8)
		if err == nil {
			err = q.s.Restore(snap, 8)
		}
		r.note(model.Output{}, err)
		q.greedy(1)
		q.logits(1)
	}},
	{"prompt instead", "a prompt overwrites the step's keys and values", accel.Options{}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(q.s.Forward(r.Context(), []int{q.next, 3, 4}, model.WantLast))
		r.note(model.Output{}, q.s.Truncate(8))
		q.greedy(1)
		q.logits(1)
	}},
	{"snapshot", "a snapshot taken while the next step is pending", accel.Options{}, 3, 1, func(r *asyncFixture) {
		q, p := r.open(0, 62), r.open(0, 3)
		q.greedy(2)
		q.greedy(4)
		snap, err := q.s.Snapshot(q.s.Len())
		if err == nil {
			err = p.s.Restore(snap, q.s.Len())
		}
		r.note(model.Output{}, err)
		p.logits(2)
		q.greedy(1)
		q.logits(1)
	}},
	{"full cache", "a step without a free page fails as usual", accel.Options{KVPages: 1}, 2, 0, func(r *asyncFixture) {
		q := r.open(0, 60)
		q.greedy(5)
		q.s.Truncate(62)
		q.logits(1)
	}},
	{"full session", "a step beyond the capacity fails as usual", accel.Options{}, 2, 0, func(r *asyncFixture) {
		r.open(9, 5).greedy(5)
		r.open(0, 3).logits(1) // would discard a step that was queued beyond the capacity
	}},
	{"closed", "the page is reused while a pending step writes to it", accel.Options{KVPages: 1}, 2, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(model.Output{}, q.s.Close())
		r.note(model.Output{Greedy: r.e.Stats().PagesInUse}, nil)
		r.open(0, 12).logits(2)
	}},
	{"another prompt", "a prompt leaves the queued step valid", accel.Options{Chunk: 4}, 4, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		p := r.open(0, 11)
		q.greedy(1)
		r.note(p.s.Forward(r.Context(), testTokens(r.vocab, 23), model.WantAll))
		q.greedy(2)
		p.greedy(1)
	}},
	{"prompt by steps", "prompt steps discard the queued step", accel.Options{Prefill: accel.PrefillExact}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.open(0, 6).logits(1)
		q.greedy(1)
		q.logits(1)
	}},
	{"last token again", "keys and values beyond the session's length", accel.Options{}, 2, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(model.Output{}, q.s.Truncate(q.s.Len()-1))
		q.next = q.tokens[len(q.tokens)-2]
		q.greedy(2)
	}},
	{"both RoPE factors", "steps with other rotation factors discard the queued step", accel.Options{}, 2, 2, func(r *asyncFixture) {
		q, p := r.open(16, 5), r.open(17, 6)
		q.greedy(3)
		p.greedy(3)
		q.greedy(1)
		p.logits(1)
	}},
	{"engine closed", "the engine is closed while a step is pending", accel.Options{}, 1, 0, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(model.Output{}, r.e.Close())
		q.greedy(1)
	}},
}

// expiringContext is canceled after left queries of Err.
type expiringContext struct {
	context.Context
	left int
}

func (c *expiringContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// notePagesInUse records the number of pages in use.
func (r *asyncFixture) notePagesInUse() { r.note(model.Output{Greedy: r.e.Stats().PagesInUse}, nil) }

// atPageBoundary returns a sequence whose next step needs a page. The engine queues that
// step ahead if a page is free.
func (r *asyncFixture) atPageBoundary() *greedySequence {
	r.Helper()
	r.note(model.Output{}, r.e.Warm(r.Context(), 65, 1))
	q := r.open(0, 61)
	q.greedy(3)
	r.notePagesInUse()
	return q
}

// asyncPageCases queue a step ahead that needs a page.
var asyncPageCases = []asyncCase{
	{"page", "a step on a new page is queued ahead", accel.Options{}, 4, 0, func(r *asyncFixture) {
		r.atPageBoundary().greedy(3)
		r.notePagesInUse()
	}},
	{"longer graph", "no captured graph covers the new page", accel.Options{}, 3, 0, func(r *asyncFixture) {
		r.open(0, 61).greedy(6)
		r.notePagesInUse()
	}},
	{"the last page", "a reserved page counts as free until its step is used", accel.Options{KVPages: 2}, 4, 0, func(r *asyncFixture) {
		q := r.atPageBoundary()
		q.greedy(3)
		r.open(0, 1)
		r.note(model.Output{}, q.s.Close())
		r.open(0, 1)
	}},
	{"page taken by another sequence", "another sequence takes the reserved page", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(openEmpty(r).Forward(r.Context(), testTokens(r.vocab, 65), model.WantGreedy)) // needs two pages
		p := r.open(0, 3)
		q.greedy(1)
		p.logits(1)
		r.note(model.Output{}, p.s.Close())
		q.logits(2)
	}},
	{"reserved page reused", "another sequence wrote to the reserved page", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(model.Output{}, r.open(0, 9).s.Close())
		q.greedy(1)
		q.logits(1)
	}},
	{"reserved page released", "its own sequence took the page and released it", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(q.s.Forward(&expiringContext{r.Context(), 1}, []int{q.next}, model.WantGreedy))
		r.notePagesInUse()
		r.note(model.Output{}, r.open(0, 9).s.Close())
		q.greedy(1)
		q.logits(1)
	}},
	{"closed at a page boundary", "closing frees the reserved page", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		r.note(model.Output{}, r.atPageBoundary().s.Close())
		r.notePagesInUse()
		r.open(0, 65).logits(1)
	}},
	{"truncated at a page boundary", "the sequence reaches the page again", accel.Options{KVPages: 2}, 4, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(model.Output{}, q.s.Truncate(62))
		q.greedy(5)
		r.notePagesInUse()
	}},
	{"earlier page", "the page that the sequence had before it was truncated", accel.Options{KVPages: 3}, 2, 2, func(r *asyncFixture) {
		q := r.atPageBoundary()
		q.greedy(1)
		q.logits(1)
		r.note(model.Output{}, q.s.Truncate(62))
		first := r.open(0, 3) // gets the page
		q.greedy(2)
		p := r.open(0, 5) // gets the reserved page
		r.note(model.Output{}, first.s.Close())
		q.greedy(1)
		q.logits(1)
		p.logits(1)
	}},
	{"page written by a prompt", "a prompt writes to the page and is truncated", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(q.s.Forward(r.Context(), []int{q.next, 3, 4}, model.WantLast))
		r.note(model.Output{}, q.s.Truncate(64))
		q.greedy(1)
		q.logits(1)
	}},
	{"snapshot before the page", "a snapshot shares the pages before the reserved one", accel.Options{}, 3, 1, func(r *asyncFixture) {
		q, p := r.atPageBoundary(), openEmpty(r)
		snap, err := q.s.Snapshot(64)
		if err == nil {
			err = p.Restore(snap, 64)
		}
		r.note(model.Output{}, err)
		q.greedy(2)
		r.note(p.Forward(r.Context(), []int{q.tokens[3]}, model.WantLast))
		r.notePagesInUse()
	}},
	{"canceled prompt", "a prompt is canceled after a chunk that overwrites the step", accel.Options{Chunk: 4}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(q.s.Forward(&expiringContext{r.Context(), 2}, testTokens(r.vocab, 8), model.WantGreedy))
		q.greedy(1)
		q.logits(1)
	}},
}

// openEmpty opens an empty session.
func openEmpty(r *asyncFixture) model.Session {
	r.Helper()
	s, err := r.e.NewSession(0)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { s.Close() })
	return s
}

func TestAccelAsyncPages(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	for _, c := range asyncPageCases {
		t.Run(c.name, func(t *testing.T) { c.check(t, m, lateDevice) })
	}
}

// lateDevice runs queued work only when the host waits for it, so steps queued ahead are
// pending while their sequence is closed, truncated or copied.
var lateDevice = emu.Options{SMs: 4, IgnoreRaces: true, LateStreams: true, Cache: &emulatorCache}

// asyncFixture is an engine with a record of its results.
type asyncFixture struct {
	testing.TB
	e     *accel.Engine
	vocab int
	seen  []string
}

// note records the result of a call.
func (r *asyncFixture) note(out model.Output, err error) {
	r.seen = append(r.seen, fmt.Sprintf("%d %s %v", out.Greedy, hashLogits(out.Logits), err))
}

// greedySequence continues with the largest logit.
type greedySequence struct {
	r      *asyncFixture
	s      model.Session
	next   int
	tokens []int // chosen tokens
}

// open opens a session and computes a prompt of some length.
func (r *asyncFixture) open(capacity, prompt int) *greedySequence {
	r.Helper()
	s, err := r.e.NewSession(capacity)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { s.Close() })
	q := &greedySequence{r: r, s: s}
	q.step(testTokens(r.vocab, prompt), model.WantGreedy)
	return q
}

func (q *greedySequence) step(tokens []int, want model.Want) {
	out, err := q.s.Forward(q.r.Context(), tokens, want)
	q.r.note(out, err)
	if err == nil {
		q.next = out.Greedy
		q.tokens = append(q.tokens, q.next)
	}
}

func (q *greedySequence) greedy(n int) {
	for range n {
		q.step([]int{q.next}, model.WantGreedy)
	}
}

func (q *greedySequence) logits(n int) {
	for range n {
		q.step([]int{q.next}, model.WantLast)
	}
}

// other returns a token that was not chosen.
func (q *greedySequence) other() int { return (q.next + 1) % q.r.vocab }

// record runs the case and returns its results and the engine's counters.
func (c asyncCase) record(t *testing.T, m *model.Model, device emu.Options, o accel.Options) ([]string, accel.Stats) {
	t.Helper()
	r := &asyncFixture{TB: t, e: accelEngine(t, m, device, o), vocab: m.Config.Vocab}
	c.run(r)
	return r.seen, r.e.Stats()
}

// check compares the results with those of an engine that queues no step ahead.
func (c asyncCase) check(t *testing.T, m *model.Model, device emu.Options) {
	t.Helper()
	plain := c.o
	plain.SyncScheduling = true
	want, without := c.record(t, m, smallDevice, plain)
	got, s := c.record(t, m, device, c.o)
	if !slices.Equal(got, want) {
		t.Errorf("%s: results\n%q\nwithout steps queued ahead\n%q", c.reason, got, want)
	}
	if s.AsyncSteps != c.used || s.AsyncDiscarded != c.wasted || without.AsyncSteps != 0 {
		t.Errorf("%s: %d steps queued ahead were used and %d discarded, want %d and %d", c.reason, s.AsyncSteps, s.AsyncDiscarded, c.used, c.wasted)
	}
	if s.Steps != without.Steps || s.StepTokens != without.StepTokens {
		t.Errorf("%d steps of %d tokens, without steps queued ahead %d of %d", s.Steps, s.StepTokens, without.Steps, without.StepTokens)
	}
}

// TestAccelAsync runs each case on a device that runs queued work late, and the first case
// also on one that runs it at once.
func TestAccelAsync(t *testing.T) {
	slowParallel(t)
	m := longRopeModel(t)
	for _, c := range asyncCases {
		t.Run(c.name, func(t *testing.T) { c.check(t, m, lateDevice) })
	}
	t.Run("early", func(t *testing.T) { asyncCases[0].check(t, m, smallDevice) })
}

// TestAccelAsyncSeesFaults demands that another token changes the record.
func TestAccelAsyncSeesFaults(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	a := asyncCase{run: func(r *asyncFixture) { r.open(0, 5).logits(1) }}
	b := asyncCase{run: func(r *asyncFixture) {
		q := r.open(0, 5)
		q.next = q.other()
		q.logits(1)
	}}
	seen, _ := a.record(t, m, smallDevice, accel.Options{})
	other, _ := b.record(t, m, smallDevice, accel.Options{})
	if seen[0] != other[0] || seen[1] == other[1] {
		t.Errorf("records of two different tokens: %q and %q", seen, other)
	}
}

// TestAccelAsyncBatch runs sequences together, some of which stop early, and demands the
// tokens that each chooses alone.
func TestAccelAsyncBatch(t *testing.T) {
	parallelUnlessGPU(t)
	most, m := 12, minimalModel(t)
	if testing.Short() {
		most = 5
	}
	for _, c := range []struct {
		name      string
		sequences int
		prompt    int // minimum length
		o         accel.Options
		device    emu.Options
	}{
		{"few", 3, 3, accel.Options{KVPages: 8}, lateDevice},
		{"more than batch slots", 5, 3, accel.Options{KVPages: 8, MaxSequences: 2}, lateDevice},
		{"many", 16, 3, accel.Options{KVPages: 20}, smallDevice},
		{"pages", 2, 59, accel.Options{KVPages: 4}, lateDevice},
	} {
		if testing.Short() && c.sequences+c.prompt > 6 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			plain := &asyncFixture{TB: t, e: accelEngine(t, m, smallDevice, accel.Options{SyncScheduling: true}), vocab: m.Config.Vocab}
			ahead := &asyncFixture{TB: t, e: accelEngine(t, m, c.device, c.o), vocab: m.Config.Vocab}
			if err := ahead.e.Warm(t.Context(), c.prompt+most, 1, 2); err != nil {
				t.Fatal(err)
			}
			var together sync.WaitGroup
			for i := range c.sequences {
				n := most - i%4
				want := slices.Clone(plain.alone(c.prompt+i%3, n))
				together.Go(func() {
					if got := ahead.alone(c.prompt+i%3, n); !slices.Equal(got, want) {
						t.Errorf("sequence %d of %d steps chose %v, want %v", i, n, got, want)
					}
				})
			}
			together.Wait()
			if s := ahead.e.Stats(); s.AsyncSteps == 0 || s.PagesInUse != 0 {
				t.Errorf("no step was queued ahead, or pages are still in use: %+v", s)
			}
		})
	}
}

// alone returns the tokens that a greedy sequence chooses, without recording them.
func (r *asyncFixture) alone(prompt, steps int) []int {
	q := (&asyncFixture{TB: r.TB, e: r.e, vocab: r.vocab}).open(0, prompt)
	q.greedy(steps)
	q.s.Close()
	return q.tokens
}
