package modelbench

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
)

// fakeEngine computes nothing. Each Forward advances the fake clock by tick per token, and
// its greedy token is the last token plus 1.
type fakeEngine struct {
	model *model.Model
	tick  time.Duration
	fail  func(length int, tokens []int) error // nil: never

	mu     sync.Mutex
	clock  time.Duration
	opened []*fakeSession
	open   int
}

// newFake returns an engine for a tiny model with the given context.
func newFake(t testing.TB, arch string, context int) *fakeEngine {
	t.Helper()
	m, err := model.Load(tiny.New(arch, 1).File())
	if err != nil {
		t.Fatal(err)
	}
	m.Config.Context = context
	return &fakeEngine{model: m, tick: time.Millisecond}
}

func (e *fakeEngine) Model() *model.Model { return e.model }
func (e *fakeEngine) Close() error        { return nil }

func (e *fakeEngine) now() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Unix(0, 0).Add(e.clock)
}

func (e *fakeEngine) NewSession(capacity int) (model.Session, error) {
	if capacity < 1 || capacity > e.model.Config.Context {
		return nil, model.CheckCapacity(capacity, e.model.Config.Context)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &fakeSession{eng: e, capacity: capacity}
	e.opened = append(e.opened, s)
	e.open++
	return s, nil
}

// call is one Forward.
type call struct {
	at     int // positions before
	tokens []int
	want   model.Want
}

type fakeSession struct {
	eng      *fakeEngine
	capacity int
	length   int
	calls    []call
}

func (s *fakeSession) Len() int { return s.length }
func (s *fakeSession) Cap() int { return s.capacity }

func (s *fakeSession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	e := s.eng
	if err := errors.Join(ctx.Err(), model.CheckTokens(tokens, e.model.Config.Vocab)); err != nil {
		return model.Output{}, err
	}
	if need := s.length + len(tokens); need > s.capacity {
		return model.Output{}, model.CheckCapacity(need, s.capacity)
	}
	if e.fail != nil {
		if err := e.fail(s.length, tokens); err != nil {
			return model.Output{}, err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clock += time.Duration(len(tokens)) * e.tick
	s.calls = append(s.calls, call{s.length, slices.Clone(tokens), want})
	s.length += len(tokens)
	return model.Output{Greedy: (tokens[len(tokens)-1] + 1) % e.model.Config.Vocab}, nil
}

func (s *fakeSession) Truncate(n int) error {
	if n < 0 || n > s.length {
		return errors.New("fake: truncate out of range")
	}
	s.length = n
	return nil
}

func (s *fakeSession) Snapshot(int) (model.Snapshot, error) {
	return nil, errors.New("fake: no snapshots")
}

func (s *fakeSession) Restore(model.Snapshot, int) error { return errors.New("fake: no snapshots") }

func (s *fakeSession) Close() error {
	s.eng.mu.Lock()
	defer s.eng.mu.Unlock()
	s.eng.open--
	return nil
}
