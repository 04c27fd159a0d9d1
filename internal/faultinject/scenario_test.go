package faultinject_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/faultinject"
)

// TestSweepFindsBugsOfKeptScenarios plants bugs in scenarios that keep objects open between runs.
func TestSweepFindsBugsOfKeptScenarios(t *testing.T) {
	first := func(number int, _ faultinject.Call) bool { return number == 1 }
	for _, c := range []struct {
		name  string
		sweep faultinject.Sweep
		start func(dev driver.Device, held *closers) (run func() error, err error)
		want  string
	}{
		{"memory that grows once", faultinject.Sweep{NoGrowth: true},
			func(dev driver.Device, held *closers) (func() error, error) {
				return func() error {
					if len(*held) > 0 {
						return query(dev)
					}
					return hold(dev, held)
				}, nil
			}, ""},
		{"start fails", faultinject.Sweep{},
			func(driver.Device, *closers) (func() error, error) { return nil, errors.New("no model") }, "without a failure: no model"},
		{"a failed run keeps memory that later runs do not use", faultinject.Sweep{NoGrowth: true},
			func(dev driver.Device, held *closers) (func() error, error) {
				return func() error {
					if err := hold(dev, held); err != nil {
						return err
					}
					if err := query(dev); err != nil {
						return err
					}
					last := (*held)[len(*held)-1]
					*held = (*held)[:len(*held)-1]
					return last.Close()
				}, nil
			}, "Device.Memory, failing number 2 of any call: after another run map[Device.Alloc, 1 bytes:1] are open, without the failure map[]"},
		{"Close leaves an object open", faultinject.Sweep{},
			func(dev driver.Device, held *closers) (func() error, error) {
				_, err := dev.NewEvent()
				return func() error { return query(dev) }, err
			}, "not closed: Device.NewEvent"},
		{"success on a lost device", faultinject.Sweep{Recovers: func(faultinject.Call) bool { return true }},
			func(dev driver.Device, held *closers) (func() error, error) {
				return func() error {
					query(dev)
					return nil
				}, nil
			}, "Device.Memory, failing number 1 of any call (device lost): the run succeeded"},
		{"a failed run drops an open object", faultinject.Sweep{Plans: []faultinject.Plan{{}}},
			func(dev driver.Device, held *closers) (func() error, error) {
				err := hold(dev, held)
				return func() error {
					err := query(dev)
					if err != nil {
						*held = nil
					}
					return err
				}, err
			}, "Device.Memory, failing number 1 of any call: not closed: Device.Alloc"},
		{"a Close that fails", faultinject.Sweep{Plans: []faultinject.Plan{{}}},
			func(dev driver.Device, held *closers) (func() error, error) {
				stuck := errors.New("stuck")
				return func() error {
					err := query(dev)
					if err != nil {
						*held = closers{closeFunc(func() error { return stuck })}
					}
					return err
				}, nil
			}, "Device.Memory, failing number 1 of any call: closing the scenario: stuck"},
		{"a Close that fails on a lost device", faultinject.Sweep{Plans: []faultinject.Plan{{Kind: driver.ErrDeviceLost}}},
			func(dev driver.Device, held *closers) (func() error, error) {
				*held = closers{closeFunc(func() error { return query(dev) })}
				return func() error { return query(dev) }, nil
			}, ""},
		{"the second call alone, its error ignored", faultinject.Sweep{Filter: func(number int, _ faultinject.Call) bool { return number == 2 }},
			ignoreSecond, "though Device.Memory, call 2, failed"},
		{"an iteration in the middle, not tried", faultinject.Sweep{FirstAndLast: true}, ignoreIteration(2), ""},
		{"the first iteration", faultinject.Sweep{FirstAndLast: true}, ignoreIteration(0), "though Device.Memory, call 1, failed"},
		{"the last iteration", faultinject.Sweep{FirstAndLast: true}, ignoreIteration(4), "though Device.Memory, call 5, failed"},
		{"every iteration", faultinject.Sweep{}, ignoreIteration(2), "though Device.Memory, call 3, failed"},
		{"the first call alone, its error returned", faultinject.Sweep{Filter: first}, ignoreSecond, ""},
		{"no call", faultinject.Sweep{Filter: func(int, faultinject.Call) bool { return false }}, ignoreSecond, "no call of the run matches"},
		{"all calls", faultinject.Sweep{}, ignoreSecond, "though Device.Memory, call 2, failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.sweep.Start = func(dev driver.Device) (faultinject.Scenario, error) {
				held := new(closers)
				run, err := c.start(dev, held)
				return faultinject.Scenario{Run: run, Close: held.Close}, err
			}
			got := new(devices).find(t, c.sweep)
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// TestSweepReportsDeviceAndStartErrors covers a device that fails to close and a scenario that
// starts only once.
func TestSweepReportsDeviceAndStartErrors(t *testing.T) {
	for stuck, want := range map[int]string{1: "without a failure: stuck", 2: "call 1 of 2, Device.Alloc, failing number 1 of any call: stuck"} {
		d := &devices{stuck: func(n int) error {
			if n == stuck {
				return errors.New("stuck")
			}
			return nil
		}}
		if got := d.find(t, faultinject.Sweep{Start: runner(alloc)}); got != want {
			t.Errorf("device %d does not close: found %q, want %q", stuck, got, want)
		}
	}
	started := 0
	start := func(dev driver.Device) (faultinject.Scenario, error) {
		if started++; started == 2 {
			return faultinject.Scenario{}, errors.New("spent")
		}
		return runner(alloc)(dev)
	}
	if got, want := new(devices).find(t, faultinject.Sweep{Start: start}), "Device.Alloc, failing number 1 of any call: spent"; !strings.HasSuffix(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// hold allocates memory and adds it to held.
func hold(dev driver.Device, held *closers) error {
	b, err := dev.Alloc(1)
	if err == nil {
		*held = append(*held, b)
	}
	return err
}

type closeFunc func() error

func (c closeFunc) Close() error { return c() }

// ignoreIteration makes a call in each of five iterations and ignores one error.
func ignoreIteration(ignored int) func(driver.Device, *closers) (func() error, error) {
	return func(dev driver.Device, _ *closers) (func() error, error) {
		return func() error {
			var errs []error
			for i := range 5 {
				err := query(dev)
				if i != ignored {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		}, nil
	}
}

// ignoreSecond makes two calls and ignores the second error.
func ignoreSecond(dev driver.Device, _ *closers) (func() error, error) {
	return func() error {
		err := query(dev)
		query(dev)
		return err
	}, nil
}
