package cuda

import (
	"errors"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

func TestGraph(t *testing.T) { each(t, testGraph) }

func testGraph(t *testing.T, open opener) {
	d := open(t, Options{NoCache: true})
	f := kernel(t, d, "count")
	s := must(d.NewStream())(t)
	const n = 1000
	a, b := must(d.Alloc(4*n))(t), must(d.Alloc(4*n))(t)
	capture := func(first uint32) driver.Graph {
		return must(s.Capture(func() error {
			return errors.Join(
				s.Launch(launchOf(f, n, 128, pack(a.Address(), uint32(n), first))),
				s.Copy(b.Address(), a.Address(), 4*n),
				s.Fill(a.Address(), 0, 4*n),
			)
		}))(t)
	}
	check := func(first uint32) {
		t.Helper()
		got := make([]byte, 4*n)
		ok(t, s.Read(got, b.Address()))
		for i, v := range words(got) {
			if v != first+uint32(i) {
				t.Fatalf("out[%d] = %d, want %d", i, v, first+uint32(i))
			}
		}
	}
	g := capture(5)
	if nodes := must(g.Nodes())(t); nodes != 3 {
		t.Errorf("%d nodes, want 3", nodes)
	}
	x := must(g.Instantiate())(t)
	ok(t, x.Launch(s))
	check(5)
	for range 3 { // replaying again gives the same
		ok(t, s.Fill(b.Address(), 0, 4*n))
		ok(t, x.Launch(s))
		check(5)
	}
	other := capture(77)
	ok(t, x.Update(other))
	ok(t, other.Close())
	ok(t, g.Close())
	ok(t, x.Launch(s))
	check(77)

	different := must(s.Capture(func() error { return s.Fill(a.Address(), 1, 4*n) }))(t)
	err := x.Update(different)
	t.Logf("another shape: %v", err)
	wantKind(t, err, driver.ErrUnsupported)
	ok(t, x.Close())
}

// After each failure the stream takes work again.
func TestFailedCaptures(t *testing.T) { each(t, testFailedCaptures) }

func testFailedCaptures(t *testing.T, open opener) {
	d := open(t, Options{NoCache: true})
	f := kernel(t, d, "count")
	s := must(d.NewStream())(t)
	out := must(d.Alloc(4 * 64))(t)
	launch := launchOf(f, 64, 64, pack(out.Address(), uint32(64), uint32(1)))
	stop := errors.New("stop")
	for _, c := range []struct {
		name   string
		record func() error
		want   error
	}{
		{"record fails", func() error { s.Launch(launch); return stop }, stop},
		{"record fails having queued nothing", func() error { return stop }, stop},
		{"synchronize", func() error { return s.Synchronize() }, driver.ErrInvalid},
		{"write, error ignored", func() error { s.Write(out.Address(), []byte{1}); return nil }, driver.ErrInvalid},
		{"nested", func() error {
			_, err := s.Capture(func() error { return nil })
			return err
		}, driver.ErrInvalid},
		{"allocation by this thread", func() error {
			_, err := d.Alloc(1 << 20)
			return err
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, err := s.Capture(c.record)
			t.Logf("%v", err)
			if c.want != nil {
				wantKind(t, err, c.want)
			}
			if err == nil && c.want == nil {
				ok(t, g.Close())
			}
			ok(t, s.Launch(launch))
			ok(t, s.Synchronize())
		})
	}
	t.Run("record panics", func(t *testing.T) {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			s.Capture(func() error { s.Launch(launch); panic("stop") })
		}()
		ok(t, s.Launch(launch))
		ok(t, s.Synchronize())
	})
}
