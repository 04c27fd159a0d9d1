package tokenizer

import (
	"cmp"
	"slices"
	"sort"
	"strings"
)

// specials matches control, unknown and user-defined tokens in a text.
type specials struct {
	texts  []string    // [vocab], shared with Vocab.Tokens
	tokens []special   // sorted by text, each text once
	first  [256]bucket // by the first byte of the text
}

// bucket is the range tokens[from:to] whose texts begin with one byte.
type bucket struct {
	from, to int
	always   bool // some token of the range has always set
}

type special struct {
	id     int32
	always bool // user-defined: matched even if the caller does not parse special tokens
	rstrip bool // the match includes the white space after the token
}

// fragment is a special token of a text, or the text between two of them.
type fragment struct {
	token int // -1 for text
	text  string
}

// newSpecials collects the special tokens of a vocabulary. Of tokens with equal text it
// keeps the lowest id.
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
				id: int32(id), always: v.kind(id) == typeUserDefined, rstrip: rstrip(text),
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

func (s *specials) text(t special) string { return s.texts[t.id] }

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

// match is a special token at text[from:to], with the white space that rstrip includes.
type match struct {
	token    special
	from, to int
}

// split divides text at the special tokens. If parse is false, it matches user-defined
// tokens only. It finds all matches of the longest token in the whole text before it looks
// for shorter ones, and of equal lengths takes the lowest id first. So a short token never
// hides a longer one that begins later. llama.cpp uses the same order.
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

// find returns all matches of all special tokens, which may overlap.
func (s *specials) find(text string, parse bool) (found []match) {
	for from := range len(text) {
		if f := s.first[text[from]]; f.always || f.to > 0 && parse {
			found = s.at(found, text, from, parse)
		}
	}
	return found
}

// at appends the special tokens that begin at text[from]. Tokens with a common prefix
// are neighbors in s.tokens: each further byte narrows the range by binary search, and
// a token equal to the prefix is the first of the range.
func (s *specials) at(found []match, text string, from int, parse bool) []match {
	f := s.first[text[from]]
	some := s.tokens[f.from:f.to]
	for n := 1; ; n++ { // all of some begin with text[from:from+n]
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

// spans marks the bytes of a text that matches cover.
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
