package tokenizer

import "unicode/utf8"

// byteRunes maps each byte to its character in the token texts of a byte-level
// vocabulary. Printable Latin-1 bytes map to themselves; the other 68 map to U+0100 and
// up, in byte order (bytes_to_unicode in OpenAI's gpt-2 encoder.py).
var byteRunes = func() (runes [256]rune) {
	next := rune(256)
	for b := range runes {
		switch {
		case b >= '!' && b <= '~', b >= 0xA1 && b <= 0xAC, b >= 0xAE:
			runes[b] = rune(b)
		default:
			runes[b] = next
			next++
		}
	}
	return runes
}()

// runeBytes is the inverse of byteRunes, -1 for other characters.
var runeBytes = func() (bytes [256 + 68]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

// ByteToken returns the text of the token of byte b in a byte-level vocabulary.
func ByteToken(b byte) string { return string(byteRunes[b]) }

// appendByteRunes appends the byteRunes of the bytes of s.
func appendByteRunes(dst []byte, s string) []byte {
	for i := range len(s) {
		dst = utf8.AppendRune(dst, byteRunes[s[i]])
	}
	return dst
}

// appendByteLevel appends the bytes of s, the text of a byte-level token. Characters
// outside byteRunes occur only in added tokens and stay as they are.
func appendByteLevel(dst []byte, s string) []byte {
	for i, r := range s {
		switch {
		case int(r) < len(runeBytes) && runeBytes[r] >= 0:
			dst = append(dst, byte(runeBytes[r]))
		case r == utf8.RuneError:
			_, n := utf8.DecodeRuneInString(s[i:])
			dst = append(dst, s[i:i+n]...)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// parseByteToken parses "<0xNN>".
func parseByteToken(s string) (b byte, ok bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(s[3])
	lo, ok2 := hexDigit(s[4])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
