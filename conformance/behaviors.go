// Package conformance tests engines. Behaviors lists what every model.Engine must do. The
// tests of the package compare the accelerator with the reference, kernel by kernel and
// operation by operation, and the emulator with the PTX ISA, instruction by instruction:
//
//	go test ./conformance [-gpu] [-long] [-seed N] [-kernels RE] [-mutants N] [-random N]
//
// They run on the emulator or, with -gpu, on the first CUDA device. The cases of kernels are
// in internal/kernelcases, their comparisons in internal/harness, the instruction table in
// internal/isa, and mutation in internal/mutate.
package conformance

import (
	"context"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/model"
)

// T is the part of *testing.T that Check uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // must not return
	Context() context.Context
}

// Behavior is a requirement on each engine, independent of its model.
type Behavior struct {
	Name   string // unique
	Reason string // what the behavior covers
	run    func(r *fixture)
}

// Behaviors lists all behaviors. The model must have a vocabulary and a context of at least
// 64 positions.
func Behaviors() []Behavior {
	return slices.Concat(sequenceBehaviors, errorBehaviors, generationBehaviors, textBehaviors, prefixBehaviors, parallelBehaviors)
}

// minContext is the shortest context for which Behaviors can be checked.
const minContext = 64

// Check reports a failure to t if the engine lacks the behavior or if a sequence stays open.
func (b Behavior) Check(t T, e model.Engine) {
	t.Helper()
	m := e.Model()
	if m.Tokenizer == nil || m.Config.Context < minContext {
		t.Fatalf("the model needs a vocabulary and %d positions", minContext)
	}
	r := &fixture{t: t, engine: &spy{Engine: e}, vocab: m.Config.Vocab}
	b.run(r)
	for _, c := range r.closers {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	for _, s := range r.sequences {
		if err := s.Close(); err != nil {
			t.Errorf("closing a sequence: %v", err)
		}
	}
	if n := r.engine.openSequences(); n != 0 {
		t.Errorf("%d sequences were left open", n)
	}
}

// fixture is an engine under test. Its helpers fail the test on unexpected errors.
type fixture struct {
	t         T
	engine    *spy
	vocab     int
	sequences []model.Sequence
	closers   []io.Closer // of sequences
}

// text is a sequence with its engine.
type text struct {
	model.Sequence
	e model.Engine
}

// Forward continues the text and waits for the result. Several tokens, and the first ones, are
// a prompt; one token is a generated token.
func (s text) Forward(ctx context.Context, tokens []int, want model.Want) (model.Result, error) {
	return model.Forward(ctx, s.e, s.row(tokens, want))
}

// row returns the row of Forward.
func (s text) row(tokens []int, want model.Want) model.Row {
	return model.Row{Sequence: s.Sequence, Tokens: tokens, Prompt: len(tokens) > 1 || s.Len() == 0, Want: want}
}

// sequence opens a sequence that Check closes.
func (r *fixture) sequence(capacity int) text {
	r.t.Helper()
	s, err := r.engine.NewSequence(capacity)
	if err != nil {
		r.t.Fatalf("a sequence of %d positions: %v", capacity, err)
	}
	r.sequences = append(r.sequences, s)
	return text{s, r.engine}
}

// fork forks a sequence. Check closes the fork.
func (r *fixture) fork(s text, n int) text {
	r.t.Helper()
	f, err := s.Fork(n)
	if err != nil {
		r.t.Fatalf("a fork of %d of %d positions: %v", n, s.Len(), err)
	}
	r.sequences = append(r.sequences, f)
	return text{f, r.engine}
}

// step runs a step of some rows and returns copies of the results.
func (r *fixture) step(rows ...model.Row) []model.Result {
	r.t.Helper()
	return r.wait(r.queue(rows...))
}

// queue queues a step.
func (r *fixture) queue(rows ...model.Row) model.Pass {
	r.t.Helper()
	p, err := r.engine.Step(r.t.Context(), rows)
	if err != nil {
		r.t.Fatalf("a step of %d rows: %v", len(rows), err)
	}
	return p
}

// wait returns copies of the results of a step.
func (r *fixture) wait(p model.Pass) []model.Result {
	r.t.Helper()
	results, err := p.Wait()
	if err != nil {
		r.t.Fatalf("waiting for a step: %v", err)
	}
	results = slices.Clone(results)
	for i := range results {
		results[i].Logits, results[i].Hidden = slices.Clone(results[i].Logits), slices.Clone(results[i].Hidden)
	}
	return results
}

// tokens returns n token IDs that stop no generation. They depend on seed alone.
func (r *fixture) tokens(n int, seed uint64) []int {
	random := rand.New(rand.NewPCG(seed, 1))
	tok := r.engine.Model().Tokenizer
	ids := make([]int, 0, n)
	for len(ids) < n {
		if id := random.IntN(r.vocab); !tok.Stops(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// forward computes tokens, as text.Forward does.
func (r *fixture) forward(s text, tokens []int, want model.Want) model.Result {
	r.t.Helper()
	out, err := s.Forward(r.t.Context(), tokens, want)
	if err != nil {
		r.t.Fatalf("%d tokens at position %d: %v", len(tokens), s.Len(), err)
	}
	if n := len(out.Logits); want == model.WantLogits && n != r.vocab || want == model.WantAll && n != len(tokens)*r.vocab {
		r.t.Fatalf("%d logits for %d tokens and output kind %d", n, len(tokens), want)
	}
	return out
}

// lastLogits returns the logits of the last token, computed in a new sequence.
func (r *fixture) lastLogits(tokens []int) []float32 {
	r.t.Helper()
	return r.forward(r.sequence(minContext), tokens, model.WantLogits).Logits
}

// sameBits demands that logits are equal bit for bit.
func (r *fixture) sameBits(what string, want, got []float32) {
	r.t.Helper()
	if i := firstDifference(want, got); i >= 0 {
		r.t.Errorf("%s: want %d logits, got %d, first difference at %d", what, len(want), len(got), i)
	}
}

// firstDifference returns the first index at which two lists differ in bits or length, or
// -1.
func firstDifference(a, b []float32) int {
	for i := range min(len(a), len(b)) {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// equal demands that two values are equal.
func (r *fixture) equal(what string, want, got any) {
	r.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// length demands that a sequence holds n positions.
func (r *fixture) length(what string, s text, n int) {
	r.t.Helper()
	if s.Len() != n {
		r.t.Errorf("%s: the sequence holds %d positions, want %d", what, s.Len(), n)
	}
}

// continues demands that a sequence holds a prompt and tokens that were generated after it, and
// continues like a new sequence. Without generated tokens, the new sequence computes all at once.
func (r *fixture) continues(what string, s text, prompt []int, generated ...int) {
	r.t.Helper()
	r.length(what, s, len(prompt)+len(generated))
	same, next := r.sequence(minContext), r.tokens(2, 77)
	rest := slices.Concat(prompt, next)
	if len(generated) > 0 { // prompts may be rounded differently
		r.forward(same, prompt, model.WantNothing)
		for _, t := range generated {
			r.forward(same, []int{t}, model.WantNothing)
		}
		rest = next
	}
	r.sameBits(what+", going on", r.forward(same, rest, model.WantLogits).Logits, r.forward(s, next, model.WantLogits).Logits)
}

// open demands that n sequences are open. The sequence of a canceled request closes after the pass
// that uses it, so open waits for that.
func (r *fixture) open(n int) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Second); r.engine.openSequences() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Errorf("%d sequences are open, want %d", r.engine.openSequences(), n)
			return
		}
	}
}

// countdown is a context that is canceled at its nth query.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	n      atomic.Int64
}

func newCountdown(parent context.Context, n int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	c := &countdown{Context: ctx, cancel: cancel}
	c.n.Store(int64(n))
	return c, cancel
}

func (c *countdown) tick() {
	if c.n.Add(-1) < 0 {
		c.cancel()
	}
}

func (c *countdown) Err() error {
	c.tick()
	return c.Context.Err()
}

func (c *countdown) Done() <-chan struct{} {
	c.tick()
	return c.Context.Done()
}

// wrapped is a sequence of an engine that wraps another engine.
type wrapped interface{ inner() model.Sequence }

// innerRows returns rows of the wrapped engine.
func innerRows(rows []model.Row) []model.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Sequence = innerSequence(rows[i].Sequence)
	}
	return rows
}

