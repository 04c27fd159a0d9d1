package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/ptxgen/attention"
)

var randomOperations = flag.Int("random", 0, "number of operations of each case of TestAccelRandom; 0: 60, or 1000 with -long")

// randomCase is an engine for random scripts. Its cache has room for a few sequences, so that
// requests find it full.
type randomCase struct {
	name      string
	o         accel.Options
	long      bool // only with -long
	recurrent bool // the model has a recurrent state
}

var randomCases = []randomCase{
	{name: "graphs", o: accel.Options{KVPages: 7, MaxSequences: 4, Chunk: 24}},
	{name: "eager", o: accel.Options{KVPages: 6, MaxSequences: 3, Chunk: 48, Eager: true}},
	{name: "recurrent state", o: accel.Options{KVPages: 7, MaxSequences: 4, Chunk: 24, Checkpoint: 16}, recurrent: true},
	{name: "one slot", o: accel.Options{KVPages: 4, MaxSequences: 1, Chunk: 32}, long: true},
	{name: "many slots", o: accel.Options{KVPages: 24, MaxSequences: 16, Chunk: 33}, long: true},
	{name: "recurrent state, one slot", o: accel.Options{KVPages: 4, MaxSequences: 1, Chunk: 32, Checkpoint: 40, Eager: true}, recurrent: true, long: true},
}

// TestAccelRandom runs random scripts: steps of random rows, each queued before the last is waited for, forks,
// swaps, truncations, held choices, canceled steps and calls of the device that fail. It compares
// each result with that of the same tokens computed alone on an engine of their own, and each
// sequence's length with the number of its tokens. At the end nothing may be left.
func TestAccelRandom(t *testing.T) {
	slowParallel(t)
	models := map[bool]*model.Model{false: randomModel(t, minimalSpec()), true: randomModel(t, recurrentSpec())}
	n := *randomOperations
	if n == 0 && *longCases {
		n = 1000
	} else if n == 0 {
		n = 60
	}
	for _, c := range randomCases {
		if c.long && !*longCases {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			parallelUnlessGPU(t)
			c.check(t, models[c.recurrent], n)
			if t.Failed() {
				t.Logf("to replay: go test ./conformance -run '%s$' -long=%v -seed %d -random %d", strings.ReplaceAll(t.Name(), "/", "$/"), *longCases, *kernelSeed, n)
			}
		})
	}
}

// randomContext is the context of the model: sequences have up to four pages.
const randomContext = 200

