package faulty

import (
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

func (d *Device) unwrap() driver.Device { return d.inner }

// Properties are the inner device's.
func (d *Device) Properties() driver.Properties { return d.inner.Properties() }

// Err is nil, or why the device is lost, by plan or in earnest.
func (d *Device) Err() error {
	d.mu.Lock()
	lost := d.lost
	d.mu.Unlock()
	if lost != nil {
		return lost
	}
	return d.inner.Err()
}

// Memory is the inner device's.
func (d *Device) Memory() (free, total int64, err error) {
	err = d.call(DeviceMemory, func() error {
		free, total, err = d.inner.Memory()
		return err
	})
	return free, total, err
}

// Close closes the inner device, whether it is to fail or not.
func (d *Device) Close() error {
	_, err := d.begin(DeviceClose)
	if innerErr := d.inner.Close(); err == nil {
		err = innerErr
	}
	return err
}

type buffer struct{ object[driver.Buffer] }

// Alloc takes memory of the inner device.
func (d *Device) Alloc(bytes int64) (driver.Buffer, error) {
	o, err := makeObject(d, DeviceAlloc, BufferClose, bytes, func() (driver.Buffer, error) { return d.inner.Alloc(bytes) })
	if err != nil {
		return nil, err
	}
	return &buffer{o}, nil
}

func (b *buffer) Address() driver.Address { return b.inner.Address() }

type pinned struct{ object[driver.Pinned] }

// AllocPinned takes host memory of the inner device.
func (d *Device) AllocPinned(bytes int) (driver.Pinned, error) {
	o, err := makeObject(d, DeviceAllocPinned, PinnedClose, int64(bytes), func() (driver.Pinned, error) { return d.inner.AllocPinned(bytes) })
	if err != nil {
		return nil, err
	}
	return &pinned{o}, nil
}

func (p *pinned) Bytes() []byte           { return p.inner.Bytes() }
func (p *pinned) Address() driver.Address { return p.inner.Address() }

type module struct{ object[driver.Module] }

// Load compiles on the inner device.
func (d *Device) Load(ptx []byte) (driver.Module, error) {
	o, err := makeObject(d, DeviceLoad, ModuleClose, 0, func() (driver.Module, error) { return d.inner.Load(ptx) })
	if err != nil {
		return nil, err
	}
	return &module{o}, nil
}

func (m *module) Function(name string) (driver.Function, error) {
	f, err := ask(m.d, ModuleFunction, func() (driver.Function, error) { return m.inner.Function(name) })
	if err != nil {
		return nil, err
	}
	return &function{m.d, f}, nil
}

type function struct {
	d     *Device
	inner driver.Function
}

func (f *function) unwrap() driver.Function { return f.inner }
func (f *function) Name() string            { return f.inner.Name() }

func (f *function) PreferShared(percent int) { f.inner.PreferShared(percent) }

type event struct{ object[driver.Event] }

// NewEvent makes an event of the inner device.
func (d *Device) NewEvent() (driver.Event, error) {
	o, err := makeObject(d, DeviceNewEvent, EventClose, 0, d.inner.NewEvent)
	if err != nil {
		return nil, err
	}
	return &event{o}, nil
}

func (e *event) Synchronize() error { return e.d.call(EventSynchronize, e.inner.Synchronize) }

func (e *event) Since(earlier driver.Event) (time.Duration, error) {
	return ask(e.d, EventSince, func() (time.Duration, error) { return e.inner.Since(bare(earlier)) })
}
