package conformance

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// sampledParams are the parameters of the sequences of sampledCases, the zero value among them.
var sampledParams = []sampling.Params{
	{},
	{Temperature: 1, Seed: 1},
	{Temperature: 2, TopK: 5, Seed: 2, LogProb: true, TopLogProbs: 3},
	{Temperature: 1.5, TopP: 0.7, RepeatPenalty: 1.5, FrequencyPenalty: 5, Seed: 3},
	{PresencePenalty: 1.2, FrequencyPenalty: 20},
	{Temperature: 0.9, MinP: 0.1, Bias: map[int]float32{3: 4, 5: 4.5, 7: float32(math.Inf(-1))}, FrequencyPenalty: 2, Seed: 1 << 40, Choice: 2},
	{LogProb: true, Bias: map[int]float32{1: 2}, RepeatPenalty: 1.3},
}

// sampledCase is a series of calls. Each token that the accelerator chooses must be the one that
// package sampling chooses from the accelerator's logits.
type sampledCase struct {
	name, reason string
	o            accel.Options
	run          func(r *sampledFixture)
}

var sampledCases = []sampledCase{
	{"each parameter", "a batch of different parameters, greedy rows among them", accel.Options{}, func(r *sampledFixture) {
		list := r.open(len(sampledParams))
		for range 5 {
			r.step(list...)
		}
	}},
	{"one row", "penalties over many steps", accel.Options{Eager: true}, func(r *sampledFixture) {
		q := r.open(5)[4]
		for range 12 {
			r.step(q)
		}
	}},
	{"join and leave", "rows change their slots, and greedy steps come between", accel.Options{}, func(r *sampledFixture) {
		q := r.open(5)
		for _, batch := range [][]int{{3, 4}, {4}, {0}, {4, 0}, {0, 4, 3}, {3}, {1, 2, 3, 4, 0}, {2, 4}, {4, 3, 2, 1, 0}} {
			r.step(r.of(q, batch)...)
		}
	}},
	{"few states", "sequences take the states of others, whose counts come back", accel.Options{MaxSequences: 2, KVPages: 12}, func(r *sampledFixture) {
		q := r.open(6)
		for _, batch := range [][]int{{3, 4}, {4, 5}, {3, 5}, {4, 1}, {3, 4}, {5, 4}, {4, 3}, {5, 3}, {4, 5}, {3, 5}, {4, 3}} {
			r.step(r.of(q, batch)...)
		}
	}},
	{"prompts beside rows", "more rows than states, and prompts that continue", accel.Options{MaxSequences: 2, KVPages: 12, Chunk: 4}, func(r *sampledFixture) {
		q := r.open(6)
		for range 2 {
			rows := r.rows(q[3], q[4])
			for _, p := range []*sampledSequence{q[1], q[2], q[5]} {
				rows = append(rows, p.prompt(testTokens(r.vocab, 6)))
			}
			r.submit(rows, q[3], q[4], q[1], q[2], q[5])
		}
	}},
	{"swapped out", "a sequence leaves the device and comes back", accel.Options{}, func(r *sampledFixture) {
		q := r.open(5)
		for range 3 {
			r.step(q...)
			r.do(q[3].s.SwapOut())
			r.step(q[4], q[2])
			r.do(q[3].s.SwapIn())
		}
	}},
	{"fork", "a fork has parameters of its own", accel.Options{}, func(r *sampledFixture) {
		q := r.open(5)
		r.step(q...)
		f := r.fork(q[3], sampledParams[5])
		q = append(q, f)
		r.submit([]model.Row{f.prompt([]int{4, 5})}, f)
		r.step(q...)
		r.step(q...)
	}},
	{"held", "choices with masks between rows that the device chooses", accel.Options{}, func(r *sampledFixture) {
		q := r.open(6)
		for range 3 {
			r.hold(r.rows(q[4], q[5], q[2], q[0]), q[4], q[5], q[2], q[0])
			r.choose(r.mask(), nil, q[4], q[5], q[2], q[0])
			r.step(q...)
			r.step(q[4], q[3])
		}
	}},
	{"held for long", "other steps, prompts and choices come first", accel.Options{}, func(r *sampledFixture) {
		q := r.open(7)
		r.hold([]model.Row{q[2].prompt([]int{3, 4}), {Sequence: q[3].s.Sequence, Want: r.want}, q[6].prompt([]int{5})}, q[2], q[3], q[6])
		rows := append(r.rows(q[0], q[4]), q[1].prompt(testTokens(r.vocab, 7)))
		r.submit(rows, q[0], q[4], q[1])
		r.choose(nil, nil, q[3])
		r.step(q[3], q[5])
		r.choose(r.mask(), nil, q[6], q[2])
		r.step(q...)
	}},
	{"held, few states", "more held rows than states, of prompts and of steps", accel.Options{MaxSequences: 2, KVPages: 12, Chunk: 4}, func(r *sampledFixture) {
		q := r.open(6)
		for range 2 {
			r.hold(append(r.rows(q[3], q[4]), q[1].prompt([]int{2, 3}), q[5].prompt([]int{4}), q[2].prompt([]int{5})), q[3], q[4], q[1], q[5], q[2])
			r.step(q[0])
			r.choose(r.mask(), nil, q[2], q[3])
			rows := []model.Row{{Sequence: q[1].s.Sequence, Tokens: []int{1}, Want: r.want}, q[0].prompt(testTokens(r.vocab, 900))}
			if _, err := r.e.Step(r.Context(), rows); err == nil {
				r.Error("no error")
			}
			r.choose(nil, nil, q[5], q[1], q[4])
			r.step(q[5], q[2])
			r.step(q[4], q[3])
		}
	}},
	{"held, one token", "a mask permits one token, in the last element", accel.Options{}, func(r *sampledFixture) {
		q := r.open(5)
		mask := make([]uint32, sampling.MaskLen(r.vocab))
		mask[len(mask)-1] = 1 << ((r.vocab - 1) % 32)
		r.hold(r.rows(q...), q...)
		r.choose(mask, nil, q...)
		r.step(q...)
	}},
	{"held, no token", "no token is permitted, or no logit can be chosen", accel.Options{}, func(r *sampledFixture) {
		q := r.open(6)
		nan := slices.Repeat([]float32{float32(math.NaN())}, r.vocab)
		r.hold(r.rows(q...), q...)
		r.choose(make([]uint32, sampling.MaskLen(r.vocab)), nil, q[2:]...)
		r.choose(nil, nan, q[:2]...)
		r.waitFor(0)
		for _, s := range q {
			if _, err := r.e.Step(r.Context(), r.rows(s)); !errors.Is(err, model.ErrEmptyPrompt) {
				r.Errorf("continuing without a token: error %v", err)
			}
		}
	}},
	{"held, other logits", "logits of the caller, with log-probabilities", accel.Options{}, func(r *sampledFixture) {
		q := r.open(7)
		for i := range 2 {
			logits := make([]float32, r.vocab)
			for id := range logits {
				logits[id] = float32((id*7+i)%13) / 3
			}
			r.hold(r.rows(q...), q...)
			r.choose(nil, logits, q[2], q[6], q[1])
			r.choose(r.mask(), logits, q[3], q[0])
			r.choose(nil, nil, q[4], q[5])
		}
		r.step(q...)
	}},
	{"held and swapped out", "the logits stay where they are", accel.Options{}, func(r *sampledFixture) {
		q := r.open(5)
		r.hold(r.rows(q[3], q[4]), q[3], q[4])
		r.do(q[3].s.SwapOut())
		r.step(q[1], q[2])
		r.choose(r.mask(), nil, q[4])
		r.do(q[3].s.SwapIn())
		r.choose(nil, nil, q[3])
		r.step(q...)
	}},
	{"held, other parameters", "parameters change before the choice", accel.Options{}, func(r *sampledFixture) {
		q := r.open(6)
		r.hold(r.rows(q...), q...)
		for i, s := range q {
			s.set(&sampledParams[len(q)-i])
		}
		r.step(r.open(1)...)
		r.choose(nil, nil, q...)
		r.step(q...)
	}},
	{"held and refused", "errors between the row and the choice", accel.Options{KVPages: 8}, func(r *sampledFixture) {
		q := r.open(5)
		r.hold(r.rows(q[3], q[4]), q[3], q[4])
		if _, err := r.e.Step(r.Context(), append(r.rows(q[1]), q[2].prompt(testTokens(r.vocab, 600)))); err == nil {
			r.Error("no error")
		}
		if _, err := r.e.Choose(r.Context(), []model.Choose{{Sequence: q[3].s.Sequence}, {Sequence: q[1].s.Sequence}}); err == nil {
			r.Error("no error")
		}
		if _, err := r.e.Step(&expiringContext{r.Context(), 2}, append(r.rows(q[1]), q[2].prompt(testTokens(r.vocab, 6)))); err == nil {
			r.Error("no error")
		}
		r.choose(r.mask(), nil, q[3], q[4])
		r.step(q...)
	}},
	{"other parameters", "parameters change between steps", accel.Options{}, func(r *sampledFixture) {
		q := r.open(5)
		for _, i := range []int{3, 5, 0, 4} {
			r.step(q...)
			q[1].set(&sampledParams[i])
			r.step(q...)
		}
	}},
	{"refused step", "a step that is refused changes no counts", accel.Options{KVPages: 8}, func(r *sampledFixture) {
		q := r.open(5)
		r.step(q...)
		for range 2 {
			if _, err := r.e.Step(r.Context(), append(r.rows(q...), q[2].prompt(testTokens(r.vocab, 600)))); err == nil {
				r.Error("no error")
			}
			if _, err := r.e.Step(&expiringContext{r.Context(), 2}, append(r.rows(q[3], q[4]), q[2].prompt(testTokens(r.vocab, 6)))); err == nil {
				r.Error("no error")
			}
			r.step(q...)
		}
	}},
	{"many biases", "more biases than the device has room for", accel.Options{}, func(r *sampledFixture) {
		q := r.open(4)
		p := sampling.Params{Temperature: 1, PresencePenalty: 1, Bias: map[int]float32{}}
		for id := 1; id < r.vocab; id++ {
			p.Bias[id] = float32(id % 7)
		}
		q[3].set(&p)
		r.step(q...)
		r.step(q...)
		r.hold(r.rows(q...), q...)
		q[2].set(&p)
		q[3].set(&sampledParams[3])
		r.choose(r.mask(), nil, q...)
		r.step(q...)
	}},
}

