package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// spaceMark (U+2581) stands for a space in SentencePiece vocabularies.
const spaceMark = "\u2581"

// spm encodes as SentencePiece's BPE models do (github.com/google/sentencepiece,
// bpe_model.cc): a text's characters are joined as long as two neighbors
// together are a token, the token of the highest score first and the leftmost
// of equals; a character without a token of its own becomes its bytes' tokens.
type spm struct {
	ids      *index
	scores   []float32
	longest  int        // bytes of the longest token
	words    bool       // no token has a space after another character
	fallback [256]int32 // the token of each byte, -1: none
	unknown  int32      // what a character without tokens becomes
	prefix   bool
}

func newSPM(v *Vocab, ids *index) (*spm, error) {
	if len(v.Scores) == 0 {
		return nil, fmt.Errorf("%w: a %q vocabulary needs scores", ErrLengths, v.Model)
	}
	for id, s := range v.Scores {
		if math.IsNaN(float64(s)) {
			return nil, fmt.Errorf("%w: token %d %.80q", ErrScore, id, v.Tokens[id])
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

// addBytes finds the byte tokens: all 256 exactly once, or none and an unknown
// token.
func (s *spm) addBytes(v *Vocab) error {
	count := 0
	for i := range s.fallback {
		s.fallback[i] = -1
	}
	for id, text := range v.Tokens {
		if v.kind(id) != Byte {
			continue
		}
		b, ok := parseByteToken(text)
		if !ok {
			return fmt.Errorf("%w: token %d %.80q is not <0xNN>", ErrByteToken, id, text)
		}
		if s.fallback[b] >= 0 {
			return fmt.Errorf("%w: tokens %d and %d both are 0x%02X", ErrByteToken, s.fallback[b], id, b)
		}
		s.fallback[b] = int32(id)
		count++
	}
	if count == 0 && v.UNK >= 0 {
		return nil
	}
	for b, id := range s.fallback {
		if id < 0 {
			return fmt.Errorf("%w: 0x%02X", ErrMissingByte, b)
		}
	}
	return nil
}

// encode appends the tokens of text. first says that it begins the whole text
// or follows a special token, where the space prefix goes.
func (s *spm) encode(dst []int, text string, first bool) []int {
	if s.prefix && first {
		text = " " + text
	}
	text = strings.ReplaceAll(text, " ", spaceMark)
	m := merger{}
	if !s.words {
		return s.merge(&m, dst, text)
	}
	// No token reaches over the end of a word, so that words can be taken one
	// by one with the same result.
	seen := memo{}
	for len(text) > 0 {
		n := wordEnd(text)
		dst = seen.encode(dst, text[:n], func(dst []int, word string) []int {
			return s.merge(&m, dst, word)
		})
		text = text[n:]
	}
	return dst
}

// wordEnd gives the length of the spaces at the beginning of text and of what
// follows them up to the next space.
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

// bytes appends what stands for a character that has no token.
func (s *spm) bytes(dst []int, char string) []int {
	if s.fallback[0] < 0 {
		return append(dst, int(s.unknown))
	}
	for i := range len(char) {
		dst = append(dst, int(s.fallback[char[i]]))
	}
	return dst
}
