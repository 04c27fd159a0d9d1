package cuda

import (
	"math"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// TestLaunchRefuses checks that invalid launches do not reach the driver, where they could destroy
// the context.
func TestLaunchRefuses(t *testing.T) {
	f, d := openedFake(t)
	k := kernel(t, d, "count_up")
	s := must(d.NewStream())(t)
	buf := must(d.Alloc(4 * 64))(t)
	good := launchOf(k, 64, 64, pack(buf.Address(), uint32(64), uint32(1)))
	ok(t, s.Launch(good))
	closed := must(d.Load([]byte(kernels)))(t)
	orphan := must(closed.Function("count_up"))(t)
	ok(t, closed.Close())
	_, other := openAgain(t, f)
	launched := f.count(cuLaunchKernel)
	for _, c := range []struct {
		name   string
		change func(*driver.Launch)
	}{
		{"no function", func(l *driver.Launch) { l.Function = nil }},
		{"a nil function", func(l *driver.Launch) { l.Function = (*function)(nil) }},
		{"a closed module's function", func(l *driver.Launch) { l.Function = orphan }},
		{"another device's function", func(l *driver.Launch) { l.Function = kernel(t, other, "count_up") }},
		{"an empty grid", func(l *driver.Launch) { l.Grid.Y = 0 }},
		{"an empty CTA", func(l *driver.Launch) { l.Block.Z = 0 }},
		{"too many threads", func(l *driver.Launch) { l.Block.X = 513 }},
		{"a thread count that wraps", func(l *driver.Launch) {
			l.Block = driver.Dim3{X: 1 << 31, Y: 1 << 31, Z: 4}
		}},
		{"too few parameters", func(l *driver.Launch) { l.Params = l.Params[:12] }},
		{"no parameters", func(l *driver.Launch) { l.Params = nil }},
		{"too many parameters", func(l *driver.Launch) { l.Params = append(l.Params[:16:16], 0) }},
		{"more parameters than there can be", func(l *driver.Launch) { l.Params = make([]byte, maxParams+1) }},
		{"too much shared memory", func(l *driver.Launch) { l.Shared = fakeShared + 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := good
			c.change(&l)
			wantKind(t, s.Launch(l), driver.ErrInvalid)
			wantKind(t, s.Launch(l, good), driver.ErrInvalid)
		})
	}
	if n := f.count(cuLaunchKernel) - launched; n != 0 {
		t.Errorf("%d launches reached the driver", n)
	}
	ok(t, d.Err())
}

// openAgain opens the same fake's device a second time.
func openAgain(t *testing.T, f *fake) (*fake, *Device) {
	return f, f.open(t, options{noCache: true})
}

// TestParametersOfUnknownSize checks a driver whose cuFuncGetParamInfo fails.
func TestParametersOfUnknownSize(t *testing.T) {
	f, d := openedFake(t)
	f.set(func() { f.failures[cuFuncGetParamInfo] = 801 })
	k := kernel(t, d, "count_up")
	s := must(d.NewStream())(t)
	buf := must(d.Alloc(4 * 64))(t)
	ok(t, s.Launch(launchOf(k, 64, 64, pack(buf.Address(), uint32(64), uint32(1)))))
}

func TestSharedMemoryIsRaisedOnce(t *testing.T) {
	f, d := openedFake(t)
	k := kernel(t, d, "count_up")
	s := must(d.NewStream())(t)
	buf := must(d.Alloc(4 * 64))(t)
	l := launchOf(k, 64, 64, pack(buf.Address(), uint32(64), uint32(1)))
	for _, c := range []struct {
		shared uint32
		raises int
	}{{0, 0}, {fakeStrict, 0}, {60 << 10, 1}, {50 << 10, 1}, {60 << 10, 1}, {fakeShared, 2}, {fakeShared, 2}} {
		const carveout = 1 // Function sets the carve-out
		l.Shared = c.shared
		ok(t, s.Launch(l))
		if n := f.count(cuFuncSetAttribute) - carveout; n != c.raises {
			t.Errorf("%d bytes: raised %d times, want %d", c.shared, n, c.raises)
		}
	}
}

func TestCodesBecomeKinds(t *testing.T) {
	f, d := openedFake(t)
	s := must(d.NewStream())(t)
	for _, c := range []struct {
		code code
		kind error
	}{
		{1, driver.ErrInvalid}, {2, driver.ErrOutOfMemory}, {400, driver.ErrInvalid}, {801, driver.ErrUnsupported}, {999, nil},
	} {
		f.set(func() { f.failures[cuStreamSynchronize] = c.code })
		err := s.Synchronize()
		got, ok := err.(*driver.Error)
		if !ok || got.Kind != c.kind || got.Code != int(c.code) || got.Op != "cuStreamSynchronize" || got.Name != "CUDA_ERROR_FAKE" {
			t.Errorf("code %d became %#v", c.code, err)
		}
	}
	ok(t, d.Err())
}

func TestOutOfMemory(t *testing.T) {
	f, d := openedFake(t)
	for _, bytes := range []int64{9 << 30, math.MaxInt64} {
		_, err := d.Alloc(bytes)
		wantKind(t, err, driver.ErrOutOfMemory)
	}
	f.set(func() { f.failures[cuMemHostAlloc] = outOfMemory })
	_, err := d.AllocPinned(1)
	wantKind(t, err, driver.ErrOutOfMemory)
	f.set(func() { f.failures[cuMemHostGetDevicePointer] = outOfMemory; delete(f.failures, cuMemHostAlloc) })
	_, err = d.AllocPinned(1) // frees the memory, which fake.open checks
	wantKind(t, err, driver.ErrOutOfMemory)
	// A stream without staging memory works when memory is available again.
	s := must(d.NewStream())(t)
	buf := must(d.Alloc(1))(t)
	wantKind(t, s.Write(buf.Address(), []byte{1}), driver.ErrOutOfMemory)
	f.set(func() { delete(f.failures, cuMemHostGetDevicePointer) })
	ok(t, s.Write(buf.Address(), []byte{1}))
	for _, bytes := range []int64{0, -1, math.MinInt64} {
		_, err := d.Alloc(bytes)
		wantKind(t, err, driver.ErrInvalid)
		_, err = d.AllocPinned(int(bytes))
		wantKind(t, err, driver.ErrInvalid)
	}
}

func TestRanges(t *testing.T) {
	_, d := openedFake(t)
	s := must(d.NewStream())(t)
	p, buf := must(d.AllocPinned(100))(t), must(d.Alloc(100))(t)
	for _, c := range []struct {
		name          string
		offset, bytes int
		bad           bool
	}{
		{"all", 0, 100, false},
		{"nothing", 100, 0, false},
		{"past the end", 1, 100, true},
		{"before the start", -1, 10, true},
		{"negative", 10, -1, true},
		{"wrapping", math.MaxInt, 10, true},
		{"wrapping length", 10, math.MaxInt, true},
		{"both extreme", math.MinInt, math.MinInt, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			write, read := s.WriteAsync(buf.Address(), p, c.offset, c.bytes), s.ReadAsync(p, c.offset, buf.Address(), c.bytes)
			if !c.bad {
				ok(t, write)
				ok(t, read)
				return
			}
			wantKind(t, write, driver.ErrInvalid)
			wantKind(t, read, driver.ErrInvalid)
		})
	}
	wantKind(t, s.Copy(buf.Address(), buf.Address(), -1), driver.ErrInvalid)
	wantKind(t, s.Fill(buf.Address(), 0, -1), driver.ErrInvalid)
	ok(t, s.Copy(0, 0, 0))
	ok(t, s.Write(0, nil))
	ok(t, s.Read(nil, 0))
}

func TestGraphOfAnotherDevice(t *testing.T) {
	f, d := openedFake(t)
	_, other := openAgain(t, f)
	own, foreign := newFamily(t, d), newFamily(t, other)
	wantKind(t, own.graph.Launch(foreign.stream), driver.ErrInvalid)
	wantKind(t, own.graph.Launch(nil), driver.ErrInvalid)
}
