package conformance

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/model"
)

// nudge changes one logit by its last bit.
func nudge(out model.Output, err error) (model.Output, error) {
	if len(out.Logits) > 0 {
		out.Logits[0] = math.Nextafter32(out.Logits[0], 1000)
	}
	return out, err
}

type (
	engine  = model.Engine
	ctxt    = context.Context
	output  = model.Output
	session = model.Session
)

// liveSnapshot reads the session instead of a copy.
type liveSnapshot struct {
	model.Snapshot
	of session
}

type openSnapshot struct{ model.Snapshot }

func (openSnapshot) Close() error { return nil }

// engineFaults are planted faults. plant sets hooks of the engine.
var engineFaults = []struct {
	name  string
	plant func(e *plantedEngine)
}{
	{"greedy token next to the argmax", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			out, err := s.Session.Forward(ctx, tokens, want)
			out.Greedy = (out.Greedy + 1) % e.Model().Config.Vocab
			return out, err
		}
	}},
	{"prefill and steps differ in the last bit", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			out, err := s.Session.Forward(ctx, tokens, want)
			if len(tokens) > 1 {
				return nudge(out, err)
			}
			return out, err
		}
	}},
	{"a neighbor changes the last bit", func(e *plantedEngine) {
		var running atomic.Int32
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			n := running.Add(1)
			defer running.Add(-1)
			for range 100 {
				runtime.Gosched()
			}
			out, err := s.Session.Forward(ctx, tokens, want)
			if n > 1 {
				return nudge(out, err)
			}
			return out, err
		}
	}},
	{"a prompt after cached positions starts at 0", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			if len(tokens) > 1 && len(tokens) <= s.Cap() {
				s.Session.Truncate(0)
			}
			return s.Session.Forward(ctx, tokens, want)
		}
	}},
	{"only the last token counts", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			if want == model.WantLast && len(tokens) > 1 && slices.Min(tokens) >= 0 {
				same := slices.Repeat(tokens[len(tokens)-1:], len(tokens))
				return s.Session.Forward(ctx, same, want)
			}
			return s.Session.Forward(ctx, tokens, want)
		}
	}},
	{"logits in reverse order", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			out, err := s.Session.Forward(ctx, tokens, want)
			if want == model.WantAll && err == nil {
				rows := slices.Collect(slices.Chunk(slices.Clone(out.Logits), e.Model().Config.Vocab))
				slices.Reverse(rows)
				out.Logits = slices.Concat(rows...)
			}
			return out, err
		}
	}},
	{"empty input is no error", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			if len(tokens) == 0 {
				return output{}, nil
			}
			return s.Session.Forward(ctx, tokens, want)
		}
	}},
	{"tokens before a bad token stay", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			out, err := s.Session.Forward(ctx, tokens, want)
			vocab := e.Model().Config.Vocab
			bad := slices.IndexFunc(tokens, func(id int) bool { return id < 0 || id >= vocab })
			if errors.Is(err, model.ErrBadToken) && bad > 0 {
				s.Session.Forward(ctx, tokens[:bad], model.WantNothing)
			}
			return out, err
		}
	}},
	{"bad tokens wrap around", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			ids := slices.Clone(tokens)
			for i, n := range ids {
				v := e.Model().Config.Vocab
				ids[i] = (n%v + v) % v
			}
			return s.Session.Forward(ctx, ids, want)
		}
	}},
	{"excess tokens are dropped", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			if n := s.Cap() - s.Len(); n > 0 && n < len(tokens) {
				tokens = tokens[:n]
			}
			return s.Session.Forward(ctx, tokens, want)
		}
	}},
	{"the context is ignored", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, _ ctxt, tokens []int, want model.Want) (output, error) {
			return s.Session.Forward(context.Background(), tokens, want)
		}
	}},
	{"a canceled forward pass counts", func(e *plantedEngine) {
		e.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
			out, err := s.Session.Forward(ctx, tokens, want)
			if errors.Is(err, context.Canceled) {
				s.Session.Forward(context.Background(), tokens[:1], model.WantNothing)
			}
			return out, err
		}
	}},
	{"all sessions share a cache", func(e *plantedEngine) {
		var shared session
		e.open = func(capacity int) (session, error) {
			if shared == nil || shared.Cap() != capacity || shared.Truncate(0) != nil {
				s, err := e.Engine.NewSession(capacity)
				shared = s
				return s, err
			}
			return shared, nil
		}
	}},
	{"the capacity is clamped to the context", func(e *plantedEngine) {
		e.open = func(capacity int) (session, error) {
			return e.Engine.NewSession(min(capacity, e.Model().Config.Context))
		}
	}},
	{"the whole context is one position short", func(e *plantedEngine) {
		e.open = func(capacity int) (session, error) {
			if capacity == 0 {
				capacity = e.Model().Config.Context - 1
			}
			return e.Engine.NewSession(capacity)
		}
	}},
	{"truncate does nothing", func(e *plantedEngine) {
		e.truncate = func(session, int) error { return nil }
	}},
	{"truncate is clamped", func(e *plantedEngine) {
		e.truncate = func(s session, n int) error { return s.Truncate(min(max(n, 0), s.Len())) }
	}},
	{"a snapshot is one position short", func(e *plantedEngine) {
		e.snapshot = func(s session, n int) (model.Snapshot, error) { return s.Snapshot(max(n-1, 0)) }
	}},
	{"a snapshot shares the session's memory", func(e *plantedEngine) {
		e.snapshot = func(s session, n int) (model.Snapshot, error) {
			snap, err := s.Snapshot(n)
			return liveSnapshot{snap, s}, err
		}
		e.restore = func(s session, from model.Snapshot, n int) error {
			live, ok := from.(liveSnapshot)
			if !ok || n > live.Len() || n < 0 {
				return s.Restore(from, n)
			}
			now, err := live.of.Snapshot(n)
			if err != nil { // closed: use the copy
				now = live.Snapshot
			}
			return s.Restore(now, n)
		}
	}},
	{"a closed snapshot is restored", func(e *plantedEngine) {
		e.snapshot = func(s session, n int) (model.Snapshot, error) {
			snap, err := s.Snapshot(n)
			return openSnapshot{snap}, err
		}
		e.restore = func(s session, from model.Snapshot, n int) error {
			if open, ok := from.(openSnapshot); ok {
				from = open.Snapshot
			}
			return s.Restore(from, n)
		}
	}},
	{"restore ignores its length", func(e *plantedEngine) {
		e.restore = func(s session, from model.Snapshot, n int) error { return s.Restore(from, from.Len()) }
	}},
	{"restore keeps existing positions", func(e *plantedEngine) {
		e.restore = func(s session, from model.Snapshot, n int) error {
			if s.Len() > 0 {
				return nil
			}
			return s.Restore(from, n)
		}
	}},
	{"a closed session works", func(e *plantedEngine) {
		e.close = func(session) error { return nil }
	}},
	{"closing fails", func(e *plantedEngine) {
		e.close = func(session) error { return errors.New("busy") }
	}},
}

