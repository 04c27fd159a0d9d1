package cuda

import (
	"bytes"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

func TestPinned(t *testing.T) { each(t, testPinned) }

func testPinned(t *testing.T, open opener) {
	d := open(t, options{noCache: true})
	s := must(d.NewStream())(t)
	const n = 1 << 20
	p, q := must(d.AllocPinned(n))(t), must(d.AllocPinned(n))(t)
	for i := range p.Bytes() {
		p.Bytes()[i] = byte(i * 7)
	}
	a, b := must(d.Alloc(n))(t), must(d.Alloc(n))(t)
	ok(t, s.WriteAsync(a.Address(), p, 0, n))
	ok(t, s.Fill(b.Address(), 0xa5, n))
	ok(t, s.Copy(b.Address(), a.Address()+256, n-256))
	ok(t, s.ReadAsync(q, 0, b.Address(), n))
	ok(t, s.Synchronize())
	if !bytes.Equal(q.Bytes()[:n-256], p.Bytes()[256:]) {
		t.Error("the copy is not what was written")
	}
	for i, v := range q.Bytes()[n-256:] {
		if v != 0xa5 {
			t.Fatalf("byte %d of the rest is %#x, not what it was filled with", i, v)
		}
	}
	if err := s.Write(a.Address(), make([]byte, n+1)); err == nil {
		t.Log("a write past the end of a buffer was not noticed by the driver")
	}
}

// TestHardwarePinnedWrites lets kernels of a stream write pinned memory by turns, launched and as a
// graph, and looks at each part as soon as an event says that it is there while the next is written.
func TestHardwarePinnedWrites(t *testing.T) { each(t, testPinnedWrites) }

func testPinnedWrites(t *testing.T, open opener) {
	d := open(t, options{noCache: true})
	f := kernel(t, d, "count_up")
	s, done := must(d.NewStream())(t), must(d.NewEvent())(t)
	const n = 1 << 12
	p := must(d.AllocPinned(2 * 4 * n))(t)
	if p.Address()%4 != 0 {
		t.Fatalf("the pinned memory is at %#x", p.Address())
	}
	first := func(round int) uint32 { return uint32(1000 * round) }
	launch := func(round int) error {
		return s.Launch(launchOf(f, n, 256, pack(p.Address()+driver.Address(round%2*4*n), uint32(n), first(round))))
	}
	g := must(s.Capture(func() error { return launch(2) }))(t)
	run := []func() error{
		func() error { return launch(0) }, func() error { return launch(1) }, func() error { return g.Launch(s) }, func() error { return launch(3) },
	}
	ok(t, run[0]())
	for round := range run {
		ok(t, s.Record(done))
		if round+1 < len(run) {
			ok(t, run[round+1]())
		}
		ok(t, done.Synchronize())
		for i, v := range words(p.Bytes()[round%2*4*n:][:4*n]) {
			if v != first(round)+uint32(i) {
				t.Fatalf("round %d: word %d is %d, want %d", round, i, v, first(round)+uint32(i))
			}
		}
	}
}

// Copies of ordinary memory go through two slots, in turns.
func TestStagedCopies(t *testing.T) { each(t, testStagedCopies) }

func testStagedCopies(t *testing.T, open opener) {
	d := open(t, options{noCache: true})
	s := must(d.NewStream())(t)
	const most = 4*slotBytes + 3
	buf := must(d.Alloc(most))(t)
	for _, n := range []int{1, slotBytes - 1, slotBytes, slotBytes + 1, 2*slotBytes + 5, most} {
		src, dst := make([]byte, n), make([]byte, n)
		for i := range src {
			src[i] = byte(i>>22 ^ i>>8 ^ i ^ n)
		}
		want := bytes.Clone(src)
		ok(t, s.Write(buf.Address(), src))
		clear(src) // Write has let go of it
		ok(t, s.Read(dst, buf.Address()))
		if !bytes.Equal(dst, want) {
			t.Errorf("%d bytes came back changed", n)
		}
	}
	// Small writes one after the other share the slots.
	for i := range 100 {
		ok(t, s.Write(buf.Address()+driver.Address(i), []byte{byte(i)}))
	}
	var got [100]byte
	ok(t, s.Read(got[:], buf.Address()))
	for i, v := range got {
		if v != byte(i) {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
}
