package faulty

import (
	"errors"
	"fmt"
	"maps"
	"runtime/debug"

	"github.com/lockstep-go/lockstep/driver"
)

// T is what a sweep needs of a test.
type T interface {
	Helper()
	Errorf(format string, args ...any)
}

// Subject is what a sweep tries, on one device.
type Subject struct {
	// Run does the same calls each time.
	Run func() error
	// Close gives back what is still open. nil: Run closes all that it makes, and this
	// is demanded after each.
	Close func() error
}

// Sweep fails each call of a run in turn.
type Sweep struct {
	// Open makes a device, which the sweep closes.
	Open func() driver.Device
	// Start prepares a subject; none of its calls fails.
	Start func(driver.Device) (Subject, error)
	// Plans say how calls fail; N is the sweep's. nil: a call alone, a call and all
	// after it, and a call that loses the device.
	Plans []Plan
	// Survives tells of which calls' failures the run may make good, as long as the
	// device is not lost. nil: of none but Closes, of which it always may.
	Survives func(Call) bool
	// Steady demands that, after the run with the failure and another one, as much is
	// open as after two runs without: nothing leaked to an owner that closes it in the end.
	Steady bool
	// Ends tries, of the calls that a run makes at one place, the first and the last: of
	// a loop's its first round and its last. A place is a chain of source lines.
	Ends bool
	// Pick chooses the calls of a run that are worth trying, by their number in it from
	// 1. nil: all.
	Pick func(number int, c Call) bool
}

// EachCall fails each call of run in turn, as plans say; see Sweep, whose Subject it
// is. run closes all that it makes, whether it succeeds or not. A run whose calls are in
// another order each time, because goroutines race for them, is no subject: Fail a
// Device's calls one at a time there.
func EachCall(t T, open func() driver.Device, run func(driver.Device) error, plans ...Plan) {
	t.Helper()
	start := func(dev driver.Device) (Subject, error) {
		return Subject{Run: func() error { return run(dev) }}, nil
	}
	Sweep{Open: open, Start: start, Plans: plans}.Check(t)
}

// Check runs the subject once to count its calls. Then it tries each call of the run
// and each plan on a new device, and demands that
//   - the run fails with an error that wraps the planned one; or succeeds, if all that
//     failed it may make good,
//   - the subject then runs as if nothing had happened; or fails with ErrDeviceLost, if
//     the device is lost,
//   - in the end nothing is open.
func (s Sweep) Check(t T) {
	t.Helper()
	c, err := s.count()
	if err != nil {
		t.Errorf("without a failure: %v", err)
		return
	}
	plans := s.Plans
	if len(plans) == 0 {
		plans = []Plan{{}, {Onward: true}, {Kind: driver.ErrDeviceLost}}
	}
	for _, p := range plans {
		s.checkPlan(t, p, c)
	}
}

// checkPlan tries each call that the plan is about.
func (s Sweep) checkPlan(t T, p Plan, without counted) {
	t.Helper()
	tried := 0
	p.N = 0
	for i, c := range without.calls {
		if p.Call != Any && p.Call != c {
			continue
		}
		p.N++
		if s.Ends && !without.ends[i] || s.Pick != nil && !s.Pick(i+1, c) {
			continue
		}
		tried++
		if err := s.try(p, without); err != nil {
			t.Errorf("call %d of %d, %v, %v: %v", i+1, len(without.calls), c, p, err)
		}
	}
	if tried == 0 {
		t.Errorf("%v: the run makes no such call, or none was picked", p)
	}
}

// String says what a plan fails.
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

// counted is what a run in which nothing fails does.
type counted struct {
	calls []Call
	ends  []bool         // which are the first or the last at their place
	holds map[Object]int // what is open after a second one, if the sweep is steady
}

