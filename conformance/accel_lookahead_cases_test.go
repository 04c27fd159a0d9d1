package conformance

import (
	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// lookaheadCase is something that sequences do. What they see must not depend on steps
// being computed ahead.
type lookaheadCase struct {
	name, reason string
	o            accel.Options
	used, wasted int // steps computed ahead
	run          func(r *lookaheadRig)
}

var lookaheadCases = []lookaheadCase{
	{"goes on", "from its second step on, a greedy sequence finds each computed", accel.Options{}, 4, 0, func(r *lookaheadRig) {
		r.open(0, 5).greedy(6)
	}},
	{"switched off", "nothing is computed ahead", accel.Options{NoLookahead: true}, 0, 0, func(r *lookaheadRig) {
		r.open(0, 5).greedy(4)
	}},
	{"eager", "without graphs nothing is", accel.Options{Eager: true}, 0, 0, func(r *lookaheadRig) {
		r.open(0, 5).greedy(4)
	}},
	{"once", "a step or two are none to go on from", accel.Options{}, 0, 0, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(1)
		q.next = q.other()
		q.greedy(1)
	}},
	{"another token", "as after a stop, or of one who samples outside", accel.Options{}, 1, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(3)
		q.next = q.other()
		q.greedy(1)
		q.logits(1)
	}},
	{"logits", "a switch from the largest logit to sampling, and back", accel.Options{}, 3, 2, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(3)
		q.logits(2)
		q.greedy(4)
		q.logits(1)
	}},
	{"nothing wanted", "the token that was expected, but not for its successor", accel.Options{}, 1, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(3)
		r.see(q.s.Forward(r.Context(), []int{q.next}, model.WantNothing))
		q.logits(1)
	}},
	{"truncated", "going on at an earlier position, over keys and values that are there already", accel.Options{}, 2, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(4)
		r.see(model.Output{}, q.s.Truncate(6))
		q.greedy(1)
		q.logits(2)
	}},
	{"truncated to nothing less", "which changes nothing", accel.Options{}, 3, 0, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(4)
		r.see(model.Output{}, q.s.Truncate(q.s.Len()))
		q.greedy(1)
	}},
	{"restored", "the token and the position that were expected, of another cache", accel.Options{}, 1, 1, func(r *lookaheadRig) {
		q, p := r.open(0, 5), r.open(0, 8)
		q.greedy(3)
		snap, err := p.s.Snapshot(8)
		if err == nil {
			err = q.s.Restore(snap, 8)
		}
		r.see(model.Output{}, err)
		q.greedy(1)
		q.logits(1)
	}},
	{"a prompt instead", "the keys and values of the step that was expected are a prompt's now", accel.Options{}, 1, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(3)
		r.see(q.s.Forward(r.Context(), []int{q.next, 3, 4}, model.WantLast))
		r.see(model.Output{}, q.s.Truncate(8))
		q.greedy(1)
		q.logits(1)
	}},
	{"snapshot", "taken while the next step is computed, of what was there before", accel.Options{}, 3, 1, func(r *lookaheadRig) {
		q, p := r.open(0, 62), r.open(0, 3)
		q.greedy(2)
		q.greedy(4)
		snap, err := q.s.Snapshot(q.s.Len())
		if err == nil {
			err = p.s.Restore(snap, q.s.Len())
		}
		r.see(model.Output{}, err)
		p.logits(2)
		q.greedy(1)
		q.logits(1)
	}},
	{"cache is full", "the step that finds no page fails as without", accel.Options{KVPages: 1}, 2, 0, func(r *lookaheadRig) {
		q := r.open(0, 60)
		q.greedy(5)
		q.s.Truncate(62)
		q.logits(1)
	}},
	{"session is full", "the step behind its last position fails as without", accel.Options{}, 2, 0, func(r *lookaheadRig) {
		r.open(9, 5).greedy(5)
	}},
	{"closed", "its page is another's while the step is computed that writes it", accel.Options{KVPages: 1}, 2, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(4)
		r.see(model.Output{}, q.s.Close())
		r.see(model.Output{Greedy: r.e.Stats().PagesInUse}, nil)
		r.open(0, 12).logits(2)
	}},
	{"another prompt", "which does not touch what was computed ahead", accel.Options{Chunk: 4}, 4, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(3)
		p := r.open(0, 11)
		q.greedy(1)
		r.see(p.s.Forward(r.Context(), spread(r.vocab, 23), model.WantAll))
		q.greedy(2)
		p.greedy(1)
	}},
	{"a prompt by steps", "which takes the place of what was computed ahead", accel.Options{Prefill: accel.Stepwise}, 1, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(3)
		r.open(0, 6).logits(1)
		q.greedy(1)
		q.logits(1)
	}},
	{"the last token again", "a session whose keys and values go further than its length", accel.Options{}, 2, 1, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(4)
		r.see(model.Output{}, q.s.Truncate(q.s.Len()-1))
		q.next = q.tokens[len(q.tokens)-2]
		q.greedy(2)
	}},
	{"both ropes", "a step of the other kind takes the place of what was computed ahead", accel.Options{}, 2, 2, func(r *lookaheadRig) {
		q, p := r.open(16, 5), r.open(17, 6)
		q.greedy(3)
		p.greedy(3)
		q.greedy(1)
		p.logits(1)
	}},
	{"engine closed", "while a step is computed ahead", accel.Options{}, 1, 0, func(r *lookaheadRig) {
		q := r.open(0, 5)
		q.greedy(3)
		r.see(model.Output{}, r.e.Close())
		q.greedy(1)
	}},
}
