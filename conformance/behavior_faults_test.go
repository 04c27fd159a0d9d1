package conformance

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/conformance/internal/harness"
	"github.com/lockstep-go/lockstep/model"
)

type (
	engine   = model.Engine
	ctxt     = context.Context
	sequence = model.Sequence
	result   = model.Result
)

// change returns a step with changed results. The change may keep slices of the results.
func change(p model.Pass, err error, f func(i int, r *result)) (model.Pass, error) {
	if err != nil {
		return nil, err
	}
	return changedPass{p, f}, nil
}

type changedPass struct {
	model.Pass
	change func(i int, r *result)
}

func (p changedPass) Wait() ([]result, error) {
	results, err := p.Pass.Wait()
	results = slices.Clone(results)
	for i := range results {
		results[i].Logits, results[i].Hidden = slices.Clone(results[i].Logits), slices.Clone(results[i].Hidden)
		p.change(i, &results[i])
	}
	return results, err
}

// nudge changes one logit by its last bit.
func nudge(r *result) {
	if len(r.Logits) > 0 {
		r.Logits[0] = math.Nextafter32(r.Logits[0], 1000)
	}
}

// mapTokens returns rows with other tokens.
func mapTokens(rows []model.Row, f func(r model.Row) []int) []model.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		if rows[i].Tokens != nil {
			rows[i].Tokens = f(rows[i])
		}
	}
	return rows
}

// stepEach computes rows in steps of their own.
func stepEach(e engine, ctx ctxt, rows []model.Row) (all model.Pass, err error) {
	var list passes
	for _, r := range rows {
		p, err := e.Step(ctx, []model.Row{r})
		if err != nil {
			return nil, err
		}
		results, err := p.Wait()
		if err != nil {
			return nil, err
		}
		list = append(list, slices.Clone(results)...)
	}
	return list, nil
}

// passes are the results of a step that has ended.
type passes []result

func (p passes) Wait() ([]result, error) { return p, nil }

