// Package conformance tests engines. Behaviors lists what every model.Engine must do. The
// tests of the package compare the accelerator with the reference, kernel by kernel and
// operation by operation, on the emulator or on a GPU.
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

// T is what a check needs of a *testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // must not return
	Context() context.Context
}

// Behavior is something that an engine must do, whatever model it computes.
type Behavior struct {
	Name   string // unique
	Reason string // why it is asked for, or which bug it finds
	run    func(r *fixture)
}

// Behaviors are those that need nothing but an engine. The model must have a
// vocabulary and a context of at least MinContext positions.
func Behaviors() []Behavior {
	return slices.Concat(sessionBehaviors, failureBehaviors, generationBehaviors, textBehaviors, prefixBehaviors, parallelBehaviors)
}

// MinContext is the shortest context on which Behaviors can be checked.
const MinContext = 64

// Check holds an engine to the behavior. Sessions that are still open at the end
// are a failure, too.
func (b Behavior) Check(t T, e model.Engine) {
	t.Helper()
	m := e.Model()
	if m.Tokenizer == nil || m.Config.Context < MinContext {
		t.Fatalf("the model needs a vocabulary and %d positions", MinContext)
	}
	r := &fixture{T: t, engine: &spy{Engine: e}, vocab: m.Config.Vocab}
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

// rig is an engine under test with what checks have in common. Its helpers fail
// the test on errors that the check does not expect.
type fixture struct {
	T
	engine   *spy
	vocab    int
	sessions []model.Session
}

// session opens a session that is closed when the check ends.
func (r *fixture) session(capacity int) model.Session {
	r.Helper()
	s, err := r.engine.NewSession(capacity)
	if err != nil {
		r.Fatalf("a session of %d positions: %v", capacity, err)
	}
	r.sessions = append(r.sessions, s)
	return s
}

// tokens are n token ids that stop nothing, the same for the same seed.
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

// forward computes, and returns an output that outlives the next call.
func (r *fixture) forward(s model.Session, tokens []int, want model.Want) model.Output {
	r.Helper()
	out, err := s.Forward(r.Context(), tokens, want)
	if err != nil {
		r.Fatalf("%d tokens at position %d: %v", len(tokens), s.Len(), err)
	}
	out.Logits = slices.Clone(out.Logits)
	if n := len(out.Logits); want == model.WantLast && n != r.vocab || want == model.WantAll && n != len(tokens)*r.vocab {
		r.Fatalf("%d logits for %d tokens and want %d", n, len(tokens), want)
	}
	return out
}

// fresh is the logits of the last of these tokens, computed in a session of its own.
func (r *fixture) fresh(tokens []int) []float32 {
	r.Helper()
	return r.forward(r.session(MinContext), tokens, model.WantLast).Logits
}

// same demands that logits are equal bit for bit.
func (r *fixture) sameBits(what string, want, got []float32) {
	r.Helper()
	if i := firstDifference(want, got); i >= 0 {
		r.Errorf("%s: %d and %d logits, which part at %d", what, len(want), len(got), i)
	}
}

// firstDifference is where two lists of bits part; -1: nowhere.
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
	r.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		r.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// length demands that a session holds n positions.
func (r *fixture) length(what string, s model.Session, n int) {
	r.Helper()
	if s.Len() != n {
		r.Errorf("%s: the session holds %d positions, want %d", what, s.Len(), n)
	}
}

// usable demands that a session that holds these tokens goes on as if nothing had
// happened.
func (r *fixture) continues(what string, s model.Session, tokens []int) {
	r.Helper()
	r.length(what, s, len(tokens))
	next := r.tokens(2, 77)
	r.sameBits(what+", going on", r.fresh(slices.Concat(tokens, next)), r.forward(s, next, model.WantLast).Logits)
}

// generated is what a generation gave.
type generated struct {
	IDs  []int // without generate.NoToken
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

// generate continues tokens, without a prefix cache and past stop tokens, so that
// a model of any weights writes something.
func (r *fixture) generate(prompt []int, p generate.Params) generated {
	r.Helper()
	p.IgnoreEOS = true
	g := collect(generate.Tokens(r.Context(), r.engine, prompt, p))
	if g.Err != nil {
		r.Fatalf("generating: %v", g.Err)
	}
	return g
}

func (r *fixture) generator(o generate.Options) *generate.Generator {
	r.Helper()
	g, err := generate.New(r.engine, o)
	if err != nil {
		r.Fatalf("generator: %v", err)
	}
	return g
}

// countdown is a context that is canceled when it has been asked n times.
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

// spy is an engine that records what it is asked for. Like any engine it may be
// called from any goroutine.
type spy struct {
	model.Engine

	mu     sync.Mutex
	opened int
	open   int
	calls  []call
	// pass, when set, runs before each Forward.
	pass func()
}

// call is a Forward that succeeded.
type call struct {
	At     int // positions before
	Tokens []int
	Want   model.Want
	Output model.Output // logits copied
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

// reset forgets the calls, and returns them.
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
	if s.e.pass != nil {
		s.e.pass()
	}
	at := s.Len()
	out, err := s.Session.Forward(ctx, tokens, want)
	if err != nil {
		return out, err
	}
	kept := out
	kept.Logits = slices.Clone(out.Logits)
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.calls = append(s.e.calls, call{At: at, Tokens: slices.Clone(tokens), Want: want, Output: kept})
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
