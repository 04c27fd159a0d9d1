package faultinject_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/faultinject"
)

// TestCallsMatchInterface compares the calls with the driver methods that return an error.
func TestCallsMatchInterface(t *testing.T) {
	want := []string{"Stream.EndCapture", "Stream.Instantiate"} // parts of Stream.Capture
	for _, typ := range []reflect.Type{
		reflect.TypeFor[driver.Device](), reflect.TypeFor[driver.Buffer](), reflect.TypeFor[driver.Pinned](),
		reflect.TypeFor[driver.Module](), reflect.TypeFor[driver.Function](), reflect.TypeFor[driver.Stream](),
		reflect.TypeFor[driver.Graph](), reflect.TypeFor[driver.Event](),
	} {
		for m := range typ.Methods() {
			n := m.Type.NumOut()
			if n > 0 && m.Type.Out(n-1) == reflect.TypeFor[error]() && m.Name != "Err" {
				want = append(want, typ.Name()+"."+m.Name)
			}
		}
	}
	var got []string
	for _, c := range faultinject.Calls() {
		got = append(got, c.String())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("calls\n%v\nwant\n%v", got, want)
	}
}

// TestOperationsCoverCalls checks that the tests below try every call.
func TestOperationsCoverCalls(t *testing.T) {
	w := newFixture(t)
	var tried []faultinject.Call
	for _, u := range slices.Concat(w.operations(), w.closes()) {
		tried = append(tried, u.call)
	}
	slices.Sort(tried)
	if tried = slices.Compact(tried); !slices.Equal(tried, faultinject.Calls()) {
		t.Errorf("tried %v, want %v", tried, faultinject.Calls())
	}
}

// TestCallsPassThrough checks that a call reaches the inner device and is recorded once.
func TestCallsPassThrough(t *testing.T) {
	for i, u := range newFixture(t).operations() {
		t.Run(u.call.String(), func(t *testing.T) {
			w := newFixture(t)
			before, live := len(w.dev.Calls()), w.inner.Live()
			w.ok(w.operations()[i].make())
			calls := w.dev.Calls()[before:]
			if n := count(calls, u.call); n != 1 || calls[0] != u.call && u.call != faultinject.StreamEndCapture && u.call != faultinject.StreamInstantiate {
				t.Errorf("counted %v", calls)
			}
			if w.inner.Live() != live {
				t.Errorf("the inner device holds %+v, want %+v", w.inner.Live(), live)
			}
		})
	}
	w := newFixture(t)
	for _, u := range w.closes() {
		w.ok(u.make())
		if calls := w.dev.Calls(); calls[len(calls)-1] != u.call {
			t.Errorf("%v was counted as %v", u.call, calls[len(calls)-1])
		}
		if u.call == faultinject.PinnedClose && w.inner.Live() != (emu.Live{}) {
			t.Errorf("the inner device still holds %+v", w.inner.Live())
		}
	}
	w.wantClosed()
}

func count(calls []faultinject.Call, c faultinject.Call) (n int) {
	for _, x := range calls {
		if x == c {
			n++
		}
	}
	return n
}

// wantClosed checks that the inner device is closed.
func (w *fixture) wantClosed() {
	w.t.Helper()
	if _, err := w.inner.Alloc(1); !errors.Is(err, driver.ErrInvalid) {
		w.t.Errorf("the inner device is open: %v", err)
	}
}

// TestCallsFail checks that a failed call does not reach the inner device and returns a
// driver's error.
func TestCallsFail(t *testing.T) {
	kinds := map[faultinject.Call]error{
		faultinject.DeviceAlloc: driver.ErrOutOfMemory, faultinject.DeviceAllocPinned: driver.ErrOutOfMemory,
		faultinject.DeviceNewStream: driver.ErrOutOfMemory, faultinject.DeviceNewEvent: driver.ErrOutOfMemory,
		faultinject.StreamInstantiate: driver.ErrOutOfMemory, faultinject.DeviceLoad: driver.ErrPTXRejected,
		faultinject.ModuleFunction: driver.ErrInvalid,
		faultinject.StreamLaunch:   driver.ErrInvalid, faultinject.GraphLaunch: driver.ErrInvalid,
		faultinject.StreamCapture: driver.ErrInvalid, faultinject.StreamEndCapture: driver.ErrInvalid,
	}
	for i, u := range newFixture(t).operations() {
		t.Run(u.call.String(), func(t *testing.T) {
			w := newFixture(t)
			live, open := w.inner.Live(), w.dev.OpenObjects()
			w.dev.Fail(faultinject.Plan{Call: u.call, N: 1})
			err := w.operations()[i].make()
			injected := wantInjected(t, w.dev, err)
			var refusal *driver.Error
			if !errors.As(err, &refusal) || refusal.Kind != kinds[u.call] || injected.Call != u.call || refusal.Code == 0 {
				t.Errorf("refused with %#v by %v, want the kind %v", err, injected.Call, kinds[u.call])
			}
			if w.inner.Live() != live || len(w.dev.OpenObjects()) != len(open) {
				t.Errorf("the inner device holds %+v, want %+v", w.inner.Live(), live)
			}
			w.ok(w.dev.Err())
			w.ok(w.operations()[i].make()) // only the first call fails
		})
	}
}

