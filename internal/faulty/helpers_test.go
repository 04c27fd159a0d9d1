package faulty_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
	"github.com/lockstep-go/lockstep/driver/emu"
	"github.com/lockstep-go/lockstep/internal/faulty"
	"github.com/lockstep-go/lockstep/ptxgen"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

func openInner(t testing.TB) *emu.Device {
	t.Helper()
	return must(emu.Open(emu.Options{SMs: 1, Workers: 1, Memory: 1 << 20}))(t)
}

// must unwraps a result, or fails the test.
func must[V any](v V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// world is one of everything, on a device that is wrapped.
type world struct {
	t      testing.TB
	inner  *emu.Device
	dev    *faulty.Device
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
	width      = 8 // of a row that the kernel doubles
	worldBytes = 4 * width
)

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, inner: openInner(t)}
	w.dev = faulty.New(w.inner)
	w.kernel = must(ptxgen.Elementwise{}.Build())(t)
	w.text = must(w.kernel.Text(ptx.Target{}))(t)
	w.stream = must(w.dev.NewStream())(t)
	w.x, w.y = must(w.dev.Alloc(worldBytes))(t), must(w.dev.Alloc(worldBytes))(t)
	w.pinned = must(w.dev.AllocPinned(worldBytes))(t)
	w.begin, w.end = must(w.dev.NewEvent())(t), must(w.dev.NewEvent())(t)
	w.module = must(w.dev.Load(w.text))(t)
	w.function = must(w.module.Function(w.kernel.Name))(t)
	w.ok(w.stream.Write(w.x.Address(), make([]byte, worldBytes)))
	w.ok(w.stream.Record(w.begin))
	w.ok(w.stream.Record(w.end))
	w.graph = must(w.stream.Capture(func() error { return w.stream.Launch(w.launch()) }))(t)
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// launch doubles x into y.
func (w *world) launch() driver.Launch {
	w.t.Helper()
	return must(doubling(w.kernel, w.function, w.x.Address(), w.y.Address()))(w.t)
}

func doubling(k *ptx.Kernel, f driver.Function, x, y driver.Address) (driver.Launch, error) {
	l, err := ptxgen.Elementwise{}.Launch(k, ptxgen.ElementwiseArgs{X: uint64(x), Y: uint64(y), Rows: 1, Width: width, Scale: 2})
	return driver.Launch{Function: f, Grid: dim3(l.Grid), Block: dim3(l.Block), Shared: l.Shared, Params: l.Params}, err
}

func dim3(d [3]uint32) driver.Dim3 { return driver.Dim3{X: d[0], Y: d[1], Z: d[2]} }

// floats are numbers as the device holds them.
func floats(list ...float32) []byte {
	b, err := binary.Append(nil, binary.LittleEndian, list)
	if err != nil {
		panic(err)
	}
	return b
}

// use makes one call; closes, if it made something.
type use struct {
	call faulty.Call
	make func() error
}

// drop closes what a call made.
func drop(made any, err error) error {
	if c, ok := made.(interface{ Close() error }); ok && err == nil {
		return c.Close()
	}
	return err
}

// uses are all calls but the Closes.
func (w *world) uses() []use {
	addr, s := w.x.Address(), w.stream
	return []use{
		{faulty.DeviceMemory, func() error { _, _, err := w.dev.Memory(); return err }},
		{faulty.DeviceAlloc, func() error { return drop(w.dev.Alloc(1)) }},
		{faulty.DeviceAllocPinned, func() error { return drop(w.dev.AllocPinned(1)) }},
		{faulty.DeviceLoad, func() error { return drop(w.dev.Load(w.text)) }},
		{faulty.DeviceNewStream, func() error { return drop(w.dev.NewStream()) }},
		{faulty.DeviceNewEvent, func() error { return drop(w.dev.NewEvent()) }},
		{faulty.ModuleFunction, func() error { return drop(w.module.Function(w.kernel.Name)) }},
		{faulty.StreamLaunch, func() error { return s.Launch(w.launch()) }},
		{faulty.StreamWrite, func() error { return s.Write(addr, []byte{1}) }},
		{faulty.StreamRead, func() error { return s.Read(make([]byte, 1), addr) }},
		{faulty.StreamWriteAsync, func() error { return s.WriteAsync(addr, w.pinned, 0, 4) }},
		{faulty.StreamReadAsync, func() error { return s.ReadAsync(w.pinned, 0, addr, 4) }},
		{faulty.StreamCopy, func() error { return s.Copy(addr, addr+8, 8) }},
		{faulty.StreamFill, func() error { return s.Fill(addr, 0, 1) }},
		{faulty.StreamRecord, func() error { return s.Record(w.end) }},
		{faulty.StreamSynchronize, s.Synchronize},
		{faulty.StreamCapture, func() error { return drop(s.Capture(func() error { return nil })) }},
		{faulty.StreamEndCapture, func() error { return drop(s.Capture(func() error { return nil })) }},
		{faulty.StreamInstantiate, func() error { return drop(s.Capture(func() error { return nil })) }},
		{faulty.GraphLaunch, func() error { return w.graph.Launch(s) }},
		{faulty.EventSynchronize, w.end.Synchronize},
		{faulty.EventSince, func() error { return drop(w.end.Since(w.begin)) }},
	}
}

// closes are the Closes of one of everything, in an order that any driver takes.
func (w *world) closes() []use {
	return []use{
		{faulty.GraphClose, w.graph.Close},
		{faulty.StreamClose, w.stream.Close},
		{faulty.EventClose, w.begin.Close},
		{faulty.EventClose, w.end.Close},
		{faulty.ModuleClose, w.module.Close},
		{faulty.BufferClose, w.x.Close},
		{faulty.BufferClose, w.y.Close},
		{faulty.PinnedClose, w.pinned.Close},
		{faulty.DeviceClose, w.dev.Close},
	}
}

// wantInjected demands that err is the one failure that was planned.
func wantInjected(t testing.TB, dev *faulty.Device, err error) faulty.Injected {
	t.Helper()
	injected := dev.Injected()
	if len(injected) != 1 || err == nil || !errors.Is(err, injected[0].Err) {
		t.Fatalf("error %v; injected %v", err, injected)
	}
	return injected[0]
}
