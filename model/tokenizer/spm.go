package tokenizer

import (
	"fmt"
	"math"
	"strings"
)

// spaceMark replaces a space in SentencePiece vocabularies.
const spaceMark = "\u2581"

// spm implements the BPE models of SentencePiece (github.com/google/sentencepiece,
// bpe_model.cc). It starts from characters and merges two neighbors if they form a
// token, the highest score first, and of equal scores the leftmost. A character without
// a token becomes the tokens of its bytes.
type spm struct {
	ids        *index
	scores     []float32
	characters *characters
	longest    int  // bytes of the longest token
	words      bool // no token spans two words
	prefix     bool // add a space before the text
}

func newSPM(v *Vocab, ids *index) (*spm, error) {
	if len(v.Scores) == 0 {
		return nil, fmt.Errorf("%w: a %q vocabulary needs scores", errLengths, v.Model)
	}
	for id, s := range v.Scores {
		if math.IsNaN(float64(s)) {
			return nil, fmt.Errorf("%w: token %d %.80q", errScore, id, v.Tokens[id])
		}
	}
	c, err := newCharacters(v, ids)
	if err != nil {
		return nil, err
	}
	s := &spm{ids: ids, scores: v.Scores, characters: c, prefix: v.AddSpacePrefix, words: true}
	for id, text := range v.Tokens {
		if !v.matchable(id) {
			continue
		}
		s.longest = max(s.longest, len(text))
		s.words = s.words && wordEnd(text) == len(text)
	}
	return s, nil
}

// encode appends the tokens of text. It stops after the word that makes more than limit ids.
// first means that text begins the input or follows a special token; only then it gets the
// space prefix.
func (s *spm) encode(dst []int, text string, first bool, limit int) []int {
	if s.prefix && first {
		text = " " + text
	}
	text = strings.ReplaceAll(text, " ", spaceMark)
	m := merger{}
	if !s.words {
		return s.merge(&m, dst, text)
	}
	// No token spans two words, so encoding word by word gives the same result.
	cache := wordCache{}
	for len(text) > 0 && len(dst) <= limit {
		n := wordEnd(text)
		dst = cache.encode(dst, text[:n], func(dst []int, word string) []int {
			return s.merge(&m, dst, word)
		})
		text = text[n:]
	}
	return dst
}

// wordEnd returns the length of the leading spaces of text and the word after them.
func wordEnd(text string) int {
	n := 0
	for strings.HasPrefix(text[n:], spaceMark) {
		n += len(spaceMark)
	}
	if next := strings.Index(text[n:], spaceMark); next >= 0 {
		return n + next
	}
	return len(text)
}

func (s *spm) merge(m *merger, dst []int, text string) []int {
	m.pair = func(left, right symbol) (int32, float64, bool) {
		if int(right.to-left.from) > s.longest {
			return 0, 0, false
		}
		id, ok := s.ids.get(text[left.from:right.to])
		if !ok {
			return 0, 0, false
		}
		return id, -float64(s.scores[id]), true
	}
	return s.characters.encode(m, dst, text)
}
