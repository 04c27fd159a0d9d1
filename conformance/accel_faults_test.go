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
		request  func(model.Session) error
		only     []faultinject.Call // to fail; nil: all
	}{
		{"prompt and steps", accel.Options{Eager: true}, nil, promptAndSteps, nil},
		{"prompt by steps", accel.Options{Eager: true, Prefill: accel.PrefillExact}, nil, promptAndSteps, nil},
		{"snapshot and restore", accel.Options{Eager: true}, nil, snapshotAndRestore, nil},
		{"graphs", accel.Options{Prefill: accel.PrefillExact}, captureCalls, promptAndSteps, nil},
		{"steps queued ahead", accel.Options{Prefill: accel.PrefillExact}, captureCalls, greedySteps, nil},
		{"copied pages", accel.Options{Eager: true}, nil, copiedPages, []faultinject.Call{faultinject.StreamCopy}},
		{"tap", accel.Options{Tap: func(int, string, int, int, []float32) {}}, nil, promptAndSteps, []faultinject.Call{faultinject.StreamRead}},
		{
			"timer", accel.Options{Timer: func(accel.Timing) {}}, nil, promptAndSteps,
			[]faultinject.Call{faultinject.DeviceNewEvent, faultinject.StreamRecord, faultinject.EventSince},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallelUnlessGPU(t)
			c.o.MaxSequences, c.o.KVPages, c.o.Chunk = 1, 3, 64
			sweep := faultyEngine(t, c.o, func(e *accel.Engine) error { return inSession(e, c.request) })
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

// inSession makes a request in a new session.
func inSession(e *accel.Engine, request func(model.Session) error) error {
	s, err := e.NewSession(64)
	if err != nil {
		return err
	}
	defer s.Close()
	return request(strictSession{s, e})
}

// strictSession panics if a call fails and changes the session's length or the pages in use.
type strictSession struct {
	model.Session
	e *accel.Engine
}

func (s strictSession) call(f func() error) error {
	length, pages := s.Len(), s.e.Stats().PagesInUse
	err := f()
	if now := s.e.Stats().PagesInUse; err != nil && (s.Len() != length || now != pages) {
		panic(fmt.Sprintf("conformance: a failed call left %d positions in %d pages of %d in %d", s.Len(), now, length, pages))
	}
	return err
}

func (s strictSession) Forward(ctx context.Context, tokens []int, want model.Want) (out model.Output, err error) {
	err = s.call(func() error {
		out, err = s.Session.Forward(ctx, tokens, want)
		return err
	})
	return out, err
}

func (s strictSession) Restore(from model.Snapshot, n int) error {
	return s.call(func() error { return s.Session.Restore(from, n) })
}

func promptAndSteps(s model.Session) error {
	for _, f := range []struct {
		tokens []int
		want   model.Want
	}{{[]int{3, 4, 5}, model.WantGreedy}, {[]int{6}, model.WantGreedy}, {[]int{7}, model.WantLast}} {
		if _, err := s.Forward(context.Background(), f.tokens, f.want); err != nil {
			return err
		}
	}
	return nil
}

// greedySteps uses two steps that the engine queued ahead and discards a third.
func greedySteps(s model.Session) error {
	next := 6
	for range 4 {
		out, err := s.Forward(context.Background(), []int{next}, model.WantGreedy)
		if err != nil {
			return err
		}
		next = out.Greedy
	}
	_, err := s.Forward(context.Background(), []int{next}, model.WantLast)
	return err
}

func snapshotAndRestore(s model.Session) error {
	if _, err := s.Forward(context.Background(), []int{3, 4, 5}, model.WantNothing); err != nil {
		return err
	}
	snap, err := s.Snapshot(2)
	if err == nil {
		err = s.Restore(snap, 2)
	}
	if err == nil {
		_, err = s.Forward(context.Background(), []int{8}, model.WantGreedy)
	}
	return err
}

// copiedPages restores a part of a page that a snapshot shares, and continues after another.
func copiedPages(s model.Session) error {
	if _, err := s.Forward(context.Background(), make([]int, 64), model.WantNothing); err != nil {
		return err
	}
	snap, err := s.Snapshot(64)
	if err != nil {
		return err
	}
	defer snap.Close()
	if err := s.Truncate(60); err != nil {
		return err
	}
	if _, err := s.Forward(context.Background(), []int{8}, model.WantGreedy); err != nil {
		return err
	}
	return s.Restore(snap, 50)
}

// TestAccelSwapOutFaults fails each device call of swapping a snapshot out to host memory
// and back. The request must fail, and the next one must work or report a lost device.
func TestAccelSwapOutFaults(t *testing.T) {
	slowParallel(t)
	m, o := minimalModel(t), accel.Options{Eager: true, MaxSequences: 1, KVPages: 2}
	tokens := testTokens(m.Config.Vocab, 65)
	dev := faultyDevice(t)
	defer checkClosed(t, dev)
	e, err := accel.New(t.Context(), m, dev, o)
	if err != nil {
		t.Fatal(err)
	}
	defer checkClosed(t, e)
	want := hashLogits(freshLogits(t, e, tokens[:64], tokens[64:]))
	sweep := faultyEngine(t, o, func(e *accel.Engine) error { return swapOutAndRestore(e, tokens, want) })
	sweep.Plans = []faultinject.Plan{{}, {Kind: driver.ErrDeviceLost}}
	sweep.Filter = func(_ int, c faultinject.Call) bool {
		return c == faultinject.StreamReadAsync || c == faultinject.StreamWriteAsync || c == faultinject.StreamSynchronize
	}
	sweep.Check(t)
}

// swapOutAndRestore lets a sequence of two pages evict a snapshot of one page, and demands
// that the snapshot restores the same state.
func swapOutAndRestore(e *accel.Engine, tokens []int, want string) error {
	ctx := context.Background()
	first, errFirst := e.NewSession(0)
	s, err := e.NewSession(0)
	if err := errors.Join(errFirst, err); err != nil {
		return err
	}
	defer s.Close()
	defer first.Close()
	if _, err := first.Forward(ctx, tokens[:64], model.WantNothing); err != nil {
		return err
	}
	snap, err := first.Snapshot(64)
	if err != nil {
		return err
	}
	first.Close()
	swapOuts := e.Stats().SwapOuts
	if _, err := s.Forward(ctx, tokens, model.WantNothing); err != nil {
		return err
	}
	if err := errors.Join(s.Truncate(0), s.Restore(snap, 64)); err != nil {
		return err
	}
	out, err := s.Forward(ctx, tokens[64:], model.WantLast)
	if err == nil && (hashLogits(out.Logits) != want || e.Stats().SwapOuts == swapOuts) {
		return errors.New("the restored state differs, or the snapshot was not swapped out")
	}
	return err
}