// randomModel loads a model with a longer context.
func randomModel(t testing.TB, spec *tiny.Model) *model.Model {
	t.Helper()
	spec.Set(".context_length", uint32(randomContext))
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (c randomCase) check(t *testing.T, m *model.Model, operations int) {
	device := emu.Options{SMs: 1, IgnoreRaces: true, LateStreams: true, Cache: &emulatorCache}
	dev := faultinject.New(accelDevice(t, device))
	e, err := accel.New(t.Context(), m, dev, c.o)
	if err != nil {
		t.Fatal(err)
	}
	r := &script{
		TB: t, e: e, dev: dev, texts: randomTexts(m.Config.Vocab),
		random: rand.New(rand.NewPCG(*kernelSeed, uint64(len(c.name)))), slots: c.o.MaxSequences,
	}
	for range operations {
		r.operation()
	}
	r.wait(0)
	t.Logf("%+v; %d failed calls of the device", e.Stats(), len(dev.Injected()))
	for len(r.sequences) > 0 {
		r.close()
	}
	if s := e.Stats(); s.PagesInUse > 0 || s.Sequences > 0 {
		t.Errorf("%d pages are still in use, and %d sequences open", s.PagesInUse, s.Sequences)
	}
	checkClosed(t, e)
	c.o.Eager, c.o.KVPages, c.o.Chunk = true, 0, 0
	alone := oracle{TB: t, m: m, device: accelDevice(t, device), o: c.o, results: map[history]row{}}
	alone.check(r)
}

// randomTexts returns the texts that prompts begin with. They have a common beginning, two of
// them one of more than a page.
func randomTexts(vocab int) [][]int {
	random := rand.New(rand.NewPCG(7, 7))
	var texts [][]int
	for range 3 {
		text := make([]int, randomContext+10)
		for i := range text {
			text[i] = random.IntN(vocab)
		}
		texts = append(texts, text)
	}
	copy(texts[1][:66], texts[0])
	copy(texts[2][:4], texts[0])
	return texts
}

// history says how each position of a sequence was computed. A byte per position holds the
// token, and byStep if it was not part of a prompt.
type history string

const byStep = 0x80

// run returns the first tokens that one row computes, and whether they are a prompt.
func (h history) run() (tokens []int, prompt bool) {
	for i := range len(h) {
		if (h[i]^h[0])&byStep != 0 {
			break
		}
		tokens = append(tokens, int(h[i]&^byStep))
	}
	return tokens, h[0]&byStep == 0
}

// row is the result of a position.
type row struct {
	token  int
	logits string // hash; empty if they were not wanted
}

// script is a series of random operations.
type script struct {
	testing.TB
	e      *accel.Engine
	dev    *faultinject.Device
	random *rand.Rand
	texts  [][]int
	slots  int // rows of one generated token, per step

	operations []string // so far
	sequences  []*track
	queued     []*queuedStep
	injected   int // failed calls of the device before the operation
	seen       []seen
}

// seen is a result and the operation that gave it.
type seen struct {
	operation string
	h         history
	row
}

// track is a sequence and what it must hold.
type track struct {
	s        text
	h        []position
	next     *int // the token that the last row chose, -1 until it is known; nil: none
	held     *queuedRow
	swapped  bool
	reserved int // positions
}

// position is one position of a sequence.
type position struct {
	token *int // -1 until it is known
	step  bool // not part of a prompt
	by    *queuedStep
}

// queuedStep is a step, or a held choice, and what it must give.
type queuedStep struct {
	choice    bool
	operation string
	pass      model.Pass
	rows      []*queuedRow
	ctx       context.Context
	failed    bool
}

type queuedRow struct {
	q      *track
	want   model.Want
	hold   bool
	h      []position // after the row
	n      int        // positions of the row
	before *int       // next of the track before the row
	chosen *int       // the token that the row chooses; nil: none
	only   int        // the token that a held choice permits; -1: all
}

// historyOf returns a history whose tokens are known.
func historyOf(h []position) history {
	var b []byte
	for _, p := range h {
		kind := byte(0)
		if p.step {
			kind = byStep
		}
		b = append(b, byte(*p.token)|kind)
	}
	return history(b)
}

// operation runs a random operation, with or without a call of the device that fails, and checks
// what must hold after each.
func (r *script) operation() {
	list := []func(){
		r.step, r.step, r.step, r.step, r.step, r.step, r.step, r.open, r.open, r.truncate, r.fork, r.fork,
		r.swapOut, r.swapIn, r.swapIn, r.reserve, r.choose, r.choose, r.close, r.tooLong, func() { r.wait(0) },
	}
	r.injected = len(r.dev.Injected())
	fault := r.random.IntN(6) == 0
	if fault {
		r.dev.Fail(faultinject.Plan{N: 1 + r.random.IntN(12)})
	}
	for n := len(r.operations); n == len(r.operations); { // some have nothing to work on
		list[r.random.IntN(len(list))]()
		if r.random.IntN(20) == 0 {
			break
		}
	}
	if fault {
		r.wait(0) // the fault may be in a later wait
		r.dev.Fail(faultinject.Plan{})
	}
	for _, q := range r.sequences {
		if q.s.Len() != len(q.h) {
			r.fail("a sequence holds %d positions, want %d", q.s.Len(), len(q.h))
		}
	}
}

func (r *script) begin(format string, args ...any) {
	r.operations = append(r.operations, fmt.Sprintf("%d: ", len(r.operations))+fmt.Sprintf(format, args...))
}

func (r *script) fail(format string, args ...any) {
	r.Helper()
	r.Fatalf("operation %s: %s\n%s", r.operations[len(r.operations)-1], fmt.Sprintf(format, args...), strings.Join(r.operations, "\n"))
}

func pagesOf(positions int) int { return (positions + attention.PageTokens - 1) / attention.PageTokens }

// need returns an upper bound of the pages that sequences hold if some of them grow.
func (r *script) need(grow map[*track]int) (pages int) {
	for _, q := range r.sequences {
		if n := grow[q]; !q.swapped || n > 0 {
			pages += pagesOf(max(len(q.h)+n, q.reserved)) + min(n, 1) // a copy of a shared page
		}
	}
	return pages
}

// judge fails the test if a call may not end with an error.
func (r *script) judge(err error, canceled bool, pages int) {
	r.Helper()
	var full *model.CacheFullError
	var device *driver.Error
	switch {
	case err == nil:
	case errors.As(err, &full):
		if pages <= full.Pages || full.Need <= full.Free {
			r.fail("sequences need at most %d pages: %v", pages, err)
		}
	case errors.Is(err, context.Canceled) && canceled:
	case errors.As(err, &device) && len(r.dev.Injected()) > r.injected:
	default:
		r.fail("%v", err)
	}
}

// settled waits for all steps after a call that ended with an error, which steps in flight may
// share.
func (r *script) settled(err error) {
	if err != nil {
		r.wait(0)
	}
}

// usable returns the sequences that a row can continue, in random order.
func (r *script) usable() (list []*track) {
	for _, q := range r.sequences {
		if !q.swapped {
			list = append(list, q)
		}
	}
	r.random.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return list
}

// one returns a random sequence that is or is not swapped out; nil if there is none.
func (r *script) one(swapped bool) *track {
	for _, i := range r.random.Perm(len(r.sequences)) {
		if q := r.sequences[i]; q.swapped == swapped {
			return q
		}
	}
	return nil
}

func (r *script) open() {
	if len(r.sequences) > r.slots+2 {
		r.close()
		return
	}
	capacity := 0
	if r.random.IntN(3) == 0 {
		capacity = 1 + r.random.IntN(randomContext)
	}
	s, err := r.e.NewSequence(capacity)
	if err != nil {
		r.fail("%v", err)
	}
	r.sequences = append(r.sequences, &track{s: text{s, r.e}})
	r.begin("open number %d of %d positions", len(r.sequences)-1, capacity)
	lengths := []int{1, 2, 20, 61, 62, 63, 64, 65, 66, 67, 70, 127, 129}
	r.queue([]*track{r.sequences[len(r.sequences)-1]}, lengths[r.random.IntN(len(lengths))])
}

// step queues a step of random rows, and leaves one step in flight, or none: the results of a step
// are valid until the second step after it.
func (r *script) step() {
	list := r.usable()
	if len(list) == 0 {
		r.open()
		return
	}
	r.begin("step")
	r.queue(list[:1+r.random.IntN(min(r.slots, len(list)))], 0)
	r.wait(r.random.IntN(2))
}

// queue queues a step. The row of each sequence is a prompt of n tokens, or random if n is 0.
func (r *script) queue(list []*track, n int) {
	if len(r.queued) > 1 { // the results of a step are valid until the second step after it
		r.wait(len(slices.DeleteFunc(slices.Clone(r.queued), func(s *queuedStep) bool { return !s.choice })) + 1)
	}
	step := &queuedStep{operation: r.operations[len(r.operations)-1], ctx: r.Context()}
	cancel := func() {}
	canceled := r.random.IntN(12)
	switch canceled {
	case 0: // while it is queued
		var ctx context.Context
		ctx, cancel = newCountdown(r.Context(), r.random.IntN(5))
		step.ctx = ctx
	case 1: // when it is queued
		step.ctx, cancel = context.WithCancel(r.Context())
	default:
		canceled = -1
	}
	defer cancel()
	var rows []model.Row
	grow := map[*track]int{}
	for _, q := range list {
		row, mine := r.row(q, n, step)
		if mine == nil {
			continue
		}
		rows, step.rows = append(rows, row), append(step.rows, mine)
		grow[q] = mine.n
		r.operations[len(r.operations)-1] += fmt.Sprintf(", %d after %d (prompt %v, given %v, want %d, hold %v)", mine.n, len(q.h), row.Prompt, row.Tokens != nil, row.Want, row.Hold)
	}
	if canceled >= 0 {
		r.operations[len(r.operations)-1] += fmt.Sprintf(", canceled %d", canceled)
	}
	pass, err := r.e.Step(step.ctx, rows)
	if err != nil {
		r.judge(err, canceled >= 0 || r.anyCanceled(), r.need(grow))
		r.settled(err)
		for _, mine := range step.rows {
			mine.q.held = nil // it may have been given up
		}
		return
	}
	step.pass = pass
	r.queued = append(r.queued, step)
	for _, mine := range step.rows {
		q := mine.q
		mine.before = q.next
		q.h, q.next, q.held = mine.h, mine.chosen, nil
		if mine.hold && mine.chosen != nil {
			q.next, q.held = nil, mine
		}
		q.reserved = max(q.reserved, len(q.h))
	}
}

// anyCanceled reports whether the context of a step in flight has ended.
func (r *script) anyCanceled() bool {
	return slices.ContainsFunc(r.queued, func(s *queuedStep) bool { return s.ctx.Err() != nil })
}

// row returns a row of a sequence; nil if it is full.
func (r *script) row(q *track, n int, step *queuedStep) (model.Row, *queuedRow) {
	vocab, left := r.e.Model().Config.Vocab, q.s.Cap()-len(q.h)
	row := model.Row{Sequence: q.s.Sequence, Want: r.want(), Hold: r.random.IntN(8) == 0}
	mine := &queuedRow{q: q, want: row.Want, hold: row.Hold, n: 1, only: -1}
	var tokens []*int
	switch kind := r.random.IntN(10); {
	case left == 0:
		return row, nil
	case n == 0 && kind < 6 && q.next != nil:
		tokens = []*int{q.next}
	case n == 0 && kind < 8:
		row.Tokens = []int{r.random.IntN(vocab)}
	default:
		if n == 0 {
			n = []int{1, 2, 5, 9, attention.PageTokens - len(q.h)%attention.PageTokens}[r.random.IntN(5)]
		}
		row.Tokens = r.texts[r.random.IntN(len(r.texts))][:min(n, left)]
		row.Prompt = kind < 9 || len(row.Tokens) > 20
	}
	for _, id := range row.Tokens {
		tokens = append(tokens, &id)
	}
	mine.n = len(tokens)
	mine.h = slices.Clone(q.h)
	for _, id := range tokens {
		mine.h = append(mine.h, position{id, !row.Prompt, step})
	}
	if row.Want != model.WantNothing && row.Want != model.WantHidden {
		unknown := -1
		mine.chosen = &unknown
	}
	return row, mine
}

func (r *script) want() model.Want {
	return []model.Want{model.WantToken, model.WantToken, model.WantToken, model.WantToken, model.WantToken,
		model.WantLogits, model.WantAll, model.WantNothing, model.WantHidden}[r.random.IntN(9)]
}

// wait waits until at most some steps are in flight, and notes their results.
func (r *script) wait(most int) {
	r.Helper()
	for len(r.queued) > most {
		canceled := r.anyCanceled()
		step := r.queued[0]
		results, err := step.pass.Wait()
		if err != nil {
			r.judge(err, canceled, 0)
			r.undo()
			return
		}
		r.queued = r.queued[1:]
		for i, mine := range step.rows {
			r.note(step, mine, results[i])
		}
	}
}

// undo takes back all steps in flight, the oldest of which has failed.
func (r *script) undo() {
	failed := r.queued
	r.queued = nil
	for _, step := range failed {
		step.failed = true
		if _, err := step.pass.Wait(); err == nil {
			r.fail("a step succeeds after one before it has failed")
		}
	}
	for _, q := range r.sequences {
		if i := slices.IndexFunc(q.h, func(p position) bool { return p.by.failed }); i >= 0 {
			q.h, q.next, q.held = q.h[:i], nil, nil
		}
	}
	for _, step := range slices.Backward(failed) {
		for _, mine := range step.rows {
			q := mine.q
			if q.next == mine.chosen { // by a choice, which adds no position
				q.next = nil
			}
			if len(q.h) == len(mine.h)-mine.n && slices.Equal(q.h, mine.h[:len(q.h)]) && q.next == nil {
				q.next = mine.before
			}
		}
	}
}

// note notes the result of a row.
func (r *script) note(step *queuedStep, mine *queuedRow, out model.Result) {
	h, vocab := historyOf(mine.h), r.e.Model().Config.Vocab
	if mine.chosen == nil || mine.hold {
		if out.Token != -1 {
			r.fail("a row that chooses nothing has token %d", out.Token)
		}
	} else {
		*mine.chosen = out.Token
		switch mine.only {
		case -1:
			r.seen = append(r.seen, seen{step.operation, h, row{token: out.Token}})
		case out.Token:
		default:
			r.fail("token %d, and only %d is permitted", out.Token, mine.only)
		}
	}
	if n := len(out.Logits) / vocab; mine.want == model.WantLogits && n != 1 || mine.want == model.WantAll && n != mine.n {
		r.fail("%d rows of logits of %d positions, wants %d", n, mine.n, mine.want)
	}
	for n := len(out.Logits) / vocab; n > 0; n-- {
		logits := out.Logits[len(out.Logits)-n*vocab:][:vocab]
		r.seen = append(r.seen, seen{step.operation, h[:len(h)-n+1], row{model.Argmax(logits), hashLogits(logits)}})
	}
	if width := r.e.Model().Config.Hidden; mine.want == model.WantHidden && len(out.Hidden) != mine.n*width {
		r.fail("%d states of width %d for %d positions", len(out.Hidden), width, mine.n)
	}
}

// choose queues a held choice.
func (r *script) choose() {
	i := slices.IndexFunc(r.sequences, func(q *track) bool { return q.held != nil && !q.swapped })
	if i < 0 || len(r.queued) > 2 {
		return
	}
	q, unknown := r.sequences[i], -1
	r.begin("choose after %d", len(q.h))
	c := model.Choose{Sequence: q.s.Sequence}
	mine := &queuedRow{q: q, want: model.WantToken, h: q.held.h, chosen: &unknown, only: -1}
	if r.random.IntN(2) == 0 {
		mine.only = r.random.IntN(r.e.Model().Config.Vocab)
		c.Mask = []uint32{1 << mine.only}
	}
	q.held = nil
	p, err := r.e.Choose(r.Context(), []model.Choose{c})
	if err != nil {
		r.judge(err, r.anyCanceled(), 0)
		r.settled(err)
		return
	}
	q.next = &unknown
	r.queued = append(r.queued, &queuedStep{choice: true, operation: r.operations[len(r.operations)-1], pass: p, rows: []*queuedRow{mine}, ctx: r.Context()})
	r.wait(r.random.IntN(3))
}

func (r *script) truncate() {
	q := r.one(false)
	if q == nil {
		return
	}
	n := r.random.IntN(len(q.h) + 1)
	switch r.random.IntN(3) {
	case 0:
		n = max(0, len(q.h)-r.random.IntN(3))
	case 1:
		n = min(len(q.h), 63+r.random.IntN(3))
	}
	r.begin("truncate %d to %d", len(q.h), n)
	if err := q.s.Truncate(n); err != nil {
		r.fail("%v", err)
	}
	if n < len(q.h) {
		q.h, q.next, q.held, q.reserved = q.h[:n], nil, nil, n
	}
}

func (r *script) fork() {
	q := r.one(false)
	if q == nil || len(r.sequences) > r.slots+2 {
		return
	}
	n := len(q.h)
	if r.random.IntN(2) == 0 {
		n = r.random.IntN(n + 1)
	}
	r.begin("fork %d of %d", n, len(q.h))
	s, err := q.s.Fork(n) // copies a recurrent state at its end
	if r.judge(err, r.anyCanceled(), 0); err != nil {
		return
	}
	r.sequences = append(r.sequences, &track{s: text{s, r.e}, h: slices.Clone(q.h[:n])})
}

func (r *script) swapOut() {
	q := r.one(false)
	if q == nil {
		return
	}
	r.begin("swap out %d", len(q.h))
	canceled := r.anyCanceled()
	err := q.s.SwapOut()
	r.judge(err, canceled, 0)
	q.swapped = err == nil
	r.wait(0) // it waited for all steps
}

func (r *script) swapIn() {
	q := r.one(true)
	if q == nil {
		return
	}
	r.begin("swap in %d", len(q.h))
	err := q.s.SwapIn()
	r.judge(err, r.anyCanceled(), r.need(map[*track]int{q: 1}))
	q.swapped = err != nil
	q.reserved = 0
	r.wait(0)
}

func (r *script) reserve() {
	q := r.one(false)
	if q == nil {
		return
	}
	n := min(len(q.h)+r.random.IntN(80), q.s.Cap())
	r.begin("reserve %d after %d", n, len(q.h))
	err := q.s.Reserve(n)
	r.judge(err, false, r.need(map[*track]int{q: n - len(q.h)}))
	if err == nil {
		q.reserved = max(q.reserved, n)
	}
}

func (r *script) close() {
	if len(r.sequences) == 0 {
		return
	}
	i := r.random.IntN(len(r.sequences))
	r.begin("close %d", len(r.sequences[i].h))
	if err := r.sequences[i].s.Close(); err != nil {
		r.fail("closing: %v", err)
	}
	r.sequences = slices.Delete(r.sequences, i, i+1)
}

// tooLong makes a request beyond the capacity of a sequence.
func (r *script) tooLong() {
	q := r.one(false)
	if q == nil {
		return
	}
	n := q.s.Cap() - len(q.h) + 1
	r.begin("%d tokens after %d of %d", n, len(q.h), q.s.Cap())
	_, err := r.e.Step(r.Context(), []model.Row{{Sequence: q.s.Sequence, Tokens: r.texts[0][:n], Prompt: true}})
	if len(r.dev.Injected()) == r.injected && !errors.Is(err, model.ErrContextLimit) && !r.anyCanceled() {
		r.fail("error %v", err)
	}
	r.settled(err)
}

// oracle computes histories, each alone on an engine of its own.
type oracle struct {
	testing.TB
	m       *model.Model
	device  driver.Device
	o       accel.Options
	results map[history]row
}

// check compares the results that a script has seen.
func (o *oracle) check(r *script) {
	long := slices.Clone(r.seen) // a replay gives the results of all beginnings of its history
	slices.SortStableFunc(long, func(a, b seen) int { return len(b.h) - len(a.h) })
	for _, s := range long {
		if _, ok := o.results[s.h]; !ok {
			o.replay(s.h)
		}
	}
	wrong := 0
	for _, s := range r.seen {
		want := o.results[s.h]
		if s.logits == "" {
			want.logits = ""
		}
		if s.row != want && wrong < 3 {
			wrong++
			o.Errorf("operation %s: the result at position %d is %v, alone %v", s.operation, len(s.h)-1, s.row, want)
		}
	}
	if o.Failed() {
		o.Logf("operations:\n%s", strings.Join(r.operations, "\n"))
	}
	o.Logf("%d results of %d histories", len(r.seen), len(o.results))
}

// replay computes a history and keeps the results of its positions.
func (o *oracle) replay(whole history) {
	e, err := accel.New(o.Context(), o.m, o.device, o.o)
	if err != nil {
		o.Fatal(err)
	}
	defer checkClosed(o, e)
	s := openText(o, e)
	defer s.Close()
	vocab := o.m.Config.Vocab
	for rest := whole; len(rest) > 0; {
		tokens, prompt := rest.run()
		out, err := model.Forward(o.Context(), e, model.Row{Sequence: s.Sequence, Tokens: tokens, Prompt: prompt, Want: model.WantAll})
		if err != nil {
			o.Fatal(err)
		}
		for i := range tokens {
			logits := out.Logits[i*vocab:][:vocab]
			o.results[whole[:len(whole)-len(rest)+i+1]] = row{model.Argmax(logits), hashLogits(logits)}
		}
		rest = rest[len(tokens):]
	}
}
