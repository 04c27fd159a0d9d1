package faultinject_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/faultinject"
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

func openInner(t testing.TB) *emu.Device {
	t.Helper()
	return must(emu.Open(emu.Options{SMs: 1, Workers: 1, Memory: 1 << 20}))(t)
}

// must returns a result, or ends the test if there is an error.
func must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// fixture holds one object of each type, made from a wrapped device.
type fixture struct {
	t      testing.TB
	inner  *emu.Device
	dev    *faultinject.Device
	kernel *ptx.Kernel
	text   []byte

	stream     driver.Stream
	x, y       driver.Buffer
	pinned     driver.Pinned
	begin, end driver.Event
	module     driver.Module
	function   driver.Function
	graph      driver.Graph
}

const (
	width    = 8 // elements per row
	rowBytes = 4 * width
)

func newFixture(t testing.TB) *fixture {
	t.Helper()
	w := &fixture{t: t, inner: openInner(t)}
	w.dev = faultinject.New(w.inner)
	w.kernel = must(elementwise.Fused().Build())(t)
	w.text = must(w.kernel.Text(ptx.Target{}))(t)
	w.stream = must(w.dev.NewStream())(t)
	w.x, w.y = must(w.dev.Alloc(rowBytes))(t), must(w.dev.Alloc(rowBytes))(t)
	w.pinned = must(w.dev.AllocPinned(rowBytes))(t)
	w.begin, w.end = must(w.dev.NewEvent())(t), must(w.dev.NewEvent())(t)
	w.module = must(w.dev.Load(w.text))(t)
	w.function = must(w.module.Function(w.kernel.Name))(t)
	w.ok(w.stream.Write(w.x.Address(), make([]byte, rowBytes)))
	w.ok(w.stream.Record(w.begin))
	w.ok(w.stream.Record(w.end))
	w.graph = must(w.stream.Capture(func() error { return w.stream.Launch(w.launch()) }))(t)
	return w
}

func (w *fixture) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// launch returns a launch that doubles x into y.
func (w *fixture) launch() driver.Launch {
	w.t.Helper()
	return must(doubling(w.kernel, w.function, w.x.Address(), w.y.Address()))(w.t)
}

func doubling(k *ptx.Kernel, f driver.Function, x, y driver.Address) (driver.Launch, error) {
	l, err := elementwise.Fused().Launch(k, elementwise.FusedArgs{X: uint64(x), Y: uint64(y), Rows: 1, Width: width, Scale: 2})
	return driver.Launch{Function: f, Grid: dim3(l.Grid), Block: dim3(l.Block), Shared: l.Shared, Params: l.Params}, err
}

func dim3(d [3]uint32) driver.Dim3 { return driver.Dim3{X: d[0], Y: d[1], Z: d[2]} }

// floats encodes numbers as the device stores them.
func floats(list ...float32) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, list)
	if err != nil {
		panic(err)
	}
	return b
}

// operation makes one call, and closes the object if it creates one.
type operation struct {
	call faultinject.Call
	make func() error
}

// drop closes the object that a call has created.
func drop(made any, err error) error {
	if c, ok := made.(interface{ Close() error }); ok && err == nil {
		return c.Close()
	}
	return err
}

// operations returns an operation for every call except the Closes.
func (w *fixture) operations() []operation {
	addr, s := w.x.Address(), w.stream
	return []operation{
		{faultinject.DeviceMemory, func() error { _, _, err := w.dev.Memory(); return err }},
		{faultinject.DeviceAlloc, func() error { return drop(w.dev.Alloc(1)) }},
		{faultinject.DeviceAllocPinned, func() error { return drop(w.dev.AllocPinned(1)) }},
		{faultinject.DeviceLoad, func() error { return drop(w.dev.Load(w.text)) }},
		{faultinject.DeviceNewStream, func() error { return drop(w.dev.NewStream()) }},
		{faultinject.DeviceNewEvent, func() error { return drop(w.dev.NewEvent()) }},
		{faultinject.ModuleFunction, func() error { return drop(w.module.Function(w.kernel.Name)) }},
		{faultinject.StreamLaunch, func() error { return s.Launch(w.launch()) }},
		{faultinject.StreamWrite, func() error { return s.Write(addr, []byte{1}) }},
		{faultinject.StreamRead, func() error { return s.Read(make([]byte, 1), addr) }},
		{faultinject.StreamWriteAsync, func() error { return s.WriteAsync(addr, w.pinned, 0, 4) }},
		{faultinject.StreamReadAsync, func() error { return s.ReadAsync(w.pinned, 0, addr, 4) }},
		{faultinject.StreamCopy, func() error { return s.Copy(addr, addr+8, 8) }},
		{faultinject.StreamFill, func() error { return s.Fill(addr, 0, 1) }},
		{faultinject.StreamRecord, func() error { return s.Record(w.end) }},
		{faultinject.StreamSynchronize, s.Synchronize},
		{faultinject.StreamCapture, func() error { return drop(s.Capture(func() error { return nil })) }},
		{faultinject.StreamEndCapture, func() error { return drop(s.Capture(func() error { return nil })) }},
		{faultinject.StreamInstantiate, func() error { return drop(s.Capture(func() error { return nil })) }},
		{faultinject.GraphLaunch, func() error { return w.graph.Launch(s) }},
		{faultinject.EventSynchronize, w.end.Synchronize},
		{faultinject.EventSince, func() error { return drop(w.end.Since(w.begin)) }},
	}
}

// closes returns the Closes of all objects, users before what they use.
func (w *fixture) closes() []operation {
	return []operation{
		{faultinject.GraphClose, w.graph.Close},
		{faultinject.StreamClose, w.stream.Close},
		{faultinject.EventClose, w.begin.Close},
		{faultinject.EventClose, w.end.Close},
		{faultinject.ModuleClose, w.module.Close},
		{faultinject.BufferClose, w.x.Close},
		{faultinject.BufferClose, w.y.Close},
		{faultinject.PinnedClose, w.pinned.Close},
		{faultinject.DeviceClose, w.dev.Close},
	}
}

// wantInjected checks that exactly one failure was injected and that err wraps it.
func wantInjected(t testing.TB, dev *faultinject.Device, err error) faultinject.Injected {
	t.Helper()
	injected := dev.Injected()
	if len(injected) != 1 || err == nil || !errors.Is(err, injected[0].Err) {
		t.Fatalf("error %v; injected %v", err, injected)
	}
	return injected[0]
}
