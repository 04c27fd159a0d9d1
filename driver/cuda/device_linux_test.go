package cuda

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-go/lockstep/driver"
)

func openedFake(t testing.TB) (*fake, *Device) {
	f := newFake(t)
	return f, f.open(t, options{noCache: true})
}

func TestProperties(t *testing.T) {
	_, d := openedFake(t)
	want := driver.Properties{
		Name: "Fake GPU", DriverVersion: 12040, ComputeCapability: 86, PTXVersion: 84, SMs: 108,
		SharedPerCTA: 100 << 10, L2: 40 << 20, Memory: 8 << 30,
	}
	if got := d.Properties(); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if d.uuid != "000000000000000000000000000000ab" {
		t.Errorf("UUID %q", d.uuid)
	}
}

func TestOpenRefuses(t *testing.T) {
	f := newFake(t)
	lib := must(f.finder().find())(t)
	for _, ordinal := range []int{-1, 2, 1 << 40} {
		_, err := lib.open(ordinal, options{})
		wantKind(t, err, driver.ErrNoDevice)
	}
	if f.retains != 0 {
		t.Errorf("%d contexts retained", f.retains)
	}
	f.failures[cuInit] = noDevice
	_, err := f.finder().find()
	wantKind(t, err, driver.ErrNoDevice)
	f.failures[cuInit] = 34
	_, err = f.finder().find()
	wantKind(t, err, driver.ErrNoDriver)
	delete(f.failures, cuInit)
	l := loader{finder: f.finder()}
	if first, second := must(l.get())(t), must(l.get())(t); first != second || f.calls[cuInit] != 4 {
		t.Errorf("a loaded library is loaded again: cuInit was called %d times", f.calls[cuInit])
	}
}

// TestSecondDriver checks that a driver without a device does not hide another one.
func TestSecondDriver(t *testing.T) {
	noDevices := purego.NewCallback(func(uintptr) uintptr { return uintptr(noDevice) })
	f := newFake(t).finder()
	f.open = func(path string) (uintptr, error) { return uintptr(len(path)), nil }
	symbol := f.symbol
	f.symbol = func(handle uintptr, name string) (uintptr, error) {
		if handle == uintptr(len("native")) && name == cuInit.String() {
			return noDevices, nil
		}
		return symbol(handle, name)
	}
	f.paths = func() []string { return []string{"native", "wsl"} }
	if l := must(f.find())(t); l.path != "wsl" {
		t.Errorf("found %q", l.path)
	}
	f.paths = func() []string { return []string{"native", "native"} }
	_, err := f.find()
	wantKind(t, err, driver.ErrNoDevice)
}

func TestOptionalEntries(t *testing.T) {
	f := newFake(t)
	finder := f.finder()
	finder.symbol = func(_ uintptr, name string) (uintptr, error) {
		for e := range entryCount {
			if entries[e].optional && name == e.String() {
				return 0, errors.New("undefined")
			}
		}
		return fakeSymbol(name)
	}
	d := must(must(finder.find())(t).open(0, options{cacheDir: t.TempDir()}))(t)
	defer d.Close()
	s := must(d.NewStream())(t)
	_, err := s.Capture(func() error { t.Error("recorded"); return nil })
	wantKind(t, err, driver.ErrUnsupported)
	if err == nil || !strings.Contains(err.Error(), "driver 12.4 (fake) has no cuStreamBeginCapture_v2") {
		t.Errorf("the error lacks a reason: %v", err)
	}
	// Without the linker the module is loaded, but not cached.
	k := kernel(t, d, "count_up")
	out := must(d.Alloc(256))(t)
	ok(t, s.Launch(launchOf(k, 64, 64, pack(out.Address(), uint32(64), uint32(0)))))
	if countsOf(d.cache) != (counts{misses: 1}) {
		t.Errorf("%+v", countsOf(d.cache))
	}
}

func TestRequiredEntries(t *testing.T) {
	finder := newFake(t).finder()
	for e := range entryCount {
		if entries[e].optional {
			continue
		}
		finder.symbol = func(_ uintptr, name string) (uintptr, error) {
			if name == e.String() {
				return 0, errors.New("undefined")
			}
			return fakeSymbol(name)
		}
		_, err := finder.find()
		wantKind(t, err, driver.ErrNoDriver)
		if err == nil || !strings.Contains(err.Error(), "exports no "+e.String()) {
			t.Errorf("without %s: %v", e, err)
		}
	}
}

// TestContextIsRestored checks that a context of other code stays current on its thread.
func TestContextIsRestored(t *testing.T) {
	f, d := openedFake(t)
	k := kernel(t, d, "count_up")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const other = 0x7777
	f.current[syscall.Gettid()] = other
	ok(t, useDevice(d, k, 1))
	s := must(d.NewStream())(t)
	_, err := s.Capture(func() error { return errors.New("stop") })
	if err == nil {
		t.Error("captured")
	}
	func() {
		defer func() { recover() }()
		s.Capture(func() error { panic("stop") })
	}()
	if d.Close() != nil || f.current[syscall.Gettid()] != other {
		t.Errorf("context %#x is left current, was %#x", f.current[syscall.Gettid()], other)
	}
	for thread, context := range f.current {
		if context != 0 && context != other {
			t.Errorf("context %#x is left current on thread %d", context, thread)
		}
	}
}

func TestLaunchDoesNotAllocate(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's pools allocate")
	}
	_, d := openedFake(t)
	k := kernel(t, d, "count_up")
	s := must(d.NewStream())(t)
	buf := must(d.Alloc(4 * 64))(t)
	l := launchOf(k, 64, 64, pack(buf.Address(), uint32(64), uint32(1)))
	launches := []driver.Launch{l, l, l, l}
	// A callback into Go allocates, so a C function that returns 0 replaces each one.
	event := must(d.NewEvent())(t)
	real := d.lib.at
	libc := must(purego.Dlopen("libc.so.6", purego.RTLD_NOW))(t)
	for e := range entryCount {
		d.lib.at[e] = must(purego.Dlsym(libc, "sched_yield"))(t)
	}
	for name, f := range map[string]func() error{
		"launch":      func() error { return s.Launch(launches...) },
		"copy":        func() error { return s.Copy(buf.Address(), buf.Address(), 64) },
		"record":      func() error { return s.Record(event) },
		"synchronize": s.Synchronize,
	} {
		if n := testing.AllocsPerRun(1000, func() { ok(t, f()) }); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	d.lib.at = real
}

func TestLaunchCopiesItsParameters(t *testing.T) {
	sc := scratches.Get().(*scratch)
	defer scratches.Put(sc)
	if sc.extra[1] != uintptr(unsafe.Pointer(&sc.params)) || sc.extra[3] != uintptr(unsafe.Pointer(&sc.size)) {
		t.Error("the parameter buffer points elsewhere")
	}
	if unsafe.Sizeof(sc.params) != maxParams || uintptr(unsafe.Pointer(&sc.params))%8 != 0 {
		t.Error("the parameter buffer is too small or not aligned")
	}
}
