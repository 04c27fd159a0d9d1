package conformance

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/model"
)

// A suite that passes everything proves nothing. Each fault below is planted into
// an engine that is right otherwise, and must turn the suite red.

// faulty is an engine with a fault. A nil hook is the engine's own behavior.
type faulty struct {
	model.Engine
	open     func(capacity int) (model.Session, error)
	forward  func(s *faultySession, ctx context.Context, tokens []int, want model.Want) (model.Output, error)
	truncate func(s model.Session, n int) error
	snapshot func(s model.Session, n int) (model.Snapshot, error)
	restore  func(s model.Session, from model.Snapshot, n int) error
	close    func(s model.Session) error
}

type faultySession struct {
	model.Session
	e   *faulty
	buf []float32
}

func (e *faulty) NewSession(capacity int) (model.Session, error) {
	open := e.Engine.NewSession
	if e.open != nil {
		open = e.open
	}
	s, err := open(capacity)
	if err != nil {
		return nil, err
	}
	return &faultySession{Session: s, e: e}, nil
}

func (s *faultySession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	if s.e.forward != nil {
		return s.e.forward(s, ctx, tokens, want)
	}
	return s.Session.Forward(ctx, tokens, want)
}

func (s *faultySession) Truncate(n int) error {
	if s.e.truncate != nil {
		return s.e.truncate(s.Session, n)
	}
	return s.Session.Truncate(n)
}

func (s *faultySession) Snapshot(n int) (model.Snapshot, error) {
	if s.e.snapshot != nil {
		return s.e.snapshot(s.Session, n)
	}
	return s.Session.Snapshot(n)
}

func (s *faultySession) Restore(from model.Snapshot, n int) error {
	if s.e.restore != nil {
		return s.e.restore(s.Session, from, n)
	}
	return s.Session.Restore(from, n)
}

func (s *faultySession) Close() error {
	if s.e.close != nil {
		return s.e.close(s.Session)
	}
	return s.Session.Close()
}

// recorder is a T that keeps what it is told.
type recorder struct {
	mu  sync.Mutex
	all []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return context.Background() }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// complaints are what a behavior has against an engine.
func complaints(b Behavior, e engine) []string {
	r := &recorder{}
	var wg sync.WaitGroup
	wg.Go(func() { b.Check(r, e) })
	wg.Wait()
	return r.all
}

func TestPlantedFaults(t *testing.T) {
	e := refEngine(t, "llama")
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			bad := &faulty{Engine: e}
			fault.plant(bad)
			for _, b := range Behaviors() {
				if found := complaints(b, bad); len(found) > 0 {
					t.Logf("%s: %s", b.Name, found[0])
					return
				}
			}
			t.Error("no behavior noticed")
		})
	}
}

// Outputs are valid until the next call only: an engine that uses one buffer for
// all is right.
func TestReusedBuffer(t *testing.T) {
	good := &faulty{Engine: refEngine(t, "llama")}
	good.forward = func(s *faultySession, ctx ctxt, tokens []int, want model.Want) (output, error) {
		for i := range s.buf {
			s.buf[i] = float32(math.NaN())
		}
		out, err := s.Session.Forward(ctx, tokens, want)
		s.buf = append(s.buf[:0], out.Logits...)
		if len(out.Logits) > 0 {
			out.Logits = s.buf
		}
		return out, err
	}
	for _, b := range Behaviors() {
		t.Run(b.Name, func(t *testing.T) { b.Check(t, good) })
	}
}
