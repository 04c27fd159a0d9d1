package conformance

import (
	"errors"
	"slices"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// evictionFixture is an engine with a cache of a few pages, and its sessions and snapshots.
type evictionFixture struct {
	testing.TB
	e         *accel.Engine
	tokens    []int
	opened    []model.Session
	snapshots []model.Snapshot
}

func (r *evictionFixture) open() model.Session {
	r.Helper()
	s := openSession(r, r.e)
	r.opened = append(r.opened, s)
	return s
}

func (r *evictionFixture) closeAll() {
	for _, s := range r.opened {
		s.Close()
	}
}

// check restores all snapshots, wherever they are, and compares the next step with want.
func (r *evictionFixture) check(want string) {
	r.Helper()
	r.closeAll()
	for i, snap := range r.snapshots {
		s := r.open()
		if err := s.Restore(snap, 63); err != nil {
			r.Fatalf("snapshot %d: %v", i, err)
		}
		if got := hashLogits(stepLogits(r, s, r.tokens[63:64])); got != want {
			r.Errorf("snapshot %d restores other values", i)
		}
		s.Close()
	}
}

// live opens a sequence of n positions.
func (r *evictionFixture) live(n int) model.Session {
	r.Helper()
	s := r.open()
	promptThenSteps(r, s, r.tokens[:n], nil)
	return s
}

// snapshot takes a snapshot of n positions of a sequence.
func (r *evictionFixture) snapshot(s model.Session, n int) model.Snapshot {
	r.Helper()
	snap, err := s.Snapshot(n)
	if err != nil {
		r.Fatal(err)
	}
	r.snapshots = append(r.snapshots, snap)
	return snap
}

// leaveSnapshot takes a snapshot of a page and closes its sequence.
func (r *evictionFixture) leaveSnapshot() {
	r.Helper()
	s := r.live(64)
	r.snapshot(s, 64)
	s.Close()
}

// prompt computes n more positions.
func (r *evictionFixture) prompt(s model.Session, n int) error {
	_, err := s.Forward(r.Context(), r.tokens[s.Len():][:n], model.WantNothing)
	return err
}

// begin computes n positions of a new sequence.
func (r *evictionFixture) begin(n int) error { return r.prompt(r.open(), n) }

func (r *evictionFixture) restore(snap model.Snapshot, n int) error { return r.open().Restore(snap, n) }

// truncated truncates a sequence into its first page.
func (r *evictionFixture) truncated(s model.Session) model.Session {
	if err := s.Truncate(40); err != nil {
		r.Fatal(err)
	}
	return s
}

var evictionCases = []struct {
	name, reason string
	pages        int
	request      func(r *evictionFixture) error
	want         accel.KVFullError // the zero value: the request succeeds
	evictions    int
}{
	{"enough", "a snapshot has the only page", 2, func(r *evictionFixture) error {
		r.live(5)
		r.leaveSnapshot()
		return r.begin(5)
	}, accel.KVFullError{}, 1},
	{"one of two", "only as many snapshots are evicted as needed", 3, func(r *evictionFixture) error {
		r.live(5)
		r.leaveSnapshot()
		r.leaveSnapshot()
		return r.begin(5)
	}, accel.KVFullError{}, 1},
	{"too few", "two pages are needed, and all snapshots together have one", 3, func(r *evictionFixture) error {
		r.live(5)
		r.live(5)
		r.leaveSnapshot()
		return r.begin(65)
	}, accel.KVFullError{Need: 2, Free: 1, Pages: 3}, 0},
	{"in use", "evicting a snapshot does not free a page that a sequence shares", 2, func(r *evictionFixture) error {
		r.live(5)
		r.snapshot(r.live(64), 64)
		return r.begin(5)
	}, accel.KVFullError{Need: 1, Free: 0, Pages: 2}, 0},
	{"two of one page", "two snapshots share a page; both are evicted", 1, func(r *evictionFixture) error {
		s := r.live(64)
		r.snapshot(s, 64)
		r.snapshot(s, 64)
		s.Close()
		return r.begin(5)
	}, accel.KVFullError{}, 2},
	{"passed over", "the oldest snapshot has no page of its own, the next one has", 3, func(r *evictionFixture) error {
		r.snapshot(r.live(64), 64)
		r.live(5)
		r.leaveSnapshot()
		return r.begin(5)
	}, accel.KVFullError{}, 1},
	{"restored", "the whole page is shared, and the partial page finds no page", 2, func(r *evictionFixture) error {
		s := r.live(70)
		snap := r.snapshot(s, 70)
		s.Close()
		r.live(5)
		return r.restore(snap, 70)
	}, accel.KVFullError{Need: 1, Free: 0, Pages: 2}, 0},
	{"written", "only a snapshot shares the page; it is evicted instead of copied", 1, func(r *evictionFixture) error {
		s := r.live(64)
		r.snapshot(s, 64)
		return r.prompt(r.truncated(s), 3)
	}, accel.KVFullError{}, 1},
	{"written, shared", "two sequences share a page, and no page is free for a copy", 1, func(r *evictionFixture) error {
		s := r.live(64)
		if err := r.restore(r.snapshot(s, 64), 64); err != nil {
			r.Fatal(err)
		}
		return r.prompt(r.truncated(s), 3)
	}, accel.KVFullError{Need: 1, Free: 0, Pages: 1}, 0},
	{"written and more", "a page for the new tokens, but none for a copy", 2, func(r *evictionFixture) error {
		s := r.live(64)
		r.snapshot(s, 64)
		return r.prompt(r.truncated(s), 30)
	}, accel.KVFullError{}, 1},
	{"written and too much", "no page for new tokens or a copy", 2, func(r *evictionFixture) error {
		s := r.live(64)
		r.snapshot(s, 64)
		r.live(5)
		return r.prompt(r.truncated(s), 30)
	}, accel.KVFullError{Need: 2, Free: 0, Pages: 2}, 0},
}

// TestAccelEviction demands that snapshots are swapped out to host memory if that frees enough
// pages for a request, and that none is swapped out otherwise.
func TestAccelEviction(t *testing.T) {
	slowParallel(t)
	m := minimalModel(t)
	tokens := testTokens(m.Config.Vocab, 80)
	want := hashLogits(freshLogits(t, accelEngine(t, m, smallDevice, accel.Options{}), tokens[:63], tokens[63:64]))
	for _, c := range evictionCases {
		t.Run(c.name, func(t *testing.T) {
			r := &evictionFixture{TB: t, e: accelEngine(t, m, smallDevice, accel.Options{KVPages: c.pages}), tokens: tokens}
			err := c.request(r)
			var full *accel.KVFullError
			fits := c.want == accel.KVFullError{}
			if fits != (err == nil) || !fits && (!errors.As(err, &full) || *full != c.want) {
				t.Errorf("%s: error %v, want %+v", c.reason, err, c.want)
			}
			if s := r.e.Stats(); s.SwapOuts != c.evictions || s.PagesInUse > c.pages {
				t.Errorf("%s: %d snapshots were evicted, want %d", c.reason, s.SwapOuts, c.evictions)
			}
			r.check(want)
		})
	}
}

// TestAccelOpenSnapshot demands that an open snapshot is counted and keeps its page after its
// session is closed, and that Close frees the page at once.
func TestAccelOpenSnapshot(t *testing.T) {
	m := minimalModel(t)
	r := &evictionFixture{TB: t, e: accelEngine(t, m, smallDevice, accel.Options{KVPages: 1}), tokens: testTokens(m.Config.Vocab, 64)}
	defer r.closeAll()
	r.leaveSnapshot()
	if s := r.e.Stats(); s.Snapshots != 1 || s.PagesInUse != 1 {
		t.Errorf("%d snapshots are open and %d pages in use, want 1 and 1", s.Snapshots, s.PagesInUse)
	}
	for range 2 { // closing again does nothing
		if err := r.snapshots[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.e.Stats(); s.Snapshots != 0 || s.PagesInUse != 0 {
		t.Errorf("after Close %d snapshots are open and %d pages in use", s.Snapshots, s.PagesInUse)
	}
	if err := r.begin(5); err != nil {
		t.Errorf("a sequence in an empty cache: %v", err)
	}
	if n := r.e.Stats().SwapOuts; n != 0 {
		t.Errorf("%d snapshots were swapped out, want none", n)
	}
}

// snapshotFixture is a sequence of more than a page and a snapshot of it.
type snapshotFixture struct {
	testing.TB
	e      *accel.Engine
	all    []int
	s      model.Session
	snap   model.Snapshot
	length int
}

func newSnapshotFixture(t testing.TB, o accel.Options) *snapshotFixture {
	t.Helper()
	m := minimalModel(t)
	r := &snapshotFixture{TB: t, e: accelEngine(t, m, smallDevice, o), all: testTokens(m.Config.Vocab, 80), length: 70}
	r.s = openSession(t, r.e)
	promptThenSteps(t, r.s, r.all[:r.length], nil)
	var err error
	if r.snap, err = r.s.Snapshot(r.length); err != nil {
		t.Fatal(err)
	}
	return r
}

// next returns the hash of the logits of the three tokens after the first n.
func (r *snapshotFixture) next(s model.Session, n int) string {
	r.Helper()
	return hashLogits(stepLogits(r, s, r.all[n:n+3]))
}

// check restores prefixes of the snapshot, at page boundaries and elsewhere, and compares
// the next steps with those of a new sequence.
func (r *snapshotFixture) check(when string) {
	r.Helper()
	for _, n := range []int{70, 66, 64, 63, 9} {
		s, fresh := openSession(r, r.e), openSession(r, r.e)
		promptThenSteps(r, fresh, r.all[:n], nil)
		want := r.next(fresh, n)
		fresh.Close()
		if err := s.Restore(r.snap, n); err != nil {
			r.Fatalf("%s: restoring %d: %v", when, n, err)
		}
		if got := r.next(s, n); got != want || s.Len() != n+3 {
			r.Errorf("%s: after %d restored positions: %s, want %s", when, n, got, want)
		}
		s.Close()
	}
}

func (r *snapshotFixture) inUse(when string, want int) {
	r.Helper()
	if got := r.e.Stats().PagesInUse; got != want {
		r.Errorf("%s: %d pages are in use, want %d", when, got, want)
	}
}

// TestAccelSharedPages demands that a snapshot keeps the whole pages of a sequence that
// continues, is truncated or is closed.
func TestAccelSharedPages(t *testing.T) {
	parallelUnlessGPU(t)
	r := newSnapshotFixture(t, accel.Options{})
	r.inUse("one whole page shared", 2)
	r.check("shared")
	if err := r.s.Truncate(40); err != nil {
		t.Fatal(err)
	}
	promptThenSteps(t, r.s, r.all[50:70], nil) // writes where the snapshot's page was
	r.inUse("the sequence's page is its own", 2)
	r.check("after a copy")
	r.s.Close()
	r.inUse("the snapshot's page", 1)
	r.check("alone")
	if err := r.snap.Close(); err != nil {
		t.Fatal(err)
	}
	r.inUse("no snapshot", 0)
}

// TestAccelSwappedPages demands that a sequence evicts a snapshot to host memory, and that
// the snapshot can then be restored.
func TestAccelSwappedPages(t *testing.T) {
	r := newSnapshotFixture(t, accel.Options{KVPages: 3})
	r.s.Close()
	r.inUse("the snapshot's page", 1)
	other := openSession(t, r.e)
	promptThenSteps(t, other, r.all[:65], nil)
	r.inUse("full", 3)
	third := openSession(t, r.e)
	promptThenSteps(t, third, r.all[:5], nil)
	r.inUse("full again", 3)
	if s := r.e.Stats(); s.SwapOuts != 1 {
		t.Errorf("%d snapshots were evicted, want 1", s.SwapOuts)
	}
	if err := third.Restore(r.snap, 70); err == nil {
		t.Error("restoring two pages without free pages gave no error")
	}
	if got := third.Len(); got != 5 {
		t.Errorf("after a failed restore the session has %d positions, want 5", got)
	}
	other.Close()
	third.Close()
	r.check("from host memory")
}

// TestAccelRestoreFromFullCache restores a part of a snapshot that fills the cache. The
// partial page needs a copy, so the snapshot must be evicted to free a page.
func TestAccelRestoreFromFullCache(t *testing.T) {
	m := minimalModel(t)
	e := accelEngine(t, m, smallDevice, accel.Options{KVPages: 1, Prefill: accel.PrefillExact})
	tokens := testTokens(m.Config.Vocab, 64)
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
		t.Errorf("logit %d differs", i)
	}
}
