package tokenizer

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/model/tokenizer/internal/jinja"
)

// specials matches control, unknown and user-defined tokens in a text.
type specials struct {
	all, userDefined *automaton
	rstrip           bool // some token has rstrip
}

// fragment is a special token of a text, or the text between two of them.
type fragment struct {
	token int // -1 for text
	text  string
}

// newSpecials collects the special tokens of a vocabulary. Of tokens with equal text it
// keeps the lowest id.
func newSpecials(v *Vocab) (*specials, error) {
	count := 0
	for id := range v.Tokens {
		if v.special(id) {
			count++
		}
	}
	ids := make([]int32, 0, count)
	for id := range v.Tokens {
		if v.special(id) {
			ids = append(ids, int32(id))
		}
	}
	slices.SortFunc(ids, func(a, b int32) int {
		return cmp.Or(strings.Compare(v.Tokens[a], v.Tokens[b]), cmp.Compare(a, b))
	})
	ids = slices.CompactFunc(ids, func(a, b int32) bool { return v.Tokens[a] == v.Tokens[b] })
	s := &specials{}
	var err error
	if s.all, err = newAutomaton(v, ids); err != nil {
		return nil, err
	}
	s.rstrip = slices.ContainsFunc(s.all.tokens, func(t special) bool { return t.rstrip })
	s.userDefined = s.all
	if user := slices.DeleteFunc(ids, func(id int32) bool { return v.kind(int(id)) != typeUserDefined }); len(user) < len(ids) {
		s.userDefined, err = newAutomaton(v, user)
	}
	return s, err
}

// phi3Strips returns a function that reports whether a special token has rstrip. GGUF
// files lack that property. Phi-3's tokenizer.json sets it for all but three special
// tokens; its vocabulary is recognized by three of its tokens.
func phi3Strips(v *Vocab) func(text string) bool {
	known := 0
	for id, text := range v.Tokens {
		if v.kind(id) == typeControl && (text == "<|assistant|>" || text == "<|end|>" || text == "<|placeholder1|>") {
			known++
		}
	}
	return func(text string) bool {
		return v.Model == "llama" && known == 3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>"
	}
}

// split divides a text at the special tokens, from left to right. It matches user-defined
// tokens everywhere, and the others within x.special. It takes all matches of the longest
// token in the whole text before it looks for shorter ones, and of equal lengths the lowest
// id first. So a short token never hides a longer one that begins later. llama.cpp uses the
// same order.
func (s *specials) split(x Text) iter.Seq[fragment] {
	return func(yield func(fragment) bool) {
		m := matcher{text: x.s, special: x.special}
		switch {
		case s.all == s.userDefined || len(x.special) == 0:
			m.everywhere = s.userDefined
		case x.special[0] == jinja.Span{From: 0, To: len(x.s)}:
			m.everywhere = s.all
		default:
			m.everywhere, m.within = s.userDefined, s.all
		}
		m.run(yield)
	}
}

// matcher splits one text. It looks for candidates until no match can cross the place
// that it has reached, takes matches of that part, and goes on.
//
// A candidate is the longest token of an automaton that ends at a byte. If an earlier match
// covers its start, its longest suffix that is a token and fits behind the match replaces
// it. Matches are taken longest first, so each replacement at least halves the size. A byte
// adds at most as many candidates per automaton as the size of the longest token has bits.
type matcher struct {
	everywhere *automaton
	within     *automaton // matches inside of special; it has all tokens of everywhere; may be nil
	special    []jinja.Span
	text       string
	at         int // text before it is yielded
	candidates candidates
	from       int     // begin of the part
	owner      []int32 // of each byte of the part: 1 + index in taken, or 0
	taken      []match

	pushes, steps int // counts of candidates and of steps to shorter tokens, for tests
}

// match is a special token in a part. The byte at to is the first one after it and after the
// white space of rstrip.
type match struct{ id, to int32 }

