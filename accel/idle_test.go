package accel_test

import (
	"testing"
	"time"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/model"
)

// idleDevice runs nothing: its streams return at once. What remains of a step is the host's
// work.
type idleDevice struct{ driver.Device }

func (idleDevice) NewStream() (driver.Stream, error) { return idleStream{}, nil }
func (idleDevice) NewEvent() (driver.Event, error)   { return idleEvent{}, nil }

// AllocPinned returns zeros, so that every chosen token is 0.
func (d idleDevice) AllocPinned(bytes int) (driver.Pinned, error) {
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

// idleEngine returns an engine of a tiny model on an idle device.
func idleEngine(t testing.TB, o accel.Options) *accel.Engine {
	t.Helper()
	return newEngine(t, tinyModel(t), o, func(d driver.Device) driver.Device { return idleDevice{d} })
}

// newEngine returns an engine on an emulated device that wrap wraps.
func newEngine(t testing.TB, m *model.Model, o accel.Options, wrap func(driver.Device) driver.Device) *accel.Engine {
	t.Helper()
	dev, err := emu.Open(emu.Options{SMs: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	e, err := accel.New(t.Context(), m, wrap(dev), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}
