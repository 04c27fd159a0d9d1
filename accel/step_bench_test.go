package accel_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
)

// idle is a device whose streams do nothing, at once: what is left of a step is what the
// host does.
type idle struct{ driver.Device }

func (idle) NewStream() (driver.Stream, error) { return idleStream{}, nil }
func (idle) NewEvent() (driver.Event, error)   { return idleEvent{}, nil }

// AllocPinned gives memory in which every token is 0.
func (d idle) AllocPinned(bytes int) (driver.Pinned, error) {
	p, err := d.Device.AllocPinned(bytes)
	if err == nil {
		clear(p.Bytes())
	}
	return p, err
}

type idleStream struct{}

func (idleStream) Launch(...driver.Launch) error                            { return nil }
func (idleStream) Write(driver.Address, []byte) error                       { return nil }
func (idleStream) Read([]byte, driver.Address) error                        { return nil }
func (idleStream) WriteAsync(driver.Address, driver.Pinned, int, int) error { return nil }
func (idleStream) ReadAsync(driver.Pinned, int, driver.Address, int) error  { return nil }
func (idleStream) Copy(driver.Address, driver.Address, int64) error         { return nil }
func (idleStream) Fill(driver.Address, byte, int64) error                   { return nil }
func (idleStream) Record(driver.Event) error                                { return nil }
func (idleStream) Synchronize() error                                       { return nil }
func (idleStream) Close() error                                             { return nil }
func (idleStream) Capture(record func() error) (driver.Graph, error)        { return idleGraph{}, record() }

type idleGraph struct{}

func (idleGraph) Launch(driver.Stream) error { return nil }
func (idleGraph) Close() error               { return nil }

type idleEvent struct{}

func (idleEvent) Synchronize() error                        { return nil }
func (idleEvent) Since(driver.Event) (time.Duration, error) { return 0, nil }
func (idleEvent) Close() error                              { return nil }

// idleEngine is a tiny model on a device that does nothing.
func idleEngine(t testing.TB, o accel.Options) *accel.Engine {
	t.Helper()
	return idleEngineOf(t, tinyModel(t), o, func(d driver.Device) driver.Device { return idle{d} })
}

func idleEngineOf(t testing.TB, m *model.Model, o accel.Options, as func(driver.Device) driver.Device) *accel.Engine {
	t.Helper()
	dev, err := emu.Open(emu.Options{SMs: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	e, err := accel.New(t.Context(), m, as(dev), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

var feed = []int{0}

// longest is how many steps a session takes before it is truncated.
const longest = 60

// greedySteps lets a session go on so many times. Every token is 0.
func greedySteps(t testing.TB, s model.Session, n int) {
	for range n {
		if s.Len() == longest {
			if err := s.Truncate(1); err != nil {
				t.Error(err)
				return
			}
		}
		if out, err := s.Forward(context.Background(), feed, model.WantGreedy); err != nil || out.Greedy != feed[0] {
			t.Errorf("token %d, error %v", out.Greedy, err)
			return
		}
	}
}

// BenchmarkStep is what the host does for a greedy step.
func BenchmarkStep(b *testing.B) {
	for _, c := range []struct {
		name string
		o    accel.Options
	}{{"ahead", accel.Options{}}, {"asked", accel.Options{SyncScheduling: true}}, {"eager", accel.Options{Eager: true}}} {
		b.Run(c.name, func(b *testing.B) {
			s := opened(b, idleEngine(b, c.o))
			b.ReportAllocs()
			b.ResetTimer()
			greedySteps(b, s, b.N)
		})
	}
}

// opened is a session that is past its prompt.
func opened(t testing.TB, e *accel.Engine) model.Session {
	t.Helper()
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	greedySteps(t, s, 4)
	return s
}

// TestStepAllocations wants a greedy step to allocate nothing, in any of the ways that it
// is queued.
func TestStepAllocations(t *testing.T) {
	for _, o := range []accel.Options{{}, {SyncScheduling: true}, {Eager: true}} {
		s := opened(t, idleEngine(t, o))
		if n := testing.AllocsPerRun(40, func() { greedySteps(t, s, 1) }); n > 0 {
			t.Errorf("%+v: %v allocations a step", o, n)
		}
	}
}