func (m *matcher) run(yield func(fragment) bool) {
	var state, inside int32
	for i := range len(m.text) {
		end := i + 1
		state = m.everywhere.next(state, m.text[i])
		if state != 0 {
			m.propose(end, m.everywhere, m.everywhere.nodes[state].token)
		}
		if m.within != nil {
			inside = m.within.next(inside, m.text[i])
			if room := m.room(end); room > 0 {
				m.propose(end, m.within, m.longest(m.within, m.within.nodes[inside].token, room))
			}
		}
		switch {
		case state != 0 || inside != 0: // a match may go on
		case len(m.candidates) == 0:
			m.from = end
		case end < len(m.text) && !isWhiteSpace(m.text[end]): // rstrip ends here
			if !m.part(end, yield) {
				return
			}
		}
	}
	if m.part(len(m.text), yield) && m.at < len(m.text) {
		yield(fragment{token: -1, text: m.text[m.at:]})
	}
}

// room returns how many bytes right before end are in one part of special. Its calls are
// in the order of the text.
func (m *matcher) room(end int) int32 {
	for len(m.special) > 0 && m.special[0].To < end {
		m.special = m.special[1:]
	}
	if len(m.special) == 0 {
		return 0
	}
	return int32(max(0, min(end-m.special[0].From, math.MaxInt32)))
}

// propose adds the token of a with that index as the candidate that ends at end.
func (m *matcher) propose(end int, a *automaton, token int32) {
	t := a.tokens[token]
	if t.size == 0 {
		return
	}
	if a == m.within {
		token = ^token
	}
	m.pushes++
	m.candidates.push(candidate{
		left: int32(end-m.from) - t.size, size: t.size, result: token,
		rank: float64(t.id) - float64(t.size)*(1<<32), // the longest, then the lowest id
	})
}

// part takes the matches of text[m.from:end] and yields them with the texts before them.
func (m *matcher) part(end int, yield func(fragment) bool) bool {
	m.owner = append(m.owner[:0], make([]int32, end-m.from)...)
	m.taken = m.taken[:0]
	for len(m.candidates) > 0 {
		m.take(m.candidates.pop())
	}
	for i := 0; i < len(m.owner); i++ {
		if m.owner[i] == 0 {
			continue
		}
		t := m.taken[m.owner[i]-1]
		if before := m.text[m.at : m.from+i]; before != "" && !yield(fragment{token: -1, text: before}) {
			return false
		}
		if !yield(fragment{token: int(t.id)}) {
			return false
		}
		i = int(t.to) - 1
		m.at = m.from + i + 1
	}
	m.from = end
	return true
}

// take makes a candidate a match if its bytes are free. Matches so far are at least as
// long, so one that overlaps the candidate has its first or its last byte.
func (m *matcher) take(c candidate) {
	first, end := c.left, c.left+c.size
	if m.owner[end-1] != 0 {
		return
	}
	a, token := m.everywhere, c.result
	if token < 0 {
		a, token = m.within, ^token
	}
	if before := m.owner[first]; before != 0 {
		room := end - m.taken[before-1].to
		m.propose(m.from+int(end), a, m.longest(a, token, room))
		return
	}
	t := a.tokens[token]
	for t.rstrip && int(end) < len(m.owner) && isWhiteSpace(m.text[m.from+int(end)]) && m.owner[end] == 0 {
		end++
	}
	m.taken = append(m.taken, match{id: t.id, to: end})
	for i := first; i < end; i++ {
		m.owner[i] = int32(len(m.taken))
	}
}

// longest returns the longest token of at most size bytes that is a suffix of the given
// token. Both are indices. It takes logarithmic time.
func (m *matcher) longest(a *automaton, token, size int32) int32 {
	tokens := a.tokens
	for tokens[token].size > size {
		m.steps++
		if jump := tokens[token].jump; tokens[jump].size > size {
			token = jump
		} else {
			token = tokens[token].shorter
		}
	}
	return token
}

func isWhiteSpace(c byte) bool { return strings.IndexByte(" \t\n\v\f\r", c) >= 0 }
