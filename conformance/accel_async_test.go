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

// lookaheadCase is something that sequences do. What they see must not depend on steps
// being computed ahead.
type asyncCase struct {
	name, reason string
	o            accel.Options
	used, wasted int // steps computed ahead
	run          func(r *asyncFixture)
}

var asyncCases = []asyncCase{
	{"goes on", "from its second step on, a greedy sequence finds each computed", accel.Options{}, 4, 0, func(r *asyncFixture) {
		r.open(0, 5).greedy(6)
	}},
	{"switched off", "nothing is computed ahead", accel.Options{SyncScheduling: true}, 0, 0, func(r *asyncFixture) {
		r.open(0, 5).greedy(4)
	}},
	{"eager", "without graphs nothing is", accel.Options{Eager: true}, 0, 0, func(r *asyncFixture) {
		r.open(0, 5).greedy(4)
	}},
	{"once", "a step or two are none to go on from", accel.Options{}, 0, 0, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(1)
		q.next = q.other()
		q.greedy(1)
	}},
	{"another token", "as after a stop, or of one who samples outside", accel.Options{}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		q.next = q.other()
		q.greedy(1)
		q.logits(1)
	}},
	{"logits", "a switch from the largest logit to sampling, and back", accel.Options{}, 3, 2, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		q.logits(2)
		q.greedy(4)
		q.logits(1)
	}},
	{"nothing wanted", "the token that was expected, but not for its successor", accel.Options{}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(q.s.Forward(r.Context(), []int{q.next}, model.WantNothing))
		q.logits(1)
	}},
	{"truncated", "going on at an earlier position, over keys and values that are there already", accel.Options{}, 2, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(model.Output{}, q.s.Truncate(6))
		q.greedy(1)
		q.logits(2)
	}},
	{"truncated to nothing less", "which changes nothing", accel.Options{}, 3, 0, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(model.Output{}, q.s.Truncate(q.s.Len()))
		q.greedy(1)
	}},
	{"restored", "the token and the position that were expected, of another cache", accel.Options{}, 1, 1, func(r *asyncFixture) {
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
	{"a prompt instead", "the keys and values of the step that was expected are a prompt's now", accel.Options{}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(q.s.Forward(r.Context(), []int{q.next, 3, 4}, model.WantLast))
		r.note(model.Output{}, q.s.Truncate(8))
		q.greedy(1)
		q.logits(1)
	}},
	{"snapshot", "taken while the next step is computed, of what was there before", accel.Options{}, 3, 1, func(r *asyncFixture) {
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
	{"cache is full", "the step that finds no page fails as without", accel.Options{KVPages: 1}, 2, 0, func(r *asyncFixture) {
		q := r.open(0, 60)
		q.greedy(5)
		q.s.Truncate(62)
		q.logits(1)
	}},
	{"session is full", "the step behind its last position fails as without", accel.Options{}, 2, 0, func(r *asyncFixture) {
		r.open(9, 5).greedy(5)
	}},
	{"closed", "its page is another's while the step is computed that writes it", accel.Options{KVPages: 1}, 2, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(model.Output{}, q.s.Close())
		r.note(model.Output{Greedy: r.e.Stats().PagesInUse}, nil)
		r.open(0, 12).logits(2)
	}},
	{"another prompt", "which does not touch what was computed ahead", accel.Options{Chunk: 4}, 4, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		p := r.open(0, 11)
		q.greedy(1)
		r.note(p.s.Forward(r.Context(), testTokens(r.vocab, 23), model.WantAll))
		q.greedy(2)
		p.greedy(1)
	}},
	{"a prompt by steps", "which takes the place of what was computed ahead", accel.Options{Prefill: accel.PrefillExact}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.open(0, 6).logits(1)
		q.greedy(1)
		q.logits(1)
	}},
	{"the last token again", "a session whose keys and values go further than its length", accel.Options{}, 2, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(model.Output{}, q.s.Truncate(q.s.Len()-1))
		q.next = q.tokens[len(q.tokens)-2]
		q.greedy(2)
	}},
	{"both ropes", "a step of the other kind takes the place of what was computed ahead", accel.Options{}, 2, 2, func(r *asyncFixture) {
		q, p := r.open(16, 5), r.open(17, 6)
		q.greedy(3)
		p.greedy(3)
		q.greedy(1)
		p.logits(1)
	}},
	{"engine closed", "while a step is computed ahead", accel.Options{}, 1, 0, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(model.Output{}, r.e.Close())
		q.greedy(1)
	}},
}

