package faulty_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/faulty"
)

func TestPlan(t *testing.T) {
	const (
		alloc = faulty.DeviceAlloc
		fill  = faulty.StreamFill
		event = faulty.DeviceNewEvent
	)
	made := []faulty.Call{alloc, fill, alloc, event, fill, alloc} // each with its Close, where it has one
	for _, c := range []struct {
		name, reason string
		plan         faulty.Plan
		want         []int // of those made, from 0
	}{
		{"none", "the zero value fails nothing", faulty.Plan{}, nil},
		{"none onward", "an N of 0 is no call", faulty.Plan{Onward: true}, nil},
		{"the first", "counted from 1", faulty.Plan{N: 1}, []int{0}},
		{"the sixth of all", "Closes count: alloc, close, fill, alloc, close, event", faulty.Plan{N: 6}, []int{3}},
		{"the second fill", "others do not count", faulty.Plan{Call: fill, N: 2}, []int{4}},
		{"beyond the last", "there is no such call", faulty.Plan{Call: fill, N: 3}, nil},
		{"from the second alloc on", "others go on", faulty.Plan{Call: alloc, N: 2, Onward: true}, []int{2, 5}},
		{"from the sixth on", "what was not made has no Close", faulty.Plan{N: 6, Onward: true}, []int{3, 4, 5}},
		{"lost by the second fill", "and all after it, by the same error", faulty.Plan{Call: fill, N: 2, Kind: driver.ErrDeviceLost}, []int{4, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.dev.Fail(c.plan)
			var got []int
			for i, m := range made {
				uses := w.uses()
				if uses[slices.IndexFunc(uses, func(u use) bool { return u.call == m })].make() != nil {
					got = append(got, i)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: failed %v, want %v", c.reason, got, c.want)
			}
		})
	}
}

func TestPlanKinds(t *testing.T) {
	foreign := errors.New("foreign")
	for _, c := range []struct {
		name, reason string
		plan         faulty.Plan
		want         string
	}{
		{"left open", "what a driver says of it", faulty.Plan{Call: faulty.StreamFill},
			"faulty.Stream.Fill: CUDA_ERROR_UNKNOWN"},
		{"its own", "an allocation has one result of the kind", faulty.Plan{Call: faulty.DeviceAlloc, Kind: driver.ErrOutOfMemory},
			"faulty.Device.Alloc: CUDA_ERROR_OUT_OF_MEMORY (out of device memory)"},
		{"another's", "a compiler may run out of memory", faulty.Plan{Call: faulty.DeviceLoad, Kind: driver.ErrOutOfMemory},
			"faulty.Device.Load: CUDA_ERROR_OUT_OF_MEMORY (out of device memory)"},
		{"invalid of its own", "a kind of several results", faulty.Plan{Call: faulty.StreamLaunch, Kind: driver.ErrInvalid},
			"faulty.Stream.Launch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (invalid use of device)"},
		{"lost", "the device", faulty.Plan{Call: faulty.StreamFill, Kind: driver.ErrDeviceLost},
			"faulty.Stream.Fill: CUDA_ERROR_LAUNCH_FAILED (device lost)"},
		{"no driver's", "any error may be a kind", faulty.Plan{Call: faulty.StreamFill, Kind: foreign},
			"faulty.Stream.Fill (foreign)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.plan.N = 1
			w.dev.Fail(c.plan)
			uses := w.uses()
			err := uses[slices.IndexFunc(uses, func(u use) bool { return u.call == c.plan.Call })].make()
			want := fmt.Sprintf("%s: planned for call %d", c.want, len(w.dev.Calls()))
			if err == nil || err.Error() != want || c.plan.Kind != nil && !errors.Is(err, c.plan.Kind) {
				t.Errorf("%s: %v, want %s", c.reason, err, want)
			}
		})
	}
}

// A capture fails before the recording and after it; either way the stream is as it
// was, and runs what is asked of it next.
func TestCaptureFails(t *testing.T) {
	for _, c := range []struct {
		call     faulty.Call
		recorded bool
	}{{faulty.StreamCapture, false}, {faulty.StreamEndCapture, true}, {faulty.StreamInstantiate, true}, {faulty.StreamLaunch, true}} {
		t.Run(c.call.String(), func(t *testing.T) {
			w := newWorld(t)
			live := w.inner.Live()
			w.dev.Fail(faulty.Plan{Call: c.call, N: 1})
			recorded := false
			g, err := w.stream.Capture(func() error {
				recorded = true
				return w.stream.Launch(w.launch())
			})
			wantInjected(t, w.dev, err)
			if g != nil || recorded != c.recorded || w.inner.Live() != live {
				t.Errorf("the graph is %v; recorded: %v; the inner device holds %+v, want %+v", g, recorded, w.inner.Live(), live)
			}
			w.wantDoubled(func() error { return w.stream.Launch(w.launch()) })
		})
	}
}

// wantDoubled demands that a run doubles x into y, and returns an error if not.
func (w *world) wantDoubled(run func() error) {
	w.t.Helper()
	got := make([]byte, worldBytes)
	w.ok(w.stream.Write(w.x.Address(), floats(1, 2, 3, 4, 5, 6, 7, 8)))
	w.ok(w.stream.Fill(w.y.Address(), 0, worldBytes))
	w.ok(run())
	w.ok(w.stream.Read(got, w.y.Address()))
	if want := floats(2, 4, 6, 8, 10, 12, 14, 16); !bytes.Equal(got, want) {
		w.t.Errorf("computed %v, want %v", got, want)
	}
}

