package faultinject

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"

	"github.com/lockstep-go/lockstep/driver"
)

// T is the part of testing.T that a sweep uses.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Scenario is code under test on one device. The order of its calls must not vary between
// runs, so goroutines must not race for the device.
type Scenario struct {
	// Run makes the same calls each time.
	Run func() error
	// Close closes what Run keeps open. If it is nil, Run must close all that it opens, even
	// when it fails.
	Close func() error
}

// Sweep fails each call of a scenario's run in turn.
type Sweep struct {
	// Open opens a device. The sweep closes it.
	Open func() driver.Device
	// Start prepares a scenario. None of its calls fails.
	Start func(driver.Device) (Scenario, error)
	// Plans are the ways in which a call fails. The sweep sets N. nil selects three ways: the
	// call alone, the call and all later ones, and a call that loses the device.
	Plans []Plan
	// Recovers reports whether the run may succeed although a call has failed. If a Close failed,
	// it always may; otherwise, on a lost device, never. nil: it may after no call but a Close.
	Recovers func(Call) bool
	// NoGrowth checks that after the failed run and one more, as many objects are open as
	// after two good runs.
	NoGrowth bool
	// FirstAndLast tries only the first and the last call of each call stack, such as the
	// first and the last iteration of a loop.
	FirstAndLast bool
	// Filter selects the calls to try, by their number in the run, from 1. nil: all.
	Filter func(number int, c Call) bool
}

// Check runs the scenario once to list its calls. Then it tries each call and each plan on a
// new device, and checks that
//   - the run fails with an error that wraps the injected one, or succeeds if Recovers
//     permits it,
//   - the next run succeeds, or fails with ErrDeviceLost if the device is lost,
//   - no object is open at the end.
func (s Sweep) Check(t T) {
	t.Helper()
	base, err := s.baseline()
	if err != nil {
		t.Errorf("without a failure: %v", err)
		return
	}
	plans := s.Plans
	if len(plans) == 0 {
		plans = []Plan{{}, {Onward: true}, {Kind: driver.ErrDeviceLost}}
	}
	for _, p := range plans {
		s.checkPlan(t, p, base)
	}
}

// checkPlan tries the plan on each call that it counts.
func (s Sweep) checkPlan(t T, p Plan, base baseline) {
	t.Helper()
	tried := 0
	p.N = 0
	for i, c := range base.calls {
		if p.Call != Any && p.Call != c {
			continue
		}
		p.N++
		if s.FirstAndLast && !base.firstOrLast[i] || s.Filter != nil && !s.Filter(i+1, c) {
			continue
		}
		tried++
		if err := s.try(p, base); err != nil {
			t.Errorf("call %d of %d, %v, %v: %v", i+1, len(base.calls), c, p, err)
		}
	}
	if tried == 0 {
		t.Errorf("%v: no call of the run matches", p)
	}
}

// String describes the calls that the plan fails.
func (p Plan) String() string {
	s := fmt.Sprintf("failing number %d of %v", p.N, p.Call)
	if p.Onward {
		s += " and all after it"
	}
	if p.Kind != nil {
		s += fmt.Sprintf(" (%v)", p.Kind)
	}
	return s
}

// baseline describes runs without a failure.
type baseline struct {
	calls       []Call         // of the first run
	firstOrLast []bool         // per call: whether it is the first or last of its call stack
	open        map[Object]int // after the second run, if the sweep checks NoGrowth
}

func (s Sweep) baseline() (b baseline, err error) {
	dev := New(s.Open())
	scenario, err := s.Start(dev)
	if err != nil {
		return b, errors.Join(err, dev.Close())
	}
	dev.recordStacks()
	err = catch(scenario.Run)
	calls, stacks := dev.recorded()
	b.calls, b.firstOrLast = calls, firstOrLast(stacks)
	if len(b.calls) == 0 {
		err = errors.Join(err, errors.New("the run makes no call"))
	}
	if s.NoGrowth {
		err = errors.Join(err, catch(scenario.Run))
		b.open = dev.openCounts()
	}
	if scenario.Close != nil {
		err = errors.Join(err, catch(scenario.Close))
	}
	return b, errors.Join(err, dev.leaks(), dev.Close())
}

