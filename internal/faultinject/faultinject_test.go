package faultinject_test

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
	"github.com/lockstep-go/lockstep/internal/faultinject"
)

func TestPlan(t *testing.T) {
	const (
		alloc = faultinject.DeviceAlloc
		fill  = faultinject.StreamFill
		event = faultinject.DeviceNewEvent
	)
	made := []faultinject.Call{alloc, fill, alloc, event, fill, alloc} // an allocation is followed by its Close
	for _, c := range []struct {
		name string
		plan faultinject.Plan
		want []int // indices of the failed calls
	}{
		{"none", faultinject.Plan{}, nil},
		{"N is 0 and Onward is set", faultinject.Plan{Onward: true}, nil},
		{"the first call", faultinject.Plan{N: 1}, []int{0}},
		{"the sixth call, including Closes", faultinject.Plan{N: 6}, []int{3}},
		{"the second fill", faultinject.Plan{Call: fill, N: 2}, []int{4}},
		{"beyond the last fill", faultinject.Plan{Call: fill, N: 3}, nil},
		{"all from the second alloc on", faultinject.Plan{Call: alloc, N: 2, Onward: true}, []int{2, 5}},
		{"all from the sixth call on", faultinject.Plan{N: 6, Onward: true}, []int{3, 4, 5}},
		{"the device is lost at the second fill", faultinject.Plan{Call: fill, N: 2, Kind: driver.ErrDeviceLost}, []int{4, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFixture(t)
			w.dev.Fail(c.plan)
			var got []int
			for i, m := range made {
				operations := w.operations()
				if operations[slices.IndexFunc(operations, func(u operation) bool { return u.call == m })].make() != nil {
					got = append(got, i)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("failed %v, want %v", got, c.want)
			}
		})
	}
}

func TestPlanKinds(t *testing.T) {
	foreign := errors.New("foreign")
	for _, c := range []struct {
		name string
		plan faultinject.Plan
		want string
	}{
		{"no kind", faultinject.Plan{Call: faultinject.StreamFill},
			"faultinject.Stream.Fill: CUDA_ERROR_UNKNOWN"},
		{"the usual kind of the call", faultinject.Plan{Call: faultinject.DeviceAlloc, Kind: driver.ErrOutOfMemory},
			"faultinject.Device.Alloc: CUDA_ERROR_OUT_OF_MEMORY (out of device memory)"},
		{"the usual kind of another call", faultinject.Plan{Call: faultinject.DeviceLoad, Kind: driver.ErrOutOfMemory},
			"faultinject.Device.Load: CUDA_ERROR_OUT_OF_MEMORY (out of device memory)"},
		{"a kind with several results", faultinject.Plan{Call: faultinject.StreamLaunch, Kind: driver.ErrInvalid},
			"faultinject.Stream.Launch: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (invalid use of device)"},
		{"device lost", faultinject.Plan{Call: faultinject.StreamFill, Kind: driver.ErrDeviceLost},
			"faultinject.Stream.Fill: CUDA_ERROR_LAUNCH_FAILED (device lost)"},
		{"not a sentinel of package driver", faultinject.Plan{Call: faultinject.StreamFill, Kind: foreign},
			"faultinject.Stream.Fill (foreign)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFixture(t)
			c.plan.N = 1
			w.dev.Fail(c.plan)
			operations := w.operations()
			err := operations[slices.IndexFunc(operations, func(u operation) bool { return u.call == c.plan.Call })].make()
			want := fmt.Sprintf("%s: planned for call %d", c.want, len(w.dev.Calls()))
			if err == nil || err.Error() != want || c.plan.Kind != nil && !errors.Is(err, c.plan.Kind) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}

// TestCaptureFails checks that the stream can be used after a capture has failed, before or
// after its recording.
func TestCaptureFails(t *testing.T) {
	for _, c := range []struct {
		call     faultinject.Call
		recorded bool
	}{{faultinject.StreamCapture, false}, {faultinject.StreamEndCapture, true}, {faultinject.StreamInstantiate, true}, {faultinject.StreamLaunch, true}} {
		t.Run(c.call.String(), func(t *testing.T) {
			w := newFixture(t)
			live := w.inner.Live()
			w.dev.Fail(faultinject.Plan{Call: c.call, N: 1})
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

// wantDoubled checks that run doubles x into y.
func (w *fixture) wantDoubled(run func() error) {
	w.t.Helper()
	got := make([]byte, rowBytes)
	w.ok(w.stream.Write(w.x.Address(), floats(1, 2, 3, 4, 5, 6, 7, 8)))
	w.ok(w.stream.Fill(w.y.Address(), 0, rowBytes))
	w.ok(run())
	w.ok(w.stream.Read(got, w.y.Address()))
	if want := floats(2, 4, 6, 8, 10, 12, 14, 16); !bytes.Equal(got, want) {
		w.t.Errorf("computed %v, want %v", got, want)
	}
}

// TestUnwrapping checks that wrapped objects reach the inner device as its own.
func TestUnwrapping(t *testing.T) {
	w := newFixture(t)
	list := []driver.Launch{w.launch()}
	w.wantDoubled(func() error { return w.stream.Launch(list...) })
	if list[0].Function != w.function {
		t.Error("Launch changed its caller's slice")
	}
	w.wantDoubled(func() error { return w.graph.Launch(w.stream) })
	w.wantDoubled(func() error {
		copy(w.pinned.Bytes(), floats(1, 2, 3, 4, 5, 6, 7, 8))
		return errors.Join(w.stream.WriteAsync(w.x.Address(), w.pinned, 0, rowBytes), w.stream.Launch(w.launch()))
	})
	peer := newFixture(t)
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

// TestInnerDeviceLost checks that a fault of the inner device is reported unchanged.
func TestInnerDeviceLost(t *testing.T) {
	w := newFixture(t)
	l := w.launch()
	l.Params = slices.Clone(l.Params)
	clear(l.Params[:8]) // the kernel reads address 0
	err := errors.Join(w.stream.Launch(l), w.stream.Synchronize())
	var trap *emu.Trap
	if !errors.As(err, &trap) || !errors.As(w.dev.Err(), &trap) || len(w.dev.Injected()) != 0 {
		t.Errorf("%v, the device says %v; injected %v", err, w.dev.Err(), w.dev.Injected())
	}
}

func TestLedger(t *testing.T) {
	dev := faultinject.New(openInner(t))
	a := must(dev.Alloc(100))(t)
	b := must(dev.Alloc(50))(t)
	p := must(dev.AllocPinned(7))(t)
	must(dev.NewEvent())(t)
	if err := errors.Join(a.Close(), a.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	must(dev.Alloc(30))(t)
	if _, err := dev.Alloc(1 << 40); !errors.Is(err, driver.ErrOutOfMemory) || len(dev.Injected()) != 0 {
		t.Errorf("an allocation that the inner device refuses: %v", err)
	}
	want := []faultinject.Object{
		{By: faultinject.DeviceAlloc, Number: 2, Bytes: 50}, {By: faultinject.DeviceNewEvent, Number: 4}, {By: faultinject.DeviceAlloc, Number: 8, Bytes: 30},
	}
	same := func(a, b faultinject.Object) bool { return a.By == b.By && a.Number == b.Number && a.Bytes == b.Bytes }
	if !slices.EqualFunc(dev.OpenObjects(), want, same) {
		t.Errorf("open: %v, want %v", dev.OpenObjects(), want)
	}
	for i, want := range []string{"Device.Alloc, call 2, 50 bytes, at faultinject_test.go:", "Device.NewEvent, call 4, at faultinject_test.go:"} {
		if s := dev.OpenObjects()[i].String(); !strings.HasPrefix(s, want) {
			t.Errorf("described as %s, want %s", s, want)
		}
	}
	if err := errors.Join(b.Close(), dev.Close()); err != nil || len(dev.OpenObjects()) != 2 {
		t.Errorf("%v; after the device's Close %v are open, want 2", err, dev.OpenObjects())
	}
}

// TestObjectNamesThreeLines checks that a deep call stack is cut to three lines.
func TestObjectNamesThreeLines(t *testing.T) {
	dev := faultinject.New(openInner(t))
	var deep func(n int) error
	deep = func(n int) error {
		if n > 0 {
			return deep(n - 1)
		}
		_, err := dev.NewStream()
		return err
	}
	if err := deep(5); err != nil || strings.Count(dev.OpenObjects()[0].String(), "faultinject_test.go:") != 3 {
		t.Errorf("%v; described as %v", err, dev.OpenObjects())
	}
}

// TestConcurrent checks that one call of many goroutines fails, once, and that the ledger is
// right.
func TestConcurrent(t *testing.T) {
	dev := faultinject.New(openInner(t))
	const goroutines, iterations = 16, 20
	dev.Fail(faultinject.Plan{Call: faultinject.DeviceAlloc, N: goroutines * iterations / 2})
	var wg sync.WaitGroup
	failed := make(chan error, goroutines*iterations)
	for range goroutines {
		wg.Go(func() {
			for range iterations {
				b, err := dev.Alloc(64)
				if err != nil {
					failed <- err
					continue
				}
				dev.OpenObjects()
				b.Close()
			}
		})
	}
	wg.Wait()
	close(failed)
	wantInjected(t, dev, <-failed)
	if more := <-failed; more != nil || len(dev.OpenObjects()) != 0 {
		t.Errorf("failed again: %v; open: %v", more, dev.OpenObjects())
	}
	if n := len(dev.Calls()); n != 2*goroutines*iterations-1 {
		t.Errorf("%d calls, want %d", n, 2*goroutines*iterations-1)
	}
}
