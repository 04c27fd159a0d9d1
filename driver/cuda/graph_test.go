package cuda

import (
	"errors"
	"testing"

	"github.com/lockstep-go/lockstep/driver"
)

func TestGraph(t *testing.T) { each(t, testGraph) }

// replayed is the work of a graph: it writes first, first+1, … to a, copies a to b and clears a.
type replayed struct {
	stream driver.Stream
	kernel driver.Function
	a, b   driver.Address
}

const replayedWords = 1000

func newReplayed(t *testing.T, d *Device) replayed {
	return replayed{
		must(d.NewStream())(t), kernel(t, d, "count_up"),
		must(d.Alloc(4 * replayedWords))(t).Address(), must(d.Alloc(4 * replayedWords))(t).Address(),
	}
}

func (r replayed) capture(t *testing.T, first uint32) driver.Graph {
	t.Helper()
	return must(r.stream.Capture(func() error {
		return errors.Join(
			r.stream.Launch(launchOf(r.kernel, replayedWords, 128, pack(r.a, uint32(replayedWords), first))),
			r.stream.Copy(r.b, r.a, 4*replayedWords),
			r.stream.Fill(r.a, 0, 4*replayedWords),
		)
	}))(t)
}

func (r replayed) check(t *testing.T, first uint32) {
	t.Helper()
	got := make([]byte, 4*replayedWords)
	ok(t, r.stream.Read(got, r.b))
	for i, v := range words(got) {
		if v != first+uint32(i) {
			t.Fatalf("out[%d] = %d, want %d", i, v, first+uint32(i))
		}
	}
}

func testGraph(t *testing.T, open opener) {
	r := newReplayed(t, open(t, options{noCache: true}))
	g := r.capture(t, 5)
	for range 3 {
		ok(t, r.stream.Fill(r.b, 0, 4*replayedWords))
		ok(t, g.Launch(r.stream))
		r.check(t, 5)
	}
	other := r.capture(t, 77)
	ok(t, other.Launch(r.stream))
	r.check(t, 77)
	ok(t, other.Close())
	ok(t, g.Launch(r.stream))
	r.check(t, 5)
	ok(t, g.Close())
}

// TestFailedCaptures checks that the stream can be used after each failure.
func TestFailedCaptures(t *testing.T) { each(t, testFailedCaptures) }

func testFailedCaptures(t *testing.T, open opener) {
	d := open(t, options{noCache: true})
	f := kernel(t, d, "count_up")
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
		{"record fails before it queues work", func() error { return stop }, stop},
		{"synchronize", func() error { return s.Synchronize() }, driver.ErrInvalid},
		{"write, its error ignored", func() error { s.Write(out.Address(), []byte{1}); return nil }, driver.ErrInvalid},
		{"nested", func() error {
			_, err := s.Capture(func() error { return nil })
			return err
		}, driver.ErrInvalid},
		{"allocation during the capture", func() error {
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
}

func TestPanickingCapture(t *testing.T) { each(t, testPanickingCapture) }

func testPanickingCapture(t *testing.T, open opener) {
	r := newReplayed(t, open(t, options{noCache: true}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		r.stream.Capture(func() error {
			ok(t, r.stream.Fill(r.b, 0xee, 4))
			panic("stop")
		})
	}()
	ok(t, r.capture(t, 3).Launch(r.stream))
	r.check(t, 3)
}
