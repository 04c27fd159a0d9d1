package emu

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// addOne is a kernel that adds n to each of 32 words.
const addOne = sm80 + `
.visible .entry k(.param .u64 .ptr .global .align 4 p, .param .u32 n)
	.maxntid 32, 1, 1
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd0, [p];
	ld.param.u32 %r0, [n];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd1, %r1, 4;
	add.u64 %rd0, %rd0, %rd1;
	ld.global.u32 %r2, [%rd0];
	add.u32 %r2, %r2, %r0;
	st.global.u32 [%rd0], %r2;
	ret;
}
`

// fixture is a device with addOne loaded, and a buffer of 32 zeros.
type fixture struct {
	*Device
	s   driver.Stream
	m   driver.Module
	f   driver.Function
	buf driver.Buffer
}

func newFixture(t *testing.T, opts Options) *fixture {
	t.Helper()
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	r := &fixture{Device: d}
	var errs [4]error
	r.s, errs[0] = d.NewStream()
	r.m, errs[1] = d.Load([]byte(addOne))
	r.buf, errs[2] = d.Alloc(128)
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if r.f, err = r.m.Function("k"); err != nil {
		t.Fatal(err)
	}
	if err := r.s.Fill(r.buf.Address(), 0, 128); err != nil {
		t.Fatal(err)
	}
	return r
}

// add launches addOne with n.
func (r *fixture) add(n uint32) driver.Launch {
	p := binary.LittleEndian.AppendUint64(nil, uint64(r.buf.Address()))
	one := driver.Dim3{X: 1, Y: 1, Z: 1}
	return driver.Launch{Function: r.f, Grid: one, Block: driver.Dim3{X: 32, Y: 1, Z: 1}, Params: binary.LittleEndian.AppendUint32(p, n)}
}

func (r *fixture) wantWords(t *testing.T, want uint32) {
	t.Helper()
	if got := words(t, r.s, r.buf); !slices.Equal(got, same(32, want)) {
		t.Errorf("got %v, want all %d", got, want)
	}
}

func TestLaunchRefused(t *testing.T) {
	r := newFixture(t, Options{})
	for _, c := range []struct {
		name   string
		change func(*driver.Launch)
		want   string
	}{
		{"too few parameters", func(l *driver.Launch) { l.Params = l.Params[:8] }, "8 bytes of parameters, the entry takes 12"},
		{"too many parameters", func(l *driver.Launch) { l.Params = append(l.Params, 0) }, "13 bytes of parameters"},
		{"block above .maxntid", func(l *driver.Launch) { l.Block.X = 64 }, "64 threads, .maxntid allows 32"},
		{"empty grid", func(l *driver.Launch) { l.Grid.Y = 0 }, "extent of zero"},
		{"too much shared memory", func(l *driver.Launch) { l.Shared = 228 << 10 }, "shared memory"},
		{"block of too many threads", func(l *driver.Launch) { l.Block = driver.Dim3{X: 64, Y: 64, Z: 1} }, "larger than"},
	} {
		l := r.add(1)
		c.change(&l)
		if err := r.s.Launch(l); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want a refusal with %q, got %v", c.name, c.want, err)
		}
	}
	if err := r.s.Launch(r.add(1), r.add(2)); err != nil {
		t.Errorf("after refusals: %v", err)
	}
	r.wantWords(t, 3)

	exact := strings.Replace(addOne, ".maxntid 32", ".reqntid 16", 1)
	m, err := r.Load([]byte(exact))
	if err != nil {
		t.Fatal(err)
	}
	l := r.add(1)
	if l.Function, err = m.Function("k"); err != nil {
		t.Fatal(err)
	}
	if err := r.s.Launch(l); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), ".reqntid") {
		t.Errorf("a block that is not .reqntid: %v", err)
	}
}

func TestBadPointers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *fixture, l *driver.Launch)
		kind   TrapKind
		line   int
	}{
		{"argument between buffers", func(r *fixture, l *driver.Launch) {
			binary.LittleEndian.PutUint64(l.Params, uint64(r.buf.Address())+1<<19)
		}, TrapArgument, 0},
		{"argument that is not aligned as it is declared", func(r *fixture, l *driver.Launch) {
			binary.LittleEndian.PutUint64(l.Params, uint64(r.buf.Address())+2)
		}, TrapArgument, 0},
		{"argument that was freed", func(r *fixture, l *driver.Launch) { r.buf.Close() }, TrapArgument, 0},
		{"null that is used", func(r *fixture, l *driver.Launch) { clear(l.Params[:8]) }, TrapBounds, lineOf(t, addOne, "ld.global")},
	} {
		r := newFixture(t, Options{})
		l := r.add(1)
		c.change(r, &l)
		wantTrap(t, r.s.Launch(l), c.kind, c.line, 0)
	}
}

