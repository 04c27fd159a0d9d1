package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// aheadCase is a series of calls. Their results must not depend on whether a step is queued
// before the last is waited for.
type aheadCase struct {
	name, reason string
	o            accel.Options
	run          func(r *aheadFixture)
}

var aheadCases = []aheadCase{
	{"continues", "each step is queued while the last is pending", accel.Options{}, func(r *aheadFixture) {
		r.open(0, 5).greedy(6)
	}},
	{"eager", "steps without graphs", accel.Options{Eager: true}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		q.logits(2)
		q.greedy(2)
	}},
	{"another token", "the caller chooses another token", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		q.put(7)
		q.greedy(2)
		q.logits(1)
	}},
	{"logits", "greedy steps, steps with logits, and greedy steps", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		q.logits(3)
		q.greedy(4)
		q.logits(1)
	}},
	{"no result", "a step without result, and another token", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.step(model.WantNothing, q)
		q.put(4)
		r.step(model.WantNothing, q)
		q.put(5)
		q.logits(2)
	}},
	{"truncated", "continuing at an earlier position", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		q.truncate(6)
		q.greedy(1) // has no token
		q.put(3)
		q.greedy(2)
		q.logits(2)
	}},
	{"truncated to the same length", "truncating to the current length changes nothing", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		q.truncate(q.s.Len())
		q.greedy(1)
	}},
	{"last token again", "keys and values beyond the sequence's length", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		q.truncate(q.s.Len() - 1)
		q.put(2)
		q.greedy(2)
		q.logits(1)
	}},
	{"fork", "a fork of a pending step", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		f := q.fork(q.s.Len())
		f.greedy(1) // has no token
		q.greedy(2)
		f.put(6)
		f.greedy(2)
		r.step(model.WantLogits, f, q)
	}},
	{"fork of a page", "fork and sequence write to the same page, one before the other", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 60)
		q.greedy(2)
		f, g := q.fork(61), q.fork(30)
		f.put(6)
		g.put(3)
		r.step(model.WantToken, f, q)
		r.step(model.WantToken, q, g, f)
		f.greedy(3)
		q.logits(3)
		r.step(model.WantLogits, g, f)
	}},
	{"prompt instead", "a prompt overwrites the step's keys and values", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		q.truncate(6)
		q.prompt(model.WantLogits, 2, 3, 4)
		q.greedy(2)
		q.truncate(8)
		q.put(1)
		q.logits(2)
	}},
	{"prompt after steps", "a prompt continues a pending step, and steps the prompt", accel.Options{Chunk: 4}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(2)
		q.prompt(model.WantToken, 2, 3, 4, 5, 6, 7)
		q.greedy(3)
		q.prompt(model.WantAll, 1, 1, 2, 2, 3)
		q.logits(2)
	}},
	{"full cache", "a step without a free page fails", accel.Options{KVPages: 1}, func(r *aheadFixture) {
		q := r.open(0, 60)
		q.greedy(5)
		q.truncate(62)
		q.put(4)
		q.logits(1)
	}},
	{"full sequence", "a step beyond the capacity fails", accel.Options{}, func(r *aheadFixture) {
		r.open(9, 5).greedy(5)
		r.open(0, 3).logits(1)
	}},
	{"closed", "the page is reused while a pending step writes to it", accel.Options{KVPages: 1}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(4)
		r.note(q.s.Close())
		r.notePages()
		r.open(0, 12).logits(2)
	}},
	{"taken page", "a page that a pending step writes goes to another sequence and back", accel.Options{KVPages: 2}, func(r *aheadFixture) {
		q := r.open(0, 61)
		q.greedy(4) // the last is on the second page
		q.truncate(63)
		p := r.open(0, 9)
		p.greedy(2)
		r.note(p.s.Close())
		q.put(2)
		q.greedy(4)
		q.logits(1)
		r.notePages()
	}},
	{"pages", "steps on new pages", accel.Options{}, func(r *aheadFixture) {
		q, p := r.open(0, 61), r.open(0, 60)
		for range 6 {
			r.step(model.WantToken, p, q)
		}
		r.notePages()
	}},
	{"reserved pages", "pages that were reserved while a step is pending", accel.Options{KVPages: 3}, func(r *aheadFixture) {
		q := r.open(0, 62)
		q.greedy(1)
		r.note(q.s.Reserve(70))
		r.open(0, 3).greedy(2)
		r.note(r.open(0, 4).s.Close()) // finds no page
		q.greedy(4)
		r.notePages()
	}},
	{"another prompt", "a prompt beside steps", accel.Options{Chunk: 4}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		p := r.open(0, 11)
		q.greedy(1)
		p.prompt(model.WantAll, testTokens(r.vocab, 23)...)
		q.greedy(2)
		p.greedy(1)
	}},
	{"both RoPE factors", "a step of sequences with different rotation factors", accel.Options{}, func(r *aheadFixture) {
		q, p := r.open(16, 5), r.open(17, 6)
		for range 3 {
			r.step(model.WantToken, q, p)
		}
		q.greedy(2)
		r.step(model.WantLogits, p, q)
	}},
	{"join and leave", "rows keep their tokens while the batch changes", accel.Options{}, func(r *aheadFixture) {
		a, b, c, d, e := r.open(0, 5), r.open(0, 6), r.open(0, 7), r.open(0, 8), r.open(0, 3)
		for _, batch := range [][]*greedySequence{
			{a, b}, {b}, {b, c}, {c, b, a}, {c}, {a, c}, {a, b, c, d, e}, {e}, {d, e}, {a, b, c, d, e}, {b, d}, {d, b}, {a}, {e, d, c, b, a},
		} {
			r.step(model.WantToken, batch...)
		}
		r.step(model.WantLogits, a, b, c, d, e)
	}},
	{"slots change hands", "a sequence takes a slot whose token is not read yet", accel.Options{}, func(r *aheadFixture) {
		a, b, c, d := r.open(0, 5), r.open(0, 6), r.open(0, 5), r.open(0, 6)
		for range 3 {
			r.step(model.WantToken, a, b)
			r.step(model.WantToken, c, d)
			r.step(model.WantToken, b, c)
			r.step(model.WantToken, a)
		}
	}},
	{"held", "a choice that is made while another step is pending", accel.Options{}, func(r *aheadFixture) {
		a, b := r.open(0, 5), r.open(0, 6)
		for i := range 3 {
			r.hold(a)
			b.greedy(1)
			r.choose(a, 3+i)
			r.step(model.WantToken, b, a)
		}
		r.step(model.WantLogits, a, b)
	}},
	{"sampled", "a sequence samples for a while", accel.Options{}, func(r *aheadFixture) {
		a, b := r.open(0, 5), r.open(0, 6)
		r.note(a.s.SetSampling(&sampling.Params{LogProb: true}, nil, nil))
		for range 3 {
			r.step(model.WantToken, a, b)
		}
		r.note(a.s.SetSampling(&sampling.Params{}, nil, nil))
		for range 2 {
			r.step(model.WantToken, a, b)
		}
	}},
	{"swapped out", "a sequence leaves while its step is pending", accel.Options{KVPages: 2}, func(r *aheadFixture) {
		q, p := r.open(0, 5), r.open(0, 60)
		r.step(model.WantToken, q, p)
		r.step(model.WantToken, q, p)
		r.note(q.s.SwapOut())
		r.notePages()
		p.greedy(5)
		r.note(q.s.SwapIn()) // finds no page
		p.truncate(64)
		r.note(q.s.SwapIn())
		p.put(1)
		r.step(model.WantToken, q)
		r.step(model.WantLogits, q)
		r.notePages()
	}},
	{"canceled prompt", "a prompt is canceled in the middle while a step is pending", accel.Options{Chunk: 4}, func(r *aheadFixture) {
		q, p := r.open(0, 5), r.open(0, 6)
		r.step(model.WantToken, q, p)
		r.step(model.WantToken, p, q)
		for n := range 3 { // Step looks at the context first, and twice in the second chunk
			row := p.s.row(testTokens(r.vocab, 6), model.WantToken)
			_, err := r.e.Step(&expiringContext{r.Context(), n}, []model.Row{{Sequence: q.s.Sequence, Want: model.WantToken}, row})
			r.note(err)
		}
		r.step(model.WantToken, q, p)
		r.step(model.WantLogits, q, p)
		r.notePages()
	}},
	{"engine closed", "the engine is closed while a step is pending", accel.Options{}, func(r *aheadFixture) {
		q := r.open(0, 5)
		q.greedy(3)
		r.note(r.e.Close())
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

// aheadFixture is an engine with a record of its results.
type aheadFixture struct {
	testing.TB
	e     *accel.Engine
	vocab int
	ahead bool // a step is queued before the last is waited for, and rows have no tokens
	queue []aheadStep
	seen  []string
}

// aheadStep is a step that is not waited for.
type aheadStep struct {
	pass  model.Pass
	rows  []*greedySequence
	first int // of its results in seen
}

// greedySequence continues with the largest logit.
type greedySequence struct {
	r     *aheadFixture
	s     text
	next  int // token; only if the fixture does not run ahead
	given bool
}

// note records the error of a call.
func (r *aheadFixture) note(err error) { r.seen = append(r.seen, fmt.Sprint(err)) }

func (r *aheadFixture) notePages() {
	r.seen = append(r.seen, fmt.Sprintf("%d pages", r.e.Stats().PagesInUse))
}

// submit queues a step and, unless the fixture runs ahead, waits for it.
func (r *aheadFixture) submit(rows []model.Row, list []*greedySequence) {
	p, err := r.e.Step(r.Context(), rows)
	if err != nil {
		r.note(err)
		return
	}
	r.queue = append(r.queue, aheadStep{p, list, len(r.seen)})
	r.seen = append(r.seen, make([]string, len(rows))...)
	most := 0
	if r.ahead {
		most = 1
	}
	r.waitFor(most)
}

// waitFor waits until at most some steps are pending.
func (r *aheadFixture) waitFor(most int) {
	for len(r.queue) > most {
		step := r.queue[0]
		r.queue = r.queue[1:]
		results, err := step.pass.Wait()
		for i, q := range step.rows {
			if err != nil {
				r.seen[step.first+i] = err.Error()
				continue
			}
			r.seen[step.first+i] = fmt.Sprintf("%d %s", results[i].Token, hashLogits(results[i].Logits))
			q.next = results[i].Token
		}
	}
}

// step continues sequences.
func (r *aheadFixture) step(want model.Want, list ...*greedySequence) {
	var rows []model.Row
	for _, q := range list {
		rows = append(rows, q.row(want))
	}
	r.submit(rows, list)
}

func (q *greedySequence) row(want model.Want) model.Row {
	row := model.Row{Sequence: q.s.Sequence, Want: want}
	if q.given || !q.r.ahead && q.next >= 0 {
		row.Tokens = []int{q.next}
	}
	q.given = false
	if want == model.WantNothing {
		q.next = -1
	}
	return row
}

// open opens a sequence and computes a prompt of some length.
func (r *aheadFixture) open(capacity, prompt int) *greedySequence {
	r.Helper()
	s, err := r.e.NewSequence(capacity)
	if err != nil {
		r.Fatal(err)
	}
	return r.sequence(s).prompt(model.WantToken, testTokens(r.vocab, prompt)...)
}

func (r *aheadFixture) sequence(s model.Sequence) *greedySequence {
	r.Cleanup(func() { s.Close() })
	return &greedySequence{r: r, s: text{s, r.e}, next: -1}
}

func (q *greedySequence) prompt(want model.Want, tokens ...int) *greedySequence {
	row := q.s.row(tokens, want)
	row.Prompt = true
	q.r.submit([]model.Row{row}, []*greedySequence{q})
	return q
}

// fork forks the sequence, which leaves its token.
func (q *greedySequence) fork(n int) *greedySequence {
	q.r.Helper()
	f, err := q.s.Fork(n)
	if err != nil {
		q.r.Fatal(err)
	}
	return q.r.sequence(f)
}

func (q *greedySequence) truncate(n int) {
	if n < q.s.Len() {
		q.next = -1
	}
	q.r.note(q.s.Truncate(n))
}

// put sets the next token.
func (q *greedySequence) put(token int) { q.next, q.given = token, true }

func (q *greedySequence) greedy(n int) {
	for range n {
		q.r.step(model.WantToken, q)
	}
}

func (q *greedySequence) logits(n int) {
	for range n {
		q.r.step(model.WantLogits, q)
	}
}

// hold continues a sequence and leaves the choice open.
func (r *aheadFixture) hold(q *greedySequence) {
	row := q.row(model.WantLogits)
	row.Hold = true
	r.submit([]model.Row{row}, []*greedySequence{q})
}

// choose permits one token only.
func (r *aheadFixture) choose(q *greedySequence, token int) {
	mask := make([]uint32, sampling.MaskLen(r.vocab))
	mask[token/32] |= 1 << (token % 32)
	p, err := r.e.Choose(r.Context(), []model.Choose{{Sequence: q.s.Sequence, Mask: mask}})
	r.note(err)
	if err != nil {
		return
	}
	results, err := p.Wait()
	r.note(err)
	q.next = results[0].Token
	r.seen = append(r.seen, fmt.Sprint(q.next))
}

// record runs the case and returns its results and the engine's counters.
func (c aheadCase) record(t *testing.T, m *model.Model, device emu.Options, ahead bool) ([]string, accel.Stats) {
	t.Helper()
	r := &aheadFixture{TB: t, e: accelEngine(t, m, device, c.o), vocab: m.Config.Vocab, ahead: ahead}
	c.run(r)
	r.waitFor(0)
	return r.seen, r.e.Stats()
}

// check compares the results with those of steps that are waited for at once.
func (c aheadCase) check(t *testing.T, m *model.Model, device emu.Options) {
	t.Helper()
	want, without := c.record(t, m, smallDevice, false)
	got, s := c.record(t, m, device, true)
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Errorf("%s: result %d of %d is %s, without steps queued ahead %s", c.reason, i, len(got), got[i], want[i])
			}
		}
		t.Errorf("%s: %d results, without steps queued ahead %d", c.reason, len(got), len(want))
	}
	if s.AsyncSteps == 0 || without.AsyncSteps != 0 {
		t.Errorf("%s: %d steps were queued ahead, want some; else %d, want none", c.reason, s.AsyncSteps, without.AsyncSteps)
	}
	if s.DecodeSteps != without.DecodeSteps || s.DecodeTokens != without.DecodeTokens {
		t.Errorf("%d steps of %d tokens, without steps queued ahead %d of %d", s.DecodeSteps, s.DecodeTokens, without.DecodeSteps, without.DecodeTokens)
	}
}

// TestAccelAhead runs each case on a device that runs queued work late, and some also on one that
// runs it at once.
func TestAccelAhead(t *testing.T) {
	slowParallel(t)
	rope, minimal := longRopeModel(t), minimalModel(t)
	for i, c := range aheadCases {
		t.Run(c.name, func(t *testing.T) {
			m := minimal
			if c.name == "both RoPE factors" {
				m = rope
			}
			c.check(t, m, lateDevice)
			if i%5 == 0 {
				c.check(t, m, smallDevice)
			}
		})
	}
}

// TestAccelAheadSeesFaults demands that another token changes the record.
func TestAccelAheadSeesFaults(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	a := aheadCase{run: func(r *aheadFixture) { r.open(0, 5).logits(1) }}
	b := aheadCase{run: func(r *aheadFixture) {
		q := r.open(0, 5)
		q.put((q.next + 1) % r.vocab)
		q.logits(1)
	}}
	seen, _ := a.record(t, m, smallDevice, false)
	other, _ := b.record(t, m, smallDevice, false)
	if seen[0] != other[0] || seen[1] == other[1] {
		t.Errorf("records of two different tokens: %q and %q", seen, other)
	}
}