// firstOrLast marks the first and the last occurrence of each call stack.
func firstOrLast(stacks []callStack) []bool {
	marks := make([]bool, len(stacks))
	last := map[callStack]int{}
	for i, s := range stacks {
		if _, ok := last[s]; !ok {
			marks[i] = true
		}
		last[s] = i
	}
	for _, i := range last {
		marks[i] = true
	}
	return marks
}

// try runs a scenario under a plan and once more without it. It returns all that was wrong.
func (s Sweep) try(p Plan, base baseline) error {
	dev := New(s.Open())
	scenario, err := s.Start(dev)
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	dev.Fail(p)
	err = catch(scenario.Run)
	dev.Fail(Plan{})
	found := []error{s.checkError(dev, err)}
	if errors.As(err, new(panicked)) { // a mutex may still be locked
		return errors.Join(append(found, dev.Close())...)
	}
	if scenario.Close == nil {
		found = append(found, dev.leaks())
	}
	found = append(found, dev.checkNextRun(catch(scenario.Run)))
	if open := dev.openCounts(); s.NoGrowth && dev.Err() == nil && !maps.Equal(open, base.open) {
		found = append(found, fmt.Errorf("after another run %v are open, without the failure %v", open, base.open))
	}
	if scenario.Close != nil {
		if err := catch(scenario.Close); err != nil && dev.Err() == nil {
			found = append(found, fmt.Errorf("closing the scenario: %w", err))
		}
		found = append(found, dev.leaks())
	}
	return errors.Join(append(found, dev.Close())...)
}

// checkError compares the error of the failed run with the injected failures.
func (s Sweep) checkError(dev *Device, err error) error {
	injected := dev.Injected()
	if len(injected) == 0 {
		return errors.Join(errors.New("the call was not made: the run is not the same each time"), err)
	}
	for _, i := range injected {
		switch {
		case err != nil && errors.Is(err, i.Err):
			return nil
		case err == nil && !s.mayRecover(i):
			return fmt.Errorf("the run succeeded, though %v, call %d, failed", i.Call, i.Number)
		}
	}
	if err != nil {
		return fmt.Errorf("the run's error does not wrap the injected one: %w", err)
	}
	return nil
}

func (s Sweep) mayRecover(i Injected) bool {
	if i.Call.Closes() {
		return true
	}
	return s.Recovers != nil && s.Recovers(i.Call) && !errors.Is(i.Err, driver.ErrDeviceLost)
}

// checkNextRun checks the error of the run after the failed one.
func (d *Device) checkNextRun(err error) error {
	lost := d.Err()
	switch {
	case lost == nil && err != nil:
		return fmt.Errorf("the next run failed: %w", err)
	case lost != nil && !errors.Is(err, driver.ErrDeviceLost):
		return fmt.Errorf("the device is lost (%v), but the next run returned %v", lost, err)
	}
	return nil
}

// leaks returns an error for each open object.
func (d *Device) leaks() error {
	var found []error
	for _, o := range d.OpenObjects() {
		found = append(found, fmt.Errorf("not closed: %v", o))
	}
	return errors.Join(found...)
}

// openCounts counts the open objects by the call that made them and their size.
func (d *Device) openCounts() map[Object]int {
	counts := map[Object]int{}
	for _, o := range d.OpenObjects() {
		counts[Object{By: o.By, Bytes: o.Bytes}]++
	}
	return counts
}

// panicked is a recovered panic.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// catch runs a function and returns a panic as an error.
func catch(run func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked{v, debug.Stack()}
		}
	}()
	return run()
}