func innerSequence(s model.Sequence) model.Sequence {
	if w, ok := s.(wrapped); ok {
		return w.inner()
	}
	return s
}

func innerChoices(list []model.Choose) []model.Choose {
	list = slices.Clone(list)
	for i := range list {
		list[i].Sequence = innerSequence(list[i].Sequence)
	}
	return list
}

// spy is an engine that records its rows. Any goroutine may use it, one at a time.
type spy struct {
	model.Engine

	mu     sync.Mutex
	opened int
	open   int
	calls  []call
	// beforeStep, if set, runs before each Step.
	beforeStep func()
}

// call is a row of a step that was waited for without an error.
type call struct {
	At     int   // positions before
	Tokens []int // nil: the token that the sequence's last row chose
	Want   model.Want
	Result model.Result // with copied logits
}

func (e *spy) NewSequence(capacity int) (model.Sequence, error) {
	s, err := e.Engine.NewSequence(capacity)
	if err != nil {
		return nil, err
	}
	return e.watch(s), nil
}

func (e *spy) watch(s model.Sequence) model.Sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opened++
	e.open++
	return &spySequence{Sequence: s, e: e}
}

func (e *spy) Step(ctx context.Context, rows []model.Row) (model.Pass, error) {
	if e.beforeStep != nil {
		e.beforeStep()
	}
	var calls []call
	for _, r := range rows {
		calls = append(calls, call{At: r.Sequence.Len(), Tokens: slices.Clone(r.Tokens), Want: r.Want})
	}
	p, err := e.Engine.Step(ctx, innerRows(rows))
	if err != nil {
		return nil, err
	}
	return &spyPass{Pass: p, e: e, calls: calls}, nil
}

func (e *spy) Choose(ctx context.Context, list []model.Choose) (model.Pass, error) {
	return e.Engine.Choose(ctx, innerChoices(list))
}

type spyPass struct {
	model.Pass
	e     *spy
	calls []call // not recorded yet
}

func (p *spyPass) Wait() ([]model.Result, error) {
	results, err := p.Pass.Wait()
	if err != nil {
		return nil, err
	}
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	for i, c := range p.calls {
		c.Result = results[i]
		c.Result.Logits = slices.Clone(c.Result.Logits)
		p.e.calls = append(p.e.calls, c)
	}
	p.calls = nil
	return results, nil
}

func (e *spy) openSequences() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.open
}

// reset clears the calls and returns them.
func (e *spy) reset() []call {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls := e.calls
	e.calls, e.opened = nil, 0
	return calls
}

type spySequence struct {
	model.Sequence
	e      *spy
	closed bool
}

func (s *spySequence) inner() model.Sequence { return s.Sequence }

func (s *spySequence) Fork(n int) (model.Sequence, error) {
	f, err := s.Sequence.Fork(n)
	if err != nil {
		return nil, err
	}
	return s.e.watch(f), nil
}

func (s *spySequence) Close() error {
	s.e.mu.Lock()
	if !s.closed {
		s.closed = true
		s.e.open--
	}
	s.e.mu.Unlock()
	return s.Sequence.Close()
}
