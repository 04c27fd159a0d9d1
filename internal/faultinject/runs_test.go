package faultinject_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/internal/kernelcache"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// closers closes its elements, last first.
type closers []interface{ Close() error }

func (o *closers) Close() error {
	var errs []error
	for _, c := range slices.Backward(*o) {
		errs = append(errs, c.Close())
	}
	*o = nil
	return errors.Join(errs...)
}

// workload runs kernels with memory, a stream and an event.
type workload struct {
	closers
	stream driver.Stream
	x, y   driver.Buffer
	end    driver.Event
	set    *kernelcache.Cache
}

func newWorkload(dev driver.Device) (*workload, error) {
	b := &workload{set: kernelcache.New(dev)}
	b.closers = closers{b.set}
	err := b.fill(dev)
	if err != nil {
		err = errors.Join(err, b.Close())
	}
	return b, err
}

func (b *workload) fill(dev driver.Device) (err error) {
	if b.stream, err = dev.NewStream(); err != nil {
		return err
	}
	b.closers = append(b.closers, b.stream)
	for _, p := range []*driver.Buffer{&b.x, &b.y} {
		if *p, err = dev.Alloc(rowBytes); err != nil {
			return err
		}
		b.closers = append(b.closers, *p)
	}
	if b.end, err = dev.NewEvent(); err != nil {
		return err
	}
	b.closers = append(b.closers, b.end)
	return b.stream.Write(b.x.Address(), floats(1, 2, 3, 4, 5, 6, 7, 8))
}

// double launches a kernel through run and checks its result.
func (b *workload) double(k *ptx.Kernel, run func(driver.Stream, driver.Launch) error) error {
	args := elementwise.FusedArgs{X: uint64(b.x.Address()), Y: uint64(b.y.Address()), Rows: 1, Width: width, Scale: 2}
	pl, err := elementwise.Fused().Launch(k, args)
	if err != nil {
		return err
	}
	l, err := b.set.Launch(pl)
	if err != nil {
		return err
	}
	if err := b.stream.Fill(b.y.Address(), 0, rowBytes); err != nil {
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
	got := make([]byte, rowBytes)
	if err := b.stream.Read(got, b.y.Address()); err != nil {
		return err
	}
	if want := floats(2, 4, 6, 8, 10, 12, 14, 16); !bytes.Equal(got, want) {
		return fmt.Errorf("computed %v, want %v", got, want)
	}
	return nil
}

func eagerly(s driver.Stream, l driver.Launch) error { return s.Launch(l) }

// asGraph captures the launch and runs the graph.
func asGraph(s driver.Stream, l driver.Launch) (err error) {
	g, err := s.Capture(func() error { return s.Launch(l) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	return g.Launch(s)
}

// asGraphOrEagerly launches the kernel directly if the graph fails.
func asGraphOrEagerly(s driver.Stream, l driver.Launch) error {
	if err := asGraph(s, l); err == nil || errors.Is(err, driver.ErrDeviceLost) {
		return err
	}
	return s.Launch(l)
}

// graphCalls reports whether asGraph makes the call.
func graphCalls(c faultinject.Call) bool {
	switch c {
	case faultinject.StreamCapture, faultinject.StreamEndCapture, faultinject.StreamInstantiate, faultinject.GraphLaunch, faultinject.StreamLaunch:
		return true
	}
	return false
}

func openDevice(t *testing.T) func() driver.Device {
	return func() driver.Device { return openInner(t) }
}

var everyPlan = []faultinject.Plan{
	{}, {Onward: true}, {Kind: driver.ErrDeviceLost}, {Kind: driver.ErrOutOfMemory}, {Call: faultinject.DeviceAlloc, Onward: true},
}

// TestSweepWorkloadPerRun makes and closes a workload in each run.
func TestSweepWorkloadPerRun(t *testing.T) {
	k := must(elementwise.Fused().Build())(t)
	for _, run := range []func(driver.Stream, driver.Launch) error{eagerly, asGraph} {
		start := runner(func(dev driver.Device) (err error) {
			b, err := newWorkload(dev)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, b.Close()) }()
			return b.double(k, run)
		})
		faultinject.Sweep{Open: openDevice(t), Start: start, Plans: everyPlan}.Check(t)
	}
}

// TestSweepKeptWorkload keeps one workload for all runs. The run after a failure loads the
// kernels that the failed run could not load.
func TestSweepKeptWorkload(t *testing.T) {
	k := must(elementwise.Fused().Build())(t)
	for _, c := range []struct {
		name     string
		run      func(driver.Stream, driver.Launch) error
		plans    []faultinject.Plan
		recovers func(faultinject.Call) bool
	}{
		{"eagerly", eagerly, everyPlan[:4], nil},
		{"as a graph", asGraph, everyPlan[:4], nil},
		{"as a graph or eagerly", asGraphOrEagerly, []faultinject.Plan{{}, {Kind: driver.ErrDeviceLost}}, graphCalls},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := func(dev driver.Device) (faultinject.Scenario, error) {
				b, err := newWorkload(dev)
				return faultinject.Scenario{Run: func() error { return b.double(k, c.run) }, Close: b.Close}, err
			}
			faultinject.Sweep{Open: openDevice(t), Start: start, Plans: c.plans, Recovers: c.recovers, NoGrowth: true}.Check(t)
		})
	}
}
