package constraint

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lockstep-go/lockstep/model/sampling"
)

// Vocabulary is the tokens of a model as tries of their bytes. It is safe for concurrent use.
// One serves all constraints of a model.
type Vocabulary struct {
	tries [tries]trie
	bytes [][]byte // [vocabulary]; empty for tokens that are never permitted
	ends  []uint32 // mask of the end tokens
	parts jsonParts

	markers map[string]bool // texts of control tokens

	mu   sync.Mutex
	free map[string]*automaton // of free texts, which many structures share
}

// maxFree is how many automata of free texts a vocabulary keeps. Their masks stay with them,
// up to about a megabyte each.
const maxFree = 16

// Short tokens have a trie of their own. They are most tokens, and what they permit
// depends only on the next few bytes, which many states have in common.
const (
	tries      = 2
	shortToken = 16 // bytes
)

// trie is a set of tokens.
type trie struct {
	nodes []trieNode // preorder; element 0 is the root
	ids   []int32    // tokens in the order of the nodes
	depth int        // bytes of the longest token
}

// trieNode is a prefix of at least one token.
type trieNode struct {
	skip     int32  // the first node after this subtree
	ids, end int32  // range in trie.ids of the tokens that are this prefix
	depth    uint16 // bytes of the prefix
	value    byte   // its last byte
}

// maxVocabulary and maxToken bound the trie: 16 bytes per node, one node per byte at most.
const (
	maxVocabulary = 1 << 22
	maxToken      = 1 << 12 // bytes
	maxTokenBytes = 1 << 28 // of all
)

// NewVocabulary builds the tries of tokens, where tokens[id] is the bytes that a token
// decodes to. Tokens of end are permitted where the text may end, and nowhere else, whatever
// their bytes. control has the texts of control tokens, which are permitted only where a
// Structure names them as markers. Other tokens without bytes are never permitted.
// NewVocabulary keeps the slices of tokens, which must not change.
func NewVocabulary(tokens [][]byte, end []int, control map[int]string) (*Vocabulary, error) {
	if len(tokens) == 0 {
		return nil, errors.New("constraint: vocabulary: no tokens")
	}
	if len(tokens) > maxVocabulary {
		return nil, fmt.Errorf("constraint: vocabulary: %d tokens: at most %d", len(tokens), maxVocabulary)
	}
	v := &Vocabulary{bytes: slices.Clone(tokens), ends: make([]uint32, sampling.MaskLen(len(tokens))), markers: map[string]bool{}, free: map[string]*automaton{}}
	for id, b := range v.bytes {
		if bytes.Contains(b, []byte(controlByte)) {
			v.bytes[id] = nil
		}
	}
	for id, text := range control {
		if id < 0 || id >= len(tokens) || text == "" {
			return nil, fmt.Errorf("constraint: vocabulary: control token %d %q: want an id in [0, %d) and a text", id, text, len(tokens))
		}
		v.bytes[id] = []byte(controlText(text))
		v.markers[text] = true
	}
	for _, id := range end {
		if id < 0 || id >= len(tokens) {
			return nil, fmt.Errorf("constraint: vocabulary: end token %d: outside [0, %d)", id, len(tokens))
		}
		v.bytes[id] = nil
		delete(v.markers, control[id])
		v.ends[id/32] |= 1 << (id % 32)
	}
	total := 0
	for id, b := range v.bytes {
		if len(b) > maxToken {
			return nil, fmt.Errorf("constraint: vocabulary: token %d: %d bytes: at most %d", id, len(b), maxToken)
		}
		if total += len(b); total > maxTokenBytes {
			return nil, fmt.Errorf("constraint: vocabulary: tokens have more than %d bytes", maxTokenBytes)
		}
		if len(b) > 0 {
			t := &v.tries[0]
			if len(b) > shortToken {
				t = &v.tries[1]
			}
			t.ids = append(t.ids, int32(id))
			t.depth = max(t.depth, len(b))
		}
	}
	for i := range v.tries {
		v.tries[i].build(v.bytes)
	}
	var err error
	if v.parts, err = newJSONParts(); err != nil {
		return nil, fmt.Errorf("constraint: %w", err)
	}
	return v, nil
}

// build sorts the ids and makes the nodes.
func (t *trie) build(tokens [][]byte) {
	slices.SortFunc(t.ids, func(a, b int32) int {
		if c := bytes.Compare(tokens[a], tokens[b]); c != 0 {
			return c
		}
		return int(a - b)
	})
	t.nodes = append(t.nodes, trieNode{})
	open := []int32{0} // the nodes of the current prefix
	var last []byte
	closeTo := func(depth int) {
		for _, n := range open[depth+1:] {
			t.nodes[n].skip = int32(len(t.nodes))
		}
		open = open[:depth+1]
	}
	for i, id := range t.ids {
		b := tokens[id]
		common := 0
		for common < len(last) && common < len(b) && last[common] == b[common] {
			common++
		}
		closeTo(common)
		for d := common; d < len(b); d++ {
			open = append(open, int32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{ids: int32(i), end: int32(i), depth: uint16(d + 1), value: b[d]})
		}
		t.nodes[open[len(b)]].end = int32(i + 1)
		last = b
	}
	closeTo(0)
	t.nodes[0].skip = int32(len(t.nodes))
}

// leafMask is the tokens that stay within one automaton from one of its states, and the nodes from
// which others go on beyond its end.
type leafMask struct {
	ids   []int32        // permitted tokens, or
	dense []uint32       // their mask
	exits [tries][]int32 // nodes with children at which the automaton accepts
}

// size returns the bytes of memory.
func (m *leafMask) size() int {
	n := len(m.ids) + len(m.dense)
	for _, exits := range m.exits {
		n += len(exits)
	}
	return 4 * n
}

// or adds the permitted tokens to mask.
func (m *leafMask) or(mask []uint32) {
	for i, w := range m.dense {
		mask[i] |= w
	}
	for _, id := range m.ids {
		mask[id>>5] |= 1 << (id & 31)
	}
}

// walk computes the leafMask of a state of an automaton.
func (v *Vocabulary) walk(a *automaton, from int32) *leafMask {
	m := &leafMask{dense: make([]uint32, len(v.ends))}
	count := 0
	for i := range v.tries {
		t := &v.tries[i]
		states := make([]int32, t.depth+1)
		states[0] = from
		for n, end := int32(1), int32(len(t.nodes)); n < end; {
			node := &t.nodes[n]
			to := a.step(states[node.depth-1], node.value)
			if to < 0 {
				n = node.skip
				continue
			}
			states[node.depth] = to
			for _, id := range t.ids[node.ids:node.end] {
				m.dense[id>>5] |= 1 << (id & 31)
				count++
			}
			if n++; n < node.skip && a.accept[to] {
				m.exits[i] = append(m.exits[i], n-1)
			}
		}
	}
	if count < len(m.dense) { // a list is smaller
		m.ids = make([]int32, 0, count)
		for i, w := range m.dense {
			for ; w != 0; w &= w - 1 {
				m.ids = append(m.ids, int32(32*i+bits.TrailingZeros32(w)))
			}
		}
		m.dense = nil
	}
	return m
}

// leafMasks caches the leafMask of each state of an automaton.
type leafMasks []atomic.Pointer[leafMask]