// sampledFixture is an engine whose rows are checked.
type sampledFixture struct {
	testing.TB
	e     *accel.Engine
	vocab int
	want  model.Want // WantToken: the tokens are not checked
	ahead bool       // a step is queued before the last is waited for
	queue []sampledStep
	seen  []sampling.Choice
}

type sampledStep struct {
	pass      model.Pass
	rows      []model.Row // nil: choices
	mask      []uint32
	logits    []float32
	list      []*sampledSequence
	positions []int // of the tokens
}

// sampledSequence is a sequence with the sampler that its tokens must agree with.
type sampledSequence struct {
	r         *sampledFixture
	s         text
	sampler   *sampling.Sampler
	generated []int
	logits    []float32 // of the last row
}

// do demands that a call returns no error.
func (r *sampledFixture) do(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// open opens sequences with the first n of sampledParams and computes a prompt of each.
func (r *sampledFixture) open(n int) (list []*sampledSequence) {
	r.Helper()
	for i := range n {
		q := r.sequence(openText(r, r.e), sampledParams[i])
		r.submit([]model.Row{q.prompt(testTokens(r.vocab, 4+i))}, q)
		list = append(list, q)
	}
	return list
}

func (r *sampledFixture) sequence(s text, p sampling.Params) *sampledSequence {
	r.Helper()
	q := &sampledSequence{r: r, s: s}
	r.Cleanup(func() { q.s.Close() })
	q.set(&p)
	return q
}

func (r *sampledFixture) fork(q *sampledSequence, p sampling.Params) *sampledSequence {
	r.Helper()
	f, err := q.s.Fork(q.s.Len() - 1)
	r.do(err)
	return r.sequence(text{f, r.e}, p)
}

// set sets the parameters, once the tokens that they count are known.
func (q *sampledSequence) set(p *sampling.Params) {
	q.r.Helper()
	q.r.waitFor(0)
	prompt := []int{2, 4, 6}
	q.r.do(q.s.SetSampling(p, prompt, q.generated))
	q.sampler = sampling.New(p, q.r.vocab)
	for _, t := range prompt {
		q.sampler.Add(t, false)
	}
	for _, t := range q.generated {
		q.sampler.Add(t, true)
	}
}

func (r *sampledFixture) of(q []*sampledSequence, list []int) (batch []*sampledSequence) {
	for _, i := range list {
		batch = append(batch, q[i])
	}
	return batch
}

func (q *sampledSequence) prompt(tokens []int) model.Row {
	return model.Row{Sequence: q.s.Sequence, Tokens: tokens, Prompt: true, Want: q.r.want}
}

// rows continue sequences with their tokens.
func (r *sampledFixture) rows(list ...*sampledSequence) (rows []model.Row) {
	for _, q := range list {
		rows = append(rows, model.Row{Sequence: q.s.Sequence, Want: r.want})
	}
	return rows
}

func (r *sampledFixture) step(list ...*sampledSequence) {
	r.Helper()
	r.submit(r.rows(list...), list...)
}

// submit queues a step and, unless the fixture runs ahead, waits for it.
func (r *sampledFixture) submit(rows []model.Row, list ...*sampledSequence) {
	r.Helper()
	p, err := r.e.Step(r.Context(), rows)
	r.do(err)
	s := sampledStep{pass: p, rows: rows, list: list}
	for _, q := range list {
		s.positions = append(s.positions, q.s.Len())
	}
	r.pending(s)
}

func (r *sampledFixture) pending(s sampledStep) {
	r.Helper()
	r.queue = append(r.queue, s)
	if r.ahead {
		r.waitFor(1)
	} else {
		r.waitFor(0)
	}
}

// waitFor waits until at most some steps are pending, and checks their tokens.
func (r *sampledFixture) waitFor(most int) {
	r.Helper()
	for len(r.queue) > most {
		s := r.queue[0]
		r.queue = r.queue[1:]
		results, err := s.pass.Wait()
		r.do(err)
		for i, q := range s.list {
			if s.rows != nil {
				q.logits = slices.Clone(results[i].Logits)
			} else if s.logits != nil && q.logits != nil {
				q.logits = s.logits
			}
			if s.rows == nil || !s.rows[i].Hold {
				q.chose(results[i].Choice, s.positions[i], s.mask)
			}
		}
	}
}

// chose checks the choice of the token at a position.
func (q *sampledSequence) chose(got sampling.Choice, position int, mask []uint32) {
	q.r.Helper()
	if q.logits != nil {
		if want := q.sampler.Choose(q.logits, position, mask); !reflect.DeepEqual(got, want) {
			q.r.Errorf("result %d is %v, want %v", len(q.r.seen), got, want)
		}
	}
	if got.Token >= 0 {
		q.sampler.Add(got.Token, true)
		q.generated = append(q.generated, got.Token)
	}
	q.r.seen = append(q.r.seen, got)
}

// hold queues rows and leaves their choices open.
func (r *sampledFixture) hold(rows []model.Row, list ...*sampledSequence) {
	r.Helper()
	for i := range rows {
		rows[i].Hold = true
	}
	r.submit(rows, list...)
}

// mask returns a mask that permits some tokens.
func (r *sampledFixture) mask() []uint32 {
	return slices.Repeat([]uint32{0x2490_0924}, sampling.MaskLen(r.vocab))
}

// choose queues held choices.
func (r *sampledFixture) choose(mask []uint32, logits []float32, list ...*sampledSequence) {
	r.Helper()
	s := sampledStep{mask: slices.Clone(mask), logits: slices.Clone(logits), list: list}
	var choices []model.Choose
	for _, q := range list {
		choices = append(choices, model.Choose{Sequence: q.s.Sequence, Mask: mask, Logits: logits})
		s.positions = append(s.positions, q.s.Len())
	}
	var err error
	s.pass, err = r.e.Choose(r.Context(), choices)
	r.do(err)
	for i := range mask { // the engine does not keep it
		mask[i] = 0
	}
	r.pending(s)
}

// largeVocabulary returns a model whose vocabulary exceeds the number of biases that the device has room
// for.
func largeVocabulary(t testing.TB) *model.Model {
	t.Helper()
	const vocab = 1100
	spec := minimalSpec()
	spec.Set(".vocab_size", uint32(vocab))
	spec.Reshape("token_embd.weight", tiny.Hidden, vocab)
	spec.Reshape("output.weight", tiny.Hidden, vocab)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestAccelSampling checks each token against package sampling. Without logits and with steps that
// are queued ahead, the tokens must be the same.
func TestAccelSampling(t *testing.T) {
	slowParallel(t)
	minimal := minimalModel(t)
	for _, c := range sampledCases {
		t.Run(c.name, func(t *testing.T) {
			m := minimal
			if c.name == "many biases" {
				m = largeVocabulary(t)
			}
			var first []sampling.Choice
			for _, mode := range []struct {
				want  model.Want
				ahead bool
			}{{model.WantLogits, false}, {model.WantToken, true}} {
				r := &sampledFixture{TB: t, e: accelEngine(t, m, lateDevice, c.o), vocab: m.Config.Vocab, want: mode.want, ahead: mode.ahead}
				c.run(r)
				r.waitFor(0)
				if first == nil {
					first = r.seen
				}
				if !reflect.DeepEqual(r.seen, first) && !t.Failed() {
					t.Errorf("%s: ahead %v: tokens %v, want %v", c.reason, mode.ahead, r.seen, first)
				}
			}
		})
	}
}
