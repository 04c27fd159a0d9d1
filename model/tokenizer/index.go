package tokenizer

import (
	"fmt"
	"hash/maphash"
)

// index maps token texts to ids. It is a hash table that stores only ids, and so takes a
// fraction of the memory of a Go map.
type index struct {
	texts []string // [vocab], shared with Vocab.Tokens
	seed  maphash.Seed
	slots []int32 // id+1, or 0 if empty; the length is a power of two, at most 3/4 are used
}

// newIndex indexes the tokens that merging can produce. It refuses two tokens of equal
// text, because the encoder could never produce one of them.
func newIndex(v *Vocab) (*index, error) {
	n := 0
	for id := range v.Tokens {
		if v.matchable(id) {
			n++
		}
	}
	size := 4
	for size/4*3 < n {
		size *= 2
	}
	x := &index{texts: v.Tokens, seed: maphash.MakeSeed(), slots: make([]int32, size)}
	for id, text := range v.Tokens {
		if !v.matchable(id) {
			continue
		}
		slot := x.slot(text)
		if first := x.slots[slot] - 1; first >= 0 {
			return nil, fmt.Errorf("%w: %d and %d are %.80q", errDuplicateToken, first, id, text)
		}
		x.slots[slot] = int32(id) + 1
	}
	return x, nil
}

// get returns the token with that text.
func (x *index) get(text string) (id int32, ok bool) {
	id = x.slots[x.slot(text)] - 1
	return id, id >= 0
}

// slot returns the slot of the token with that text, or the empty slot for it.
func (x *index) slot(text string) uint64 {
	last := uint64(len(x.slots) - 1)
	at := maphash.String(x.seed, text) & last
	for x.slots[at] != 0 && x.texts[x.slots[at]-1] != text {
		at = (at + 1) & last
	}
	return at
}
