package conformance

import (
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

// sessionBehaviors cover the computation of one session.
var sessionBehaviors = []Behavior{
	{"repeatable", "the same tokens give the same bits in any session", repeatable},
	{"prefill equals decode", "a prompt gives the logits of its tokens one by one: positions, masks, cache writes", prefillEqualsDecode},
	{"prefill in parts", "two or three parts, cut at page borders and elsewhere", prefillInParts},
	{"outputs agree", "the greedy token is the argmax of the logits; a prompt without output can be continued", outputsAgree},
	{"history matters", "logits depend on earlier tokens and on their order", historyMatters},
	{"truncate", "removed positions do not affect results", truncates},
	{"snapshot and restore", "a snapshot is complete, independent, and restores any prefix", snapshots},
	{"full capacity", "the last position is usable", fullCapacity},
	{"capacity 0", "0 means the whole context", capacityZero},
	{"interleaved sessions", "two sessions used in turn give the results of each alone", interleavedSessions},
}

func repeatable(r *fixture) {
	tokens := r.tokens(11, 1)
	r.sameBits("a second session", r.lastLogits(tokens), r.lastLogits(tokens))
}

func prefillEqualsDecode(r *fixture) {
	tokens := r.tokens(40, 2)
	all := r.forward(r.session(minContext), tokens, model.WantAll)
	s := r.session(minContext)
	for i, id := range tokens {
		step := r.forward(s, []int{id}, model.WantLast)
		r.sameBits("position", all.Logits[i*r.vocab:(i+1)*r.vocab], step.Logits)
		r.length("after a step", s, i+1)
	}
	r.sameBits("the last position alone", all.Logits[(len(tokens)-1)*r.vocab:], r.lastLogits(tokens))
}

func prefillInParts(r *fixture) {
	tokens := r.tokens(40, 3)
	want := r.lastLogits(tokens)
	for _, cuts := range [][]int{{1}, {39}, {32}, {33}, {7, 8}, {16, 31}} {
		s := r.session(minContext)
		from := 0
		for _, to := range cuts {
			r.forward(s, tokens[from:to], model.WantNothing)
			from = to
		}
		r.sameBits("the last part", want, r.forward(s, tokens[from:], model.WantLast).Logits)
	}
}

func outputsAgree(r *fixture) {
	tokens := r.tokens(9, 4)
	last := r.forward(r.session(minContext), tokens, model.WantLast)
	all := r.forward(r.session(minContext), tokens, model.WantAll)
	greedy := r.forward(r.session(minContext), tokens, model.WantGreedy)
	best := model.Argmax(last.Logits)
	r.equal("the greedy token of each want", []int{best, best, best}, []int{last.Greedy, all.Greedy, greedy.Greedy})
	s := r.session(minContext)
	r.forward(s, tokens[:8], model.WantNothing)
	r.sameBits("after filling the cache", last.Logits, r.forward(s, tokens[8:], model.WantLast).Logits)
}

func historyMatters(r *fixture) {
	a := r.tokens(4, 5)
	b := slices.Clone(a)
	b[0] = (a[0] + 1) % r.vocab
	if firstDifference(r.lastLogits(a), r.lastLogits(b)) < 0 {
		r.t.Errorf("the last logits do not depend on the first token")
	}
	b = slices.Clone(a)
	if b[0], b[1] = a[1], a[0]; b[0] == b[1] {
		b[0] = (b[0] + 1) % r.vocab
		a[1] = b[0]
	}
	if firstDifference(r.lastLogits(a), r.lastLogits(b)) < 0 {
		r.t.Errorf("the last logits do not depend on the order of earlier tokens")
	}
}

func truncates(r *fixture) {
	tokens, other := r.tokens(30, 6), r.tokens(5, 7)
	for _, n := range []int{0, 1, 15, 29, 30} {
		s := r.session(minContext)
		r.forward(s, tokens, model.WantNothing)
		if err := s.Truncate(n); err != nil {
			r.t.Fatalf("truncate to %d: %v", n, err)
		}
		r.length("truncated", s, n)
		want := r.lastLogits(slices.Concat(tokens[:n], other))
		r.sameBits("after truncating", want, r.forward(s, other, model.WantLast).Logits)
	}
}

func snapshots(r *fixture) {
	tokens, other := r.tokens(20, 8), r.tokens(3, 9)
	s := r.session(minContext)
	r.forward(s, tokens, model.WantNothing)
	snap, err := s.Snapshot(12)
	if err != nil {
		r.t.Fatalf("snapshot: %v", err)
	}
	if snap.Len() != 12 || snap.Bytes() <= 0 {
		r.t.Errorf("a snapshot of 12 positions has %d positions and %d bytes", snap.Len(), snap.Bytes())
	}
	r.continues("after a snapshot", s, tokens)
	if err := s.Truncate(0); err != nil {
		r.t.Fatalf("truncate: %v", err)
	}
	r.forward(s, r.tokens(20, 99), model.WantNothing) // must not change the snapshot
	for _, n := range []int{12, 5, 1, 0} {
		restored := r.session(minContext - n)
		r.forward(restored, other, model.WantNothing) // must be gone after Restore
		if err := restored.Restore(snap, n); err != nil {
			r.t.Fatalf("restore %d: %v", n, err)
		}
		r.continues("restored", restored, tokens[:n])
	}
}

func fullCapacity(r *fixture) {
	tokens := r.tokens(10, 10)
	s := r.session(10)
	if s.Cap() != 10 {
		r.t.Errorf("a session of 10 positions has capacity %d", s.Cap())
	}
	r.sameBits("the whole capacity", r.lastLogits(tokens), r.forward(s, tokens, model.WantLast).Logits)
	r.length("filled", s, 10)
}

func capacityZero(r *fixture) {
	if got, want := r.session(0).Cap(), r.engine.Model().Config.Context; got != want {
		r.t.Errorf("a session of 0 positions has capacity %d, want the context's %d", got, want)
	}
}

func interleavedSessions(r *fixture) {
	a, b := r.tokens(12, 11), r.tokens(12, 12)
	sa, sb := r.session(minContext), r.session(minContext)
	var lastA, lastB []float32
	for i := 0; i < 12; i += 3 {
		lastA = r.forward(sa, a[i:i+3], model.WantLast).Logits
		lastB = r.forward(sb, b[i:i+3], model.WantLast).Logits
	}
	r.sameBits("the first in turns", r.lastLogits(a), lastA)
	r.sameBits("the second in turns", r.lastLogits(b), lastB)
}
