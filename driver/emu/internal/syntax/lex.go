package syntax

type tokenKind uint8

const (
	tokEnd    tokenKind = iota
	tokWord             // identifier, register, directive or opcode with its dots
	tokNumber           // without its sign
	tokString
	tokPunct // one character
)

type token struct {
	kind tokenKind
	text string
	line int
}

func wordStart(c byte) bool {
	return c == '%' || c == '.' || c == '_' || c == '$' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

func wordPart(c byte) bool { return c != '%' && wordStart(c) || '0' <= c && c <= '9' }

// lex splits PTX text into tokens. The last token is a tokEnd.
func lex(text string) ([]token, error) {
	var toks []token
	line := 1
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '/' && i+1 < len(text) && (text[i+1] == '/' || text[i+1] == '*'):
			n, lines, ok := comment(text[i:])
			if !ok {
				return nil, Errorf(line, "unterminated comment")
			}
			i, line = i+n, line+lines
		default:
			kind, n := nextToken(text[i:])
			if n == 0 {
				return nil, Errorf(line, "unexpected byte %#02x", c)
			}
			toks = append(toks, token{kind, text[i : i+n], line})
			i += n
		}
	}
	return append(toks, token{kind: tokEnd, text: "end of text", line: line}), nil
}

// comment returns the length of the comment at the start of text, and the number of line
// breaks in it. It returns false for a block comment that does not end.
func comment(text string) (n, lines int, ok bool) {
	block := text[1] == '*'
	for n = 2; n < len(text); n++ {
		switch {
		case text[n] == '\n' && !block:
			return n, 0, true
		case text[n] == '\n':
			lines++
		case block && text[n] == '/' && text[n-1] == '*' && n > 2:
			return n + 1, lines, true
		}
	}
	return n, lines, !block
}

// nextToken returns the kind and the length of the token at the start of text, and length 0
// if there is none. An opcode may contain "::", as in L2::cache_hint.
func nextToken(text string) (tokenKind, int) {
	c := text[0]
	switch {
	case wordStart(c):
		n := 1
		for n < len(text) {
			if wordPart(text[n]) {
				n++
			} else if text[n] == ':' && n+2 < len(text) && text[n+1] == ':' && wordPart(text[n+2]) {
				n += 2
			} else {
				break
			}
		}
		return tokWord, n
	case '0' <= c && c <= '9':
		n := 1
		for n < len(text) && wordPart(text[n]) {
			n++
		}
		return tokNumber, n
	case c == '"':
		for n := 1; n < len(text) && text[n] != '\n'; n++ {
			if text[n] == '"' {
				return tokString, n + 1
			}
		}
		return tokString, 0
	}
	for _, p := range []byte("{}[]()<>,;:|!@+-=") {
		if c == p {
			return tokPunct, 1
		}
	}
	return tokPunct, 0
}
