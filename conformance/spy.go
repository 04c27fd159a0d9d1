package conformance

import (
	"context"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/model"
)

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
