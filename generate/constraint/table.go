package constraint

import (
	"encoding/binary"
	"slices"
)

// config is a place in a text: in a state of a leaf, with what must follow that leaf.
type config struct {
	leaf, state int32
	rest        term
}

// stateID is an index in table.states, or dead.
type stateID int32

const (
	dead    stateID = -1
	unknown stateID = -2
)

// state is what a text so far may be: all its configs, one per state of a leaf, sorted.
type state struct {
	configs  []config
	complete bool            // the text may end here
	next     []stateID       // [class], nil until the first step
	masks    [tries][]uint32 // of tokens beyond the leaves; nil unless worth keeping
}

// table has the states and terms that the texts of a constraint have reached. It grows while they
// are matched, and is replaced by an empty one when it is too large.
type table struct {
	grammar *grammar
	terms   *terms
	states  []state
	names   map[string]stateID
	starts  map[term]stateID
	firsts  map[term][]config
	clamped [tries]map[term]term
	horizon [tries]int32 // bytes of the longest token of the trie; a token ends no more repetitions
	kept    int          // bytes of masks
	used    int          // by states, in units of about 16 bytes
	most    int          // largest size
	full    bool         // one mask or token needed more
}

// A table larger than softTable is replaced before the next mask. If one mask makes it larger than
// hardTable, that is an error. Both are in units of about 16 bytes.
const (
	softTable = 1 << 19
	hardTable = 8 * softTable
)

// keptMasks bounds the memory of masks, in bytes.
const keptMasks = 16 << 20

func newTable(g *grammar, base *terms, v *Vocabulary) *table {
	t := &table{
		grammar: g, terms: newTerms(base), names: map[string]stateID{}, starts: map[term]stateID{},
		firsts: map[term][]config{}, most: hardTable,
	}
	for i := range v.tries {
		t.clamped[i], t.horizon[i] = map[term]term{}, int32(v.tries[i].depth)
	}
	return t
}

// size estimates the memory in units of about 16 bytes.
func (t *table) size() int { return t.used + t.terms.size }

// start returns the state before the first byte of x.
func (t *table) start(x term) stateID {
	s, ok := t.starts[x]
	if !ok {
		s = t.intern(t.first(x), t.grammar.nullable(t.terms, x))
		t.starts[x] = s
	}
	return s
}

// first returns the configs before the first byte of x. The caller must not change them.
func (t *table) first(x term) []config {
	if x <= epsilon {
		return nil
	}
	if l, ok := t.firsts[x]; ok {
		return l
	}
	var list []config
	switch n := *t.terms.node(x); n.kind {
	case leafTerm:
		if t.grammar.leaves[n.a].live[0] {
			list = []config{{leaf: n.a, rest: epsilon}}
		}
	case ruleTerm:
		list = t.first(t.grammar.rules[n.a])
	case seqTerm:
		list = t.then(t.first(term(n.a)), term(n.b))
		if t.grammar.nullable(t.terms, term(n.a)) {
			list = t.union(append(list, t.first(term(n.b))...))
		}
	case altTerm:
		for _, a := range unpack(n.alts) {
			list = append(list, t.first(a)...)
		}
		list = t.union(list)
	case repTerm:
		list = t.then(t.first(term(n.a)), t.terms.once(&n))
	}
	t.firsts[x] = list
	return list
}

// then returns configs whose rest is followed by x.
func (t *table) then(configs []config, x term) []config {
	list := make([]config, len(configs))
	for i, c := range configs {
		list[i] = config{c.leaf, c.state, t.terms.seq(c.rest, x)}
	}
	return list
}

// union sorts configs, and joins those in the same state of a leaf.
func (t *table) union(list []config) []config {
	slices.SortFunc(list, func(a, b config) int {
		if a.leaf != b.leaf {
			return int(a.leaf - b.leaf)
		}
		return int(a.state - b.state)
	})
	out := list[:0]
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j].leaf == list[i].leaf && list[j].state == list[i].state {
			j++
		}
		c := list[i]
		if j > i+1 {
			rests := make([]term, 0, j-i)
			for _, same := range list[i:j] {
				rests = append(rests, same.rest)
			}
			c.rest = t.terms.alt(rests...)
		}
		out = append(out, c)
		i = j
	}
	return out
}

