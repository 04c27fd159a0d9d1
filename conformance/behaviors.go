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
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-go/lockstep/generate"
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
	return slices.Concat(sessionBehaviors, errorBehaviors, generationBehaviors, textBehaviors, prefixBehaviors, parallelBehaviors)
}

// minContext is the shortest context for which Behaviors can be checked.
const minContext = 64

// Check reports a failure to t if the engine lacks the behavior or if a session stays open.
func (b Behavior) Check(t T, e model.Engine) {
	t.Helper()
	m := e.Model()
	if m.Tokenizer == nil || m.Config.Context < minContext {
		t.Fatalf("the model needs a vocabulary and %d positions", minContext)
	}
	r := &fixture{t: t, engine: &spy{Engine: e}, vocab: m.Config.Vocab}
	b.run(r)
	for _, s := range r.sessions {
		if err := s.Close(); err != nil {
			t.Errorf("closing a session: %v", err)
		}
	}
	if n := r.engine.openSessions(); n != 0 {
		t.Errorf("%d sessions were left open", n)
	}
}

// fixture is an engine under test. Its helpers fail the test on unexpected errors.
type fixture struct {
	t        T
	engine   *spy
	vocab    int
	sessions []model.Session
}

// session opens a session that Check closes.
func (r *fixture) session(capacity int) model.Session {
	r.t.Helper()
	s, err := r.engine.NewSession(capacity)
	if err != nil {
		r.t.Fatalf("a session of %d positions: %v", capacity, err)
	}
	r.sessions = append(r.sessions, s)
	return s
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

// forward computes tokens and returns a copy of the output.
func (r *fixture) forward(s model.Session, tokens []int, want model.Want) model.Output {
	r.t.Helper()
	out, err := s.Forward(r.t.Context(), tokens, want)
	if err != nil {
		r.t.Fatalf("%d tokens at position %d: %v", len(tokens), s.Len(), err)
	}
	out.Logits = slices.Clone(out.Logits)
	if n := len(out.Logits); want == model.WantLast && n != r.vocab || want == model.WantAll && n != len(tokens)*r.vocab {
		r.t.Fatalf("%d logits for %d tokens and output kind %d", n, len(tokens), want)
	}
	return out
}

// lastLogits returns the logits of the last token, computed in a new session.
func (r *fixture) lastLogits(tokens []int) []float32 {
	r.t.Helper()
	return r.forward(r.session(minContext), tokens, model.WantLast).Logits
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

// length demands that a session holds n positions.
func (r *fixture) length(what string, s model.Session, n int) {
	r.t.Helper()
	if s.Len() != n {
		r.t.Errorf("%s: the session holds %d positions, want %d", what, s.Len(), n)
	}
}

// continues demands that a session holds tokens and continues like a new session.
func (r *fixture) continues(what string, s model.Session, tokens []int) {
	r.t.Helper()
	r.length(what, s, len(tokens))
	next := r.tokens(2, 77)
	r.sameBits(what+", going on", r.lastLogits(slices.Concat(tokens, next)), r.forward(s, next, model.WantLast).Logits)
}

// generated is the result of a generation.
type generated struct {
	IDs  []int // without model.NoToken
	Text string
	Err  error
}

func collect(seq func(func(generate.Token, error) bool)) generated {
	var g generated
	for t, err := range seq {
		if err != nil {
			g.Err = err
			continue
		}
		if t.ID != generate.NoToken {
			g.IDs = append(g.IDs, t.ID)
		}
		g.Text += t.Text
	}
	return g
}

// generate continues a prompt without a prefix cache. It ignores stop tokens, so that
// random models write something.
func (r *fixture) generate(prompt []int, p generate.Params) generated {
	r.t.Helper()
	p.IgnoreEOS = true
	g := collect(generate.Tokens(r.t.Context(), r.engine, prompt, p))
	if g.Err != nil {
		r.t.Fatalf("generating: %v", g.Err)
	}
	return g
}

func (r *fixture) generator(o generate.Options) *generate.Generator {
	r.t.Helper()
	g, err := generate.New(r.engine, o)
	if err != nil {
		r.t.Fatalf("generator: %v", err)
	}
	return g
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

// spy is an engine that records its calls. Any goroutine may use it.
type spy struct {
	model.Engine

	mu     sync.Mutex
	opened int
	open   int
	calls  []call
	// beforeForward, if set, runs before each Forward.
	beforeForward func()
}

// call is a successful Forward.
type call struct {
	At     int // positions before
	Tokens []int
	Want   model.Want
	Output model.Output // with copied logits
}

func (e *spy) NewSession(capacity int) (model.Session, error) {
	s, err := e.Engine.NewSession(capacity)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opened++
	e.open++
	return &spySession{Session: s, e: e}, nil
}

func (e *spy) openSessions() int {
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

type spySession struct {
	model.Session
	e      *spy
	closed bool
}

func (s *spySession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	if s.e.beforeForward != nil {
		s.e.beforeForward()
	}
	at := s.Len()
	out, err := s.Session.Forward(ctx, tokens, want)
	if err != nil {
		return out, err
	}
	recorded := out
	recorded.Logits = slices.Clone(out.Logits)
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.calls = append(s.e.calls, call{At: at, Tokens: slices.Clone(tokens), Want: want, Output: recorded})
	return out, nil
}

func (s *spySession) Close() error {
	s.e.mu.Lock()
	if !s.closed {
		s.closed = true
		s.e.open--
	}
	s.e.mu.Unlock()
	return s.Session.Close()
}