// What the wrapper gives out reaches the inner device as its own, and does its work.
func TestUnwrapping(t *testing.T) {
	w := newWorld(t)
	list := []driver.Launch{w.launch()}
	w.wantDoubled(func() error { return w.stream.Launch(list...) })
	if list[0].Function != w.function {
		t.Error("Launch changed its caller's slice")
	}
	w.wantDoubled(func() error { return w.graph.Launch(w.stream) })
	w.wantDoubled(func() error {
		copy(w.pinned.Bytes(), floats(1, 2, 3, 4, 5, 6, 7, 8))
		return errors.Join(w.stream.WriteAsync(w.x.Address(), w.pinned, 0, worldBytes), w.stream.Launch(w.launch()))
	})
	peer := newWorld(t)
	if w.dev.Properties() != w.inner.Properties() || w.function.Name() != w.kernel.Name {
		t.Error("something that cannot fail does not come from the inner device")
	}
	if err := w.stream.Record(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("no event at all: %v", err)
	}
	if err := w.stream.Record(peer.begin); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("another device's event: %v", err)
	}
}

// A fault of the inner device is told as its own.
func TestLostInEarnest(t *testing.T) {
	w := newWorld(t)
	l := w.launch()
	l.Params = slices.Clone(l.Params)
	clear(l.Params[:8]) // the kernel reads address 0
	err := errors.Join(w.stream.Launch(l), w.stream.Synchronize())
	var trap *emu.Trap
	if !errors.As(err, &trap) || !errors.As(w.dev.Err(), &trap) || len(w.dev.Injected()) != 0 {
		t.Errorf("%v, the device says %v; injected %v", err, w.dev.Err(), w.dev.Injected())
	}
}

func TestBooks(t *testing.T) {
	dev := faulty.New(openInner(t))
	a := must(dev.Alloc(100))(t)
	b := must(dev.Alloc(50))(t)
	p := must(dev.AllocPinned(7))(t)
	must(dev.NewEvent())(t)
	if err := errors.Join(a.Close(), a.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	c := must(dev.Alloc(30))(t)
	if _, err := dev.Alloc(1 << 40); !errors.Is(err, driver.ErrOutOfMemory) || len(dev.Injected()) != 0 {
		t.Errorf("an allocation that the inner device refuses: %v", err)
	}
	want := []faulty.Object{{By: faulty.DeviceAlloc, Number: 2, Bytes: 50}, {By: faulty.DeviceNewEvent, Number: 4}, {By: faulty.DeviceAlloc, Number: 8, Bytes: 30}}
	same := func(a, b faulty.Object) bool { return a.By == b.By && a.Number == b.Number && a.Bytes == b.Bytes }
	if !slices.EqualFunc(dev.Open(), want, same) {
		t.Errorf("open are %v, want %v", dev.Open(), want)
	}
	if twice := dev.ClosedTwice(); len(twice) != 1 || !same(twice[0], faulty.Object{By: faulty.DeviceAlloc, Number: 1, Bytes: 100}) {
		t.Errorf("closed twice: %v", twice)
	}
	if now, peak := dev.InUse(), dev.Peak(); now != (faulty.Memory{Device: 80}) || peak != (faulty.Memory{Device: 150, Pinned: 7}) {
		t.Errorf("%+v in use, %+v at most", now, peak)
	}
	if s := dev.Open()[0].String(); !strings.HasPrefix(s, "Device.Alloc, call 2, 50 bytes, at faulty_test.go:") {
		t.Errorf("described as %s", s)
	}
	if s := dev.Open()[1].String(); !strings.HasPrefix(s, "Device.NewEvent, call 4, at faulty_test.go:") {
		t.Errorf("described as %s", s)
	}
	dev.ResetPeak()
	if err := errors.Join(b.Close(), c.Close()); err != nil || dev.Peak().Device != 80 || dev.InUse().Device != 0 {
		t.Errorf("%v; %+v in use, %+v at most", err, dev.InUse(), dev.Peak())
	}
	if err := dev.Close(); err != nil || len(dev.Open()) != 1 {
		t.Errorf("%v; the device's Close hides what nobody closed: %v", err, dev.Open())
	}
}

// However deep the call, three lines say where it was.
func TestObjectNamesThreeLines(t *testing.T) {
	dev := faulty.New(openInner(t))
	var deep func(n int) error
	deep = func(n int) error {
		if n > 0 {
			return deep(n - 1)
		}
		_, err := dev.NewStream()
		return err
	}
	if err := deep(5); err != nil || strings.Count(dev.Open()[0].String(), "faulty_test.go:") != 3 {
		t.Errorf("%v; described as %v", err, dev.Open())
	}
}

// Any one call of many goroutines fails, once, and the books are right.
func TestConcurrent(t *testing.T) {
	dev := faulty.New(openInner(t))
	const goroutines, rounds = 16, 20
	dev.Fail(faulty.Plan{Call: faulty.DeviceAlloc, N: goroutines * rounds / 2})
	var wg sync.WaitGroup
	failed := make(chan error, goroutines*rounds)
	for range goroutines {
		wg.Go(func() {
			for range rounds {
				b, err := dev.Alloc(64)
				if err != nil {
					failed <- err
					continue
				}
				dev.Open()
				b.Close()
			}
		})
	}
	wg.Wait()
	close(failed)
	wantInjected(t, dev, <-failed)
	if more := <-failed; more != nil || len(dev.Open()) != 0 || dev.InUse() != (faulty.Memory{}) {
		t.Errorf("failed again: %v; open are %v", more, dev.Open())
	}
	if n := len(dev.Calls()); n != 2*goroutines*rounds-1 {
		t.Errorf("%d calls, want %d", n, 2*goroutines*rounds-1)
	}
}
