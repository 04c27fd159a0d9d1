package conformance

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
)

// lateDevice runs what is queued only when somebody waits for it: what was queued ahead is
// still to come while its sequence is closed, truncated or copied.
var lateDevice = emu.Options{SMs: 4, IgnoreRaces: true, LateStreams: true, Cache: &programs}

// lookaheadRig is an engine, and what was seen of it.
type lookaheadRig struct {
	testing.TB
	e     *accel.Engine
	vocab int
	seen  []string
}

// see notes what a call gave.
func (r *lookaheadRig) see(out model.Output, err error) {
	r.seen = append(r.seen, fmt.Sprintf("%d %s %v", out.Greedy, stream(out.Logits), err))
}

// greedyRow is a sequence that goes on with the largest logit.
type greedyRow struct {
	r      *lookaheadRig
	s      model.Session
	next   int
	tokens []int // that were chosen
}

// open is a sequence that holds a prompt.
func (r *lookaheadRig) open(capacity, prompt int) *greedyRow {
	r.Helper()
	s, err := r.e.NewSession(capacity)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { s.Close() })
	q := &greedyRow{r: r, s: s}
	q.step(spread(r.vocab, prompt), model.WantGreedy)
	return q
}

func (q *greedyRow) step(tokens []int, want model.Want) {
	out, err := q.s.Forward(q.r.Context(), tokens, want)
	q.r.see(out, err)
	if err == nil {
		q.next = out.Greedy
		q.tokens = append(q.tokens, q.next)
	}
}

func (q *greedyRow) greedy(n int) {
	for range n {
		q.step([]int{q.next}, model.WantGreedy)
	}
}

func (q *greedyRow) logits(n int) {
	for range n {
		q.step([]int{q.next}, model.WantLast)
	}
}

// other is a token that was not chosen.
func (q *greedyRow) other() int { return (q.next + 1) % q.r.vocab }

// seenOf is what a case sees, and what the engine counted.
func (c lookaheadCase) seenOf(t *testing.T, m *model.Model, device emu.Options, o accel.Options) ([]string, accel.Stats) {
	t.Helper()
	r := &lookaheadRig{TB: t, e: accelEngine(t, m, device, o), vocab: m.Config.Vocab}
	c.run(r)
	return r.seen, r.e.Stats()
}

// check holds an engine that computes steps ahead to one that does not.
func (c lookaheadCase) check(t *testing.T, m *model.Model, device emu.Options) {
	t.Helper()
	plain := c.o
	plain.NoLookahead = true
	want, without := c.seenOf(t, m, smallDevice, plain)
	got, s := c.seenOf(t, m, device, c.o)
	if !slices.Equal(got, want) {
		t.Errorf("%s: seen\n%q\nwithout lookahead\n%q", c.reason, got, want)
	}
	if s.LookaheadSteps != c.used || s.LookaheadWasted != c.wasted || without.LookaheadSteps != 0 {
		t.Errorf("%s: %d steps computed ahead were used and %d wasted, want %d and %d", c.reason, s.LookaheadSteps, s.LookaheadWasted, c.used, c.wasted)
	}
	if s.Steps != without.Steps || s.Rows != without.Rows {
		t.Errorf("%d steps of %d rows, without lookahead %d of %d", s.Steps, s.Rows, without.Steps, without.Rows)
	}
}

// TestAccelLookahead tries each case on a device that is late with what was queued, and the
// first on one that has the tokens of a step and of the next before the host waits for any.
func TestAccelLookahead(t *testing.T) {
	heavy(t)
	m := longRopeModel(t)
	for _, c := range lookaheadCases {
		t.Run(c.name, func(t *testing.T) { c.check(t, m, lateDevice) })
	}
	t.Run("early", func(t *testing.T) { lookaheadCases[0].check(t, m, smallDevice) })
}

// TestAccelLookaheadSees wants a case to differ whose session goes on otherwise.
func TestAccelLookaheadSees(t *testing.T) {
	heavy(t)
	m := minimalModel(t)
	a := lookaheadCase{run: func(r *lookaheadRig) { r.open(0, 5).logits(1) }}
	b := lookaheadCase{run: func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.next = q.other()
		q.logits(1)
	}}
	seen, _ := a.seenOf(t, m, smallDevice, accel.Options{})
	other, _ := b.seenOf(t, m, smallDevice, accel.Options{})
	if seen[0] != other[0] || seen[1] == other[1] {
		t.Errorf("another token shows in what is seen or not: %q and %q", seen, other)
	}
}

// TestAccelLookaheadTogether lets sequences go on together, some of which stop early, and wants
// what each gives alone.
func TestAccelLookaheadTogether(t *testing.T) {
	beside(t)
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
			plain := &lookaheadRig{TB: t, e: accelEngine(t, m, smallDevice, accel.Options{NoLookahead: true}), vocab: m.Config.Vocab}
			ahead := &lookaheadRig{TB: t, e: accelEngine(t, m, c.device, c.o), vocab: m.Config.Vocab}
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
			if s := ahead.e.Stats(); s.LookaheadSteps == 0 || s.PagesInUse != 0 {
				t.Errorf("nothing was computed ahead, or pages are still held: %+v", s)
			}
		})
	}
}

// alone is what a greedy sequence of so many steps chooses. It notes nothing.
func (r *lookaheadRig) alone(prompt, steps int) []int {
	q := (&lookaheadRig{TB: r.TB, e: r.e, vocab: r.vocab}).open(0, prompt)
	q.greedy(steps)
	q.s.Close()
	return q.tokens
}
