package generate

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lockstep-go/lockstep/model"
)

// PrefixStats counts the work of a prefix cache since its generator was made.
type PrefixStats struct {
	Hits      int // requests that shared a prefix with an earlier prompt
	Misses    int // requests that shared none
	Reused    int // positions that hits did not compute
	Evictions int // entries dropped to make room
	Entries   int // prompts in the cache at present
	Positions int // of these prompts
}

// prefixCache holds the sequences of earlier prompts, without generated positions. They share
// pages with the requests that computed them and with those that reuse them. If they have more
// than limit positions together, the least recently used is closed.
//
// Entries are sorted, and none is a prefix of another. So the entry that shares most with a
// prompt is beside the place where that would stand.
type prefixCache struct {
	limit   int
	entries []*prefixEntry
	clock   int // counts uses
	stats   PrefixStats
}

// prefixEntry is the sequence of a prompt.
type prefixEntry struct {
	tokens   []int
	sequence model.Sequence
	used     int // clock of the last use
}

// compare orders entries by capacity, which selects the RoPE factors, and then by tokens.
func (e *prefixEntry) compare(capacity int, tokens []int) int {
	return cmp.Or(cmp.Compare(e.sequence.Cap(), capacity), slices.Compare(e.tokens, tokens))
}

// place returns where an entry stands or would stand.
func (c *prefixCache) place(capacity int, tokens []int) int {
	i, _ := slices.BinarySearchFunc(c.entries, tokens, func(e *prefixEntry, t []int) int { return e.compare(capacity, t) })
	return i
}

// find returns the entry that shares most tokens with a prompt, and their number; 0: none.
func (c *prefixCache) find(capacity int, prompt []int) (best *prefixEntry, n int) {
	at := c.place(capacity, prompt)
	for _, e := range c.entries[max(0, at-1):min(at+1, len(c.entries))] {
		if e.sequence.Cap() == capacity {
			if k := commonPrefix(e.tokens, prompt); k > n {
				best, n = e, k
			}
		}
	}
	return best, n
}

func commonPrefix(a, b []int) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// fork returns a sequence for a request and the number of positions that it has already: at
// most all but the last of the prompt, whose logits are needed.
func (c *prefixCache) fork(engine model.Engine, r *request) (model.Sequence, int, error) {
	var e *prefixEntry
	n := 0
	if c.uses(r) {
		e, n = c.find(r.capacity, r.prompt)
		n = min(n, len(r.prompt)-1)
	}
	if n == 0 {
		s, err := engine.NewSequence(r.capacity)
		return s, 0, err
	}
	c.clock++
	e.used = c.clock
	s, err := e.sequence.Fork(n)
	return s, n, err
}

// uses reports whether a request can share its prompt. An embedding cannot, as it needs the
// states of all positions.
func (c *prefixCache) uses(r *request) bool { return c.limit > 0 && r.pool == nil }

// count counts a request that is admitted with n positions of an earlier prompt.
func (c *prefixCache) count(r *request, n int) {
	switch {
	case n > 0:
		c.stats.Hits++
		c.stats.Reused += n
	case c.uses(r):
		c.stats.Misses++
	}
}

// awaits reports whether request r should wait until request q has computed its prompt: if
// that saves r at least half as many tokens as q has still to compute.
func (c *prefixCache) awaits(r, q *request) bool {
	if !q.first.IsZero() || r.sequence != nil || !c.uses(r) || !c.uses(q) || len(q.prompt) > c.limit || r.capacity != q.capacity {
		return false
	}
	_, n := c.find(r.capacity, r.prompt)
	saved := min(commonPrefix(r.prompt, q.prompt), len(r.prompt)-1) - n
	return saved > 0 && len(q.prompt)-q.computed <= 2*saved
}

// store keeps the prompt of a request that has computed it.
func (c *prefixCache) store(r *request) error {
	if !c.uses(r) || len(r.prompt) > c.limit {
		return nil
	}
	if e, n := c.find(r.capacity, r.prompt); n == len(r.prompt) { // an entry has all of it
		c.clock++
		e.used = c.clock
		return nil
	}
	s, err := r.sequence.Fork(len(r.prompt))
	if errors.Is(err, model.ErrCacheFull) {
		return nil
	}
	if err != nil {
		return err
	}
	at := c.place(r.capacity, r.prompt)
	c.clock++
	c.entries = slices.Insert(c.entries, at, &prefixEntry{r.prompt, s, c.clock})
	c.stats.Positions += len(r.prompt)
	if at > 0 { // the entry before the new one may be a prefix of it
		old := c.entries[at-1]
		if old.sequence.Cap() == r.capacity && commonPrefix(old.tokens, r.prompt) == len(old.tokens) {
			err = c.remove(at - 1)
		}
	}
	for c.stats.Positions > c.limit {
		c.stats.Evictions++
		err = errors.Join(err, c.remove(c.oldest()))
	}
	return err
}

// oldest returns the index of the entry that was not used for longest.
func (c *prefixCache) oldest() int {
	at := 0
	for i, e := range c.entries {
		if e.used < c.entries[at].used {
			at = i
		}
	}
	return at
}

// drop removes the entry that was not used for longest, to free its pages. It returns false
// if there is none.
func (c *prefixCache) drop() bool {
	if len(c.entries) == 0 {
		return false
	}
	c.stats.Evictions++
	c.remove(c.oldest())
	return true
}

// remove takes an entry out of the cache.
func (c *prefixCache) remove(i int) error {
	e := c.entries[i]
	c.entries = slices.Delete(c.entries, i, i+1)
	c.stats.Positions -= len(e.tokens)
	return guard(e.sequence.Close)
}

// close removes all entries.
func (c *prefixCache) close() (err error) {
	for len(c.entries) > 0 {
		err = errors.Join(err, c.remove(len(c.entries)-1))
	}
	return err
}
