// Package faultinject wraps a driver.Device for tests. It fails chosen calls with a driver's
// error and keeps a ledger of the objects that are open. Sweep fails each call of a scenario
// in turn and checks errors, recovery and leaks.
package faultinject

import (
	"runtime"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/driver"
)

// Plan selects the calls that fail. The zero value fails none.
type Plan struct {
	Call   Call // the calls that are counted
	N      int  // the Nth counted call fails, from 1; 0: none
	Onward bool // all later counted calls fail, too
	// Kind is the sentinel that the error wraps. ErrDeviceLost makes every later call fail,
	// too. nil selects the usual error of the call: ErrOutOfMemory for an allocation,
	// ErrPTXRejected for Load, ErrInvalid for a launch, and no sentinel for most others.
	Kind error
}

// Injected is a failure that a plan caused.
type Injected struct {
	Call   Call
	Number int // of the call among all calls of the device, from 1
	Err    error
}

// Device passes calls through to another device, except the calls that its Plan fails. A
// failed call does not reach the other device. A Close that fails does reach it, because
// drivers do not allow a second attempt.
//
// After a plan with ErrDeviceLost has fired, each Close succeeds and reaches the other
// device, and each other call returns the same error.
type Device struct {
	inner driver.Device

	mu       sync.Mutex // never held during a call of inner
	plan     Plan
	counted  int // calls that matched the plan since Fail
	number   int // of the last call
	calls    []Call
	stacks   []callStack // of the last calls; nil if they are not recorded
	injected []Injected
	lost     error
	open     map[*Object]struct{}
}

var _ driver.Device = (*Device)(nil)

// New wraps a device. Closing the result closes it.
func New(inner driver.Device) *Device {
	return &Device{inner: inner, open: map[*Object]struct{}{}}
}

// Fail replaces the plan and starts to count its calls. A lost device stays lost.
func (d *Device) Fail(p Plan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan, d.counted = p, 0
}

// Calls returns all calls since New or Forget, in the order in which they began.
func (d *Device) Calls() []Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Forget drops the record of calls, which else grows for as long as the device is used.
func (d *Device) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = nil
	if d.stacks != nil {
		d.stacks = []callStack{}
	}
}

// Injected returns the failures so far. Calls that fail because the device is lost are not
// repeated.
func (d *Device) Injected() []Injected {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.injected)
}

// begin records a call. An error means that the call fails.
func (d *Device) begin(c Call) (number int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
	d.number++
	number = d.number
	if d.stacks != nil {
		var s callStack
		runtime.Callers(2, s[:])
		d.stacks = append(d.stacks, s)
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
	d.counted++
	if n := d.plan.N; n == 0 || d.counted < n || d.counted > n && !d.plan.Onward {
		return number, nil
	}
	err = c.failure(d.plan.Kind, number)
	d.injected = append(d.injected, Injected{c, number, err})
	if d.plan.Kind == driver.ErrDeviceLost {
		d.lost = err
	}
	return number, err
}

// callStack holds the program counters that led to a call, innermost first.
type callStack [32]uintptr

// recordStacks starts to record the stack of each call.
func (d *Device) recordStacks() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stacks = []callStack{}
}

// recorded returns the calls since recordStacks, and their stacks.
func (d *Device) recorded() ([]Call, []callStack) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.stacks)
	return slices.Clone(d.calls[len(d.calls)-n:]), slices.Clone(d.stacks)
}