// engineFaults are planted faults. plant sets hooks of the engine, which get the rows and
// sequences of the engine without faults.
var engineFaults = []struct {
	name  string
	plant func(e *plantedEngine)
}{
	{"greedy token next to the argmax", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			p, err := e.Engine.Step(ctx, rows)
			return change(p, err, func(_ int, r *result) { r.Token = (r.Token + 1) % e.Model().Config.Vocab })
		}
	}},
	{"prefill and steps differ in the last bit", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			p, err := e.Engine.Step(ctx, rows)
			prompt := func(i int) bool { return len(rows[i].Tokens) > 1 }
			rows = slices.Clone(rows)
			return change(p, err, func(i int, r *result) {
				if prompt(i) {
					nudge(r)
				}
			})
		}
	}},
	{"a neighbor changes the last bit", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			p, err := e.Engine.Step(ctx, rows)
			n := len(rows)
			return change(p, err, func(_ int, r *result) {
				if n > 1 {
					nudge(r)
				}
			})
		}
	}},
	{"the results of two rows are exchanged", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			if len(rows) != 2 {
				return e.Engine.Step(ctx, rows)
			}
			p, err := stepEach(e.Engine, ctx, rows)
			if err == nil {
				slices.Reverse(p.(passes))
			}
			return p, err
		}
	}},
	{"a step fails after its first row", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) { return stepEach(e.Engine, ctx, rows) }
	}},
	{"a row without tokens repeats the token before", func(e *plantedEngine) {
		last := map[sequence]int{}
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			rows = slices.Clone(rows)
			for i, r := range rows {
				if token, ok := last[r.Sequence]; r.Tokens == nil && ok {
					rows[i].Tokens = []int{token}
				} else if len(r.Tokens) > 0 {
					last[r.Sequence] = r.Tokens[len(r.Tokens)-1]
				}
			}
			return e.Engine.Step(ctx, rows)
		}
	}},
	{"a truncated sequence continues with its token", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			rows = slices.Clone(rows)
			for i, r := range rows {
				if r.Tokens == nil && r.Want == model.WantNothing {
					rows[i].Tokens = []int{1}
				}
			}
			return e.Engine.Step(ctx, rows)
		}
	}},
	{"the next step overwrites results", func(e *plantedEngine) {
		var last []float32
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			for i := range last {
				last[i] = float32(math.NaN())
			}
			p, err := e.Engine.Step(ctx, rows)
			return change(p, err, func(_ int, r *result) { last = r.Logits })
		}
	}},
	{"a prompt after cached positions starts at 0", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			for _, r := range rows {
				if len(r.Tokens) > 1 && len(r.Tokens) <= r.Sequence.Cap() {
					r.Sequence.Truncate(0)
				}
			}
			return e.Engine.Step(ctx, rows)
		}
	}},
	{"only the last token counts", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			return e.Engine.Step(ctx, mapTokens(rows, func(r model.Row) []int {
				if n := len(r.Tokens); r.Want == model.WantLogits && n > 1 && slices.Min(r.Tokens) >= 0 {
					return slices.Repeat(r.Tokens[n-1:], n)
				}
				return r.Tokens
			}))
		}
	}},
	{"logits in reverse order", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			p, err := e.Engine.Step(ctx, rows)
			return change(p, err, func(_ int, r *result) {
				list := slices.Collect(slices.Chunk(slices.Clone(r.Logits), e.Model().Config.Vocab))
				slices.Reverse(list)
				r.Logits = slices.Concat(list...)
			})
		}
	}},
	{"states of the last position only", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			p, err := e.Engine.Step(ctx, rows)
			return change(p, err, func(_ int, r *result) {
				width := e.Model().Config.Hidden
				if n := len(r.Hidden); n > 0 {
					r.Hidden = slices.Repeat(r.Hidden[n-width:], n/width)
				}
			})
		}
	}},
	{"a mask is ignored", func(e *plantedEngine) {
		e.choose = func(ctx ctxt, list []model.Choose) (model.Pass, error) {
			for i := range list {
				if len(list[i].Mask) <= (e.Model().Config.Vocab+31)/32 {
					list[i].Mask = nil
				}
			}
			return e.Engine.Choose(ctx, list)
		}
	}},
	{"replaced logits are ignored", func(e *plantedEngine) {
		e.choose = func(ctx ctxt, list []model.Choose) (model.Pass, error) {
			for i := range list {
				if len(list[i].Logits) == e.Model().Config.Vocab {
					list[i].Logits = nil
				}
			}
			return e.Engine.Choose(ctx, list)
		}
	}},
	{"a mask of any size", func(e *plantedEngine) {
		e.choose = func(ctx ctxt, list []model.Choose) (model.Pass, error) {
			for i, n := range list {
				list[i].Mask = n.Mask[:min(len(n.Mask), (e.Model().Config.Vocab+31)/32)]
			}
			return e.Engine.Choose(ctx, list)
		}
	}},
	{"a held row chooses", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			p, err := e.Engine.Step(ctx, rows)
			return change(p, err, func(_ int, r *result) { r.Token = max(r.Token, 0) })
		}
	}},
	{"empty input is no error", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			if slices.ContainsFunc(rows, func(r model.Row) bool { return r.Tokens != nil && len(r.Tokens) == 0 }) {
				return make(passes, len(rows)), nil
			}
			return e.Engine.Step(ctx, rows)
		}
	}},
	{"tokens before a bad token stay", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			p, err := e.Engine.Step(ctx, rows)
			vocab := e.Model().Config.Vocab
			bad := slices.IndexFunc(rows[0].Tokens, func(id int) bool { return id < 0 || id >= vocab })
			if errors.Is(err, model.ErrBadToken) && bad > 0 {
				rows[0].Tokens = rows[0].Tokens[:bad]
				e.Engine.Step(ctx, rows)
			}
			return p, err
		}
	}},
	{"bad tokens wrap around", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			return e.Engine.Step(ctx, mapTokens(rows, func(r model.Row) []int {
				ids := slices.Clone(r.Tokens)
				for i, n := range ids {
					v := e.Model().Config.Vocab
					ids[i] = (n%v + v) % v
				}
				return ids
			}))
		}
	}},
	{"excess tokens are dropped", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			return e.Engine.Step(ctx, mapTokens(rows, func(r model.Row) []int {
				if n := r.Sequence.Cap() - r.Sequence.Len(); n > 0 && n < len(r.Tokens) {
					return r.Tokens[:n]
				}
				return r.Tokens
			}))
		}
	}},
	{"the context is ignored", func(e *plantedEngine) {
		e.step = func(_ ctxt, rows []model.Row) (model.Pass, error) { return e.Engine.Step(context.Background(), rows) }
	}},
	{"a canceled step counts", func(e *plantedEngine) {
		e.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
			p, err := e.Engine.Step(ctx, rows)
			if errors.Is(err, context.Canceled) {
				rows[0].Tokens, rows[0].Want = rows[0].Tokens[:1], model.WantNothing
				e.Engine.Step(context.Background(), rows[:1])
			}
			return p, err
		}
	}},
	{"all sequences share a cache", func(e *plantedEngine) {
		var shared sequence
		e.open = func(capacity int) (sequence, error) {
			if shared == nil || shared.Cap() != capacity || shared.Truncate(0) != nil {
				s, err := e.Engine.NewSequence(capacity)
				shared = s
				return s, err
			}
			return shared, nil
		}
	}},
	{"the capacity is clamped to the context", func(e *plantedEngine) {
		e.open = func(capacity int) (sequence, error) {
			return e.Engine.NewSequence(min(capacity, e.Model().Config.Context))
		}
	}},
	{"the whole context is one position short", func(e *plantedEngine) {
		e.open = func(capacity int) (sequence, error) {
			if capacity == 0 {
				capacity = e.Model().Config.Context - 1
			}
			return e.Engine.NewSequence(capacity)
		}
	}},
	{"truncate does nothing", func(e *plantedEngine) {
		e.truncate = func(sequence, int) error { return nil }
	}},
	{"truncate is clamped", func(e *plantedEngine) {
		e.truncate = func(s sequence, n int) error { return s.Truncate(min(max(n, 0), s.Len())) }
	}},
	{"a fork is one position short", func(e *plantedEngine) {
		e.fork = func(s sequence, n int) (sequence, error) {
			if n > s.Len() {
				return s.Fork(n)
			}
			return s.Fork(max(n-1, min(n, 0)))
		}
	}},
	{"a fork is clamped", func(e *plantedEngine) {
		e.fork = func(s sequence, n int) (sequence, error) { return s.Fork(min(max(n, 0), s.Len())) }
	}},
	{"a fork shares the sequence's memory", func(e *plantedEngine) {
		e.fork = func(s sequence, n int) (sequence, error) {
			if n < 0 || n > s.Len() {
				return s.Fork(n)
			}
			return sharedFork{s}, nil
		}
	}},
	{"a fork ignores its length", func(e *plantedEngine) {
		e.fork = func(s sequence, n int) (sequence, error) {
			if n < 0 || n > s.Len() {
				return s.Fork(n)
			}
			return s.Fork(s.Len())
		}
	}},
	{"swapping in loses a position", func(e *plantedEngine) {
		e.swapIn = func(s sequence) error { return errors.Join(s.SwapIn(), s.Truncate(s.Len()-1)) }
	}},
	{"reserve takes any length", func(e *plantedEngine) {
		e.reserve = func(s sequence, n int) error { return s.Reserve(min(n, s.Cap())) }
	}},
	{"a closed sequence works", func(e *plantedEngine) {
		e.close = func(sequence) error { return nil }
	}},
	{"closing fails", func(e *plantedEngine) {
		e.close = func(sequence) error { return errors.New("busy") }
	}},
}

