package faultinject_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/faultinject"
)

// recorder records the failures of a sweep.
type recorder struct{ failures []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// devices counts the devices that a sweep opens and closes.
type devices struct {
	opened, closed int
	stuck          func(n int) error // the error of the nth Close; nil: no error
}

type countedDevice struct {
	driver.Device
	of *devices
}

func (d *devices) open(t testing.TB) driver.Device {
	d.opened++
	return &countedDevice{openInner(t), d}
}

func (d *countedDevice) Close() error {
	d.of.closed++
	if d.of.stuck != nil {
		return d.of.stuck(d.of.closed)
	}
	return d.Device.Close()
}

// find runs a sweep, checks that it closed all devices and returns its failures.
func (d *devices) find(t testing.TB, s faultinject.Sweep) string {
	t.Helper()
	var r recorder
	s.Open = func() driver.Device { return d.open(t) }
	s.Check(&r)
	if d.opened != d.closed {
		t.Errorf("opened %d devices and closed %d", d.opened, d.closed)
	}
	return strings.Join(r.failures, "\n")
}

// runner returns the start of a scenario without a Close.
func runner(run func(driver.Device) error) func(driver.Device) (faultinject.Scenario, error) {
	return func(dev driver.Device) (faultinject.Scenario, error) {
		return faultinject.Scenario{Run: func() error { return run(dev) }}, nil
	}
}

// query makes a call that creates no object.
func query(dev driver.Device) error {
	_, _, err := dev.Memory()
	return err
}

// alloc allocates memory and frees it.
func alloc(dev driver.Device) error {
	b, err := dev.Alloc(1)
	if err != nil {
		return err
	}
	return b.Close()
}

// TestSweepFindsBugs plants a bug in each run.
func TestSweepFindsBugs(t *testing.T) {
	var leaked, remembered error
	runs := 0
	for _, c := range []struct {
		name  string
		run   func(driver.Device) error
		plans []faultinject.Plan
		want  string // part of a failure; "": no failure
	}{
		{"no bug", alloc, nil, ""},
		{"a leak in a run that succeeds", func(dev driver.Device) error {
			_, err := dev.Alloc(1)
			return err
		}, nil, "without a failure: not closed: Device.Alloc, call 1, 1 bytes, at sweep_test.go:"},
		{"the first object is not closed if the second fails", func(dev driver.Device) error {
			a, err := dev.Alloc(1)
			if err != nil {
				return err
			}
			if err := alloc(dev); err != nil {
				return err
			}
			return a.Close()
		}, nil, "call 2 of 4, Device.Alloc, failing number 2 of any call: not closed: Device.Alloc, call 1"},
		{"a Close is skipped after a failed Close", func(dev driver.Device) error {
			a, err := dev.NewEvent()
			if err != nil {
				return err
			}
			b, err := dev.NewStream()
			if err != nil {
				a.Close()
				return err
			}
			if err := b.Close(); err != nil {
				return err
			}
			return a.Close()
		}, nil, "Stream.Close, failing number 3 of any call: not closed: Device.NewEvent"},
		{"an error is ignored", func(dev driver.Device) error {
			query(dev)
			return alloc(dev)
		}, nil, "the run succeeded, though Device.Memory, call 1, failed"},
		{"the error of a Close is ignored", func(dev driver.Device) error {
			b, err := dev.Alloc(1)
			if err == nil {
				b.Close()
			}
			return err
		}, []faultinject.Plan{{}, {Onward: true}}, ""},
		{"a lost device is reported only once", func(dev driver.Device) error {
			b, err := dev.Alloc(1)
			if err == nil {
				b.Close()
			}
			if errors.Is(err, driver.ErrDeviceLost) && leaked == nil {
				leaked = err
				return err
			}
			return nil
		}, []faultinject.Plan{{Kind: driver.ErrDeviceLost}}, "but the next run returned <nil>"},
		{"the error is not wrapped", func(dev driver.Device) error {
			if err := alloc(dev); err != nil {
				return fmt.Errorf("no memory: %v", err)
			}
			return nil
		}, nil, "the run's error does not wrap the injected one: no memory"},
		{"another error is returned", func(dev driver.Device) error {
			if alloc(dev) != nil {
				return driver.ErrOutOfMemory
			}
			return nil
		}, nil, "the run's error does not wrap the injected one"},
		{"a failure is remembered", func(dev driver.Device) error {
			if remembered == nil {
				remembered = alloc(dev)
			}
			return remembered
		}, nil, "the next run failed"},
		{"a panic", func(dev driver.Device) error {
			a, err := dev.Alloc(1)
			return errors.Join(err, a.Close())
		}, nil, "panic: runtime error: invalid memory address"},
		{"the run fails by itself", func(dev driver.Device) error {
			return errors.Join(alloc(dev), errors.New("broken"))
		}, nil, "without a failure: broken"},
		{"no calls", func(driver.Device) error { return nil }, nil, "the run makes no call"},
		{"no call that the plan counts", alloc, []faultinject.Plan{{Call: faultinject.StreamCapture}}, "failing number 0 of Stream.Capture: no call of the run matches"},
		{"a run that varies", func(dev driver.Device) error {
			if runs++; runs == 1 {
				return errors.Join(query(dev), alloc(dev))
			}
			return alloc(dev)
		}, nil, "call 3 of 3, Buffer.Close, failing number 3 of any call: the call was not made"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := new(devices).find(t, faultinject.Sweep{Start: runner(c.run), Plans: c.plans})
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