// intern returns the state with these configs, which union has sorted.
func (t *table) intern(configs []config, complete bool) stateID {
	if len(configs) == 0 && !complete {
		return dead
	}
	key := make([]byte, 0, 12*len(configs)+1)
	for _, c := range configs {
		key = binary.LittleEndian.AppendUint32(key, uint32(c.leaf))
		key = binary.LittleEndian.AppendUint32(key, uint32(c.state))
		key = binary.LittleEndian.AppendUint32(key, uint32(c.rest))
	}
	if complete {
		key = append(key, 1)
	}
	if s, ok := t.names[string(key)]; ok {
		return s
	}
	s := stateID(len(t.states))
	t.states = append(t.states, state{configs: configs, complete: complete})
	t.names[string(key)] = s
	t.used += 16 + 2*len(configs)
	return s
}

// step returns the state after a byte, or dead.
func (t *table) step(s stateID, b byte) stateID {
	st := &t.states[s]
	if st.next == nil {
		st.next = make([]stateID, t.grammar.classes)
		t.used += t.grammar.classes / 4
		for i := range st.next {
			st.next[i] = unknown
		}
	}
	next := st.next
	to := next[t.grammar.class[b]]
	if to != unknown {
		return to
	}
	if t.size() > t.most {
		t.full = true
		return dead
	}
	var list []config
	complete := false
	for _, c := range st.configs {
		a := t.grammar.leaves[c.leaf]
		n := a.step(c.state, b)
		if n < 0 {
			continue
		}
		if a.live[n] {
			list = append(list, config{c.leaf, n, c.rest})
		}
		if a.accept[n] {
			list = append(list, t.first(c.rest)...)
			complete = complete || t.grammar.nullable(t.terms, c.rest)
		}
	}
	to = t.intern(t.union(list), complete)
	next[t.grammar.class[b]] = to
	return to
}

// clamp returns a state that permits the same tokens of a trie as s. It reduces counts of
// repetitions that no token can reach, so that many states share it.
func (t *table) clamp(s stateID, trie int) stateID {
	old := t.states[s]
	var list []config
	for i, c := range old.configs {
		if x := t.clampTerm(c.rest, trie); x != c.rest {
			if list == nil {
				list = slices.Clone(old.configs)
			}
			list[i].rest = x
		}
	}
	if list == nil {
		return s
	}
	return t.intern(list, old.complete)
}

func (t *table) clampTerm(x term, trie int) term {
	if x <= epsilon {
		return x
	}
	if y, ok := t.clamped[trie][x]; ok {
		return y
	}
	y := x
	switch n := *t.terms.node(x); n.kind {
	case seqTerm:
		y = t.terms.seq(t.clampTerm(term(n.a), trie), t.clampTerm(term(n.b), trie))
	case altTerm:
		list := unpack(n.alts)
		for i := range list {
			list[i] = t.clampTerm(list[i], trie)
		}
		y = t.terms.alt(list...)
	case repTerm:
		most := n.max
		if most > t.horizon[trie] {
			most = unbounded
		}
		y = t.terms.rep(term(n.a), min(n.min, t.horizon[trie]+1), most)
	}
	t.clamped[trie][x] = y
	return y
}

// adopt returns the state of this table that equals state s of an older one of the same
// grammar.
func (t *table) adopt(old *table, s stateID) stateID {
	from := old.states[s]
	memo := map[term]term{}
	var convert func(x term) term
	convert = func(x term) term {
		if int(x) < t.terms.inBase {
			return x
		}
		if y, ok := memo[x]; ok {
			return y
		}
		y := x
		switch n := *old.terms.node(x); n.kind {
		case seqTerm:
			y = t.terms.seq(convert(term(n.a)), convert(term(n.b)))
		case altTerm:
			list := unpack(n.alts)
			for i := range list {
				list[i] = convert(list[i])
			}
			y = t.terms.alt(list...)
		case repTerm:
			y = t.terms.rep(convert(term(n.a)), n.min, n.max)
		default:
			y = t.terms.add(n)
		}
		memo[x] = y
		return y
	}
	list := slices.Clone(from.configs)
	for i := range list {
		list[i].rest = convert(list[i].rest)
	}
	return t.intern(list, from.complete)
}