// sharedFork is a sequence that is used under two names.
type sharedFork struct{ model.Sequence }

func (s sharedFork) inner() sequence { return s.Sequence }

// plantedEngine is an engine with a fault. A hook that is nil is the engine's own method.
type plantedEngine struct {
	model.Engine
	open     func(capacity int) (sequence, error)
	step     func(ctx ctxt, rows []model.Row) (model.Pass, error)
	choose   func(ctx ctxt, list []model.Choose) (model.Pass, error)
	reserve  func(s sequence, n int) error
	truncate func(s sequence, n int) error
	fork     func(s sequence, n int) (sequence, error)
	swapIn   func(s sequence) error
	close    func(s sequence) error
}

type plantedSequence struct {
	model.Sequence
	e *plantedEngine
}

func (s *plantedSequence) inner() sequence { return innerSequence(s.Sequence) }

func (e *plantedEngine) planted(s sequence, err error) (sequence, error) {
	if err != nil {
		return nil, err
	}
	return &plantedSequence{s, e}, nil
}

func (e *plantedEngine) NewSequence(capacity int) (sequence, error) {
	if e.open != nil {
		return e.planted(e.open(capacity))
	}
	return e.planted(e.Engine.NewSequence(capacity))
}

func (e *plantedEngine) Step(ctx ctxt, rows []model.Row) (model.Pass, error) {
	if rows = innerRows(rows); e.step != nil {
		return e.step(ctx, rows)
	}
	return e.Engine.Step(ctx, rows)
}

