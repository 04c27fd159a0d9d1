package conformance

import (
	"errors"
	"testing"

	"github.com/lockstep-go/lockstep/accel"
	"github.com/lockstep-go/lockstep/model"
)

// cacheFixture is an engine with a cache of a few pages, and its sequences.
type cacheFixture struct {
	testing.TB
	e      *accel.Engine
	tokens []int
	opened []text
}

func newCacheFixture(t testing.TB, o accel.Options) *cacheFixture {
	t.Helper()
	m := minimalModel(t)
	r := &cacheFixture{TB: t, e: accelEngine(t, m, smallDevice, o), tokens: testTokens(m.Config.Vocab, 80)}
	t.Cleanup(r.closeAll)
	return r
}

func (r *cacheFixture) closeAll() {
	for _, s := range r.opened {
		s.Close()
	}
}

func (r *cacheFixture) keep(s text) text {
	r.opened = append(r.opened, s)
	return s
}

// open opens a sequence of n positions.
func (r *cacheFixture) open(n int) text {
	r.Helper()
	s := r.keep(openText(r, r.e))
	if n > 0 {
		promptThenSteps(r, s, r.tokens[:n], nil)
	}
	return s
}

func (r *cacheFixture) fork(s text, n int) text {
	r.Helper()
	return r.keep(fork(r, s, n))
}

func (r *cacheFixture) truncate(s text, n int) text {
	r.Helper()
	if err := s.Truncate(n); err != nil {
		r.Fatal(err)
	}
	return s
}

func (r *cacheFixture) swapOut(s text) text {
	r.Helper()
	if err := s.SwapOut(); err != nil {
		r.Fatal(err)
	}
	return s
}

// prompt computes n more positions.
func (r *cacheFixture) prompt(s text, n int) error {
	_, err := r.e.Step(r.Context(), []model.Row{r.row(s, n)})
	return err
}

func (r *cacheFixture) row(s text, n int) model.Row {
	return model.Row{Sequence: s.Sequence, Tokens: r.tokens[s.Len():][:n], Prompt: true}
}

func (r *cacheFixture) inUse(when string, want int) {
	r.Helper()
	if got := r.e.Stats().PagesInUse; got != want {
		r.Errorf("%s: %d pages are in use, want %d", when, got, want)
	}
}

// next returns the hash of the logits of the three tokens after a sequence.
func (r *cacheFixture) next(s text) string {
	r.Helper()
	return hashLogits(stepLogits(r, s, r.tokens[s.Len():][:3]))
}

// fresh is next of a new sequence of n positions in another engine.
func (r *cacheFixture) fresh(n int) string {
	r.Helper()
	other := newCacheFixture(r, accel.Options{})
	return other.next(other.open(n))
}

// TestAccelSharedPages forks a sequence at page boundaries and elsewhere. Each fork and the
// sequence must go on like a new sequence, whichever of them writes first, is truncated or closed.
func TestAccelSharedPages(t *testing.T) {
	parallelUnlessGPU(t)
	lengths := []int{70, 66, 64, 63, 9}
	r := newCacheFixture(t, accel.Options{})
	var want []string
	for _, n := range lengths {
		want = append(want, r.fresh(n))
	}
	s := r.open(70)
	check := func(when string) {
		t.Helper()
		var forks []text
		for _, n := range lengths {
			forks = append(forks, fork(t, s, n))
		}
		for i, f := range forks {
			if got := r.next(f); got != want[i] {
				t.Errorf("%s: after %d shared positions: %s, want %s", when, lengths[i], got, want[i])
			}
		}
		for _, f := range forks {
			f.Close()
		}
	}
	twin := r.fork(s, 70)
	r.inUse("two sequences share two pages", 2)
	check("shared")
	r.inUse("after the forks", 2)
	s, twin = twin, r.truncate(s, 40)
	promptThenSteps(t, twin, r.tokens[50:70], nil) // writes where the other's page was
	r.inUse("a page of its own", 3)
	check("after a copy")
	twin.Close()
	r.inUse("closed", 2)
	check("alone")
	if got := r.next(s); got != want[0] {
		t.Errorf("the sequence itself: %s, want %s", got, want[0])
	}
	s.Close()
	r.inUse("nothing", 0)
}

