package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/model"
)

// captureCalls are the calls of a graph capture. If one fails, the engine continues without a
// graph. Eager mode makes some of them too. There a failure is an error, which another case
// covers.
var captureCalls = []faultinject.Call{
	faultinject.StreamCapture, faultinject.StreamEndCapture, faultinject.StreamInstantiate, faultinject.StreamWriteAsync, faultinject.StreamLaunch, faultinject.StreamReadAsync,
}

// transferCalls move data or wait for it. The cases that fail only these make the other calls as
// other cases do.
var transferCalls = []faultinject.Call{
	faultinject.StreamWriteAsync, faultinject.StreamReadAsync, faultinject.StreamCopy, faultinject.StreamRecord,
	faultinject.StreamSynchronize, faultinject.EventSynchronize,
}

// faultyDevice opens an emulated device, also with -gpu.
func faultyDevice(t *testing.T) driver.Device {
	t.Helper()
	dev, err := emu.Open(emu.Options{SMs: 1, IgnoreRaces: true, Cache: &emulatorCache})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// faultyEngine returns a sweep over the device calls of run, with an engine of a minimal
// model.
func faultyEngine(t *testing.T, o accel.Options, run func(*accel.Engine) error) faultinject.Sweep {
	t.Helper()
	m := minimalModel(t)
	open := func() driver.Device { return faultyDevice(t) }
	return faultinject.Sweep{Open: open, FirstAndLast: true, Start: func(dev driver.Device) (faultinject.Scenario, error) {
		e, err := accel.New(t.Context(), m, dev, o)
		if err != nil {
			return faultinject.Scenario{}, err
		}
		return faultinject.Scenario{Run: func() error { return run(e) }, Close: e.Close}, nil
	}}
}

// TestAccelLoadFaults fails each device call of opening and closing an engine. It demands a
// typed error and that nothing leaks.
func TestAccelLoadFaults(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	open := func() driver.Device { return faultyDevice(t) }
	faultinject.Sweep{Open: open, FirstAndLast: true, Start: func(dev driver.Device) (faultinject.Scenario, error) {
		return faultinject.Scenario{Run: func() error {
			e, err := accel.New(t.Context(), m, dev, accel.Options{MaxSequences: 1, KVPages: 3, Chunk: 16})
			if err != nil {
				return err
			}
			return e.Close()
		}}, nil
	}}.Check(t)
}

// TestAccelRequestFaults fails each device call of a request. The request must fail, and
// the next one must work or report a lost device. A failed graph capture fails no request.
func TestAccelRequestFaults(t *testing.T) {
	skipIfShort(t)
	for _, c := range []struct {
		name     string
		o        accel.Options
		survives []faultinject.Call
		request  func(*strictEngine) error
		only     []faultinject.Call // to fail; nil: all
	}{
		{"prompt and steps", accel.Options{Eager: true}, nil, promptAndSteps, nil},
		{"fork and swap", accel.Options{Eager: true}, nil, forkAndSwap, transferCalls},
		{"graphs", accel.Options{}, captureCalls, promptAndSteps, nil},
		{"steps queued ahead", accel.Options{}, captureCalls, queueAhead, nil},
		{"changing batches", accel.Options{Eager: true}, nil, changingBatches, transferCalls},
		{"held choice", accel.Options{Eager: true}, nil, heldChoices, transferCalls},
		{"states", accel.Options{Eager: true}, nil, states, transferCalls},
		{"tap", accel.Options{Tap: func(int, string, int, int, []float32) {}}, nil, promptAndSteps, []faultinject.Call{faultinject.StreamRead}},
		{
			"timer", accel.Options{Timer: func(accel.Timing) {}}, nil, promptAndSteps,
			[]faultinject.Call{faultinject.DeviceNewEvent, faultinject.StreamRecord, faultinject.EventSince},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallelUnlessGPU(t)
			c.o.MaxSequences, c.o.KVPages, c.o.Chunk = 2, 4, 64
			sweep := faultyEngine(t, c.o, func(e *accel.Engine) error {
				strict := &strictEngine{Engine: e}
				defer strict.closeAll()
				return c.request(strict)
			})
			if !*longCases {
				sweep.Plans = []faultinject.Plan{{}, {Kind: driver.ErrDeviceLost}} // this call alone, or this call and all later ones
			}
			if c.only != nil {
				sweep.Filter = func(_ int, f faultinject.Call) bool { return slices.Contains(c.only, f) }
			}
			sweep.Recovers = func(f faultinject.Call) bool { return slices.Contains(c.survives, f) }
			sweep.Check(t)
		})
	}
}

