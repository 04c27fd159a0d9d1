package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// spaceMark replaces a space in SentencePiece vocabularies.
const spaceMark = "\u2581"

// spm implements the BPE models of SentencePiece (github.com/google/sentencepiece,
// bpe_model.cc). It starts from characters and merges two neighbors if they form a
// token, the highest score first, and of equal scores the leftmost. A character without
// a token becomes the tokens of its bytes.
type spm struct {
	ids      *index
	scores   []float32
	longest  int        // bytes of the longest token
	words    bool       // no token spans two words
	fallback [256]int32 // token of each byte, or -1
	unknown  int32      // replaces a character if there are no byte tokens
	prefix   bool       // add a space before the text
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
	s := &spm{ids: ids, scores: v.Scores, unknown: int32(v.UNK), prefix: v.AddSpacePrefix}
	s.words = true
	for id, text := range v.Tokens {
		if !v.matchable(id) {
			continue
		}
		s.longest = max(s.longest, len(text))
		s.words = s.words && wordEnd(text) == len(text)
	}
	return s, s.addBytes(v)
}

// addBytes finds the byte tokens. A vocabulary must have all 256 of them, or none and an
// unknown token.
func (s *spm) addBytes(v *Vocab) error {
	count := 0
	for i := range s.fallback {
		s.fallback[i] = -1
	}
	for id, text := range v.Tokens {
		if v.kind(id) != typeByte {
			continue
		}
		b, ok := parseByteToken(text)
		if !ok {
			return fmt.Errorf("%w: token %d %.80q is not <0xNN>", errByteToken, id, text)
		}
		if s.fallback[b] >= 0 {
			return fmt.Errorf("%w: tokens %d and %d both are 0x%02X", errByteToken, s.fallback[b], id, b)
		}
		s.fallback[b] = int32(id)
		count++
	}
	if count == 0 && v.UNK >= 0 {
		return nil
	}
	for b, id := range s.fallback {
		if id < 0 {
			return fmt.Errorf("%w: 0x%02X", errMissingByte, b)
		}
	}
	return nil
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
	m.reset()
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
	for i := 0; i < len(text); {
		_, n := utf8.DecodeRuneInString(text[i:])
		id, ok := s.ids.get(text[i : i+n])
		if !ok {
			id = -1
		}
		m.add(id, n)
		i += n
	}
	m.run()
	for _, sym := range m.symbols {
		switch {
		case sym.from == sym.to:
		case sym.id >= 0:
			dst = append(dst, int(sym.id))
		default:
			dst = s.bytes(dst, text[sym.from:sym.to])
		}
	}
	return dst
}

// bytes appends the tokens of the bytes of a character that has no token.
func (s *spm) bytes(dst []int, char string) []int {
	if s.fallback[0] < 0 {
		return append(dst, int(s.unknown))
	}
	for i := range len(char) {
		dst = append(dst, int(s.fallback[char[i]]))
	}
	return dst
}
