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
		t.Error("the copy differs from the data written")
	}
	for i, v := range q.Bytes()[n-256:] {
		if v != 0xa5 {
			t.Fatalf("byte %d of the rest is %#x, want the fill value", i, v)
		}
	}
	if err := s.Write(a.Address(), make([]byte, n+1)); err == nil {
		t.Log("a write past the end of a buffer was not noticed by the driver")
	}
}

// TestKernelWritesPinned lets kernels write the two halves of pinned memory in turn, eagerly and as
// a graph. The host reads each half after its event, while the next kernel writes the other.
func TestKernelWritesPinned(t *testing.T) { each(t, testKernelWritesPinned) }

func testKernelWritesPinned(t *testing.T, open opener) {
	d := open(t, options{noCache: true})
	f := kernel(t, d, "count_up")
	s, done := must(d.NewStream())(t), must(d.NewEvent())(t)
	const n = 1 << 12
	p := must(d.AllocPinned(2 * 4 * n))(t)
	if p.Address()%4 != 0 {
		t.Fatalf("the pinned memory is at %#x", p.Address())
	}
	first := func(i int) uint32 { return uint32(1000 * i) }
	launch := func(i int) error {
		return s.Launch(launchOf(f, n, 256, pack(p.Address()+driver.Address(i%2*4*n), uint32(n), first(i))))
	}
	g := must(s.Capture(func() error { return launch(2) }))(t)
	run := []func() error{
		func() error { return launch(0) }, func() error { return launch(1) }, func() error { return g.Launch(s) }, func() error { return launch(3) },
	}
	ok(t, run[0]())
	for i := range run {
		ok(t, s.Record(done))
		if i+1 < len(run) {
			ok(t, run[i+1]())
		}
		ok(t, done.Synchronize())
		for j, v := range words(p.Bytes()[i%2*4*n:][:4*n]) {
			if v != first(i)+uint32(j) {
				t.Fatalf("launch %d: word %d is %d, want %d", i, j, v, first(i)+uint32(j))
			}
		}
	}
}

// TestStagedCopies covers copies of ordinary memory, which use the two staging slots in turn.
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
		clear(src) // src may be reused
		ok(t, s.Read(dst, buf.Address()))
		if !bytes.Equal(dst, want) {
			t.Errorf("%d bytes came back changed", n)
		}
	}
	// Consecutive small writes share the slots.
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
