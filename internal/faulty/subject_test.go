package faulty_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/faulty"
)

// A subject that is kept has faults of its own.
func TestSweepFindsPlantedFaultsOfSubjects(t *testing.T) {
	first := func(number int, _ faulty.Call) bool { return number == 1 }
	for _, c := range []struct {
		name, reason string
		sweep        faulty.Sweep
		start        func(dev driver.Device, held *owner) (run func() error, err error)
		want         string
	}{
		{"in order", "memory that grows once, and is given back in the end", faulty.Sweep{Steady: true},
			func(dev driver.Device, held *owner) (func() error, error) {
				return func() error {
					if len(*held) > 0 {
						return query(dev)
					}
					return hold(dev, held)
				}, nil
			}, ""},
		{"does not start", "nothing is to be learned", faulty.Sweep{},
			func(driver.Device, *owner) (func() error, error) { return nil, errors.New("no model") }, "without a failure: no model"},
		{"a leak to its owner", "a failed run keeps what the next one does not use", faulty.Sweep{Steady: true},
			func(dev driver.Device, held *owner) (func() error, error) {
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
		{"a leak", "in spite of its Close", faulty.Sweep{},
			func(dev driver.Device, held *owner) (func() error, error) {
				_, err := dev.NewEvent()
				return func() error { return query(dev) }, err
			}, "not closed: Device.NewEvent"},
		{"no way out of loss", "a lost device is not made good", faulty.Sweep{Survives: func(faulty.Call) bool { return true }},
			func(dev driver.Device, held *owner) (func() error, error) {
				return func() error {
					query(dev)
					return nil
				}, nil
			}, "Device.Memory, failing number 1 of any call (device lost): the run succeeded"},
		{"a leak after a failure", "its owner forgets it", faulty.Sweep{Plans: []faulty.Plan{{}}},
			func(dev driver.Device, held *owner) (func() error, error) {
				err := hold(dev, held)
				return func() error {
					err := query(dev)
					if err != nil {
						*held = nil
					}
					return err
				}, err
			}, "Device.Memory, failing number 1 of any call: not closed: Device.Alloc"},
		{"a Close that fails", "though the device is well", faulty.Sweep{Plans: []faulty.Plan{{}}},
			func(dev driver.Device, held *owner) (func() error, error) {
				stuck := errors.New("stuck")
				return func() error {
					err := query(dev)
					if err != nil {
						*held = owner{closer(func() error { return stuck })}
					}
					return err
				}, nil
			}, "Device.Memory, failing number 1 of any call: closing the subject: stuck"},
		{"a Close that fails on a lost device", "as all does", faulty.Sweep{Plans: []faulty.Plan{{Kind: driver.ErrDeviceLost}}},
			func(dev driver.Device, held *owner) (func() error, error) {
				*held = owner{closer(func() error { return query(dev) })}
				return func() error { return query(dev) }, nil
			}, ""},
		{"the second call", "picked, and not in order", faulty.Sweep{Pick: func(number int, _ faulty.Call) bool { return number == 2 }},
			swallowSecond, "though Device.Memory, call 2, failed"},
		{"a round amidst", "it is not tried", faulty.Sweep{Ends: true}, swallowRound(2), ""},
		{"the first round", "it is tried", faulty.Sweep{Ends: true}, swallowRound(0), "though Device.Memory, call 1, failed"},
		{"the last round", "it is tried", faulty.Sweep{Ends: true}, swallowRound(4), "though Device.Memory, call 5, failed"},
		{"every round", "it is tried", faulty.Sweep{}, swallowRound(2), "though Device.Memory, call 3, failed"},
		{"the first call", "picked, and in order", faulty.Sweep{Pick: first}, swallowSecond, ""},
		{"no call", "none is picked", faulty.Sweep{Pick: func(int, faulty.Call) bool { return false }}, swallowSecond, "none was picked"},
		{"all calls", "the second is not in order", faulty.Sweep{}, swallowSecond, "though Device.Memory, call 2, failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.sweep.Start = func(dev driver.Device) (faulty.Subject, error) {
				held := new(owner)
				run, err := c.start(dev, held)
				return faulty.Subject{Run: run, Close: held.Close}, err
			}
			got := new(devices).find(t, c.sweep)
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: found %q, want %q", c.reason, got, c.want)
			}
		})
	}
}

// A device that does not close is a failure, and so is a subject that starts only once.
func TestSweepTellsOfDevices(t *testing.T) {
	for stuck, want := range map[int]string{1: "without a failure: stuck", 2: "call 1 of 2, Device.Alloc, failing number 1 of any call: stuck"} {
		d := &devices{stuck: func(n int) error {
			if n == stuck {
				return errors.New("stuck")
			}
			return nil
		}}
		if got := d.find(t, faulty.Sweep{Start: runner(alloc)}); got != want {
			t.Errorf("device %d does not close: found %q, want %q", stuck, got, want)
		}
	}
	started := 0
	start := func(dev driver.Device) (faulty.Subject, error) {
		if started++; started == 2 {
			return faulty.Subject{}, errors.New("spent")
		}
		return runner(alloc)(dev)
	}
	if got, want := new(devices).find(t, faulty.Sweep{Start: start}), "Device.Alloc, failing number 1 of any call: spent"; !strings.HasSuffix(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// hold takes memory that is given back with its owner.
func hold(dev driver.Device, held *owner) error {
	b, err := dev.Alloc(1)
	if err == nil {
		*held = append(*held, b)
	}
	return err
}

// closer is what has nothing but a Close.
type closer func() error

func (c closer) Close() error { return c() }

// swallowRound makes a call in each of five rounds and reports all but one.
func swallowRound(swallowed int) func(driver.Device, *owner) (func() error, error) {
	return func(dev driver.Device, _ *owner) (func() error, error) {
		return func() error {
			var errs []error
			for i := range 5 {
				err := query(dev)
				if i != swallowed {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		}, nil
	}
}

// swallowSecond makes two calls and reports the first.
func swallowSecond(dev driver.Device, _ *owner) (func() error, error) {
	return func() error {
		err := query(dev)
		query(dev)
		return err
	}, nil
}