func (e *plantedEngine) Choose(ctx ctxt, list []model.Choose) (model.Pass, error) {
	if list = innerChoices(list); e.choose != nil {
		return e.choose(ctx, list)
	}
	return e.Engine.Choose(ctx, list)
}

func (s *plantedSequence) Reserve(n int) error {
	if s.e.reserve != nil {
		return s.e.reserve(s.Sequence, n)
	}
	return s.Sequence.Reserve(n)
}

func (s *plantedSequence) Truncate(n int) error {
	if s.e.truncate != nil {
		return s.e.truncate(s.Sequence, n)
	}
	return s.Sequence.Truncate(n)
}

func (s *plantedSequence) Fork(n int) (sequence, error) {
	if s.e.fork != nil {
		return s.e.planted(s.e.fork(s.Sequence, n))
	}
	return s.e.planted(s.Sequence.Fork(n))
}

func (s *plantedSequence) SwapIn() error {
	if s.e.swapIn != nil {
		return s.e.swapIn(s.Sequence)
	}
	return s.Sequence.SwapIn()
}

func (s *plantedSequence) Close() error {
	if s.e.close != nil {
		return s.e.close(s.Sequence)
	}
	return s.Sequence.Close()
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

// TestReusedBuffers demands that an engine may return the results of a step in the memory of the
// step before the last.
func TestReusedBuffers(t *testing.T) {
	var banks [2][]float32
	steps := 0
	good := &plantedEngine{Engine: refEngine(t, "llama")}
	good.step = func(ctx ctxt, rows []model.Row) (model.Pass, error) {
		bank := &banks[steps%2]
		steps++
		for i := range *bank {
			(*bank)[i] = float32(math.NaN())
		}
		*bank = (*bank)[:0]
		p, err := good.Engine.Step(ctx, rows)
		return change(p, err, func(_ int, r *result) {
			for _, values := range []*[]float32{&r.Logits, &r.Hidden} {
				if n := len(*bank); len(*values) > 0 {
					*bank = append(*bank, *values...)
					*values = (*bank)[n:]
				}
			}
		})
	}
	for _, b := range Behaviors() {
		t.Run(b.Name, func(t *testing.T) { b.Check(t, good) })
	}
}
