package emu

import "fmt"

type tokenKind uint8

const (
	tokEnd    tokenKind = iota
	tokWord             // identifier, register, directive or opcode, dots and all
	tokNumber           // without its sign
	tokString
	tokPunct // one character
)

type token struct {
	kind tokenKind
	text string
	line int
}

// syntaxError is a text that is no PTX, or PTX that the emulator does not take.
type syntaxError struct {
	line int
	msg  string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.line, e.msg) }

func errorAt(line int, format string, args ...any) error {
	return &syntaxError{line, fmt.Sprintf(format, args...)}
}

func wordStart(c byte) bool {
	return c == '%' || c == '.' || c == '_' || c == '$' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

func wordPart(c byte) bool { return c != '%' && wordStart(c) || '0' <= c && c <= '9' }

// lex cuts PTX text into tokens; the last one is a tokEnd.
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
				return nil, errorAt(line, "comment without end")
			}
			i, line = i+n, line+lines
		default:
			kind, n := tokenAt(text[i:])
			if n == 0 {
				return nil, errorAt(line, "unexpected byte %#02x", c)
			}
			toks = append(toks, token{kind, text[i : i+n], line})
			i += n
		}
	}
	return append(toks, token{kind: tokEnd, text: "end of text", line: line}), nil
}

// comment gives the length of the comment at the start of text, and the line ends within.
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

// tokenAt measures the token at the start of text: 0 bytes if there is none.
func tokenAt(text string) (tokenKind, int) {
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
