package generate

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

// PrefixStats counts the work of a prefix cache since its generator was made.
type PrefixStats struct {
	Hits      int // requests that shared a prefix with an entry
	Misses    int // requests that shared none
	Reused    int // positions that hits did not compute
	Evictions int // entries dropped to make room
	Entries   int // in the cache at present
	Positions int // of these entries; those that several begin with count once
}

// prefixCache holds the sequences of earlier requests: of prompts, and of prompts with what was generated after them. They share
// pages with the requests that computed them and with those that reuse them. If they have more
// than limit positions together, the least recently used is closed.
//
// Entries are sorted, and none is a prefix of another. So the entry that shares most with a
// prompt stands just before or after the prompt's own place in the order.
type prefixCache struct {
	limit   int  // positions of all entries; negative: no cache
	async   bool // a step behind a prompt is queued before the prompt is stored
	entries []*prefixEntry
	uses    int // of entries; it orders them by their last use
	stats   PrefixStats
}

// prefixEntry is a sequence and its tokens.
type prefixEntry struct {
	tokens   []int
	sequence model.Sequence
	lastUse  int // prefixCache.uses at that time
}

// compare orders entries by capacity, which selects the RoPE factors, and then by tokens.
func (e *prefixEntry) compare(capacity int, tokens []int) int {
	return cmp.Or(cmp.Compare(e.sequence.Cap(), capacity), slices.Compare(e.tokens, tokens))
}

// use marks an entry as the one that was used last.
func (c *prefixCache) use(e *prefixEntry) {
	c.uses++
	e.lastUse = c.uses
}

// search returns the index of the entry of some tokens, or the index at which it would be inserted.
func (c *prefixCache) search(capacity int, tokens []int) int {
	i, _ := slices.BinarySearchFunc(c.entries, tokens, func(e *prefixEntry, t []int) int { return e.compare(capacity, t) })
	return i
}

// find returns the entry that begins with most of the tokens, and their number; 0: none.
func (c *prefixCache) find(capacity int, tokens []int) (best *prefixEntry, n int) {
	at := c.search(capacity, tokens)
	for _, e := range c.entries[max(0, at-1):min(at+1, len(c.entries))] {
		if e.sequence.Cap() == capacity {
			if k := commonPrefix(e.tokens, tokens); k > n {
				best, n = e, k
			}
		}
	}
	return best, n
}

// commonPrefix returns how many tokens a and b begin with in common.
func commonPrefix(a, b []int) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// resumesAt returns the largest position, at most n, where a fork of a sequence computes nothing again.
func resumesAt(s model.Sequence, n int) int {
	if r, ok := s.(model.Resumer); ok && n > 0 {
		return r.ResumesAt(n)
	}
	return n
}

// fork returns a sequence for a request and the number of positions that it has already. The
// last position of the prompt is never among them, because its logits are needed. Nor are those that the engine
// would compute again: the request computes them as part of its prompt, within the scheduler's bounds.
func (c *prefixCache) fork(engine model.Engine, r *request) (model.Sequence, int, error) {
	var e *prefixEntry
	n := 0
	if c.serves(r) {
		e, n = c.find(r.capacity, r.prompt)
		if n = min(n, len(r.prompt)-1); n > 0 {
			n = resumesAt(e.sequence, n)
		}
	}
	if n == 0 {
		s, err := engine.NewSequence(r.capacity)
		return s, 0, err
	}
	c.use(e)
	s, err := e.sequence.Fork(n)
	return s, n, err
}

// serves reports whether a request can share its prompt. An embedding cannot, because it needs
// the states of all positions.
func (c *prefixCache) serves(r *request) bool { return c.limit > 0 && r.pool == nil }

// fits reports whether tokens of a request may enter the cache.
func (c *prefixCache) fits(r *request, tokens []int) bool {
	return c.serves(r) && len(tokens) <= c.limit
}

// count counts a request that is admitted with n positions of an entry.
func (c *prefixCache) count(r *request, n int) {
	switch {
	case n > 0:
		c.stats.Hits++
		c.stats.Reused += n
	case c.serves(r):
		c.stats.Misses++
	}
}

// awaits reports whether the waiting request r should wait until the running request q has
// computed its prompt. It should if that saves r at least half as many tokens as q has still to
// compute.
func (c *prefixCache) awaits(r, q *request) bool {
	computed := !q.firstToken.IsZero()
	if computed || r.preempted || !c.serves(r) || !c.fits(q, q.prompt) || r.capacity != q.capacity {
		return false
	}
	saved := min(commonPrefix(r.prompt, q.prompt), len(r.prompt)-1)
	if saved < len(q.prompt) || c.async { // else the prompt of q is stored with the state at its end
		saved = resumesAt(q.sequence, saved)
	}
	if e, n := c.find(r.capacity, r.prompt); n > 0 {
		saved -= resumesAt(e.sequence, n)
	}
	return saved > 0 && len(q.prompt)-q.computed <= 2*saved
}

// store adds tokens of a request, the first ones that its sequence has computed. If pages run out, it does nothing.
func (c *prefixCache) store(r *request, tokens []int) error {
	if !c.fits(r, tokens) {
		return nil
	}
	if e, n := c.find(r.capacity, tokens); n == len(tokens) { // part of an entry
		c.use(e)
		return nil
	}
	s, err := r.sequence.Fork(len(tokens))
	if errors.Is(err, model.ErrCacheFull) {
		return nil
	}
	if err != nil {
		return err
	}
	at := c.search(r.capacity, tokens)
	e := &prefixEntry{tokens: tokens, sequence: s}
	c.use(e)
	c.entries = slices.Insert(c.entries, at, e)
	c.stats.Positions += c.unshared(at)
	if at > 0 { // only the entry before the new one can be a prefix of it
		old := c.entries[at-1]
		if old.sequence.Cap() == r.capacity && commonPrefix(old.tokens, tokens) == len(old.tokens) {
			err = c.remove(at - 1)
		}
	}
	for c.stats.Positions > c.limit {
		c.stats.Evictions++
		err = errors.Join(err, c.remove(c.leastRecent()))
	}
	return err
}

// unshared returns the number of positions of an entry that no other entry has. Entries are sorted, so a neighbor shares most with it.
func (c *prefixCache) unshared(i int) int {
	e, shared := c.entries[i], 0
	for _, j := range []int{i - 1, i + 1} {
		if j >= 0 && j < len(c.entries) && c.entries[j].sequence.Cap() == e.sequence.Cap() {
			shared = max(shared, commonPrefix(e.tokens, c.entries[j].tokens))
		}
	}
	return len(e.tokens) - shared
}

// leastRecent returns the index of the least recently used entry.
func (c *prefixCache) leastRecent() int {
	at := 0
	for i, e := range c.entries {
		if e.lastUse < c.entries[at].lastUse {
			at = i
		}
	}
	return at
}

// evict removes the least recently used entry, to free its pages. ok is false if there is none. The error is that of
// closing the entry's sequence.
func (c *prefixCache) evict() (ok bool, err error) {
	if len(c.entries) == 0 {
		return false, nil
	}
	c.stats.Evictions++
	return true, c.remove(c.leastRecent())
}

// remove removes and closes an entry.
func (c *prefixCache) remove(i int) error {
	e := c.entries[i]
	c.stats.Positions -= c.unshared(i)
	c.entries = slices.Delete(c.entries, i, i+1)
	return guard(e.sequence.Close)
}

// close removes all entries.
func (c *prefixCache) close() (err error) {
	for len(c.entries) > 0 {
		err = errors.Join(err, c.remove(len(c.entries)-1))
	}
	return err
}