func (s Sweep) count() (c counted, err error) {
	dev := New(s.Open())
	subject, err := s.Start(dev)
	if err != nil {
		return c, errors.Join(err, dev.Close())
	}
	dev.trace()
	err = guard(subject.Run)
	calls, places := dev.traced()
	c.calls, c.ends = calls, ends(places)
	if len(c.calls) == 0 {
		err = errors.Join(err, errors.New("the run makes no call"))
	}
	if s.Steady {
		err = errors.Join(err, guard(subject.Run))
		c.holds = dev.holds()
	}
	if subject.Close != nil {
		err = errors.Join(err, guard(subject.Close))
	}
	return c, errors.Join(err, dev.nothingOpen(), dev.Close())
}

// ends marks the first and the last at each place.
func ends(places []place) []bool {
	marks := make([]bool, len(places))
	last := map[place]int{}
	for i, p := range places {
		if _, ok := last[p]; !ok {
			marks[i] = true
		}
		last[p] = i
	}
	for _, i := range last {
		marks[i] = true
	}
	return marks
}

// try runs a subject under a plan, then without; it says all that was wrong.
func (s Sweep) try(p Plan, without counted) error {
	dev := New(s.Open())
	subject, err := s.Start(dev)
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	dev.Fail(p)
	err = guard(subject.Run)
	dev.Fail(Plan{})
	found := []error{s.judge(dev, err)}
	if errors.As(err, new(panicked)) { // and may have left a lock behind
		return errors.Join(append(found, dev.Close())...)
	}
	if subject.Close == nil {
		found = append(found, dev.nothingOpen())
	}
	found = append(found, dev.goesOn(guard(subject.Run)))
	if holds := dev.holds(); s.Steady && dev.Err() == nil && !maps.Equal(holds, without.holds) {
		found = append(found, fmt.Errorf("after another run %v are open, without the failure %v", holds, without.holds))
	}
	if subject.Close != nil {
		if err := guard(subject.Close); err != nil && dev.Err() == nil {
			found = append(found, fmt.Errorf("closing the subject: %w", err))
		}
		found = append(found, dev.nothingOpen())
	}
	return errors.Join(append(found, dev.Close())...)
}

// judge holds what a run said to what failed.
func (s Sweep) judge(dev *Device, err error) error {
	injected := dev.Injected()
	if len(injected) == 0 {
		return errors.Join(errors.New("the call was not made: the run is not the same each time"), err)
	}
	for _, i := range injected {
		switch {
		case err != nil && errors.Is(err, i.Err):
			return nil
		case err == nil && !s.mayHide(i):
			return fmt.Errorf("the run succeeded, though %v, call %d, failed", i.Call, i.Number)
		}
	}
	if err != nil {
		return fmt.Errorf("the run's error does not wrap the one planned: %w", err)
	}
	return nil
}

// mayHide says whether a run may succeed in spite of a failure.
func (s Sweep) mayHide(i Injected) bool {
	if i.Call.Closes() {
		return true
	}
	return s.Survives != nil && s.Survives(i.Call) && !errors.Is(i.Err, driver.ErrDeviceLost)
}

// goesOn judges the run after the one with the failure.
func (d *Device) goesOn(err error) error {
	lost := d.Err()
	switch {
	case lost == nil && err != nil:
		return fmt.Errorf("the run after it failed: %w", err)
	case lost != nil && !errors.Is(err, driver.ErrDeviceLost):
		return fmt.Errorf("the device is lost (%v), and the run after it says: %v", lost, err)
	}
	return nil
}

// nothingOpen names what is open.
func (d *Device) nothingOpen() error {
	var found []error
	for _, o := range d.Open() {
		found = append(found, fmt.Errorf("not closed: %v", o))
	}
	return errors.Join(found...)
}

// holds counts what is open, by what made it and size.
func (d *Device) holds() map[Object]int {
	list := map[Object]int{}
	for _, o := range d.Open() {
		list[Object{By: o.By, Bytes: o.Bytes}]++
	}
	return list
}

// panicked is a panic as an error: clean-up after a failure is where they are made.
type panicked struct {
	value any
	stack []byte
}

func (p panicked) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

func guard(run func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked{v, debug.Stack()}
		}
	}()
	return run()
}
