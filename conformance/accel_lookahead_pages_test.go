package conformance

import (
	"context"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// lapsing is a context that has ended when it is asked once too often.
type lapsing struct {
	context.Context
	left int
}

func (c *lapsing) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// used notes how many pages are.
func (r *lookaheadRig) used() { r.see(model.Output{Greedy: r.e.Stats().PagesInUse}, nil) }

// brink is a sequence whose next step needs a page, and is computed ahead if there is one
// that is free.
func (r *lookaheadRig) brink() *greedyRow {
	r.Helper()
	r.see(model.Output{}, r.e.Warm(r.Context(), 65, 1))
	q := r.open(0, 61)
	q.greedy(3)
	r.used()
	return q
}

// lookaheadPageCases are those of a step computed ahead that begins a page.
var lookaheadPageCases = []lookaheadCase{
	{"page", "the step that begins a page is computed ahead, too", accel.Options{}, 4, 0, func(r *lookaheadRig) {
		r.brink().greedy(3)
		r.used()
	}},
	{"longer graph", "there is none yet that goes over the new page", accel.Options{}, 3, 0, func(r *lookaheadRig) {
		r.open(0, 61).greedy(6)
		r.used()
	}},
	{"the last page", "which is free until it is asked for", accel.Options{KVPages: 2}, 4, 0, func(r *lookaheadRig) {
		q := r.brink()
		q.greedy(3)
		r.open(0, 1)
		r.see(model.Output{}, q.s.Close())
		r.open(0, 1)
	}},
	{"page of another", "who asks first gets the last page, as without", accel.Options{KVPages: 2}, 1, 1, func(r *lookaheadRig) {
		q := r.brink()
		r.see(openEmpty(r).Forward(r.Context(), spread(r.vocab, 65), model.WantGreedy)) // which needs two
		p := r.open(0, 3)
		q.greedy(1)
		p.logits(1)
		r.see(model.Output{}, p.s.Close())
		q.logits(2)
	}},
	{"page given back", "another has written it in the meantime", accel.Options{KVPages: 2}, 1, 1, func(r *lookaheadRig) {
		q := r.brink()
		r.see(model.Output{}, r.open(0, 9).s.Close())
		q.greedy(1)
		q.logits(1)
	}},
	{"page given up", "its own sequence had it, and gave it back", accel.Options{KVPages: 2}, 1, 1, func(r *lookaheadRig) {
		q := r.brink()
		r.see(q.s.Forward(&lapsing{r.Context(), 1}, []int{q.next}, model.WantGreedy))
		r.used()
		r.see(model.Output{}, r.open(0, 9).s.Close())
		q.greedy(1)
		q.logits(1)
	}},
	{"closed at a page", "the page is free again, as is what the sequence had", accel.Options{KVPages: 2}, 1, 1, func(r *lookaheadRig) {
		r.see(model.Output{}, r.brink().s.Close())
		r.used()
		r.open(0, 65).logits(1)
	}},
	{"truncated at a page", "and there again", accel.Options{KVPages: 2}, 4, 1, func(r *lookaheadRig) {
		q := r.brink()
		r.see(model.Output{}, q.s.Truncate(62))
		q.greedy(5)
		r.used()
	}},
	{"page of before", "not the promised one, but one that the row had when it was longer", accel.Options{KVPages: 3}, 2, 2, func(r *lookaheadRig) {
		q := r.brink()
		q.greedy(1)
		q.logits(1)
		r.see(model.Output{}, q.s.Truncate(62))
		first := r.open(0, 3) // has the page now
		q.greedy(2)
		p := r.open(0, 5) // has the one that was promised
		r.see(model.Output{}, first.s.Close())
		q.greedy(1)
		q.logits(1)
		p.logits(1)
	}},
	{"page of a prompt", "the page is written by a prompt, which is taken back", accel.Options{KVPages: 2}, 1, 1, func(r *lookaheadRig) {
		q := r.brink()
		r.see(q.s.Forward(r.Context(), []int{q.next, 3, 4}, model.WantLast))
		r.see(model.Output{}, q.s.Truncate(64))
		q.greedy(1)
		q.logits(1)
	}},
	{"page of a snapshot", "which shares what lies before the page", accel.Options{}, 3, 1, func(r *lookaheadRig) {
		q, p := r.brink(), openEmpty(r)
		snap, err := q.s.Snapshot(64)
		if err == nil {
			err = p.Restore(snap, 64)
		}
		r.see(model.Output{}, err)
		q.greedy(2)
		r.see(p.Forward(r.Context(), []int{q.tokens[3]}, model.WantLast))
		r.used()
	}},
	{"a prompt given up", "between its chunks, over the keys and values of the step", accel.Options{Chunk: 4}, 1, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(3)
		r.see(q.s.Forward(&lapsing{r.Context(), 2}, spread(r.vocab, 8), model.WantGreedy))
		q.greedy(1)
		q.logits(1)
	}},
}

// openEmpty is a session that holds nothing.
func openEmpty(r *lookaheadRig) model.Session {
	r.Helper()
	s, err := r.e.NewSession(0)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { s.Close() })
	return s
}

// TestAccelLookaheadPages tries the cases of pages.
func TestAccelLookaheadPages(t *testing.T) {
	heavy(t)
	m := minimalModel(t)
	for _, c := range lookaheadPageCases {
		t.Run(c.name, func(t *testing.T) { c.check(t, m, lateDevice) })
	}
}