// TestAccelChangedTable demands that steps of a sequence use its page table as it is, after it was
// truncated, swapped out or got a copy of a page, while another sequence has its earlier page.
func TestAccelChangedTable(t *testing.T) {
	parallelUnlessGPU(t)
	for _, c := range []struct {
		name   string
		length int // of the sequence before three steps, of which the last is on the second page if it is 62
		prompt int // positions of the other sequence that were not computed by steps
		change func(r *cacheFixture, s text) (other text)
	}{
		{"truncated", 62, 9, func(r *cacheFixture, s text) text {
			r.truncate(s, 62)
			return r.open(9)
		}},
		{"swapped", 62, 9, func(r *cacheFixture, s text) text {
			r.swapOut(r.truncate(s, 62))
			other := r.open(9)
			if err := s.SwapIn(); err != nil {
				r.Fatal(err)
			}
			return other
		}},
		{"copied", 5, 5, func(r *cacheFixture, s text) text {
			other := r.fork(s, 8)
			stepLogits(r, r.truncate(s, 5), r.tokens[40:43]) // must not change the other
			r.truncate(s, 5)
			return other
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newCacheFixture(t, accel.Options{KVPages: 3})
			s := r.open(c.length)
			want := r.next(s)
			other := c.change(r, s)
			n := other.Len()
			var got string
			if c.name == "copied" { // before s writes the same values again
				got = r.next(other)
			}
			if got := r.next(s); got != want {
				t.Errorf("the sequence goes on with %s, want %s", got, want)
			}
			if got == "" {
				got = r.next(other)
			}
			alone := newCacheFixture(t, accel.Options{})
			same := alone.open(min(n, c.prompt))
			for same.Len() < n { // as steps
				stepLogits(t, same, r.tokens[same.Len():][:1])
			}
			if want := alone.next(same); got != want {
				t.Errorf("the other goes on with %s, want %s", got, want)
			}
		})
	}
}

