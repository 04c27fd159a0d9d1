package generate

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// fakeEngine computes logits from a hash of the whole history, so that a lost, repeated or
// wrong token shows in the output. It records the calls.
type fakeEngine struct {
	model *model.Model
	// choose, if set, returns the token with by far the largest logit.
	choose func(history []int) int
	// script, if set, returns the logits.
	script func(history []int) []float32
	// before, if set, runs before each operation, which fails with its error.
	before func(op string, tokens []int) error
	blind  bool // ignores canceled contexts

	mu        sync.Mutex
	open      int        // sessions that are open
	opened    int        // sessions so far
	snapshots int        // snapshots that are open
	caps      []int      // capacities of the sessions so far
	forwards  []fakeCall // successful calls of Forward
}

type fakeCall struct {
	Len    int // positions before the call
	Tokens []int
	Want   model.Want
}

// newFake returns an engine on a tiny llama with a vocabulary.
func newFake(t testing.TB) *fakeEngine {
	t.Helper()
	spec := tiny.New("llama", 1)
	spec.AddVocab(true)
	m, err := model.Load(spec.File())
	if err != nil {
		t.Fatal(err)
	}
	return &fakeEngine{model: m}
}

// without removes the vocabulary.
func (e *fakeEngine) without() *fakeEngine {
	m := e.model
	e.model = &model.Model{Config: m.Config, Weights: m.Weights, File: m.File}
	return e
}

// speak makes the engine answer a prompt of n tokens with these bytes, then EOS.
func (e *fakeEngine) speak(n int, text string) *fakeEngine {
	e.choose = func(history []int) int {
		if i := len(history) - n; i < len(text) {
			return int(text[i])
		}
		return tiny.End
	}
	return e
}

func (e *fakeEngine) Model() *model.Model { return e.model }
func (e *fakeEngine) Close() error        { return nil }

func (e *fakeEngine) hook(op string, tokens []int) error {
	if e.before == nil {
		return nil
	}
	return e.before(op, tokens)
}

func (e *fakeEngine) NewSession(capacity int) (model.Session, error) {
	if err := e.hook("open", nil); err != nil {
		return nil, err
	}
	if limit := e.model.Config.Context; capacity > limit {
		return nil, model.CheckCapacity(capacity, limit)
	} else if capacity == 0 {
		capacity = limit
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open++
	e.opened++
	e.caps = append(e.caps, capacity)
	return &fakeSession{eng: e, capacity: capacity}, nil
}

type fakeSession struct {
	eng      *fakeEngine
	capacity int
	history  []int
	logits   []float32 // overwritten by each call, as the logits of an engine may be
	closed   bool
}

func (s *fakeSession) Len() int { return len(s.history) }
func (s *fakeSession) Cap() int { return s.capacity }

func (s *fakeSession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	if s.closed {
		return model.Output{}, model.ErrClosed
	}
	if err := model.CheckTokens(tokens, s.eng.model.Config.Vocab); err != nil {
		return model.Output{}, err
	}
	if n := len(s.history) + len(tokens); n > s.capacity {
		return model.Output{}, model.CheckCapacity(n, s.capacity)
	}
	if err := s.eng.hook("forward", tokens); err != nil {
		return model.Output{}, err
	}
	if err := ctx.Err(); err != nil && !s.eng.blind {
		return model.Output{}, err
	}
	s.eng.mu.Lock()
	s.eng.forwards = append(s.eng.forwards, fakeCall{len(s.history), slices.Clone(tokens), want})
	s.eng.mu.Unlock()
	s.history = append(s.history, tokens...)
	s.logits = append(s.logits[:0], s.eng.logits(s.history)...)
	out := model.Output{Greedy: model.Argmax(s.logits)}
	if want == model.WantLast {
		out.Logits = s.logits
	}
	return out, nil
}

// logits returns random numbers seeded by the history, unless there is a script.
func (e *fakeEngine) logits(history []int) []float32 {
	if e.script != nil {
		return e.script(history)
	}
	h := fnv.New64a()
	for _, id := range history {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
	}
	random := rand.New(rand.NewPCG(h.Sum64(), 7))
	logits := make([]float32, e.model.Config.Vocab)
	for i := range logits {
		logits[i] = 8*random.Float32() - 4
	}
	if e.choose != nil {
		logits[e.choose(history)] = 100
	}
	return logits
}

func (s *fakeSession) Truncate(n int) error {
	if n < 0 || n > len(s.history) {
		return errors.New("fake: truncate out of range")
	}
	s.history = s.history[:n]
	return nil
}

func (s *fakeSession) Snapshot(n int) (model.Snapshot, error) {
	if err := s.eng.hook("snapshot", nil); err != nil {
		return nil, err
	}
	s.eng.mu.Lock()
	defer s.eng.mu.Unlock()
	s.eng.snapshots++
	return &fakeSnapshot{eng: s.eng, history: slices.Clone(s.history[:n])}, nil
}

func (s *fakeSession) Restore(snap model.Snapshot, n int) error {
	if err := s.eng.hook("restore", nil); err != nil {
		return err
	}
	f := snap.(*fakeSnapshot)
	if f.closed.Load() {
		return model.ErrClosed
	}
	if f.eng != s.eng || n > len(f.history) || n > s.capacity {
		return errors.New("fake: snapshot does not fit")
	}
	s.history = slices.Clone(f.history[:n])
	return nil
}

func (s *fakeSession) Close() error {
	s.eng.mu.Lock()
	defer s.eng.mu.Unlock()
	if !s.closed {
		s.eng.open--
	}
	s.closed = true
	return s.eng.hook("close", nil)
}

// fakeSnapshot counts 100 bytes per position.
type fakeSnapshot struct {
	eng     *fakeEngine
	history []int
	closed  atomic.Bool
}

func (f *fakeSnapshot) Len() int     { return len(f.history) }
func (f *fakeSnapshot) Bytes() int64 { return int64(100 * len(f.history)) }

// Close fails if a snapshot is closed twice: the prefix cache must count its references.
func (f *fakeSnapshot) Close() error {
	if f.closed.Swap(true) {
		return errors.New("fake: snapshot closed twice")
	}
	f.eng.mu.Lock()
	f.eng.snapshots--
	f.eng.mu.Unlock()
	return f.eng.hook("close snapshot", nil)
}

// idle fails the test unless every session was closed.
func (e *fakeEngine) idle(t *testing.T) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open != 0 {
		t.Errorf("%d of %d sessions are still open", e.open, e.opened)
	}
}

// collected is everything that a generation yielded.
type collected struct {
	IDs   []int // including NoToken
	Texts []string
	Text  string
	Err   error
}

func collect(seq func(func(Token, error) bool)) collected {
	var c collected
	for t, err := range seq {
		if err != nil {
			c.Err = err
			continue // the result would show a token after the error
		}
		c.IDs = append(c.IDs, t.ID)
		c.Texts = append(c.Texts, t.Text)
		c.Text += t.Text
	}
	return c
}
