package conformance

import (
	"math"
	"slices"

	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// sequenceBehaviors cover the computation of sequences.
var sequenceBehaviors = []Behavior{
	{"repeatable", "the same tokens give the same bits in any sequence", repeatable},
	{"prefill equals decode", "a prompt gives the logits of its tokens one by one: positions, masks, cache writes", prefillEqualsDecode},
	{"prefill in parts", "two or three parts, cut at page borders and elsewhere", prefillInParts},
	{"results agree", "the greedy token is the argmax of the logits; a prompt without results can be continued", resultsAgree},
	{"history matters", "logits depend on earlier tokens and on their order", historyMatters},
	{"truncate", "removed positions do not affect results", truncates},
	{"fork", "a fork has a beginning of its sequence, and neither changes the other", forks},
	{"swap", "a sequence that was swapped out goes on as before", swaps},
	{"full capacity", "the last position is usable", fullCapacity},
	{"capacity 0", "0 means the whole context", capacityZero},
	{"interleaved sequences", "two sequences used in turn give the results of each alone", interleavedSequences},
	{"rows of a step", "prompts and generated tokens of one step give the bits of each alone", rowsOfStep},
	{"steps ahead", "steps queued before the last is waited for continue with the chosen tokens", stepsAhead},
	{"results stay valid", "the results of a step are valid until the second step after it", resultsStayValid},
	{"held choice", "a held choice depends on the mask and the replaced logits", heldChoice},
	{"hidden states", "one state per position, the same in parts, and no token", hiddenStates},
	{"reserve", "pages reserved ahead, for more or fewer positions, change no result", reserves},
}

func repeatable(r *fixture) {
	tokens := r.tokens(11, 1)
	r.sameBits("a second sequence", r.lastLogits(tokens), r.lastLogits(tokens))
}

func prefillEqualsDecode(r *fixture) {
	tokens := r.tokens(40, 2)
	all := r.forward(r.sequence(minContext), tokens, model.WantAll)
	s := r.sequence(minContext)
	for i, id := range tokens {
		step := r.forward(s, []int{id}, model.WantLogits)
		r.sameBits("position", all.Logits[i*r.vocab:(i+1)*r.vocab], step.Logits)
		r.length("after a step", s, i+1)
	}
	r.sameBits("the last position alone", all.Logits[(len(tokens)-1)*r.vocab:], r.lastLogits(tokens))
}

func prefillInParts(r *fixture) {
	tokens := r.tokens(40, 3)
	want := r.lastLogits(tokens)
	for _, cuts := range [][]int{{1}, {39}, {32}, {33}, {7, 8}, {16, 31}} {
		s := r.sequence(minContext)
		from := 0
		for _, to := range cuts {
			r.forward(s, tokens[from:to], model.WantNothing)
			from = to
		}
		r.sameBits("the last part", want, r.forward(s, tokens[from:], model.WantLogits).Logits)
	}
}

func resultsAgree(r *fixture) {
	tokens := r.tokens(9, 4)
	last := r.forward(r.sequence(minContext), tokens, model.WantLogits)
	all := r.forward(r.sequence(minContext), tokens, model.WantAll)
	greedy := r.forward(r.sequence(minContext), tokens, model.WantToken)
	best := model.Argmax(last.Logits)
	r.equal("the greedy token of each want", []int{best, best, best}, []int{last.Token, all.Token, greedy.Token})
	s := r.sequence(minContext)
	r.forward(s, tokens[:8], model.WantNothing)
	r.sameBits("after filling the cache", last.Logits, r.forward(s, tokens[8:], model.WantLogits).Logits)
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
		s := r.sequence(minContext)
		r.forward(s, tokens, model.WantNothing)
		if err := s.Truncate(n); err != nil {
			r.t.Fatalf("truncate to %d: %v", n, err)
		}
		r.length("truncated", s, n)
		want := r.lastLogits(slices.Concat(tokens[:n], other))
		r.sameBits("after truncating", want, r.forward(s, other, model.WantLogits).Logits)
	}
}

func forks(r *fixture) {
	tokens, other := r.tokens(20, 8), r.tokens(3, 9)
	s := r.sequence(minContext)
	r.forward(s, tokens, model.WantNothing)
	var list []text
	lengths := []int{20, 12, 5, 1, 0}
	for _, n := range lengths {
		f := r.fork(s, n)
		if f.Len() != n || f.Cap() != minContext {
			r.t.Errorf("a fork of %d has %d positions of %d", n, f.Len(), f.Cap())
		}
		list = append(list, f)
	}
	twin := r.fork(list[1], 12)
	r.forward(twin, other, model.WantNothing) // must not change the others
	r.continues("after forks", s, tokens)
	if err := s.Truncate(0); err != nil {
		r.t.Fatalf("truncate: %v", err)
	}
	r.forward(s, r.tokens(20, 99), model.WantNothing) // must not change the forks
	if err := s.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
	for i, f := range list {
		r.continues("a fork", f, tokens[:lengths[i]])
	}
	r.continues("a fork of a fork", twin, slices.Concat(tokens[:12], other))
}

