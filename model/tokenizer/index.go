package tokenizer

import (
	"fmt"
	"hash/maphash"
)

// index finds tokens by their texts. It is a hash table of ids alone: the texts
// are the vocabulary's, so that it takes a fifth of a map's memory.
type index struct {
	texts []string // of the whole vocabulary
	seed  maphash.Seed
	slots []int32 // id+1, or 0; a power of two of them, at most 3/4 taken
}

// newIndex indexes the tokens that merging works on. Two such tokens of one text
// are refused: an encoder could never make one of them.
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
			return nil, fmt.Errorf("%w: %d and %d are %.80q", ErrDuplicateToken, first, id, text)
		}
		x.slots[slot] = int32(id) + 1
	}
	return x, nil
}

// get is the token of a text.
func (x *index) get(text string) (id int32, ok bool) {
	id = x.slots[x.slot(text)] - 1
	return id, id >= 0
}

// slot is where the token of a text is, or where it would have to be.
func (x *index) slot(text string) uint64 {
	last := uint64(len(x.slots) - 1)
	at := maphash.String(x.seed, text) & last
	for x.slots[at] != 0 && x.texts[x.slots[at]-1] != text {
		at = (at + 1) & last
	}
	return at
}