// TestClosesFail checks that a Close that fails still closes the inner object.
func TestClosesFail(t *testing.T) {
	w := newFixture(t)
	w.dev.Fail(faultinject.Plan{N: 1, Onward: true})
	for i, u := range w.closes() {
		injected := w.dev.Injected()
		err := u.make()
		if now := w.dev.Injected(); len(now) != i+1 || !errors.Is(err, now[i].Err) || now[i].Call != u.call {
			t.Errorf("%v: %v; injected %v, then %v", u.call, err, injected, now)
		}
		if u.call == faultinject.PinnedClose && (w.inner.Live() != emu.Live{} || len(w.dev.OpenObjects()) != 0) {
			t.Errorf("the inner device holds %+v, open are %v", w.inner.Live(), w.dev.OpenObjects())
		}
	}
	w.wantClosed()
}

// TestCallsOnLostDevice checks that every call on a lost device returns the same error, and
// that every Close succeeds.
func TestCallsOnLostDevice(t *testing.T) {
	for _, c := range []struct {
		name     string
		at, made faultinject.Call // at loses the device during the operation named made
	}{
		{"by a call", faultinject.StreamWrite, faultinject.StreamWrite},
		{"at the end of a capture", faultinject.StreamEndCapture, faultinject.StreamCapture},
		{"by a close", faultinject.BufferClose, faultinject.DeviceAlloc},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newFixture(t)
			live, operations, closes := w.inner.Live(), w.operations(), w.closes()
			w.dev.Fail(faultinject.Plan{Call: c.at, N: 1, Kind: driver.ErrDeviceLost})
			lost := operations[slices.IndexFunc(operations, func(u operation) bool { return u.call == c.made })].make()
			wantInjected(t, w.dev, lost)
			w.dev.Fail(faultinject.Plan{}) // a lost device stays lost
			for _, u := range operations {
				if err := u.make(); !errors.Is(err, driver.ErrDeviceLost) || err != lost || err != w.dev.Err() {
					t.Errorf("%v: %v, want %v; the device says %v", u.call, err, lost, w.dev.Err())
				}
			}
			if w.inner.Live() != live || w.inner.Err() != nil {
				t.Errorf("the inner device holds %+v, want %+v; %v", w.inner.Live(), live, w.inner.Err())
			}
			for _, u := range closes[:len(closes)-1] {
				w.ok(u.make())
			}
			if w.inner.Live() != (emu.Live{}) || len(w.dev.OpenObjects()) != 0 {
				t.Errorf("the inner device holds %+v, open are %v", w.inner.Live(), w.dev.OpenObjects())
			}
			w.ok(w.dev.Close())
			w.wantClosed()
		})
	}
}

// TestForget checks that calls before Forget are dropped and still numbered.
func TestForget(t *testing.T) {
	dev := faultinject.New(openInner(t))
	must(dev.Alloc(10))(t)
	must(dev.NewEvent())(t)
	dev.Forget()
	if calls := dev.Calls(); len(calls) != 0 {
		t.Errorf("%v after Forget", calls)
	}
	dev.Fail(faultinject.Plan{N: 1})
	if _, err := dev.Alloc(10); err == nil {
		t.Error("no failure")
	}
	if calls := dev.Calls(); len(calls) != 1 || dev.Injected()[0].Number != 3 {
		t.Errorf("calls %v, injected %+v", calls, dev.Injected())
	}
}
