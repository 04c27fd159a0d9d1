package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
)

// automaton finds the longest token that ends at each byte of a text (A. V. Aho and M. J.
// Corasick, "Efficient string matching", 1975). A step takes constant time on average,
// whatever the tokens.
type automaton struct {
	// nodes is the trie of the texts in breadth-first order. The root is 0. The children
	// of node i are nodes[nodes[i].children:nodes[i+1].children], sorted by label. The
	// last element only ends the children of the one before.
	nodes  []node
	root   [256]int32 // the child of the root per label, or 0
	tokens []special  // sorted by text; the last has size 0 and stands for none
}

type node struct {
	children int32
	fail     int32 // the node of the longest proper suffix of this node's text
	token    int32 // index of the longest token that is a suffix of this node's text
	label    byte  // last byte of this node's text
}

// special is a token that is matched in a text before BPE runs.
type special struct {
	id      int32
	size    int32 // bytes of its text
	rstrip  bool  // the match includes the white space after the token
	shorter int32 // index of the longest token that is a proper suffix of this one
	jump    int32 // index of a token farther along the chain of shorter
	depth   int32 // length of that chain, which ends at the token of size 0
}

// maxNodes limits the nodes of an automaton, far above those of any published vocabulary.
const maxNodes = 1 << 21

// newAutomaton builds the automaton of tokens with different texts. ids is sorted by text.
func newAutomaton(v *Vocab, ids []int32) (*automaton, error) {
	none := int32(len(ids))
	text := func(i int32) string { return v.Tokens[ids[i]] }
	nodes, last := 2, "" // the root and the last element
	for i := range none {
		nodes += len(text(i)) - commonPrefix(last, text(i))
		last = text(i)
	}
	if nodes > maxNodes {
		return nil, fmt.Errorf("%w: %d different prefixes, at most %d are allowed", errSpecials, nodes, maxNodes)
	}
	a := &automaton{nodes: make([]node, 1, nodes), tokens: make([]special, none+1)}
	rstrip := phi3Strips(v)
	for i := range none {
		a.tokens[i] = special{id: ids[i], size: int32(len(text(i))), rstrip: rstrip(text(i))}
	}
	a.tokens[none] = special{shorter: none, jump: none}
	a.nodes[0].token = none
	type span struct{ from, to int32 }
	spans := make([]span, 1, nodes) // of ids: the tokens that begin with the text of a node
	spans[0] = span{0, none}
	for i, depth, deeper := 0, 0, 1; i < len(a.nodes); i++ {
		if i == deeper {
			depth, deeper = depth+1, len(a.nodes)
		}
		a.nodes[i].children = int32(len(a.nodes))
		s := spans[i]
		if s.from < s.to && len(text(s.from)) == depth {
			s.from++
		}
		for s.from < s.to {
			label, to := text(s.from)[depth], s.from+1
			for to < s.to && text(to)[depth] == label {
				to++
			}
			a.add(i, label)
			if len(text(s.from)) == depth+1 {
				a.end(s.from)
			}
			spans = append(spans, span{s.from, to})
			s.from = to
		}
	}
	a.nodes = append(a.nodes, node{children: int32(len(a.nodes))})
	return a, nil
}

// commonPrefix returns the length of the longest common prefix.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// add appends a node.
func (a *automaton) add(parent int, label byte) {
	n := node{label: label}
	if parent == 0 {
		a.root[label] = int32(len(a.nodes))
	} else {
		n.fail = a.next(a.nodes[parent].fail, label)
	}
	n.token = a.nodes[n.fail].token
	a.nodes = append(a.nodes, n)
}

// end makes the last node the end of the token with that index.
func (a *automaton) end(token int32) {
	n, t := &a.nodes[len(a.nodes)-1], &a.tokens[token]
	shorter := a.tokens[n.token]
	t.shorter, t.jump, t.depth = n.token, n.token, shorter.depth+1
	// Two jumps of equal length combine, so that any number of steps takes logarithmically
	// many jumps (E. W. Myers, "An applicative random-access stack", 1983).
	far := a.tokens[shorter.jump]
	if shorter.depth-far.depth == far.depth-a.tokens[far.jump].depth {
		t.jump = far.jump
	}
	n.token = token
}

// next returns the state after a byte. A state is the node of the longest suffix of the
// text so far that a token begins with.
func (a *automaton) next(state int32, label byte) int32 {
	for state != 0 {
		from, to := a.nodes[state].children, a.nodes[state+1].children
		i, ok := slices.BinarySearchFunc(a.nodes[from:to], label, func(n node, label byte) int { return cmp.Compare(n.label, label) })
		if ok {
			return from + int32(i)
		}
		state = a.nodes[state].fail
	}
	return a.root[label]
}