// plantedEngine is an engine with a fault. A hook that is nil is the engine's own method.
type plantedEngine struct {
	model.Engine
	open     func(capacity int) (model.Session, error)
	forward  func(s *plantedSession, ctx context.Context, tokens []int, want model.Want) (model.Output, error)
	truncate func(s model.Session, n int) error
	snapshot func(s model.Session, n int) (model.Snapshot, error)
	restore  func(s model.Session, from model.Snapshot, n int) error
	close    func(s model.Session) error
}

type plantedSession struct {
	model.Session
	e   *plantedEngine
	buf []float32
}

func (e *plantedEngine) NewSession(capacity int) (model.Session, error) {
	open := e.Engine.NewSession
	if e.open != nil {
		open = e.open
	}
	s, err := open(capacity)
	if err != nil {
		return nil, err
	}
	return &plantedSession{Session: s, e: e}, nil
}

func (s *plantedSession) Forward(ctx context.Context, tokens []int, want model.Want) (model.Output, error) {
	if s.e.forward != nil {
		return s.e.forward(s, ctx, tokens, want)
	}
	return s.Session.Forward(ctx, tokens, want)
}

func (s *plantedSession) Truncate(n int) error {
	if s.e.truncate != nil {
		return s.e.truncate(s.Session, n)
	}
	return s.Session.Truncate(n)
}

func (s *plantedSession) Snapshot(n int) (model.Snapshot, error) {
	if s.e.snapshot != nil {
		return s.e.snapshot(s.Session, n)
	}
	return s.Session.Snapshot(n)
}

func (s *plantedSession) Restore(from model.Snapshot, n int) error {
	if s.e.restore != nil {
		return s.e.restore(s.Session, from, n)
	}
	return s.Session.Restore(from, n)
}

func (s *plantedSession) Close() error {
	if s.e.close != nil {
		return s.e.close(s.Session)
	}
	return s.Session.Close()
}

// failuresOf returns the failure messages of a behavior.
func failuresOf(b Behavior, e engine) []string {
	r := &harness.Recorder{}
	var wg sync.WaitGroup
	wg.Go(func() { b.Check(r, e) })
	wg.Wait()
	return r.Messages
}

func TestPlantedFaults(t *testing.T) {
	e := refEngine(t, "llama")
	for _, fault := range engineFaults {
		t.Run(fault.name, func(t *testing.T) {
			bad := &plantedEngine{Engine: e}
			fault.plant(bad)
			for _, b := range Behaviors() {
				if found := failuresOf(b, bad); len(found) > 0 {
					t.Logf("%s: %s", b.Name, found[0])
					return
				}
			}
			t.Error("no behavior failed")
		})
	}
}

// TestReusedBuffer demands that an engine may return its logits in one buffer, valid until
// the next call.
func TestReusedBuffer(t *testing.T) {
	good := &plantedEngine{Engine: refEngine(t, "llama")}
	good.forward = func(s *plantedSession, ctx ctxt, tokens []int, want model.Want) (output, error) {
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