// A freed buffer is also found if its address is not a parameter declared .ptr.
func TestUseAfterFree(t *testing.T) {
	d, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := d.Load([]byte(strings.Replace(addOne, ".ptr .global .align 4 ", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	r := newFixture(t, Options{})
	r.Device, r.m = d, m
	if r.s, err = d.NewStream(); err != nil {
		t.Fatal(err)
	}
	if r.f, err = m.Function("k"); err != nil {
		t.Fatal(err)
	}
	if r.buf, err = d.Alloc(128); err != nil {
		t.Fatal(err)
	}
	l := r.add(1)
	if err := r.buf.Close(); err != nil {
		t.Fatal(err)
	}
	wantTrap(t, r.s.Launch(l), TrapFreed, lineOf(t, addOne, "ld.global"), 0)
}

// An address after the end of a freed buffer is out of bounds.
func TestBeyondFreed(t *testing.T) {
	m := memory{limit: 1 << 20}
	s := m.alloc(1000)
	m.free(s)
	for _, c := range []struct {
		at   uint64
		kind TrapKind
	}{{0, TrapFreed}, {999, TrapFreed}, {1000, TrapBounds}, {1 << 40, TrapBounds}} {
		if _, _, kind, err := m.find(s.base+c.at, 1); kind != c.kind || err == nil {
			t.Errorf("byte %d of a freed buffer of 1000: %q, %v; want %q", c.at, kind, err, c.kind)
		}
	}
}

func TestLifetimes(t *testing.T) {
	r := newFixture(t, Options{Memory: 1024})
	if _, err := r.Alloc(1024); !errors.Is(err, driver.ErrOutOfMemory) {
		t.Errorf("more than there is: %v", err)
	}
	if free, total, err := r.Memory(); free != 1024-128 || total != 1024 || err != nil {
		t.Errorf("%d of %d free, %v", free, total, err)
	}
	if got, want := r.Live(), (Live{Buffers: 1, Modules: 1, Streams: 1}); got != want {
		t.Errorf("live: %+v, want %+v", got, want)
	}
	if err := errors.Join(r.m.Close(), r.m.Close()); err != nil {
		t.Error(err)
	}
	if err := r.s.Launch(r.add(1)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("launch from a closed module: %v", err)
	}
	if err := errors.Join(r.buf.Close(), r.buf.Close()); err != nil {
		t.Error(err)
	}
	if err := r.s.Fill(r.buf.Address(), 1, 4); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("fill of a closed buffer: %v", err)
	}
	if err := errors.Join(r.s.Close(), r.s.Close()); err != nil {
		t.Error(err)
	}
	if err := r.s.Synchronize(); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("use of a closed stream: %v", err)
	}
	if got := r.Live(); got != (Live{}) {
		t.Errorf("still live: %+v", got)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if _, err := r.NewStream(); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("use of a closed device: %v", err)
	}
}

func TestResidentCTAs(t *testing.T) {
	r := newFixture(t, Options{SMs: 3})
	for _, c := range []struct {
		threads, shared uint32
		perSM           int
	}{{32, 0, 32}, {256, 0, 8}, {1024, 0, 2}, {128, 100 << 10, 2}, {128, 228 << 10, 0}} {
		l := driver.Launch{Block: driver.Dim3{X: c.threads, Y: 1, Z: 1}, Shared: c.shared}
		if got := r.residentCTAs(r.f.(*function).prog, &l); got != 3*c.perSM {
			t.Errorf("%d threads, %d bytes: %d, want %d", c.threads, c.shared, got, 3*c.perSM)
		}
	}
}

func TestDeviceCalls(t *testing.T) {
	r := newFixture(t, Options{LateStreams: true})
	if p := r.Properties(); p.ComputeCapability != 90 || p.PTXVersion != 84 || p.SharedPerCTA != 227<<10 {
		t.Errorf("properties %+v", p)
	}
	if err := errors.Join(r.s.Launch(r.add(1)), r.s.Synchronize()); err != nil {
		t.Fatal(err)
	}
	once := r.WarpInstructions()["k"]
	if err := errors.Join(r.s.Launch(r.add(1), r.add(1)), r.s.Synchronize()); err != nil {
		t.Fatal(err)
	}
	if n := r.WarpInstructions()["k"]; once == 0 || n != 3*once {
		t.Errorf("%d instructions after one launch, %d after three", once, n)
	}
	if _, err := r.m.Function("missing"); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("unknown entry: %v", err)
	}
	for _, o := range []Options{{ComputeCapability: 42}, {Memory: -1}, {SMs: -1}} {
		if _, err := Open(o); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