// lapsing is a context that has ended when it is asked once too often.
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

// used notes how many pages are.
func (r *asyncFixture) notePagesInUse() { r.note(model.Output{Greedy: r.e.Stats().PagesInUse}, nil) }

// brink is a sequence whose next step needs a page, and is computed ahead if there is one
// that is free.
func (r *asyncFixture) atPageBoundary() *greedySequence {
	r.Helper()
	r.note(model.Output{}, r.e.Warm(r.Context(), 65, 1))
	q := r.open(0, 61)
	q.greedy(3)
	r.notePagesInUse()
	return q
}

// lookaheadPageCases are those of a step computed ahead that begins a page.
var asyncPageCases = []asyncCase{
	{"page", "the step that begins a page is computed ahead, too", accel.Options{}, 4, 0, func(r *asyncFixture) {
		r.atPageBoundary().greedy(3)
		r.notePagesInUse()
	}},
	{"longer graph", "there is none yet that goes over the new page", accel.Options{}, 3, 0, func(r *asyncFixture) {
		r.open(0, 61).greedy(6)
		r.notePagesInUse()
	}},
	{"the last page", "which is free until it is asked for", accel.Options{KVPages: 2}, 4, 0, func(r *asyncFixture) {
		q := r.atPageBoundary()
		q.greedy(3)
		r.open(0, 1)
		r.note(model.Output{}, q.s.Close())
		r.open(0, 1)
	}},
	{"page of another", "who asks first gets the last page, as without", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(openEmpty(r).Forward(r.Context(), testTokens(r.vocab, 65), model.WantGreedy)) // which needs two
		p := r.open(0, 3)
		q.greedy(1)
		p.logits(1)
		r.note(model.Output{}, p.s.Close())
		q.logits(2)
	}},
	{"page given back", "another has written it in the meantime", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(model.Output{}, r.open(0, 9).s.Close())
		q.greedy(1)
		q.logits(1)
	}},
	{"page given up", "its own sequence had it, and gave it back", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(q.s.Forward(&expiringContext{r.Context(), 1}, []int{q.next}, model.WantGreedy))
		r.notePagesInUse()
		r.note(model.Output{}, r.open(0, 9).s.Close())
		q.greedy(1)
		q.logits(1)
	}},
	{"closed at a page", "the page is free again, as is what the sequence had", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		r.note(model.Output{}, r.atPageBoundary().s.Close())
		r.notePagesInUse()
		r.open(0, 65).logits(1)
	}},
	{"truncated at a page", "and there again", accel.Options{KVPages: 2}, 4, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(model.Output{}, q.s.Truncate(62))
		q.greedy(5)
		r.notePagesInUse()
	}},
	{"page of before", "not the promised one, but one that the row had when it was longer", accel.Options{KVPages: 3}, 2, 2, func(r *asyncFixture) {
		q := r.atPageBoundary()
		q.greedy(1)
		q.logits(1)
		r.note(model.Output{}, q.s.Truncate(62))
		first := r.open(0, 3) // has the page now
		q.greedy(2)
		p := r.open(0, 5) // has the one that was promised
		r.note(model.Output{}, first.s.Close())
		q.greedy(1)
		q.logits(1)
		p.logits(1)
	}},
	{"page of a prompt", "the page is written by a prompt, which is taken back", accel.Options{KVPages: 2}, 1, 1, func(r *asyncFixture) {
		q := r.atPageBoundary()
		r.note(q.s.Forward(r.Context(), []int{q.next, 3, 4}, model.WantLast))
		r.note(model.Output{}, q.s.Truncate(64))
		q.greedy(1)
		q.logits(1)
	}},
	{"page of a snapshot", "which shares what lies before the page", accel.Options{}, 3, 1, func(r *asyncFixture) {
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
	{"a prompt given up", "between its chunks, over the keys and values of the step", accel.Options{Chunk: 4}, 1, 1, func(r *asyncFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(q.s.Forward(&expiringContext{r.Context(), 2}, testTokens(r.vocab, 8), model.WantGreedy))
		q.greedy(1)
		q.logits(1)
	}},
}

// openEmpty is a session that holds nothing.
func openEmpty(r *asyncFixture) model.Session {
	r.Helper()
	s, err := r.e.NewSession(0)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { s.Close() })
	return s
}

// TestAccelLookaheadPages tries the cases of pages.
func TestAccelAsyncPages(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	for _, c := range asyncPageCases {
		t.Run(c.name, func(t *testing.T) { c.check(t, m, lateDevice) })
	}
}

