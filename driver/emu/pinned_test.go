package emu

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

// copying is a kernel of 32 threads. Each copies a word from in to out, or if in is null stores its
// number. in is not declared .ptr.
var copying = strings.Replace(perThread(sm80, "", `
	ld.param.u64 %rd2, [in];
	mul.wide.u32 %rd3, %r1, 4;
	add.u64 %rd3, %rd2, %rd3;
	mov.u32 %r0, %r1;
	setp.ne.u64 %p0, %rd2, 0;
	@%p0 ld.global.u32 %r0, [%rd3]; // read`), "align 16 out)", "align 16 out, .param .u64 in)", 1)

// pinnedFixture is a device with pinned memory and the kernel copying.
type pinnedFixture struct {
	testing.TB
	*Device
	s   driver.Stream
	f   driver.Function
	pin driver.Pinned // of 32 words
}

func newPinnedFixture(t testing.TB, o Options) *pinnedFixture {
	t.Helper()
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s, errStream := d.NewStream()
	m, errLoad := d.Load([]byte(copying))
	pin, errPin := d.AllocPinned(128)
	if err := errors.Join(errStream, errLoad, errPin); err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("k")
	if err != nil {
		t.Fatal(err)
	}
	return &pinnedFixture{t, d, s, f, pin}
}

func (r *pinnedFixture) launch(out, in driver.Address) error {
	params := binary.LittleEndian.AppendUint64(nil, uint64(out))
	params = binary.LittleEndian.AppendUint64(params, uint64(in))
	one := driver.Dim3{X: 1, Y: 1, Z: 1}
	return r.s.Launch(driver.Launch{Function: r.f, Grid: one, Block: driver.Dim3{X: 32, Y: 1, Z: 1}, Params: params})
}

// word is a word of the pinned memory as the host sees it.
func (r *pinnedFixture) word(i int) uint32 { return binary.LittleEndian.Uint32(r.pin.Bytes()[4*i:]) }

func (r *pinnedFixture) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// After a wait, the host and later kernels see what a kernel wrote to pinned memory.
func TestPinnedWrites(t *testing.T) {
	for _, late := range []bool{false, true} {
		r := newPinnedFixture(t, Options{LateStreams: late})
		free, _, err := r.Memory()
		r.ok(err)
		if free != 1<<30 {
			t.Errorf("pinned memory takes %d bytes of the device's", 1<<30-free)
		}
		buf, err := r.Alloc(128)
		r.ok(err)
		r.ok(errors.Join(r.launch(r.pin.Address(), 0), r.launch(buf.Address(), r.pin.Address()), r.s.Synchronize()))
		if got := words(t, r.s, buf); r.word(31) != 31 || got[31] != 31 {
			t.Errorf("late %v: the host sees %d, the kernel behind saw %d, want 31", late, r.word(31), got[31])
		}
	}
}

// With late streams, the host sees the old contents before it has waited, also after a wait for
// earlier work.
func TestPinnedEarly(t *testing.T) {
	r := newPinnedFixture(t, Options{LateStreams: true})
	between, err := r.NewEvent()
	r.ok(err)
	const undefined = 0xffffffff
	see := func(when string, first, last uint32) {
		t.Helper()
		if r.word(1) != first || r.word(17) != last {
			t.Errorf("%s: words 1 and 17 are %#x and %#x, want %#x and %#x", when, r.word(1), r.word(17), first, last)
		}
	}
	see("at first", undefined, undefined)
	r.ok(r.s.Fill(r.pin.Address(), 0, 64))
	r.ok(errors.Join(r.s.Record(between), r.launch(r.pin.Address(), 0)))
	see("queued", undefined, undefined)
	r.ok(between.Synchronize())
	see("behind the event before the kernel", 0, undefined)
	r.ok(r.s.Synchronize())
	see("synchronized", 1, 17)
}

// TestPinnedTraps plants bugs in the use of the address of pinned memory.
func TestPinnedTraps(t *testing.T) {
	for _, c := range []struct {
		name string
		kind TrapKind
		do   func(r *pinnedFixture, other driver.Address) error
	}{
		{"past the end", TrapBounds, func(r *pinnedFixture, _ driver.Address) error { return r.launch(r.pin.Address()+16, 0) }},
		{"freed before the launch", TrapArgument, func(r *pinnedFixture, _ driver.Address) error {
			r.ok(r.pin.Close())
			return r.launch(r.pin.Address(), 0)
		}},
		{"freed before the kernel runs", TrapArgument, func(r *pinnedFixture, _ driver.Address) error {
			r.ok(r.launch(r.pin.Address(), 0))
			return r.pin.Close()
		}},
		{"freed, by an address that is no parameter's", TrapFreed, func(r *pinnedFixture, other driver.Address) error {
			r.ok(r.pin.Close())
			return r.launch(other, r.pin.Address())
		}},
		{"written by the host alone", TrapMemory, func(r *pinnedFixture, other driver.Address) error {
			clear(r.pin.Bytes())
			return r.launch(other, r.pin.Address())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newPinnedFixture(t, Options{LateStreams: true})
			buf, err := r.Alloc(128)
			r.ok(err)
			r.ok(c.do(r, buf.Address()))
			var trap *Trap
			if err := r.s.Synchronize(); !errors.As(err, &trap) || trap.Kind != c.kind || !errors.Is(err, driver.ErrDeviceLost) {
				t.Fatalf("want a trap (%s), got %v", c.kind, err)
			}
			if !strings.Contains(trap.Detail, "pinned memory 1 of 128 bytes") {
				t.Errorf("the trap does not name the memory: %v", trap)
			}
		})
	}
}

// A copy whose pinned memory is closed before it runs loses the device.
func TestPinnedFreedUnderCopy(t *testing.T) {
	for name, queue := range map[string]func(r *pinnedFixture, at driver.Address) error{
		"read":  func(r *pinnedFixture, at driver.Address) error { return r.s.ReadAsync(r.pin, 0, at, 128) },
		"write": func(r *pinnedFixture, at driver.Address) error { return r.s.WriteAsync(at, r.pin, 0, 128) },
	} {
		r := newPinnedFixture(t, Options{LateStreams: true})
		buf, err := r.Alloc(128)
		r.ok(errors.Join(err, queue(r, buf.Address()), r.pin.Close()))
		if err := r.s.Synchronize(); !errors.Is(err, driver.ErrDeviceLost) || !strings.Contains(err.Error(), "pinned memory 1 of 128 bytes, freed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
