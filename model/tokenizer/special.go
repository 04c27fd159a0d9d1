package tokenizer

import (
	"slices"
	"sort"
	"strings"
)

// specials finds the tokens that are cut out of a text before anything else:
// control, unknown and user-defined ones.
type specials struct {
	tokens []special        // in the order in which they are looked for
	next   map[uint64]int32 // trie of their texts: node<<8 | byte → node
	ends   []int32          // trie node → index in tokens, or -1
	first  [256]starts      // by a text's first byte
}

// starts says whether special tokens begin with a byte.
type starts struct{ any, always bool }

// special is one such token.
type special struct {
	id     int
	text   string
	always bool // also when special tokens are not to be parsed
	rstrip bool // swallows the white space after it
}

// fragment is a part of a text: a token that was cut out, or what lies between.
type fragment struct {
	token int    // -1: text
	text  string // of a fragment that is no token
}

// newSpecials collects the special tokens of a vocabulary, the longest first:
// of two that overlap in a text the longer one is taken, of equal ones the one
// with the lower id. llama.cpp looks for them in this order too.
func newSpecials(v *Vocab) *specials {
	s := &specials{next: map[uint64]int32{}, ends: []int32{-1}}
	rstrip := phi3Strips(v)
	for id, text := range v.Tokens {
		switch v.kind(id) {
		case Control, Unknown, UserDefined:
			if text != "" {
				s.tokens = append(s.tokens, special{
					id: id, text: text, always: v.kind(id) == UserDefined, rstrip: rstrip(text),
				})
			}
		}
	}
	slices.SortStableFunc(s.tokens, func(a, b special) int { return len(b.text) - len(a.text) })
	for i, t := range s.tokens {
		s.insert(t.text, int32(i))
		s.first[t.text[0]].any = true
		s.first[t.text[0]].always = s.first[t.text[0]].always || t.always
	}
	return s
}

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

func (s *specials) insert(text string, index int32) {
	node := int32(0)
	for i := range len(text) {
		key := uint64(node)<<8 | uint64(text[i])
		child, ok := s.next[key]
		if !ok {
			child = int32(len(s.ends))
			s.next[key] = child
			s.ends = append(s.ends, -1)
		}
		node = child
	}
	if s.ends[node] < 0 {
		s.ends[node] = index
	}
}

// match is an occurrence of special token index at text[from:to]; to includes
// the white space that it swallows.
type match struct{ index, from, to int }

// split cuts the special tokens out of text. The tokens are looked for one
// after the other, each in what the ones before left over, so an early short
// token never hides a longer one that begins later.
func (s *specials) split(text string, parse bool) []fragment {
	found := s.find(text, parse)
	sort.Slice(found, func(i, j int) bool {
		if found[i].index != found[j].index {
			return found[i].index < found[j].index
		}
		return found[i].from < found[j].from
	})
	taken := newSpans(len(text), len(found))
	for _, m := range found {
		end := m.from + len(s.tokens[m.index].text)
		if !taken.free(m.from, end) {
			continue
		}
		for s.tokens[m.index].rstrip && end < len(text) && strings.IndexByte(" \t\n\v\f\r", text[end]) >= 0 && taken.free(end, end+1) {
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
		if f := s.first[text[from]]; !f.always && !(f.any && parse) {
			continue
		}
		node, ok := int32(0), true
		for at := from; at < len(text); at++ {
			if node, ok = s.next[uint64(node)<<8|uint64(text[at])]; !ok {
				break
			}
			if i := s.ends[node]; i >= 0 && (parse || s.tokens[i].always) {
				found = append(found, match{index: int(i), from: from})
			}
		}
	}
	return found
}

func (s *specials) fragments(text string, matches []match) []fragment {
	sort.Slice(matches, func(i, j int) bool { return matches[i].from < matches[j].from })
	var out []fragment
	at := 0
	for _, m := range matches {
		if m.from > at {
			out = append(out, fragment{token: -1, text: text[at:m.from]})
		}
		out = append(out, fragment{token: s.tokens[m.index].id})
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