// lateDevice runs what is queued only when somebody waits for it: what was queued ahead is
// still to come while its sequence is closed, truncated or copied.
var lateDevice = emu.Options{SMs: 4, IgnoreRaces: true, LateStreams: true, Cache: &emulatorCache}

// lookaheadRig is an engine, and what was seen of it.
type asyncFixture struct {
	testing.TB
	e     *accel.Engine
	vocab int
	seen  []string
}

// see notes what a call gave.
func (r *asyncFixture) note(out model.Output, err error) {
	r.seen = append(r.seen, fmt.Sprintf("%d %s %v", out.Greedy, hashLogits(out.Logits), err))
}

// greedyRow is a sequence that goes on with the largest logit.
type greedySequence struct {
	r      *asyncFixture
	s      model.Session
	next   int
	tokens []int // that were chosen
}

// open is a sequence that holds a prompt.
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

// other is a token that was not chosen.
func (q *greedySequence) other() int { return (q.next + 1) % q.r.vocab }

// seenOf is what a case sees, and what the engine counted.
func (c asyncCase) record(t *testing.T, m *model.Model, device emu.Options, o accel.Options) ([]string, accel.Stats) {
	t.Helper()
	r := &asyncFixture{TB: t, e: accelEngine(t, m, device, o), vocab: m.Config.Vocab}
	c.run(r)
	return r.seen, r.e.Stats()
}

// check holds an engine that computes steps ahead to one that does not.
func (c asyncCase) check(t *testing.T, m *model.Model, device emu.Options) {
	t.Helper()
	plain := c.o
	plain.SyncScheduling = true
	want, without := c.record(t, m, smallDevice, plain)
	got, s := c.record(t, m, device, c.o)
	if !slices.Equal(got, want) {
		t.Errorf("%s: seen\n%q\nwithout lookahead\n%q", c.reason, got, want)
	}
	if s.AsyncSteps != c.used || s.AsyncDiscarded != c.wasted || without.AsyncSteps != 0 {
		t.Errorf("%s: %d steps computed ahead were used and %d wasted, want %d and %d", c.reason, s.AsyncSteps, s.AsyncDiscarded, c.used, c.wasted)
	}
	if s.Steps != without.Steps || s.StepTokens != without.StepTokens {
		t.Errorf("%d steps of %d rows, without lookahead %d of %d", s.Steps, s.StepTokens, without.Steps, without.StepTokens)
	}
}

// TestAccelLookahead tries each case on a device that is late with what was queued, and the
// first on one that has the tokens of a step and of the next before the host waits for any.
func TestAccelAsync(t *testing.T) {
	slowParallel(t)
	m := longRopeModel(t)
	for _, c := range asyncCases {
		t.Run(c.name, func(t *testing.T) { c.check(t, m, lateDevice) })
	}
	t.Run("early", func(t *testing.T) { asyncCases[0].check(t, m, smallDevice) })
}

// TestAccelLookaheadSees wants a case to differ whose session goes on otherwise.
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
		t.Errorf("another token shows in what is seen or not: %q and %q", seen, other)
	}
}

// TestAccelLookaheadTogether lets sequences go on together, some of which stop early, and wants
// what each gives alone.
func TestAccelAsyncBatch(t *testing.T) {
	parallelUnlessGPU(t)
	most, m := 12, minimalModel(t)
	if testing.Short() {
		most = 5
	}
	for _, c := range []struct {
		name      string
		sequences int
		prompt    int // at least
		o         accel.Options
		device    emu.Options
	}{
		{"few", 3, 3, accel.Options{KVPages: 8}, lateDevice},
		{"more than rows", 5, 3, accel.Options{KVPages: 8, MaxSequences: 2}, lateDevice},
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
						t.Errorf("sequence %d of %d steps chose %v, alone %v", i, n, got, want)
					}
				})
			}
			together.Wait()
			if s := ahead.e.Stats(); s.AsyncSteps == 0 || s.PagesInUse != 0 {
				t.Errorf("nothing was computed ahead, or pages are still held: %+v", s)
			}
		})
	}
}

// alone is what a greedy sequence of so many steps chooses. It notes nothing.
func (r *asyncFixture) alone(prompt, steps int) []int {
	q := (&asyncFixture{TB: r.TB, e: r.e, vocab: r.vocab}).open(0, prompt)
	q.greedy(steps)
	q.s.Close()
	return q.tokens
}