// strictEngine panics if a call fails and changes the length of a sequence or the pages in use.
type strictEngine struct {
	*accel.Engine
	opened []*strictSequence
	queued []strictPass
}

// strictSequence is a sequence of a strict engine.
type strictSequence struct {
	model.Sequence
	e *strictEngine
}

// strictPass is a pass that is not waited for, with the lengths and pages before it.
type strictPass struct {
	model.Pass
	before string
}

func (e *strictEngine) closeAll() {
	for _, s := range e.opened {
		s.Close()
	}
}

func (e *strictEngine) open() *strictSequence {
	s, err := e.NewSequence(64)
	if err != nil {
		panic(err)
	}
	return e.keep(s)
}

func (e *strictEngine) keep(s model.Sequence) *strictSequence {
	e.opened = append(e.opened, &strictSequence{s, e})
	return e.opened[len(e.opened)-1]
}

// state describes what a failed call must not change.
func (e *strictEngine) state() string {
	text := fmt.Sprintf("%d pages", e.Stats().PagesInUse)
	for _, s := range e.opened {
		text += fmt.Sprintf(", %d positions", s.Len())
	}
	return text
}

func (e *strictEngine) unchanged(before string, err error) error {
	if now := e.state(); err != nil && now != before {
		panic(fmt.Sprintf("conformance: a failed call left %s of %s: %v", now, before, err))
	}
	return err
}

// queue queues a step. wait waits for the oldest pass.
func (e *strictEngine) queue(rows ...model.Row) error {
	return e.pass(func() (model.Pass, error) { return e.Step(context.Background(), rows) })
}

// choose queues a held choice.
func (e *strictEngine) choose(c model.Choose) error {
	return e.pass(func() (model.Pass, error) { return e.Choose(context.Background(), []model.Choose{c}) })
}

func (e *strictEngine) pass(queue func() (model.Pass, error)) error {
	before := e.state()
	p, err := queue()
	if err == nil {
		e.queued = append(e.queued, strictPass{p, before})
	}
	if errors.Is(err, driver.ErrDeviceLost) && len(e.queued) > 0 { // steps in flight fail too
		before = e.queued[0].before
	}
	return e.unchanged(before, err)
}

func (e *strictEngine) wait() ([]model.Result, error) {
	p := e.queued[0]
	e.queued = e.queued[1:]
	results, err := p.Wait()
	return results, e.unchanged(p.before, err)
}

// step queues a step and waits for it.
func (e *strictEngine) step(rows ...model.Row) error {
	if err := e.queue(rows...); err != nil {
		return err
	}
	_, err := e.wait()
	return err
}

func (s *strictSequence) row(want model.Want, tokens ...int) model.Row {
	return model.Row{Sequence: s.Sequence, Tokens: tokens, Prompt: len(tokens) > 1, Want: want}
}

func (s *strictSequence) call(f func() error) error { return s.e.unchanged(s.e.state(), f()) }

func promptAndSteps(e *strictEngine) error {
	s := e.open()
	for _, row := range []model.Row{s.row(model.WantToken, 3, 4, 5), s.row(model.WantToken, 6), s.row(model.WantLogits, 7)} {
		if err := e.step(row); err != nil {
			return err
		}
	}
	return nil
}

