package faultinject

import (
	"slices"
	"time"

	"github.com/lockstep-go/lockstep/driver"
)

// do makes a call unless it is to fail.
func (d *Device) do(c Call, inner func() error) error {
	if _, err := d.begin(c); err != nil {
		return err
	}
	return inner()
}

// get makes a call with a result unless it is to fail.
func get[T any](d *Device, c Call, inner func() (T, error)) (T, error) {
	if _, err := d.begin(c); err != nil {
		var zero T
		return zero, err
	}
	return inner()
}

// unwrap returns the inner object of a wrapped one, and any other value as it is.
func unwrap[T any](x T) T {
	if w, ok := any(x).(interface{ unwrap() T }); ok {
		return w.unwrap()
	}
	return x
}

// Properties returns the inner device's properties.
func (d *Device) Properties() driver.Properties { return d.inner.Properties() }

// Err returns nil, or why this or the inner device is lost.
func (d *Device) Err() error {
	d.mu.Lock()
	lost := d.lost
	d.mu.Unlock()
	if lost != nil {
		return lost
	}
	return d.inner.Err()
}

// Memory returns the inner device's free and total memory.
func (d *Device) Memory() (free, total int64, err error) {
	err = d.do(DeviceMemory, func() error {
		free, total, err = d.inner.Memory()
		return err
	})
	return free, total, err
}

// Close closes the inner device, even if the call is to fail.
func (d *Device) Close() error {
	_, err := d.begin(DeviceClose)
	if innerErr := d.inner.Close(); err == nil {
		err = innerErr
	}
	return err
}

type buffer struct{ object[driver.Buffer] }

// Alloc allocates memory of the inner device.
func (d *Device) Alloc(bytes int64) (driver.Buffer, error) {
	o, err := create(d, DeviceAlloc, BufferClose, bytes, func() (driver.Buffer, error) { return d.inner.Alloc(bytes) })
	if err != nil {
		return nil, err
	}
	return &buffer{o}, nil
}

func (b *buffer) Address() driver.Address { return b.inner.Address() }

type pinned struct{ object[driver.Pinned] }

// AllocPinned allocates pinned memory of the inner device.
func (d *Device) AllocPinned(bytes int) (driver.Pinned, error) {
	o, err := create(d, DeviceAllocPinned, PinnedClose, int64(bytes), func() (driver.Pinned, error) { return d.inner.AllocPinned(bytes) })
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
	o, err := create(d, DeviceLoad, ModuleClose, 0, func() (driver.Module, error) { return d.inner.Load(ptx) })
	if err != nil {
		return nil, err
	}
	return &module{o}, nil
}

func (m *module) Function(name string) (driver.Function, error) {
	f, err := get(m.d, ModuleFunction, func() (driver.Function, error) { return m.inner.Function(name) })
	if err != nil {
		return nil, err
	}
	return &function{f}, nil
}

type function struct{ inner driver.Function }

func (f *function) unwrap() driver.Function { return f.inner }
func (f *function) Name() string            { return f.inner.Name() }

type event struct{ object[driver.Event] }

// NewEvent creates an event of the inner device.
func (d *Device) NewEvent() (driver.Event, error) {
	o, err := create(d, DeviceNewEvent, EventClose, 0, d.inner.NewEvent)
	if err != nil {
		return nil, err
	}
	return &event{o}, nil
}

func (e *event) Synchronize() error { return e.d.do(EventSynchronize, e.inner.Synchronize) }

func (e *event) Since(earlier driver.Event) (time.Duration, error) {
	return get(e.d, EventSince, func() (time.Duration, error) { return e.inner.Since(unwrap(earlier)) })
}

type stream struct{ object[driver.Stream] }

// NewStream creates a stream of the inner device.
func (d *Device) NewStream() (driver.Stream, error) {
	o, err := create(d, DeviceNewStream, StreamClose, 0, d.inner.NewStream)
	if err != nil {
		return nil, err
	}
	return &stream{o}, nil
}

// Launch fails as a whole: if it is to fail, none of its kernels is queued.
func (s *stream) Launch(launches ...driver.Launch) error {
	return s.d.do(StreamLaunch, func() error {
		list := slices.Clone(launches) // the caller's slice must not change
		for i := range list {
			list[i].Function = unwrap(list[i].Function)
		}
		return s.inner.Launch(list...)
	})
}

func (s *stream) Write(dst driver.Address, src []byte) error {
	return s.d.do(StreamWrite, func() error { return s.inner.Write(dst, src) })
}

func (s *stream) Read(dst []byte, src driver.Address) error {
	return s.d.do(StreamRead, func() error { return s.inner.Read(dst, src) })
}

func (s *stream) WriteAsync(dst driver.Address, src driver.Pinned, offset, bytes int) error {
	return s.d.do(StreamWriteAsync, func() error { return s.inner.WriteAsync(dst, unwrap(src), offset, bytes) })
}

func (s *stream) ReadAsync(dst driver.Pinned, offset int, src driver.Address, bytes int) error {
	return s.d.do(StreamReadAsync, func() error { return s.inner.ReadAsync(unwrap(dst), offset, src, bytes) })
}

func (s *stream) Copy(dst, src driver.Address, bytes int64) error {
	return s.d.do(StreamCopy, func() error { return s.inner.Copy(dst, src, bytes) })
}

func (s *stream) Fill(dst driver.Address, value byte, bytes int64) error {
	return s.d.do(StreamFill, func() error { return s.inner.Fill(dst, value, bytes) })
}

func (s *stream) Record(e driver.Event) error {
	return s.d.do(StreamRecord, func() error { return s.inner.Record(unwrap(e)) })
}

func (s *stream) Synchronize() error { return s.d.do(StreamSynchronize, s.inner.Synchronize) }

// Capture counts as three calls, because CUDA has one each to begin a capture, to end it and
// to instantiate the graph.
func (s *stream) Capture(record func() error) (driver.Graph, error) {
	o, err := create(s.d, StreamCapture, GraphClose, 0, func() (driver.Graph, error) {
		g, err := s.inner.Capture(func() error {
			if err := record(); err != nil {
				return err
			}
			_, err := s.d.begin(StreamEndCapture)
			return err
		})
		if err != nil {
			return nil, err
		}
		if _, err := s.d.begin(StreamInstantiate); err != nil {
			g.Close()
			return nil, err
		}
		return g, nil
	})
	if err != nil {
		return nil, err
	}
	return &graph{o}, nil
}

type graph struct{ object[driver.Graph] }

func (g *graph) Launch(on driver.Stream) error {
	return g.d.do(GraphLaunch, func() error { return g.inner.Launch(unwrap(on)) })
}
