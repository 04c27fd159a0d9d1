package faulty_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/faulty"
	"github.com/lockstep-go/lockstep/internal/modules"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// owner closes what it was given, last first.
type owner []interface{ Close() error }

func (o *owner) Close() error {
	var errs []error
	for _, c := range slices.Backward(*o) {
		errs = append(errs, c.Close())
	}
	*o = nil
	return errors.Join(errs...)
}

// bench is what kernels are measured with: memory, a stream, an event, a set of kernels.
type bench struct {
	owner
	stream driver.Stream
	x, y   driver.Buffer
	end    driver.Event
	set    *modules.Set
}

func newBench(dev driver.Device) (*bench, error) {
	b := &bench{set: modules.New(dev)}
	b.owner = owner{b.set}
	err := b.fill(dev)
	if err != nil {
		err = errors.Join(err, b.Close())
	}
	return b, err
}

func (b *bench) fill(dev driver.Device) (err error) {
	if b.stream, err = dev.NewStream(); err != nil {
		return err
	}
	b.owner = append(b.owner, b.stream)
	for _, p := range []*driver.Buffer{&b.x, &b.y} {
		if *p, err = dev.Alloc(worldBytes); err != nil {
			return err
		}
		b.owner = append(b.owner, *p)
	}
	if b.end, err = dev.NewEvent(); err != nil {
		return err
	}
	b.owner = append(b.owner, b.end)
	return b.stream.Write(b.x.Address(), floats(1, 2, 3, 4, 5, 6, 7, 8))
}

// double runs a kernel by way of run and looks at what it computed.
func (b *bench) double(k *ptx.Kernel, run func(driver.Stream, driver.Launch) error) error {
	args := ptxgen.ElementwiseArgs{X: uint64(b.x.Address()), Y: uint64(b.y.Address()), Rows: 1, Width: width, Scale: 2}
	pl, err := ptxgen.Elementwise{}.Launch(k, args)
	if err != nil {
		return err
	}
	l, err := b.set.Launch(pl)
	if err != nil {
		return err
	}
	if err := b.stream.Fill(b.y.Address(), 0, worldBytes); err != nil {
		return err
	}
	if err := run(b.stream, l); err != nil {
		return err
	}
	if err := b.stream.Record(b.end); err != nil {
		return err
	}
	if err := b.end.Synchronize(); err != nil {
		return err
	}
	got := make([]byte, worldBytes)
	if err := b.stream.Read(got, b.y.Address()); err != nil {
		return err
	}
	if want := floats(2, 4, 6, 8, 10, 12, 14, 16); !bytes.Equal(got, want) {
		return fmt.Errorf("computed %v, want %v", got, want)
	}
	return nil
}

func eagerly(s driver.Stream, l driver.Launch) error { return s.Launch(l) }

// asGraph captures the launch and runs that.
func asGraph(s driver.Stream, l driver.Launch) (err error) {
	g, err := s.Capture(func() error { return s.Launch(l) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	return g.Launch(s)
}

// asGraphIfPossible falls back to launching.
func asGraphIfPossible(s driver.Stream, l driver.Launch) error {
	if err := asGraph(s, l); err == nil || errors.Is(err, driver.ErrDeviceLost) {
		return err
	}
	return s.Launch(l)
}

// graphCalls are those that asGraph makes.
func graphCalls(c faulty.Call) bool {
	switch c {
	case faulty.StreamCapture, faulty.StreamEndCapture, faulty.StreamInstantiate, faulty.GraphLaunch, faulty.StreamLaunch:
		return true
	}
	return false
}

func openDevice(t *testing.T) func() driver.Device {
	return func() driver.Device { return openInner(t) }
}

// everyPlan are ways for a call to fail, alone or for good.
var everyPlan = []faulty.Plan{
	{}, {Onward: true}, {Kind: driver.ErrDeviceLost}, {Kind: driver.ErrOutOfMemory}, {Call: faulty.DeviceAlloc, Onward: true},
}

// Kernels as they are measured, with everything made and given back in each run.
func TestEachCallOfABench(t *testing.T) {
	k := must(ptxgen.Elementwise{}.Build())(t)
	for _, run := range []func(driver.Stream, driver.Launch) error{eagerly, asGraph} {
		faulty.EachCall(t, openDevice(t), func(dev driver.Device) (err error) {
			b, err := newBench(dev)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			return b.double(k, run)
		}, everyPlan...)
	}
}

// A bench that is kept serves the run after the failure, too: its set of kernels loads
// what it could not load before.
func TestSweepOfAKeptBench(t *testing.T) {
	k := must(ptxgen.Elementwise{}.Build())(t)
	for _, c := range []struct {
		name     string
		run      func(driver.Stream, driver.Launch) error
		plans    []faulty.Plan
		survives func(faulty.Call) bool
	}{
		{"eagerly", eagerly, everyPlan[:4], nil},
		{"as a graph", asGraph, everyPlan[:4], nil},
		{"with a way out", asGraphIfPossible, []faulty.Plan{{}, {Kind: driver.ErrDeviceLost}}, graphCalls},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := func(dev driver.Device) (faulty.Subject, error) {
				b, err := newBench(dev)
				return faulty.Subject{Run: func() error { return b.double(k, c.run) }, Close: b.Close}, err
			}
			faulty.Sweep{Open: openDevice(t), Start: start, Plans: c.plans, Survives: c.survives, Steady: true}.Check(t)
		})
	}
}