var fullCases = []struct {
	name, reason string
	pages        int
	request      func(r *cacheFixture) error
	want         model.CacheFullError // the zero value: the request succeeds
	inUse        int
}{
	{"new", "no page for a new sequence", 2, func(r *cacheFixture) error {
		r.open(64)
		r.open(5)
		return r.prompt(r.open(0), 5)
	}, model.CacheFullError{Need: 1, Free: 0, Pages: 2}, 2},
	{"too few", "two pages are needed, and one is free", 3, func(r *cacheFixture) error {
		r.open(5)
		r.open(5)
		return r.prompt(r.open(0), 65)
	}, model.CacheFullError{Need: 2, Free: 1, Pages: 3}, 2},
	{"reserved", "a reserved page is not free, though nothing is in it", 2, func(r *cacheFixture) error {
		if err := r.open(5).Reserve(65); err != nil {
			r.Fatal(err)
		}
		return r.open(0).Reserve(1)
	}, model.CacheFullError{Need: 1, Free: 0, Pages: 2}, 2},
	{"two rows", "a step with pages for its first row only takes none", 2, func(r *cacheFixture) error {
		r.open(5)
		a, b := r.open(0), r.open(0)
		_, err := r.e.Step(r.Context(), []model.Row{r.row(a, 5), r.row(b, 5)})
		return err
	}, model.CacheFullError{Need: 1, Free: 0, Pages: 2}, 1},
	{"written", "two sequences share a page, and no page is free for a copy", 1, func(r *cacheFixture) error {
		s := r.open(60)
		r.fork(s, 60)
		return r.prompt(s, 3)
	}, model.CacheFullError{Need: 1, Free: 0, Pages: 1}, 1},
	{"written and more", "a page for the new tokens, but none for a copy", 2, func(r *cacheFixture) error {
		s := r.open(60)
		r.fork(s, 30)
		return r.prompt(s, 10)
	}, model.CacheFullError{Need: 2, Free: 1, Pages: 2}, 1},
	{"room for a copy", "reserving makes room for the copy too", 2, func(r *cacheFixture) error {
		s := r.open(60)
		r.fork(s, 60)
		if err := s.Reserve(61); err != nil {
			return err
		}
		if r.prompt(r.open(0), 1) == nil {
			r.Error("the page of the copy was free")
		}
		return r.prompt(s, 3)
	}, model.CacheFullError{}, 2},
	{"alone again", "the page is not shared after the fork is closed", 1, func(r *cacheFixture) error {
		s := r.open(60)
		r.fork(s, 60).Close()
		return r.prompt(s, 1)
	}, model.CacheFullError{}, 1},
	{"truncated", "a truncated sequence leaves its pages", 2, func(r *cacheFixture) error {
		r.truncate(r.open(65), 64)
		return r.prompt(r.open(0), 5)
	}, model.CacheFullError{}, 2},
	{"swapped out", "a swapped sequence leaves its pages", 2, func(r *cacheFixture) error {
		r.swapOut(r.open(65))
		return r.prompt(r.open(0), 65)
	}, model.CacheFullError{}, 2},
	{"swapped out, shared", "pages that a fork shares are not free", 2, func(r *cacheFixture) error {
		s := r.open(65)
		r.fork(s, 65)
		r.swapOut(s)
		return r.prompt(r.open(0), 5)
	}, model.CacheFullError{Need: 1, Free: 0, Pages: 2}, 2},
	{"swapped in", "no page for a sequence that comes back", 2, func(r *cacheFixture) error {
		s := r.swapOut(r.open(65))
		r.open(5)
		return s.SwapIn()
	}, model.CacheFullError{Need: 2, Free: 1, Pages: 2}, 1},
	{"swapped in and out", "twice, and to other pages", 3, func(r *cacheFixture) error {
		s := r.swapOut(r.open(65))
		r.open(5)
		if err := s.SwapIn(); err != nil {
			return err
		}
		r.swapOut(s)
		return s.SwapIn()
	}, model.CacheFullError{}, 3},
}

// TestAccelFullCache demands that a request that finds too few pages changes nothing, and that
// every sequence goes on once there is room.
func TestAccelFullCache(t *testing.T) {
	slowParallel(t)
	want := map[int]string{}
	for _, c := range fullCases {
		t.Run(c.name, func(t *testing.T) {
			r := newCacheFixture(t, accel.Options{KVPages: c.pages})
			err := c.request(r)
			if c.want.Pages > 0 {
				c.want.PageTokens = 64
			}
			var full *model.CacheFullError
			fits := c.want == model.CacheFullError{}
			if fits != (err == nil) || !fits && (!errors.As(err, &full) || !errors.Is(err, model.ErrCacheFull) || *full != c.want) {
				t.Errorf("%s: error %v, want %+v", c.reason, err, c.want)
			}
			r.inUse(c.reason, c.inUse)
			for _, s := range r.opened { // so that they go on one after the other
				if n := s.Len(); n > 0 && s.Truncate(n) == nil { // else it is swapped out already
					r.swapOut(s)
				}
			}
			for i, s := range r.opened {
				n := s.Len()
				if n == 0 { // empty or closed
					continue
				}
				if err := s.SwapIn(); err != nil {
					t.Fatal(err)
				}
				if want[n] == "" {
					want[n] = r.fresh(n)
				}
				if got := r.next(s); got != want[n] {
					t.Errorf("sequence %d goes on after %d positions with %s, want %s", i, n, got, want[n])
				}
				s.Close()
			}
			r.inUse("all are closed", 0)
		})
	}
}
