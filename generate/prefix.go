package generate

import (
	"errors"
	"slices"
	"sync"

	"github.com/lockstep-go/lockstep/model"
)

// PrefixStats counts the work of a prefix cache since its generator was made.
type PrefixStats struct {
	Hits      int   // prompts that shared a prefix with an earlier one
	FullHits  int   // hits that needed no prefill at all
	Misses    int   // prompts that shared no prefix
	Reused    int   // positions restored instead of computed
	Evictions int   // entries dropped to make room for newer ones
	Entries   int   // prompts in the cache now
	Bytes     int64 // memory of these entries, on the host and on the device
}

// prefixCache holds KV-cache snapshots of earlier prompts, without generated positions.
// If they exceed limit bytes, it evicts the least recently used. A nil cache holds
// nothing. It is safe for concurrent use.
//
// An entry is reference-counted: the cache holds one reference and each lookup takes
// another until release. The last release closes the snapshot.
type prefixCache struct {
	limit int64

	mu      sync.Mutex
	closed  bool
	entries []*prefixEntry // least recently used first
	stats   PrefixStats
}

// prefixEntry is a prompt and its snapshot. Only refs changes after store.
type prefixEntry struct {
	tokens   []int
	long     bool // computed with the RoPE factors for long contexts
	snapshot model.Snapshot
	out      model.Output // of the last position; Logits nil if only the greedy token was wanted
	bytes    int64        // of the snapshot, the tokens and the logits
	refs     int          // guarded by prefixCache.mu
}

func newPrefixEntry(tokens []int, long bool, snapshot model.Snapshot, out model.Output) *prefixEntry {
	return &prefixEntry{
		tokens: tokens, long: long, snapshot: snapshot, out: out, refs: 1,
		bytes: snapshot.Bytes() + int64(8*len(tokens)) + int64(4*len(out.Logits)),
	}
}

// prefixHit is the part of a prompt that need not be computed.
type prefixHit struct {
	entry     *prefixEntry // nil: a miss; else the caller must release it
	positions int
	out       *model.Output // of the whole prompt; nil: the rest of the prompt must be computed
}

func newPrefixCache(limit int64) *prefixCache { return &prefixCache{limit: limit} }

// lookup finds the entry that shares the longest prefix with a prompt. If the entry is
// the same prompt and has the wanted output, nothing is left to compute. Otherwise the
// hit leaves at least the last two tokens to compute: a forward pass of a single token
// may round differently, and a hit must give the same bits as a miss.
func (c *prefixCache) lookup(prompt []int, long bool, want model.Want) prefixHit {
	if c == nil {
		return prefixHit{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	best, length := -1, 0
	for i, e := range c.entries {
		n := commonPrefix(e.tokens, prompt)
		// Prefer an entry of the same prompt: it also has the output.
		better := n > length || n == length && n > 0 && len(e.tokens) == len(prompt)
		if e.long == long && better {
			best, length = i, n
		}
	}
	var hit prefixHit
	if best >= 0 {
		hit = c.entries[best].hit(prompt, length, want)
	}
	if hit.positions == 0 {
		c.stats.Misses++
		return prefixHit{}
	}
	hit.entry.refs++
	c.entries = append(slices.Delete(c.entries, best, best+1), hit.entry)
	c.stats.Hits++
	c.stats.Reused += hit.positions
	if hit.out != nil {
		c.stats.FullHits++
	}
	return hit
}

// restore restores the positions of a hit and releases its entry.
func (c *prefixCache) restore(s model.Session, hit prefixHit) (err error) {
	defer func() { err = errors.Join(err, c.release(hit.entry)) }()
	return s.Restore(hit.entry.snapshot, hit.positions)
}

// hit returns what a prompt can reuse of an entry that shares its first n tokens.
func (e *prefixEntry) hit(prompt []int, n int, want model.Want) prefixHit {
	whole := n == len(prompt) && n == len(e.tokens)
	if whole && (want == model.WantGreedy || e.out.Logits != nil) {
		return prefixHit{entry: e, positions: n, out: &e.out}
	}
	return prefixHit{entry: e, positions: max(0, min(n, len(prompt)-2))}
}

func commonPrefix(a, b []int) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// store adds an entry, which the cache then owns. The entry replaces one of the same
// prompt. Then store evicts others until all fit. It closes an entry larger than the
// cache at once.
func (c *prefixCache) store(e *prefixEntry) error {
	c.mu.Lock()
	if c.closed || e.bytes > c.limit {
		c.mu.Unlock()
		return e.snapshot.Close()
	}
	var dropped []*prefixEntry
	same := func(old *prefixEntry) bool { return old.long == e.long && slices.Equal(old.tokens, e.tokens) }
	if i := slices.IndexFunc(c.entries, same); i >= 0 {
		dropped = append(dropped, c.remove(i))
	}
	c.entries = append(c.entries, e)
	c.stats.Bytes += e.bytes
	for c.stats.Bytes > c.limit {
		dropped = append(dropped, c.remove(0))
		c.stats.Evictions++
	}
	c.mu.Unlock()
	return c.release(dropped...)
}

// remove takes entry i out of the cache. The caller holds the mutex, and releases the
// entry after unlocking it.
func (c *prefixCache) remove(i int) *prefixEntry {
	e := c.entries[i]
	c.entries = slices.Delete(c.entries, i, i+1)
	c.stats.Bytes -= e.bytes
	return e
}

// release drops one reference of each entry, and closes the snapshot of an entry that has
// none left. It closes without holding the mutex: Snapshot.Close may wait for a forward
// pass.
func (c *prefixCache) release(entries ...*prefixEntry) error {
	var errs []error
	for _, e := range entries {
		c.mu.Lock()
		e.refs--
		last := e.refs == 0
		c.mu.Unlock()
		if last {
			errs = append(errs, e.snapshot.Close())
		}
	}
	return errors.Join(errs...)
}

// close drops every entry. Later prompts are not stored.
func (c *prefixCache) close() error {
	c.mu.Lock()
	dropped := c.entries
	c.entries, c.stats.Bytes, c.closed = nil, 0, true
	c.mu.Unlock()
	return c.release(dropped...)
}

// counters returns a copy of the counters.
func (c *prefixCache) counters() PrefixStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries = len(c.entries)
	return s
}
