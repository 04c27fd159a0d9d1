// Package faulty wraps a device for tests: it fails the calls that it is told to fail,
// as a driver would, and knows what was made and not closed.
package faulty

import (
	"runtime"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
)

// Plan says which call fails, and how. The zero value fails none.
type Plan struct {
	Call   Call // of which calls one is to fail
	N      int  // the Nth of them fails, counted from 1; 0: none
	Onward bool // so do all after it
	// Kind is one of the driver's sentinels. ErrDeviceLost takes the device: every
	// later call fails, too. nil is what a driver refuses such a call with most often:
	// out of memory where something is allocated, PTX rejected for a Load, a launch
	// out of resources; for what is hardly ever refused, an error of no kind.
	Kind error
}

// Injected is a failure that was planned.
type Injected struct {
	Call   Call
	Number int // of the call, among all, from 1
	Err    error
}

// Device passes every call through to another device, but for those that its Plan
// fails: these do nothing to the other device, except that a Close that fails closes,
// because no driver lets anyone close again. It is safe for concurrent use as any
// device is.
//
// Once a plan took the device, Closes succeed and everything else fails, with the
// same error for all. The other device is not lost and gets the Closes.
type Device struct {
	inner driver.Device

	mu       sync.Mutex // held by no call of the inner device
	plan     Plan
	seen     int // calls that the plan is about, since Fail
	calls    []Call
	places   []place // of the last calls; nil: they are not traced
	injected []Injected
	lost     error
	books    books
}

var _ driver.Device = (*Device)(nil)

// New wraps a device, which is closed with it. Nothing fails yet.
func New(inner driver.Device) *Device { return &Device{inner: inner, books: newBooks()} }

// Fail makes a plan take the place of the one before, and counts its calls from here
// on. A device that is lost stays lost.
func (d *Device) Fail(p Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan, d.seen = p, 0
}

// Calls lists all calls so far, in the order in which they began.
func (d *Device) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Injected lists the failures so far that were planned. That calls fail because the
// device is lost is not repeated.
func (d *Device) Injected() []Injected {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.injected)
}

// begin counts a call. Its error, if any, is the call's.
func (d *Device) begin(c Call) (number int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
	number = len(d.calls)
	if d.places != nil {
		var p place
		runtime.Callers(2, p[:])
		d.places = append(d.places, p)
	}
	if d.lost != nil && c.Closes() {
		return number, nil
	}
	if d.lost != nil {
		return number, d.lost
	}
	if d.plan.Call != Any && d.plan.Call != c {
		return number, nil
	}
	d.seen++
	if n := d.plan.N; n == 0 || d.seen < n || d.seen > n && !d.plan.Onward {
		return number, nil
	}
	err = c.refusal(d.plan.Kind, number)
	d.injected = append(d.injected, Injected{c, number, err})
	if d.plan.Kind == driver.ErrDeviceLost {
		d.lost = err
	}
	return number, err
}

// place is the chain of calls, innermost first, that led to a call of the device.
type place [32]uintptr

// trace keeps the places of the calls from here on.
func (d *Device) trace() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.places = []place{}
}

// traced lists the calls since trace, and their places.
func (d *Device) traced() ([]Call, []place) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.places)
	return slices.Clone(d.calls[len(d.calls)-n:]), slices.Clone(d.places)
}

// call makes a call unless it fails.
func (d *Device) call(c Call, inner func() error) error {
	if _, err := d.begin(c); err != nil {
		return err
	}
	return inner()
}

// ask is call for one with an answer.
func ask[T any](d *Device, c Call, inner func() (T, error)) (T, error) {
	if _, err := d.begin(c); err != nil {
		var none T
		return none, err
	}
	return inner()
}

// bare is what the inner device knows: the inner object of one that was wrapped, and
// anything else as it is.
func bare[T any](x T) T {
	if w, ok := any(x).(interface{ unwrap() T }); ok {
		return w.unwrap()
	}
	return x
}
