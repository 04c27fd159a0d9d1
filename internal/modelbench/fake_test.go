package modelbench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/internal/tiny"
	"github.com/lockstep-go/lockstep/model"
	"github.com/lockstep-go/lockstep/model/sampling"
)

// fakeEngine computes nothing. A step advances the fake clock by tick per token, twice that for
// sampled ones, and chooses each row's last token plus 1.
type fakeEngine struct {
	model *model.Model
	tick  time.Duration
	fail  func(length int, tokens []int) error // nil: never

	promptTokens int // of Limits
	clock        time.Duration
	opened       []*fakeSequence
	open         int
	prompts      []int // prompt tokens of each step that has some
}

// newFake returns an engine for a tiny model with the given context.
func newFake(t testing.TB, arch string, context int) *fakeEngine {
	t.Helper()
	m, err := model.Load(tiny.New(arch, 1).File())
	if err != nil {
		t.Fatal(err)
	}
	m.Config.Context = context
	return &fakeEngine{model: m, tick: time.Millisecond, promptTokens: 1 << 20}
}

func (e *fakeEngine) Model() *model.Model { return e.model }
func (e *fakeEngine) Close() error        { return nil }

func (e *fakeEngine) now() time.Time {
	return time.Unix(0, 0).Add(e.clock)
}

func (e *fakeEngine) Choose(context.Context, []model.Choose) (model.Pass, error) {
	return nil, errors.New("fake: no choice is held")
}

func (e *fakeEngine) Limits() model.Limits { return model.Limits{PromptTokens: e.promptTokens} }

func (e *fakeEngine) NewSequence(capacity int) (model.Sequence, error) {
	if capacity < 1 || capacity > e.model.Config.Context {
		return nil, model.CheckCapacity(capacity, e.model.Config.Context)
	}
	s := &fakeSequence{eng: e, capacity: capacity}
	e.opened = append(e.opened, s)
	e.open++
	return s, nil
}

// call is one row of a step.
type call struct {
	at     int // positions before
	tokens []int
	want   model.Want
}

type fakePass []model.Result

func (p fakePass) Wait() ([]model.Result, error) { return p, nil }

func (e *fakeEngine) Step(ctx context.Context, rows []model.Row) (model.Pass, error) {
	var out fakePass
	prompt := 0
	for _, r := range rows {
		if r.Prompt {
			prompt += len(r.Tokens)
		}
		s, tokens := r.Sequence.(*fakeSequence), r.Tokens
		if tokens == nil {
			tokens = []int{s.next}
		}
		if err := errors.Join(ctx.Err(), model.CheckTokens(tokens, e.model.Config.Vocab)); err != nil {
			return nil, err
		}
		if need := s.length + len(tokens); need > s.capacity {
			return nil, model.CheckCapacity(need, s.capacity)
		}
		if e.fail != nil {
			if err := e.fail(s.length, tokens); err != nil {
				return nil, err
			}
		}
		e.clock += time.Duration(len(tokens)) * e.tick
		if s.sampled {
			e.clock += time.Duration(len(tokens)) * e.tick
		}
		s.calls = append(s.calls, call{s.length, slices.Clone(tokens), r.Want})
		s.length += len(tokens)
		s.next = (tokens[len(tokens)-1] + 1) % e.model.Config.Vocab
		out = append(out, model.Result{})
	}
	if prompt > 0 {
		e.prompts = append(e.prompts, prompt)
	}
	return out, nil
}

// fakeSequence records its rows. The methods that the benchmark does not call are nil.
type fakeSequence struct {
	model.Sequence
	eng      *fakeEngine
	capacity int
	length   int
	next     int // the token that the last row chose
	calls    []call
	sampled  bool
}

func (s *fakeSequence) Len() int { return s.length }
func (s *fakeSequence) Cap() int { return s.capacity }

func (s *fakeSequence) Truncate(n int) error {
	if n < 0 || n > s.length {
		return errors.New("fake: truncate out of range")
	}
	s.length, s.next = n, -1
	return nil
}

func (s *fakeSequence) SetSampling(p *sampling.Params, prompt, generated []int) error {
	s.sampled = !p.Greedy()
	return nil
}

func (s *fakeSequence) Close() error {
	s.eng.open--
	return nil
}
