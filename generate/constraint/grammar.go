package constraint

import (
	"encoding/binary"
	"slices"
)

// term is an expression of a grammar: an index in terms. Equal terms have equal indices.
type term int32

const (
	nothing term = iota // no text
	epsilon             // the empty text
)

type termKind uint8

const (
	leafTerm termKind = iota // a: an automaton
	ruleTerm                 // a: a rule
	seqTerm                  // a, then b
	altTerm                  // one of alts, at least two, sorted
	repTerm                  // a, from min to max times; a is not nullable
)

type termNode struct {
	kind     termKind
	a, b     int32
	min, max int32
	alts     string // terms, 4 bytes each
}

// unbounded is the max of a repetition without one.
const unbounded = -1

// grammar is rules over terms, with automata as leaves. Texts are derived from start. A rule is not
// nullable.
//
// Terms are added while texts are matched, because what must follow a value is a term. The table
// holds these.
type grammar struct {
	leaves []*automaton
	rules  []term
	start  term

	class   [256]uint8 // bytes that no leaf tells apart share a class
	classes int
}

// terms is a table of terms. base, if it is not nil, has the first ones and is not changed.
type terms struct {
	base   *terms
	inBase int // terms in base
	nodes  []termNode
	index  map[termNode]term
	size   int // of nodes, in units of about 16 bytes
}

func newTerms(base *terms) *terms {
	t := &terms{base: base, index: map[termNode]term{}}
	if base != nil {
		t.inBase = base.len()
	} else {
		t.nodes = make([]termNode, 2) // nothing and epsilon
		t.nodes[0].a, t.nodes[1].a = -1, -2
	}
	return t
}

func (t *terms) len() int { return t.inBase + len(t.nodes) }

func (t *terms) node(x term) *termNode {
	if int(x) < t.inBase {
		return t.base.node(x)
	}
	return &t.nodes[int(x)-t.inBase]
}

func (t *terms) add(n termNode) term {
	if t.base != nil {
		if x, ok := t.base.index[n]; ok {
			return x
		}
	}
	if x, ok := t.index[n]; ok {
		return x
	}
	x := term(t.len())
	t.nodes = append(t.nodes, n)
	t.index[n] = x
	t.size += 8 + len(n.alts)/16
	return x
}

func (t *terms) leaf(i int32) term { return t.add(termNode{kind: leafTerm, a: i}) }
func (t *terms) rule(i int32) term { return t.add(termNode{kind: ruleTerm, a: i}) }

// seq returns a followed by b. Sequences nest to the right, so that equal continuations are equal
// terms.
func (t *terms) seq(a, b term) term {
	switch {
	case a == nothing || b == nothing:
		return nothing
	case a == epsilon:
		return b
	case b == epsilon:
		return a
	}
	if n := *t.node(a); n.kind == seqTerm {
		return t.seq(term(n.a), t.seq(term(n.b), b))
	}
	return t.add(termNode{kind: seqTerm, a: int32(a), b: int32(b)})
}

// chain returns the sequence of all.
func (t *terms) chain(all ...term) term {
	x := epsilon
	for _, a := range slices.Backward(all) {
		x = t.seq(a, x)
	}
	return x
}

// alt returns the union. Sequences with equal heads become one, whose tail is the union of
// their tails: the number of alternatives then depends on the grammar alone, and not on how
// deep a text is nested.
func (t *terms) alt(all ...term) term {
	var flat []term
	for _, x := range all {
		if n := t.node(x); x != nothing && x != epsilon && n.kind == altTerm {
			flat = append(flat, unpack(n.alts)...)
		} else if x != nothing {
			flat = append(flat, x)
		}
	}
	slices.Sort(flat)
	flat = slices.Compact(flat)
	if len(flat) <= 1 {
		return append(flat, nothing)[0]
	}

	heads := make([]term, len(flat))
	at := make(map[term]int, len(flat)) // head to its first place
	same := false
	for i, x := range flat {
		heads[i] = t.head(x)
		if _, ok := at[heads[i]]; ok {
			same = true
		} else {
			at[heads[i]] = i
		}
	}
	if same {
		tails := make([][]term, len(flat))
		var merged []term
		for i, x := range flat {
			p := at[heads[i]]
			tails[p] = append(tails[p], t.tail(x))
		}
		for i, l := range tails {
			switch {
			case len(l) == 1:
				merged = append(merged, flat[i])
			case len(l) > 1:
				merged = append(merged, t.seq(heads[i], t.alt(l...)))
			}
		}
		return t.alt(merged...)
	}
	return t.add(termNode{kind: altTerm, alts: pack(flat)})
}

// head returns the first part of a sequence, or another term as it is.
func (t *terms) head(x term) term {
	if n := t.node(x); x > epsilon && n.kind == seqTerm {
		return term(n.a)
	}
	return x
}

// tail returns what follows head.
func (t *terms) tail(x term) term {
	if n := t.node(x); x > epsilon && n.kind == seqTerm {
		return term(n.b)
	}
	return epsilon
}