// queueAhead queues each step before it waits for the last.
func queueAhead(e *strictEngine) error {
	s := e.open()
	if err := e.queue(s.row(model.WantToken, 6)); err != nil {
		return err
	}
	for range 4 {
		if err := e.queue(s.row(model.WantToken)); err != nil {
			return err
		}
		if _, err := e.wait(); err != nil {
			return err
		}
	}
	_, err := e.wait()
	return err
}

// changingBatches moves a token between slots and overwrites the slots of pending tokens.
func changingBatches(e *strictEngine) error {
	a, b := e.open(), e.open()
	for i, rows := range [][]model.Row{
		{a.row(model.WantToken, 3, 4), b.row(model.WantToken, 3, 5)},
		{a.row(model.WantToken), b.row(model.WantToken)}, {b.row(model.WantToken)}, {a.row(model.WantToken)}, {b.row(model.WantLogits), a.row(model.WantToken)},
	} {
		if err := e.queue(rows...); err != nil {
			return err
		}
		if i > 0 {
			if _, err := e.wait(); err != nil {
				return err
			}
		}
	}
	_, err := e.wait()
	return err
}

// heldChoices makes two choices, one of them after the next step.
func heldChoices(e *strictEngine) error {
	a, b := e.open(), e.open()
	rows := []model.Row{a.row(model.WantToken, 3, 4), b.row(model.WantToken, 5, 6)}
	for i := range rows {
		rows[i].Hold = true
	}
	vocab := e.Model().Config.Vocab
	for _, f := range []func() error{
		func() error { return e.queue(rows...) },
		func() error {
			return e.choose(model.Choose{Sequence: a.Sequence, Mask: slices.Repeat([]uint32{^uint32(0)}, (vocab+31)/32)})
		},
		func() error { return e.queue(a.row(model.WantToken)) },
		func() error { return e.choose(model.Choose{Sequence: b.Sequence, Logits: make([]float32, vocab)}) },
	} {
		if err := f(); err != nil {
			return err
		}
	}
	for len(e.queued) > 0 {
		if _, err := e.wait(); err != nil {
			return err
		}
	}
	return e.step(a.row(model.WantToken), b.row(model.WantToken))
}

func states(e *strictEngine) error {
	s := e.open()
	if err := e.step(s.row(model.WantHidden, 3, 4)); err != nil {
		return err
	}
	return e.step(s.row(model.WantHidden, 5))
}

// forkAndSwap copies a shared page, and moves a sequence to host memory and back. The sequences
// must then continue as before.
func forkAndSwap(e *strictEngine) error {
	s := e.open()
	if err := e.step(s.row(model.WantToken, 3, 4, 5)); err != nil {
		return err
	}
	forked, err := s.Fork(3)
	if err != nil {
		return err
	}
	f := e.keep(forked)
	if err := f.call(func() error { return f.Reserve(5) }); err != nil { // the copy stays, also if a step fails
		return err
	}
	if err := e.step(f.row(model.WantToken, 8)); err != nil {
		return err
	}
	if err := s.call(s.SwapOut); err != nil {
		return err
	}
	if err := e.step(f.row(model.WantToken, 9)); err != nil {
		return err
	}
	if err := s.call(s.SwapIn); err != nil {
		return err
	}
	var want []model.Result
	for _, tokens := range [][]int{{8}, {9}} {
		if err := e.queue(s.row(model.WantLogits, tokens...)); err != nil {
			return err
		}
		if want, err = e.wait(); err != nil {
			return err
		}
	}
	next, logits := want[0].Token, hashLogits(want[0].Logits)
	if err := f.Truncate(4); err != nil {
		return err
	}
	if err := e.queue(f.row(model.WantLogits, 9)); err != nil {
		return err
	}
	if want, err = e.wait(); err != nil {
		return err
	}
	if want[0].Token != next || hashLogits(want[0].Logits) != logits {
		return errors.New("the sequence continues differently after it was swapped out")
	}
	return nil
}
