package tokenizer

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// specials finds the tokens that are cut out of a text before anything else:
// control, unknown and user-defined ones.
type specials struct {
	texts  []string  // of the whole vocabulary
	tokens []special // in the order of their texts, each text once
	first  [256]starts
}

// starts is where the special tokens are that begin with a byte.
type starts struct {
	from, to int
	always   bool // one of them is looked for always
}

// special is one such token.
type special struct {
	id     int32
	always bool // also when special tokens are not to be parsed
	rstrip bool // swallows the white space after it
}

// fragment is a part of a text: a token that was cut out, or what lies between.
type fragment struct {
	token int    // -1: text
	text  string // of a fragment that is no token
}

// newSpecials collects the special tokens of a vocabulary. Of several with one
// text it is the one with the lowest id.
func newSpecials(v *Vocab) *specials {
	s := &specials{texts: v.Tokens}
	n := 0
	for id := range v.Tokens {
		if v.special(id) {
			n++
		}
	}
	s.tokens = make([]special, 0, n)
	rstrip := phi3Strips(v)
	for id, text := range v.Tokens {
		if v.special(id) {
			s.tokens = append(s.tokens, special{
				id: int32(id), always: v.kind(id) == UserDefined, rstrip: rstrip(text),
			})
		}
	}
	slices.SortFunc(s.tokens, func(a, b special) int {
		return cmp.Or(strings.Compare(s.text(a), s.text(b)), cmp.Compare(a.id, b.id))
	})
	s.tokens = slices.CompactFunc(s.tokens, func(a, b special) bool { return s.text(a) == s.text(b) })
	for i, t := range s.tokens {
		f := &s.first[s.text(t)[0]]
		if f.to == 0 {
			f.from = i
		}
		f.to = i + 1
		f.always = f.always || t.always
	}
	return s
}

// special reports whether a token is cut out of texts.
func (v *Vocab) special(id int) bool {
	switch v.kind(id) {
	case Control, Unknown, UserDefined:
		return v.Tokens[id] != ""
	}
	return false
}

func (s *specials) text(t special) string { return s.texts[t.id] }

// phi3Strips reports which special tokens swallow the white space after them.
// Files do not say so; Phi-3's tokenizer.json does, for all but three of its
// special tokens, and its vocabulary is known by its placeholder tokens.
func phi3Strips(v *Vocab) func(text string) bool {
	known := 0
	for id, text := range v.Tokens {
		if v.kind(id) == Control && (text == "<|assistant|>" || text == "<|end|>" || text == "<|placeholder1|>") {
			known++
		}
	}
	return func(text string) bool {
		return v.Model == "llama" && known == 3 && text != "<unk>" && text != "<s>" && text != "<|endoftext|>"
	}
}

// match is an occurrence of a special token at text[from:to]; to includes the
// white space that it swallows.
type match struct {
	token    special
	from, to int
}

// split cuts the special tokens out of text. The tokens are looked for one
// after the other, each in what the ones before left over, so an early short
// token never hides a longer one that begins later: the longest first, of equal
// ones the one with the lower id. llama.cpp looks for them in this order too.
func (s *specials) split(text string, parse bool) []fragment {
	found := s.find(text, parse)
	slices.SortFunc(found, func(a, b match) int {
		return cmp.Or(
			cmp.Compare(len(s.text(b.token)), len(s.text(a.token))),
			cmp.Compare(a.token.id, b.token.id),
			cmp.Compare(a.from, b.from))
	})
	taken := newSpans(len(text), len(found))
	for _, m := range found {
		end := m.from + len(s.text(m.token))
		if !taken.free(m.from, end) {
			continue
		}
		for m.token.rstrip && end < len(text) && strings.IndexByte(" \t\n\v\f\r", text[end]) >= 0 && taken.free(end, end+1) {
			end++
		}
		m.to = end
		taken.take(m)
	}
	return s.fragments(text, taken.matches)
}

// find lists every occurrence of every special token.
func (s *specials) find(text string, parse bool) (found []match) {
	for from := range len(text) {
		if f := s.first[text[from]]; f.always || f.to > 0 && parse {
			found = s.at(found, text, from, parse)
		}
	}
	return found
}

// at appends the special tokens that begin at text[from]. Those whose texts agree
// with the text so far lie side by side; each further byte narrows them down, and
// the one that ends there is the first of them.
func (s *specials) at(found []match, text string, from int, parse bool) []match {
	f := s.first[text[from]]
	some := s.tokens[f.from:f.to]
	for n := 1; ; n++ { // some begin with text[from:from+n]
		if t := some[0]; len(s.text(t)) == n {
			if parse || t.always {
				found = append(found, match{token: t, from: from})
			}
			some = some[1:]
		}
		if len(some) == 0 || from+n == len(text) {
			return found
		}
		c := text[from+n]
		lo := sort.Search(len(some), func(i int) bool { return s.text(some[i])[n] >= c })
		some = some[lo:]
		some = some[:sort.Search(len(some), func(i int) bool { return s.text(some[i])[n] > c })]
		if len(some) == 0 {
			return found
		}
	}
}

func (s *specials) fragments(text string, matches []match) []fragment {
	sort.Slice(matches, func(i, j int) bool { return matches[i].from < matches[j].from })
	var out []fragment
	at := 0
	for _, m := range matches {
		if m.from > at {
			out = append(out, fragment{token: -1, text: text[at:m.from]})
		}
		out = append(out, fragment{token: int(m.token.id)})
		at = m.to
	}
	if at < len(text) {
		out = append(out, fragment{token: -1, text: text[at:]})
	}
	return out
}

// spans remembers which bytes of a text are taken.
type spans struct {
	bits    []uint64
	matches []match
}

func newSpans(length, matches int) *spans {
	if matches == 0 {
		return &spans{}
	}
	return &spans{bits: make([]uint64, length/64+1)}
}

func (s *spans) free(from, to int) bool {
	for i := from; i < to; i++ {
		if s.bits[i/64]>>(i%64)&1 != 0 {
			return false
		}
	}
	return true
}

func (s *spans) take(m match) {
	for i := m.from; i < m.to; i++ {
		s.bits[i/64] |= 1 << (i % 64)
	}
	s.matches = append(s.matches, m)
}
