package conformance

import (
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

// sessionBehaviors are about one session computing.
var sessionBehaviors = []Behavior{
	{"repeatable", "the same tokens give the same bits in any session", repeatable},
	{"prefill equals steps", "positions, masks and cache writes of a whole prompt against those of single tokens", prefillEqualsSteps},
	{"prefill onto a cache", "a prompt in two or three parts, at every kind of border", prefillOntoCache},
	{"wants agree", "the greedy token is the argmax of the logits, and filling the cache is enough to go on", wantsAgree},
	{"history matters", "a cache that is not attended to, or positions that are not used", historyMatters},
	{"truncate", "forgotten positions leave no trace", truncates},
	{"snapshot and restore", "a copy is complete, independent and good for any shorter prefix", snapshots},
	{"fills to capacity", "the last position counts", fillsToCapacity},
	{"capacity of the context", "0 asks for the whole context", wholeContext},
	{"sessions are independent", "two sessions in turns against each alone", independentSessions},
}

func repeatable(r *fixture) {
	tokens := r.tokens(11, 1)
	r.sameBits("a second session", r.fresh(tokens), r.fresh(tokens))
}

func prefillEqualsSteps(r *fixture) {
	tokens := r.tokens(40, 2)
	all := r.forward(r.session(MinContext), tokens, model.WantAll)
	s := r.session(MinContext)
	for i, id := range tokens {
		step := r.forward(s, []int{id}, model.WantLast)
		r.sameBits("position", all.Logits[i*r.vocab:(i+1)*r.vocab], step.Logits)
		r.length("after a step", s, i+1)
	}
	r.sameBits("the last position alone", all.Logits[(len(tokens)-1)*r.vocab:], r.fresh(tokens))
}

func prefillOntoCache(r *fixture) {
	tokens := r.tokens(40, 3)
	want := r.fresh(tokens)
	for _, cuts := range [][]int{{1}, {39}, {32}, {33}, {7, 8}, {16, 31}} {
		s := r.session(MinContext)
		from := 0
		for _, to := range cuts {
			r.forward(s, tokens[from:to], model.WantNothing)
			from = to
		}
		r.sameBits("the last part", want, r.forward(s, tokens[from:], model.WantLast).Logits)
	}
}

func wantsAgree(r *fixture) {
	tokens := r.tokens(9, 4)
	last := r.forward(r.session(MinContext), tokens, model.WantLast)
	all := r.forward(r.session(MinContext), tokens, model.WantAll)
	greedy := r.forward(r.session(MinContext), tokens, model.WantGreedy)
	best := model.Argmax(last.Logits)
	r.equal("the greedy token of each want", []int{best, best, best}, []int{last.Greedy, all.Greedy, greedy.Greedy})
	s := r.session(MinContext)
	r.forward(s, tokens[:8], model.WantNothing)
	r.sameBits("after filling the cache", last.Logits, r.forward(s, tokens[8:], model.WantLast).Logits)
}

func historyMatters(r *fixture) {
	a := r.tokens(4, 5)
	b := slices.Clone(a)
	b[0] = (a[0] + 1) % r.vocab
	if firstDifference(r.fresh(a), r.fresh(b)) < 0 {
		r.Errorf("another first token changes nothing at the last")
	}
	b = slices.Clone(a)
	if b[0], b[1] = a[1], a[0]; b[0] == b[1] {
		b[0] = (b[0] + 1) % r.vocab
		a[1] = b[0]
	}
	if firstDifference(r.fresh(a), r.fresh(b)) < 0 {
		r.Errorf("the order of earlier tokens changes nothing")
	}
}

func truncates(r *fixture) {
	tokens, other := r.tokens(30, 6), r.tokens(5, 7)
	for _, n := range []int{0, 1, 15, 29, 30} {
		s := r.session(MinContext)
		r.forward(s, tokens, model.WantNothing)
		if err := s.Truncate(n); err != nil {
			r.Fatalf("truncate to %d: %v", n, err)
		}
		r.length("truncated", s, n)
		want := r.fresh(slices.Concat(tokens[:n], other))
		r.sameBits("after truncating", want, r.forward(s, other, model.WantLast).Logits)
	}
}

func snapshots(r *fixture) {
	tokens, other := r.tokens(20, 8), r.tokens(3, 9)
	s := r.session(MinContext)
	r.forward(s, tokens, model.WantNothing)
	snap, err := s.Snapshot(12)
	if err != nil {
		r.Fatalf("snapshot: %v", err)
	}
	if snap.Len() != 12 || snap.Bytes() <= 0 {
		r.Errorf("a snapshot of 12 positions has %d in %d bytes", snap.Len(), snap.Bytes())
	}
	r.continues("after a snapshot", s, tokens)
	if err := s.Truncate(0); err != nil {
		r.Fatalf("truncate: %v", err)
	}
	r.forward(s, r.tokens(20, 99), model.WantNothing) // which must not reach the snapshot
	for _, n := range []int{12, 5, 1, 0} {
		restored := r.session(MinContext - n)
		r.forward(restored, other, model.WantNothing) // which must be gone afterwards
		if err := restored.Restore(snap, n); err != nil {
			r.Fatalf("restore %d: %v", n, err)
		}
		r.continues("restored", restored, tokens[:n])
	}
}

func fillsToCapacity(r *fixture) {
	tokens := r.tokens(10, 10)
	s := r.session(10)
	if s.Cap() != 10 {
		r.Errorf("a session of 10 positions has %d", s.Cap())
	}
	r.sameBits("the whole capacity", r.fresh(tokens), r.forward(s, tokens, model.WantLast).Logits)
	r.length("filled", s, 10)
}

func wholeContext(r *fixture) {
	if got, want := r.session(0).Cap(), r.engine.Model().Config.Context; got != want {
		r.Errorf("a session of 0 has %d positions, want the context's %d", got, want)
	}
}

func independentSessions(r *fixture) {
	a, b := r.tokens(12, 11), r.tokens(12, 12)
	sa, sb := r.session(MinContext), r.session(MinContext)
	var lastA, lastB []float32
	for i := 0; i < 12; i += 3 {
		lastA = r.forward(sa, a[i:i+3], model.WantLast).Logits
		lastB = r.forward(sb, b[i:i+3], model.WantLast).Logits
	}
	r.sameBits("the first in turns", r.fresh(a), lastA)
	r.sameBits("the second in turns", r.fresh(b), lastB)
}
