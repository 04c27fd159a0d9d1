package faulty_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/faulty"
)

// Every method of the seam that can fail is a call, and nothing else is.
func TestCallsAreTheSeam(t *testing.T) {
	want := []string{"Stream.EndCapture", "Stream.Instantiate"} // parts of Stream.Capture
	for _, seam := range []reflect.Type{
		reflect.TypeFor[driver.Device](), reflect.TypeFor[driver.Buffer](), reflect.TypeFor[driver.Pinned](),
		reflect.TypeFor[driver.Module](), reflect.TypeFor[driver.Function](), reflect.TypeFor[driver.Stream](),
		reflect.TypeFor[driver.Graph](), reflect.TypeFor[driver.Event](),
	} {
		for m := range seam.Methods() {
			n := m.Type.NumOut()
			if n > 0 && m.Type.Out(n-1) == reflect.TypeFor[error]() && m.Name != "Err" {
				want = append(want, seam.Name()+"."+m.Name)
			}
		}
	}
	var got []string
	for _, c := range faulty.Calls() {
		got = append(got, c.String())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("calls\n%v\nwant\n%v", got, want)
	}
}

// The tests below try them all.
func TestUsesCoverTheCalls(t *testing.T) {
	w := newWorld(t)
	var tried []faulty.Call
	for _, u := range slices.Concat(w.uses(), w.closes()) {
		tried = append(tried, u.call)
	}
	slices.Sort(tried)
	if tried = slices.Compact(tried); !slices.Equal(tried, faulty.Calls()) {
		t.Errorf("tried %v, want %v", tried, faulty.Calls())
	}
}

// A call that is not to fail reaches the inner device and is counted, once.
func TestCallsPassThrough(t *testing.T) {
	for i, u := range newWorld(t).uses() {
		t.Run(u.call.String(), func(t *testing.T) {
			w := newWorld(t)
			before, live := len(w.dev.Calls()), w.inner.Live()
			w.ok(w.uses()[i].make())
			calls := w.dev.Calls()[before:]
			if n := count(calls, u.call); n != 1 || calls[0] != u.call && u.call != faulty.StreamEndCapture && u.call != faulty.StreamInstantiate {
				t.Errorf("counted %v", calls)
			}
			if w.inner.Live() != live {
				t.Errorf("the inner device holds %+v, want %+v", w.inner.Live(), live)
			}
		})
	}
	w := newWorld(t)
	for _, u := range w.closes() {
		w.ok(u.make())
		if calls := w.dev.Calls(); calls[len(calls)-1] != u.call {
			t.Errorf("%v was counted as %v", u.call, calls[len(calls)-1])
		}
		if u.call == faulty.PinnedClose && w.inner.Live() != (emu.Live{}) {
			t.Errorf("the inner device still holds %+v", w.inner.Live())
		}
	}
	w.wantClosed()
}

func count(calls []faulty.Call, c faulty.Call) (n int) {
	for _, x := range calls {
		if x == c {
			n++
		}
	}
	return n
}

// wantClosed demands that the inner device is closed.
func (w *world) wantClosed() {
	w.t.Helper()
	if _, err := w.inner.Alloc(1); !errors.Is(err, driver.ErrInvalid) {
		w.t.Errorf("the inner device is open: %v", err)
	}
}

// A call that fails does nothing to the inner device, and says what a driver says.
func TestCallsFail(t *testing.T) {
	kinds := map[faulty.Call]error{
		faulty.DeviceAlloc: driver.ErrOutOfMemory, faulty.DeviceAllocPinned: driver.ErrOutOfMemory,
		faulty.DeviceNewStream: driver.ErrOutOfMemory, faulty.DeviceNewEvent: driver.ErrOutOfMemory,
		faulty.StreamInstantiate: driver.ErrOutOfMemory, faulty.DeviceLoad: driver.ErrPTXRejected,
		faulty.ModuleFunction: driver.ErrInvalid,
		faulty.StreamLaunch:   driver.ErrInvalid, faulty.GraphLaunch: driver.ErrInvalid,
		faulty.StreamCapture: driver.ErrInvalid, faulty.StreamEndCapture: driver.ErrInvalid,
	}
	for i, u := range newWorld(t).uses() {
		t.Run(u.call.String(), func(t *testing.T) {
			w := newWorld(t)
			live, open := w.inner.Live(), w.dev.Open()
			w.dev.Fail(faulty.Plan{Call: u.call, N: 1})
			err := w.uses()[i].make()
			injected := wantInjected(t, w.dev, err)
			var refusal *driver.Error
			if !errors.As(err, &refusal) || refusal.Kind != kinds[u.call] || injected.Call != u.call || refusal.Code == 0 {
				t.Errorf("refused with %#v by %v, want the kind %v", err, injected.Call, kinds[u.call])
			}
			if w.inner.Live() != live || len(w.dev.Open()) != len(open) {
				t.Errorf("the inner device holds %+v, want %+v", w.inner.Live(), live)
			}
			w.ok(w.dev.Err())
			w.ok(w.uses()[i].make()) // the second is not planned to fail
		})
	}
}

// A Close that fails closes: no driver lets anyone try again.
func TestClosesFail(t *testing.T) {
	w := newWorld(t)
	w.dev.Fail(faulty.Plan{N: 1, Onward: true})
	for i, u := range w.closes() {
		injected := w.dev.Injected()
		err := u.make()
		if now := w.dev.Injected(); len(now) != i+1 || !errors.Is(err, now[i].Err) || now[i].Call != u.call {
			t.Errorf("%v: %v; injected %v, then %v", u.call, err, injected, now)
		}
		if u.call == faulty.PinnedClose && (w.inner.Live() != emu.Live{} || len(w.dev.Open()) != 0) {
			t.Errorf("the inner device holds %+v, open are %v", w.inner.Live(), w.dev.Open())
		}
	}
	w.wantClosed()
}

// A lost device refuses everything with one error, but can be given back.
func TestCallsOnLostDevice(t *testing.T) {
	for _, c := range []struct {
		name     string
		at, made faulty.Call // what loses the device, and the use that it is a call of
	}{
		{"by a call", faulty.StreamWrite, faulty.StreamWrite},
		{"at the end of a capture", faulty.StreamEndCapture, faulty.StreamCapture},
		{"by a close", faulty.BufferClose, faulty.DeviceAlloc},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			live, uses, closes := w.inner.Live(), w.uses(), w.closes()
			w.dev.Fail(faulty.Plan{Call: c.at, N: 1, Kind: driver.ErrDeviceLost})
			lost := uses[slices.IndexFunc(uses, func(u use) bool { return u.call == c.made })].make()
			wantInjected(t, w.dev, lost)
			w.dev.Fail(faulty.Plan{}) // helps no more
			for _, u := range uses {
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
			if w.inner.Live() != (emu.Live{}) || len(w.dev.Open()) != 0 {
				t.Errorf("the inner device holds %+v, open are %v", w.inner.Live(), w.dev.Open())
			}
			w.ok(w.dev.Close())
			w.wantClosed()
		})
	}
}
