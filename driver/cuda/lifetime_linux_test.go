package cuda

import (
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// family holds one object of each type.
type family struct {
	stream driver.Stream
	buffer driver.Buffer
	pinned driver.Pinned
	event  driver.Event
	module driver.Module
	kernel driver.Function
	graph  driver.Graph
}

func newFamily(t *testing.T, d *Device) family {
	m := must(d.Load([]byte(kernels)))(t)
	f := family{
		stream: must(d.NewStream())(t), buffer: must(d.Alloc(256))(t), pinned: must(d.AllocPinned(256))(t),
		event: must(d.NewEvent())(t), module: m, kernel: must(m.Function("count_up"))(t),
	}
	ok(t, f.stream.Write(f.buffer.Address(), []byte{1})) // allocates the staging memory
	launch := launchOf(f.kernel, 64, 64, pack(f.buffer.Address(), uint32(64), uint32(0)))
	f.graph = must(f.stream.Capture(func() error { return f.stream.Launch(launch) }))(t)
	return f
}

func (f family) closers() []interface{ Close() error } {
	return []interface{ Close() error }{f.graph, f.stream, f.event, f.module, f.buffer, f.pinned}
}

// uses returns every call on the objects and the device, by name.
func (f family) uses(d *Device) map[string]func() error {
	launch := launchOf(f.kernel, 64, 64, pack(f.buffer.Address(), uint32(64), uint32(0)))
	drop := func(made any, err error) error {
		if c, ok := made.(interface{ Close() error }); ok && err == nil {
			return c.Close()
		}
		return err
	}
	return map[string]func() error{
		"launch":        func() error { return f.stream.Launch(launch) },
		"write":         func() error { return f.stream.Write(f.buffer.Address(), []byte{1}) },
		"read":          func() error { return f.stream.Read(make([]byte, 1), f.buffer.Address()) },
		"write async":   func() error { return f.stream.WriteAsync(f.buffer.Address(), f.pinned, 0, 1) },
		"read async":    func() error { return f.stream.ReadAsync(f.pinned, 0, f.buffer.Address(), 1) },
		"copy":          func() error { return f.stream.Copy(f.buffer.Address(), f.buffer.Address()+8, 8) },
		"fill":          func() error { return f.stream.Fill(f.buffer.Address(), 0, 1) },
		"record":        func() error { return f.stream.Record(f.event) },
		"synchronize":   f.stream.Synchronize,
		"capture":       func() error { return drop(f.stream.Capture(func() error { return nil })) },
		"replay":        func() error { return f.graph.Launch(f.stream) },
		"wait for":      f.event.Synchronize,
		"since":         func() error { return drop(f.event.Since(f.event)) },
		"function":      func() error { return drop(f.module.Function("count_up")) },
		"alloc":         func() error { return drop(d.Alloc(1)) },
		"alloc pinned":  func() error { return drop(d.AllocPinned(1)) },
		"load":          func() error { return drop(d.Load([]byte(kernels))) },
		"new stream":    func() error { return drop(d.NewStream()) },
		"new event":     func() error { return drop(d.NewEvent()) },
		"device memory": func() error { _, _, err := d.Memory(); return err },
	}
}

func TestUseAfterClose(t *testing.T) {
	fake, d := openedFake(t)
	f := newFamily(t, d)
	ok(t, f.stream.Record(f.event))
	for name, use := range f.uses(d) {
		if err := use(); err != nil {
			t.Errorf("%s while all is open: %v", name, err)
		}
	}
	for _, c := range f.closers() {
		ok(t, c.Close())
		ok(t, c.Close())
	}
	for name, use := range f.uses(d) {
		switch name {
		case "alloc", "alloc pinned", "load", "new stream", "new event", "device memory":
			continue // the device is still open
		}
		t.Run(name, func(t *testing.T) { wantKind(t, use(), driver.ErrInvalid) })
	}
	ok(t, d.Close())
	if left := fake.left(); left != "" {
		t.Errorf("not freed: %s", left)
	}
}

func TestDeviceFreesObjects(t *testing.T) {
	fake, d := openedFake(t)
	f := newFamily(t, d)
	for range 10 { // makes a correct order by chance unlikely
		newFamily(t, d)
	}
	ok(t, d.Close())
	ok(t, d.Close())
	if left := fake.left(); left != "" {
		t.Errorf("not freed: %s", left)
	}
	before := fake.total()
	for name, use := range f.uses(d) {
		t.Run(name, func(t *testing.T) { wantKind(t, use(), driver.ErrInvalid) })
	}
	for _, c := range f.closers() {
		ok(t, c.Close())
	}
	if n := fake.total() - before; n != 0 {
		t.Errorf("%d calls reached the driver after its device was closed", n)
	}
}

// TestClosingAStreamWaitsForItsCopies checks that staging memory is freed after its copies.
func TestClosingAStreamWaitsForItsCopies(t *testing.T) {
	fake, d := openedFake(t)
	s := must(d.NewStream())(t)
	buf := must(d.Alloc(4))(t)
	ok(t, s.Write(buf.Address(), []byte{1, 2, 3, 4}))
	ok(t, s.Close())
	if got := fake.memory[uintptr(buf.Address())]; got[3] != 4 {
		t.Errorf("the copy was dropped: %v", got)
	}
}

func TestLostDevice(t *testing.T) {
	fake, d := openedFake(t)
	f := newFamily(t, d)
	bad := launchOf(f.kernel, 64, 64, pack(uint64(8), uint32(64), uint32(0)))
	ok(t, f.stream.Launch(bad)) // a later call reports the fault
	ok(t, d.Err())
	err := f.stream.Synchronize()
	wantKind(t, err, driver.ErrDeviceLost)
	if d.Err() != err {
		t.Errorf("Err is %v, the cause was %v", d.Err(), err)
	}
	before := fake.total()
	for name, use := range f.uses(d) {
		t.Run(name, func(t *testing.T) { wantKind(t, use(), driver.ErrDeviceLost) })
	}
	if n := fake.total() - before; n != 0 {
		t.Errorf("%d calls reached the driver of a lost device", n)
	}
	for _, c := range f.closers() {
		ok(t, c.Close())
	}
	ok(t, d.Close())
	if fake.retains != 0 {
		t.Errorf("%d contexts not released", fake.retains)
	}
	wantKind(t, d.Err(), driver.ErrDeviceLost)
}