// rep returns x repeated from min to max times.
func (t *terms) rep(x term, min, max int32) term {
	switch {
	case max == 0 || x == nothing && min == 0:
		return epsilon
	case x == nothing:
		return nothing
	case min == 1 && max == 1:
		return x
	}
	return t.add(termNode{kind: repTerm, a: int32(x), min: min, max: max})
}

// once returns what follows the first x of a repetition.
func (t *terms) once(n *termNode) term {
	most := n.max
	if most != unbounded {
		most--
	}
	return t.rep(term(n.a), max(n.min-1, 0), most)
}

func pack(list []term) string {
	b := make([]byte, 0, 4*len(list))
	for _, x := range list {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return string(b)
}

func unpack(s string) []term {
	list := make([]term, len(s)/4)
	for i := range list {
		list[i] = term(s[4*i]) | term(s[4*i+1])<<8 | term(s[4*i+2])<<16 | term(s[4*i+3])<<24
	}
	return list
}

// nullable reports whether x has the empty text.
func (g *grammar) nullable(t *terms, x term) bool {
	if x <= epsilon {
		return x == epsilon
	}
	n := t.node(x)
	switch n.kind {
	case leafTerm:
		return g.leaves[n.a].accept[0]
	case seqTerm:
		for x > epsilon {
			if n = t.node(x); n.kind != seqTerm {
				return g.nullable(t, x)
			}
			if !g.nullable(t, term(n.a)) {
				return false
			}
			x = term(n.b)
		}
		return x == epsilon
	case altTerm:
		return slices.ContainsFunc(unpack(n.alts), func(a term) bool { return g.nullable(t, a) })
	case repTerm:
		return n.min == 0
	}
	return false
}

// finish removes what no finite text can satisfy, and computes the classes. It returns the
// terms that are left.
func (g *grammar) finish(t *terms) *terms {
	finite := make([]bool, len(g.rules))
	for changed := true; changed; {
		changed = false
		memo := map[term]bool{}
		for i, body := range g.rules {
			if !finite[i] && g.finite(t, body, finite, memo) {
				finite[i], changed = true, true
			}
		}
	}
	kept := newTerms(nil)
	memo := map[term]term{}
	for i, body := range g.rules {
		g.rules[i] = g.prune(t, kept, body, finite, memo)
	}
	g.start = g.prune(t, kept, g.start, finite, memo)

	var starts [257]bool
	for _, a := range g.leaves {
		for c := 1; c < 256; c++ {
			starts[c] = starts[c] || a.class[c] != a.class[c-1]
		}
	}
	var all automaton
	all.classesOf(&starts)
	g.class, g.classes = all.class, all.classes
	return kept
}

// recurs reports whether a text of a rule may begin with the rule itself.
func (g *grammar) recurs(t *terms, rule int) bool {
	seen := map[term]bool{}
	var visit func(x term) bool
	visit = func(x term) bool {
		if x <= epsilon || seen[x] {
			return false
		}
		seen[x] = true
		switch n := t.node(x); n.kind {
		case ruleTerm:
			return int(n.a) == rule || visit(g.rules[n.a])
		case seqTerm:
			return visit(term(n.a)) || g.nullable(t, term(n.a)) && visit(term(n.b))
		case altTerm:
			return slices.ContainsFunc(unpack(n.alts), visit)
		case repTerm:
			return visit(term(n.a))
		}
		return false
	}
	return visit(g.rules[rule])
}

// finite reports whether x has a finite text, given the rules that are known to have one.
func (g *grammar) finite(t *terms, x term, rules []bool, memo map[term]bool) bool {
	if x <= epsilon {
		return x == epsilon
	}
	if ok, known := memo[x]; known {
		return ok
	}
	n, ok := t.node(x), false
	switch n.kind {
	case leafTerm:
		ok = true
	case ruleTerm:
		ok = rules[n.a]
	case seqTerm:
		ok = g.finite(t, term(n.a), rules, memo) && g.finite(t, term(n.b), rules, memo)
	case altTerm:
		ok = slices.ContainsFunc(unpack(n.alts), func(a term) bool { return g.finite(t, a, rules, memo) })
	case repTerm:
		ok = n.min == 0 || g.finite(t, term(n.a), rules, memo)
	}
	memo[x] = ok
	return ok
}

// prune copies x to another table, without rules that have no finite text.
func (g *grammar) prune(from, to *terms, x term, rules []bool, memo map[term]term) term {
	if x <= epsilon {
		return x
	}
	if y, ok := memo[x]; ok {
		return y
	}
	sub := func(x int32) term { return g.prune(from, to, term(x), rules, memo) }
	n, y := *from.node(x), nothing
	switch n.kind {
	case leafTerm:
		y = to.leaf(n.a)
	case ruleTerm:
		if rules[n.a] {
			y = to.rule(n.a)
		}
	case seqTerm:
		y = to.seq(sub(n.a), sub(n.b))
	case altTerm:
		list := unpack(n.alts)
		for i := range list {
			list[i] = sub(int32(list[i]))
		}
		y = to.alt(list...)
	case repTerm:
		y = to.rep(sub(n.a), n.min, n.max)
	}
	memo[x] = y
	return y
}
