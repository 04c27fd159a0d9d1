package model

import (
	"slices"
	"sync"
)

// PrefixStats counts what a prefix cache did. A hit that saves the whole prefill
// counts as both a hit and a full hit.
type PrefixStats struct {
	Hits      int   // prompts that began like an earlier one
	FullHits  int   // of them, prompts that were computed before entirely
	Misses    int   // prompts that did not
	Reused    int   // positions not computed again
	Evictions int   // entries given up for newer ones
	Entries   int   // kept now
	Bytes     int64 // held now
}

// prefixCache keeps the caches of earlier prompts in host memory, bounded in
// bytes, the least recently used given up first. Only positions of prompts are
// kept. A nil cache keeps nothing. It is safe for concurrent use.
type prefixCache struct {
	limit int64

	mu      sync.Mutex
	entries []*prefixEntry // the most recently used last
	stats   PrefixStats
}

// prefixEntry is a computed prompt. It does not change once it is in the cache,
// so that readers need no lock.
type prefixEntry struct {
	tokens   []int
	long     bool // computed with the rotation factors for long contexts
	snapshot Snapshot
	out      Output // of the last position; Logits nil when only the greedy choice was wanted
}

func (e *prefixEntry) bytes() int64 {
	return e.snapshot.Bytes() + int64(8*len(e.tokens)) + int64(4*len(e.out.Logits))
}

// prefixHit is the part of a prompt that need not be computed.
type prefixHit struct {
	snapshot  Snapshot
	positions int     // 0: a miss
	out       *Output // of the whole prompt; nil: the rest must be computed
}

func newPrefixCache(limit int64) *prefixCache { return &prefixCache{limit: limit} }

// lookup finds the entry that shares the longest prefix with a prompt. The prompt's
// last two tokens are left to compute, unless the entry is this very prompt and has
// the output that is wanted: engines may compute one token in another way than
// several, and a hit must give the bits of a miss.
func (c *prefixCache) lookup(prompt []int, long bool, want Want) prefixHit {
	if c == nil {
		return prefixHit{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	best, length := -1, 0
	for i, e := range c.entries {
		n := commonPrefix(e.tokens, prompt)
		// The prompt itself is better than a longer one that begins with it.
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
	e := c.entries[best]
	c.entries = append(slices.Delete(c.entries, best, best+1), e)
	c.stats.Hits++
	c.stats.Reused += hit.positions
	if hit.out != nil {
		c.stats.FullHits++
	}
	return hit
}

// hit is what an entry that shares n tokens with a prompt saves it.
func (e *prefixEntry) hit(prompt []int, n int, want Want) prefixHit {
	whole := n == len(prompt) && n == len(e.tokens)
	if whole && (want == WantGreedy || e.out.Logits != nil) {
		return prefixHit{snapshot: e.snapshot, positions: n, out: &e.out}
	}
	return prefixHit{snapshot: e.snapshot, positions: max(0, min(n, len(prompt)-2))}
}

func commonPrefix(a, b []int) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// store keeps a computed prompt in place of an older entry for the same prompt,
// and gives up entries until all fit. A prompt that never fits is not kept.
func (c *prefixCache) store(e *prefixEntry) {
	if e.bytes() > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, old := range c.entries {
		if old.long == e.long && slices.Equal(old.tokens, e.tokens) {
			c.stats.Bytes -= old.bytes()
			c.entries = slices.Delete(c.entries, i, i+1)
			break
		}
	}
	c.entries = append(c.entries, e)
	c.stats.Bytes += e.bytes()
	for c.stats.Bytes > c.limit {
		c.stats.Bytes -= c.entries[0].bytes()
		c.stats.Evictions++
		c.entries = slices.Delete(c.entries, 0, 1)
	}
}

// PrefixStats counts what the generator's prefix cache did; all 0 without one.
func (g *Generator) PrefixStats() PrefixStats {
	c := g.prefix
	if c == nil {
		return PrefixStats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Entries = len(c.entries)
	return s
}
