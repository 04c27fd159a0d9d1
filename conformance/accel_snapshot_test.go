package conformance

import (
	"runtime"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// snapshotRig is a sequence of more than a page, a snapshot of it, and what steps behind
// each of its prefixes give.
type snapshotRig struct {
	testing.TB
	e      *accel.Engine
	all    []int
	s      model.Session
	snap   model.Snapshot
	length int
}

func newSnapshotRig(t testing.TB, o accel.Options) *snapshotRig {
	t.Helper()
	m := minimalModel(t)
	r := &snapshotRig{TB: t, e: accelEngine(t, m, smallDevice, o), all: spread(m.Config.Vocab, 80), length: 70}
	r.s = openSession(t, r.e)
	stepwise(t, r.s, r.all[:r.length], nil)
	var err error
	if r.snap, err = r.s.Snapshot(r.length); err != nil {
		t.Fatal(err)
	}
	return r
}

// behind is what the next tokens give behind the first n.
func (r *snapshotRig) behind(s model.Session, n int) string {
	r.Helper()
	return stream(steps(r, s, r.all[n:n+3]))
}

// check restores prefixes of the snapshot, at every kind of border, and wants what was
// never restored.
func (r *snapshotRig) check(when string) {
	r.Helper()
	for _, n := range []int{70, 66, 64, 63, 9} {
		s, fresh := openSession(r, r.e), openSession(r, r.e)
		stepwise(r, fresh, r.all[:n], nil)
		want := r.behind(fresh, n)
		fresh.Close()
		if err := s.Restore(r.snap, n); err != nil {
			r.Fatalf("%s: restoring %d: %v", when, n, err)
		}
		if got := r.behind(s, n); got != want || s.Len() != n+3 {
			r.Errorf("%s: behind %d restored positions: %s, want %s", when, n, got, want)
		}
		s.Close()
	}
}

func (r *snapshotRig) inUse(when string, want int) {
	r.Helper()
	if got := r.e.Stats().PagesInUse; got != want {
		r.Errorf("%s: %d pages are in use, want %d", when, got, want)
	}
}

// TestAccelSharedPages lets a snapshot keep the whole pages of a sequence that goes on,
// goes back into them or is closed.
func TestAccelSharedPages(t *testing.T) {
	beside(t)
	r := newSnapshotRig(t, accel.Options{})
	r.inUse("one whole page shared", 2)
	r.check("shared")
	if err := r.s.Truncate(40); err != nil {
		t.Fatal(err)
	}
	stepwise(t, r.s, r.all[50:70], nil) // writes where the snapshot's page was
	r.inUse("the sequence's page is its own", 2)
	r.check("behind a copy")
	r.s.Close()
	r.inUse("the snapshot's page", 1)
	r.check("alone")
	if err := r.snap.Close(); err != nil {
		t.Fatal(err)
	}
	r.inUse("no snapshot", 0)
}

// TestAccelSpilledPages wants a snapshot to make room for sequences by going to host
// memory, from where it is as good.
func TestAccelSpilledPages(t *testing.T) {
	r := newSnapshotRig(t, accel.Options{KVPages: 3})
	r.s.Close()
	r.inUse("the snapshot's page", 1)
	other := openSession(t, r.e)
	stepwise(t, other, r.all[:65], nil)
	r.inUse("full", 3)
	third := openSession(t, r.e)
	stepwise(t, third, r.all[:5], nil)
	r.inUse("full again", 3)
	if s := r.e.Stats(); s.Spills != 1 {
		t.Errorf("%d snapshots made room, want 1", s.Spills)
	}
	if err := third.Restore(r.snap, 70); err == nil {
		t.Error("two pages were restored where there are none")
	}
	if got := third.Len(); got != 5 {
		t.Errorf("after a restore that failed the session holds %d positions", got)
	}
	other.Close()
	third.Close()
	r.check("from host memory")
	runtime.KeepAlive(r.snap)
}

// TestAccelRestoreInTheWay: a snapshot that fills the cache is restored in part, which takes a
// page of its own: its other pages make room.
func TestAccelRestoreInTheWay(t *testing.T) {
	m := minimalModel(t)
	e := accelEngine(t, m, smallDevice, accel.Options{KVPages: 1, Prefill: accel.Stepwise})
	tokens := spread(m.Config.Vocab, 64)
	session := func() model.Session {
		s, err := e.NewSession(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	forward := func(s model.Session, tokens []int, want model.Want) []float32 {
		t.Helper()
		out, err := s.Forward(t.Context(), tokens, want)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(out.Logits)
	}
	first := session()
	forward(first, tokens[:40], model.WantNothing)
	want := forward(first, tokens[40:41], model.WantLast)
	forward(first, tokens[41:], model.WantNothing)
	snap, err := first.Snapshot(64)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := session()
	if err := second.Restore(snap, 40); err != nil {
		t.Fatal(err)
	}
	if i := firstDifference(want, forward(second, tokens[40:41], model.WantLast)); i >= 0 {
		t.Errorf("logit %d is not what it was", i)
	}
}

// TestAccelTapPanics: a tap that panics in a step leaves an engine that can be used and closed.
func TestAccelTapPanics(t *testing.T) {
	m := minimalModel(t)
	panics := true
	e := accelEngine(t, m, smallDevice, accel.Options{KVPages: 2, Prefill: accel.Stepwise, Tap: func(int, string, int, int, []float32) {
		if panics {
			panic("from a tap")
		}
	}})
	s, err := e.NewSession(0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic did not arrive")
			}
		}()
		s.Forward(t.Context(), []int{3}, model.WantGreedy)
	}()
	panics = false
	if _, err := s.Forward(t.Context(), []int{3}, model.WantGreedy); err != nil || s.Len() != 1 {
		t.Errorf("afterwards: %v, %d positions", err, s.Len())
	}
}
