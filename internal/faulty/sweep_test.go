package faulty_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/faulty"
)

// recorder is a test whose failures are wanted.
type recorder struct{ failures []string }

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// devices counts those that a sweep opens and closes.
type devices struct {
	opened, closed int
	stuck          func(n int) error // what closing the nth says; nil: nothing
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

// find runs a sweep, demands that it closed all devices and says what it found.
func (d *devices) find(t testing.TB, s faulty.Sweep) string {
	t.Helper()
	var r recorder
	s.Open = func() driver.Device { return d.open(t) }
	s.Check(&r)
	if d.opened != d.closed {
		t.Errorf("opened %d devices and closed %d", d.opened, d.closed)
	}
	return strings.Join(r.failures, "\n")
}

// runner is a subject that is nothing but a run.
func runner(run func(driver.Device) error) func(driver.Device) (faulty.Subject, error) {
	return func(dev driver.Device) (faulty.Subject, error) {
		return faulty.Subject{Run: func() error { return run(dev) }}, nil
	}
}

// query makes a call that leaves nothing to close.
func query(dev driver.Device) error {
	_, _, err := dev.Memory()
	return err
}

// alloc takes memory and gives it back.
func alloc(dev driver.Device) error {
	b, err := dev.Alloc(1)
	if err != nil {
		return err
	}
	return b.Close()
}

// Sweeps see what is wrong with a run.
func TestSweepFindsPlantedFaults(t *testing.T) {
	var leaked, remembered error
	turn := 0
	for _, c := range []struct {
		name, reason string
		run          func(driver.Device) error
		plans        []faulty.Plan
		want         string // in one of the failures; "" when all is well
	}{
		{"in order", "the plainest run", alloc, nil, ""},
		{"a leak", "of a run that succeeds", func(dev driver.Device) error {
			_, err := dev.Alloc(1)
			return err
		}, nil, "without a failure: not closed: Device.Alloc, call 1, 1 bytes, at sweep_test.go:"},
		{"a leak on failure", "the first is not closed when the second fails", func(dev driver.Device) error {
			a, err := dev.Alloc(1)
			if err != nil {
				return err
			}
			if err := alloc(dev); err != nil {
				return err
			}
			return a.Close()
		}, nil, "call 2 of 4, Device.Alloc, failing number 2 of any call: not closed: Device.Alloc, call 1"},
		{"a leak on a failed Close", "the second Close is not made", func(dev driver.Device) error {
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
		{"an error swallowed", "the run cannot have done its work", func(dev driver.Device) error {
			query(dev)
			return alloc(dev)
		}, nil, "the run succeeded, though Device.Memory, call 1, failed"},
		{"a Close's error swallowed", "all is given back", func(dev driver.Device) error {
			b, err := dev.Alloc(1)
			if err == nil {
				b.Close()
			}
			return err
		}, []faulty.Plan{{}, {Onward: true}}, ""},
		{"loss swallowed", "the next run must say so", func(dev driver.Device) error {
			b, err := dev.Alloc(1)
			if err == nil {
				b.Close()
			}
			if errors.Is(err, driver.ErrDeviceLost) && leaked == nil {
				leaked = err
				return err
			}
			return nil
		}, []faulty.Plan{{Kind: driver.ErrDeviceLost}}, "and the run after it says: <nil>"},
		{"the error's text alone", "callers cannot tell what it was", func(dev driver.Device) error {
			if err := alloc(dev); err != nil {
				return fmt.Errorf("no memory: %v", err)
			}
			return nil
		}, nil, "the run's error does not wrap the one planned: no memory"},
		{"another error", "the cause is lost", func(dev driver.Device) error {
			if alloc(dev) != nil {
				return driver.ErrOutOfMemory
			}
			return nil
		}, nil, "the run's error does not wrap the one planned"},
		{"a failure remembered", "the device is well again", func(dev driver.Device) error {
			if remembered == nil {
				remembered = alloc(dev)
			}
			return remembered
		}, nil, "the run after it failed"},
		{"a panic", "clean-up of what was never made", func(dev driver.Device) error {
			a, err := dev.Alloc(1)
			return errors.Join(err, a.Close())
		}, nil, "panic: runtime error: invalid memory address"},
		{"failing by itself", "nothing is to be learned", func(dev driver.Device) error {
			return errors.Join(alloc(dev), errors.New("broken"))
		}, nil, "without a failure: broken"},
		{"no calls", "nothing is tried", func(driver.Device) error { return nil }, nil, "the run makes no call"},
		{"no such call", "nothing is tried", alloc, []faulty.Plan{{Call: faulty.StreamCapture}}, "failing number 0 of Stream.Capture: the run makes no such call"},
		{"a call less each time", "the plan is not met", func(dev driver.Device) error {
			if turn++; turn == 1 {
				return errors.Join(query(dev), alloc(dev))
			}
			return alloc(dev)
		}, nil, "call 3 of 3, Buffer.Close, failing number 3 of any call: the call was not made"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := new(devices).find(t, faulty.Sweep{Start: runner(c.run), Plans: c.plans})
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: found %q, want %q", c.reason, got, c.want)
			}
		})
	}
}