func swaps(r *fixture) {
	tokens := r.tokens(20, 13)
	want := r.forward(r.sequence(minContext), tokens, model.WantToken)
	s, other := r.sequence(minContext), r.sequence(minContext)
	r.forward(s, tokens, model.WantToken)
	f := r.fork(s, 11)
	for _, x := range []text{s, f} {
		if err := x.SwapOut(); err != nil {
			r.t.Fatalf("swap out: %v", err)
		}
	}
	r.length("swapped out", s, 20)
	r.forward(other, r.tokens(30, 14), model.WantNothing) // may take its pages
	for _, x := range []text{f, s} {
		if err := x.SwapIn(); err != nil {
			r.t.Fatalf("swap in: %v", err)
		}
	}
	r.continues("a fork that was swapped out", f, tokens[:11])
	r.step(model.Row{Sequence: s.Sequence, Want: model.WantToken}) // continues with its token
	r.continues("swapped out and in", s, tokens, want.Token)
}

func fullCapacity(r *fixture) {
	tokens := r.tokens(10, 10)
	s := r.sequence(10)
	if s.Cap() != 10 {
		r.t.Errorf("a sequence of 10 positions has capacity %d", s.Cap())
	}
	r.sameBits("the whole capacity", r.lastLogits(tokens), r.forward(s, tokens, model.WantLogits).Logits)
	r.length("filled", s, 10)
}

func capacityZero(r *fixture) {
	if got, want := r.sequence(0).Cap(), r.engine.Model().Config.Context; got != want {
		r.t.Errorf("a sequence of 0 positions has capacity %d, want the context's %d", got, want)
	}
}

func interleavedSequences(r *fixture) {
	a, b := r.tokens(12, 11), r.tokens(12, 12)
	sa, sb := r.sequence(minContext), r.sequence(minContext)
	var lastA, lastB []float32
	for i := 0; i < 12; i += 3 {
		lastA = r.forward(sa, a[i:i+3], model.WantLogits).Logits
		lastB = r.forward(sb, b[i:i+3], model.WantLogits).Logits
	}
	r.sameBits("the first in turns", r.lastLogits(a), lastA)
	r.sameBits("the second in turns", r.lastLogits(b), lastB)
}

// generateAlone returns the tokens that follow a prompt, and the logits that each is chosen from.
// It waits for each step.
func (r *fixture) generateAlone(prompt []int, n int) (tokens []int, logits [][]float32) {
	s := r.sequence(minContext)
	input := prompt
	for range n {
		out := r.forward(s, input, model.WantLogits)
		tokens, logits = append(tokens, out.Token), append(logits, out.Logits)
		input = []int{out.Token}
	}
	return tokens, logits
}

func rowsOfStep(r *fixture) {
	const n = 5
	var list [n]text
	var prompts [n][]int
	var want [n][]int
	var logits [n][][]float32
	for i := range n {
		list[i], prompts[i] = r.sequence(minContext), r.tokens(3+4*i, uint64(70+i))
		want[i], logits[i] = r.generateAlone(prompts[i], 6)
	}
	var got [n]int // tokens so far
	for _, active := range [][]int{{0, 1}, {0, 2, 1}, {3, 1, 2}, {4, 3}, {1, 4, 0, 3, 2}, {2, 0}, {4, 1, 3}} {
		var rows []model.Row
		for k, i := range active {
			input := prompts[i]
			if got[i] > 0 {
				input = want[i][got[i]-1:][:1]
			}
			row := list[i].row(input, []model.Want{model.WantLogits, model.WantToken, model.WantAll}[k%3])
			if got[i] > 0 && k%2 == 0 {
				row.Tokens = nil
			}
			rows = append(rows, row)
		}
		for k, out := range r.step(rows...) {
			i := active[k]
			if out.Token != want[i][got[i]] {
				r.t.Errorf("sequence %d, token %d: %d, alone %d", i, got[i], out.Token, want[i][got[i]])
			}
			if len(out.Logits) > 0 {
				r.sameBits("a row among others", logits[i][got[i]], out.Logits[len(out.Logits)-r.vocab:])
			}
			got[i]++
		}
	}
}

