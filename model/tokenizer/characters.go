package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// characters encodes words of a vocabulary whose tokens are UTF-8. Merging begins with the
// characters of a word. A character without a token becomes the tokens of its bytes.
type characters struct {
	ids     *index
	bytes   [256]int32 // token <0xNN> of each byte, or -1 if there are no byte tokens
	unknown int32      // replaces a character if there are no byte tokens
}

// newCharacters finds the byte tokens. A vocabulary must have all 256 of them, or none and
// an unknown token.
func newCharacters(v *Vocab, ids *index) (*characters, error) {
	c := &characters{ids: ids, unknown: int32(v.UNK)}
	for i := range c.bytes {
		c.bytes[i] = -1
	}
	count := 0
	for id, text := range v.Tokens {
		if v.kind(id) != typeByte {
			continue
		}
		b, ok := parseByteToken(text)
		if !ok {
			return nil, fmt.Errorf("%w: token %d %.80q is not <0xNN>", errByteToken, id, text)
		}
		if c.bytes[b] >= 0 {
			return nil, fmt.Errorf("%w: tokens %d and %d both are 0x%02X", errByteToken, c.bytes[b], id, b)
		}
		c.bytes[b] = int32(id)
		count++
	}
	if count == 0 && v.UNK >= 0 {
		return c, nil
	}
	for b, id := range c.bytes {
		if id < 0 {
			return nil, fmt.Errorf("%w: 0x%02X", errMissingByte, b)
		}
	}
	return c, nil
}

// encode appends the tokens of a word.
func (c *characters) encode(m *merger, dst []int, word string) []int {
	m.reset()
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		id, ok := c.ids.get(word[i : i+n])
		if !ok {
			id = -1
		}
		m.add(id, n)
		i += n
	}
	m.run()
	for _, s := range m.symbols {
		switch {
		case s.from == s.to:
		case s.id >= 0:
			dst = append(dst, int(s.id))
		case c.bytes[0] < 0:
			dst = append(dst, int(c.unknown))
		default:
			for _, b := range []byte(word[s.from:s.to]) {
				dst = append(dst, int(c.bytes[b]))
			}
		}
	}
	return dst
}
