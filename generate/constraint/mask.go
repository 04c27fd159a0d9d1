package constraint

import (
	"errors"
	"slices"
)

var errFull = errors.New("the constraint is too ambiguous: its table reached the limit of memory")

// worthKeeping is the number of trie nodes that a walk must visit for its mask to be kept.
const worthKeeping = 5_000

// fill adds the tokens that may follow in state s to mask.
//
// Each config of s permits the tokens that stay within its leaf: leafMask has these for
// all texts. The tokens that go on beyond the leaf depend on what follows there, so their
// part of the tries is walked, from where the leaf may end.
func (c *Constraint) fill(t *table, s stateID, mask []uint32) error {
	for _, cfg := range t.states[s].configs {
		c.leafMask(t, t.grammar.leaves[cfg.leaf], cfg.state).or(mask)
	}
	for i := range c.vocab.tries {
		c.fillBeyond(t, s, i, mask)
	}
	if t.full {
		c.replace()
		return errFull
	}
	return nil
}

// fillBeyond adds the tokens of trie i that go on beyond the leaves of s.
func (c *Constraint) fillBeyond(t *table, s stateID, i int, mask []uint32) {
	s = t.clamp(s, i)
	if kept := t.states[s].masks[i]; kept != nil {
		orMask(mask, kept)
		return
	}
	if c.scratch == nil {
		c.scratch = make([]uint32, len(mask))
	}
	w := walker{t: t, trie: &c.vocab.tries[i], mask: c.scratch}
	for _, cfg := range t.states[s].configs {
		exits := c.leafMask(t, t.grammar.leaves[cfg.leaf], cfg.state).exits[i]
		if len(exits) == 0 {
			continue
		}
		rest := t.start(cfg.rest)
		if rest == dead || len(t.states[rest].configs) == 0 {
			continue
		}
		for _, n := range exits {
			w.below(n, rest)
		}
	}
	if w.steps == 0 {
		return
	}
	orMask(mask, c.scratch)
	if w.steps > worthKeeping && !t.full && t.kept+4*len(mask) <= keptMasks {
		t.states[s].masks[i] = slices.Clone(c.scratch)
		t.kept += 4 * len(mask)
	}
	clear(c.scratch)
}

func orMask(mask, more []uint32) {
	for i, w := range more {
		mask[i] |= w
	}
}

// leafMask returns the mask of a state of a leaf.
func (c *Constraint) leafMask(t *table, a *automaton, state int32) *leafMask {
	if m := a.masks[state].Load(); m != nil {
		return m
	}
	m := c.vocab.walk(a, state)
	if !a.shared {
		if c.kept > keptMasks {
			c.kept = 0
			for _, own := range t.grammar.leaves {
				if own.shared {
					continue
				}
				for i := range own.masks {
					own.masks[i].Store(nil)
				}
			}
		}
		c.kept += m.size()
	}
	a.masks[state].Store(m)
	return m
}

// walker walks parts of a trie together with the states of a table.
type walker struct {
	t     *table
	trie  *trie
	mask  []uint32
	path  []stateID // [depth]
	steps int       // nodes visited
}

// below adds the tokens below node n that are permitted from state s on.
func (w *walker) below(n int32, s stateID) {
	nodes, t := w.trie.nodes, w.t
	if w.path == nil {
		w.path = make([]stateID, w.trie.depth+1)
	}
	w.path[nodes[n].depth] = s
	end := nodes[n].skip
	for n++; n < end; {
		node := &nodes[n]
		w.steps++
		from, to := w.path[node.depth-1], unknown
		if next := t.states[from].next; next != nil {
			to = next[t.grammar.class[node.value]]
		}
		if to == unknown {
			to = t.step(from, node.value)
		}
		if to == dead {
			n = node.skip
			continue
		}
		w.path[node.depth] = to
		for _, id := range w.trie.ids[node.ids:node.end] {
			w.mask[id>>5] |= 1 << (id & 31)
		}
		n++
	}
}