func stepsAhead(r *fixture) {
	const n = 6
	prompts := [][]int{r.tokens(5, 75), r.tokens(8, 76)}
	var want [][]int
	var list []text
	for _, p := range prompts {
		tokens, _ := r.generateAlone(p, n)
		want, list = append(want, tokens), append(list, r.sequence(minContext))
	}
	passes := []model.Pass{r.queue(list[0].row(prompts[0], model.WantToken), list[1].row(prompts[1], model.WantToken))}
	for k := 1; k < n; k++ { // the third step and later ones wait for the step before the last
		rows := []model.Row{{Sequence: list[0].Sequence, Want: model.WantToken}, {Sequence: list[1].Sequence, Want: model.WantToken}}
		if k%2 == 0 {
			rows[0], rows[1] = rows[1], rows[0]
		}
		passes = append(passes, r.queue(rows...))
		r.length("queued", list[0], len(prompts[0])+k)
		for j, out := range r.wait(passes[k-1]) {
			i := j
			if k > 1 && (k-1)%2 == 0 {
				i = 1 - j
			}
			r.equal("a token chosen while the next step was queued", want[i][k-1], out.Token)
		}
	}
	r.wait(passes[n-1])
	for i := range list {
		r.continues("after steps ahead", list[i], prompts[i], want[i][:n-1]...)
	}
}

func resultsStayValid(r *fixture) {
	tokens := r.tokens(4, 15)
	want := r.lastLogits(tokens)
	s, other := r.sequence(minContext), r.sequence(minContext)
	first, err := r.queue(s.row(tokens, model.WantLogits)).Wait()
	if err != nil {
		r.t.Fatalf("waiting for a step: %v", err)
	}
	r.step(other.row(r.tokens(3, 16), model.WantLogits))
	r.sameBits("results after another step", want, first[0].Logits)
}

func heldChoice(r *fixture) {
	tokens := r.tokens(6, 17)
	logits := r.lastLogits(tokens)
	best := model.Argmax(logits)
	only := func(id int) []uint32 {
		mask := make([]uint32, sampling.MaskLen(r.vocab))
		mask[id/32] |= 1 << (id % 32)
		return mask
	}
	other := slices.Clone(logits)
	other[best] = float32(math.Inf(-1))
	second := model.Argmax(other)
	for _, c := range []struct {
		what   string
		choose model.Choose
		want   int
	}{
		{"without a mask", model.Choose{}, best},
		{"with a mask", model.Choose{Mask: only((best + 1) % r.vocab)}, (best + 1) % r.vocab},
		{"with other logits", model.Choose{Logits: other}, second},
		{"with both", model.Choose{Logits: other, Mask: only(best)}, -1},
	} {
		s, next := r.sequence(minContext), r.sequence(minContext)
		row := s.row(tokens, model.WantToken)
		row.Hold = true
		p := r.queue(row)
		r.step(next.row(r.tokens(3, 18), model.WantToken)) // must not replace the logits
		r.equal("the token of a held row", -1, r.wait(p)[0].Token)
		c.choose.Sequence = s.Sequence
		p, err := r.engine.Choose(r.t.Context(), []model.Choose{c.choose})
		if err != nil {
			r.t.Fatalf("choose %s: %v", c.what, err)
		}
		r.equal("the token chosen "+c.what, c.want, r.wait(p)[0].Token)
		if c.want >= 0 {
			r.step(model.Row{Sequence: s.Sequence, Want: model.WantToken})
			r.continues("after a choice "+c.what, s, tokens, c.want)
		}
	}
}

func hiddenStates(r *fixture) {
	tokens, width := r.tokens(9, 19), r.engine.Model().Config.Hidden
	s := r.sequence(minContext)
	whole := r.forward(s, tokens, model.WantHidden)
	if len(whole.Hidden) != len(tokens)*width || whole.Token != -1 || whole.Logits != nil {
		r.t.Fatalf("%d states of width %d: %d values, token %d, %d logits", len(tokens), width, len(whole.Hidden), whole.Token, len(whole.Logits))
	}
	if firstDifference(whole.Hidden[:width], whole.Hidden[8*width:]) < 0 {
		r.t.Errorf("two positions have the same states")
	}
	parts, other := r.sequence(minContext), r.sequence(minContext)
	first := parts.row(tokens[:4], model.WantHidden)
	rest := r.step(other.row(tokens[:3], model.WantLogits), first)[1].Hidden
	second := parts.row(tokens[4:], model.WantHidden)
	rest = append(rest, r.step(second, other.row(tokens[3:4], model.WantToken))[0].Hidden...)
	r.sameBits("the states in two parts", whole.Hidden, rest)
	r.continues("after states", s, tokens)
}

func reserves(r *fixture) {
	tokens := r.tokens(12, 25)
	for _, n := range []int{0, 5, 12, minContext} {
		s := r.sequence(minContext)
		for _, part := range [][]int{tokens[:5], tokens[5:]} {
			if err := s.Reserve(n); err != nil {
				r.t.Fatalf("reserve %d: %v", n, err)
			}
			r.forward(s, part, model.WantNothing)
		}
		r.continues("reserved", s, tokens)
	}
}
