package jinja

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/tokens"
)

// lexer cuts source into the tokens that gonja's parser reads. It does all of
// the white-space control itself, as Jinja does with trim_blocks and
// lstrip_blocks, and hands on data as it is to appear.
type lexer struct {
	src   string
	at    int
	out   []*tokens.Token
	open  []byte // closing brackets that are awaited
	depth int    // open blocks

	line, begin int // number and beginning of the line that src[counted] is on
	counted     int
}

// lex gives the tokens of a template, EOF last. It aborts on an error.
func lex(source string) []*tokens.Token {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1}
	lineStart := true
	for l.at < len(l.src) {
		open := l.data(lineStart)
		if open < 0 {
			break
		}
		lineStart = l.tag(l.src[open : open+2])
	}
	l.emit(tokens.EOF, "")
	return l.out
}

// data emits what stands before the next tag and gives the tag's place, or -1
// at the end. lineStart says that nothing but a line end, or nothing at all,
// stands before it.
func (l *lexer) data(lineStart bool) int {
	open := l.at
	for {
		i := strings.IndexByte(l.src[open:], '{')
		if i < 0 || open+i+1 >= len(l.src) {
			l.emitData(l.src[l.at:])
			l.at = len(l.src)
			return -1
		}
		open += i
		if c := l.src[open+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		open++
	}
	text := l.src[l.at:open]
	sign := byte(0)
	if open+2 < len(l.src) {
		sign = l.src[open+2]
	}
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	case sign != '+' && l.src[open+1] != '{':
		begin := strings.LastIndexByte(text, '\n') + 1
		if (begin > 0 || lineStart) && strings.TrimSpace(text[begin:]) == "" {
			text = text[:begin]
		}
	}
	l.emitData(text)
	l.at = open
	return open
}

func (l *lexer) emitData(text string) {
	if text != "" {
		l.emit(tokens.Data, text)
	}
}

// tag emits a tag's tokens and passes the white space after it that belongs to
// it. It reports whether a line begins there.
func (l *lexer) tag(opening string) (lineStart bool) {
	l.at += len(opening)
	if opening == "{#" {
		return l.comment()
	}
	if l.at < len(l.src) && (l.src[l.at] == '-' || opening == "{%" && l.src[l.at] == '+') {
		l.at++
	}
	begin, end, closing := tokens.VariableBegin, tokens.VariableEnd, "}}"
	if opening == "{%" {
		begin, end, closing = tokens.BlockBegin, tokens.BlockEnd, "%}"
	}
	l.emit(begin, opening)
	first := len(l.out)
	sign := l.expression(closing)
	inner := append([]*tokens.Token(nil), l.out[first:]...)
	l.out = append(l.out[:first], rewrite(inner, opening == "{%")...)
	if opening == "{%" {
		l.count(inner)
	}
	l.emit(end, closing)
	return l.after(sign, opening == "{%")
}

// count keeps track of how deep blocks nest.
func (l *lexer) count(tag []*tokens.Token) {
	if len(tag) == 0 || tag[0].Type != tokens.Name {
		return
	}
	switch name := tag[0].Val; {
	case strings.HasPrefix(name, "end"):
		l.depth--
	case name == "if", name == "for", name == "macro", name == "set", name == "generation":
		if name == "set" && slices.ContainsFunc(tag, func(t *tokens.Token) bool { return t.Type == tokens.Assign }) {
			return // with a value, not with a body
		}
		l.depth++
	}
	if l.depth > maxNesting {
		l.fail(ErrLimit, "blocks nest more than %d deep", maxNesting)
	}
}

func (l *lexer) comment() bool {
	n := strings.Index(l.src[l.at:], "#}")
	if n < 0 {
		l.fail(ErrSyntax, "unclosed comment")
	}
	sign := byte(0)
	if n > 0 {
		sign = l.src[l.at+n-1]
	}
	l.at += n + 2
	return l.after(sign, true)
}

// after passes the white space that goes with the end of a tag: all of it after
// "-", else one line end after blocks and comments.
func (l *lexer) after(sign byte, block bool) (lineStart bool) {
	rest := l.src[l.at:]
	switch {
	case sign == '-':
		trimmed := strings.TrimLeftFunc(rest, unicode.IsSpace)
		n := len(rest) - len(trimmed)
		l.at += n
		return n > 0 && rest[n-1] == '\n'
	case block && sign != '+' && strings.HasPrefix(rest, "\n"):
		l.at++
		return true
	}
	return false
}

// emit appends a token that begins at the current place.
func (l *lexer) emit(kind tokens.Type, val string) {
	passed := l.src[l.counted:l.at]
	if i := strings.LastIndexByte(passed, '\n'); i >= 0 {
		l.line += strings.Count(passed, "\n")
		l.begin = l.counted + i + 1
	}
	l.counted = l.at
	col := l.at - l.begin + 1
	l.out = append(l.out, &tokens.Token{Type: kind, Val: val, Pos: l.at, Line: l.line, Col: col})
}

func (l *lexer) fail(kind error, format string, args ...any) {
	line := 1 + strings.Count(l.src[:l.at], "\n")
	panic(abort{fmt.Errorf("%w: line %d: %s", kind, line, shorten(fmt.Sprintf(format, args...)))})
}

// expression emits the tokens up to closing and passes it. It gives the sign
// that stands before it.
func (l *lexer) expression(closing string) (sign byte) {
	l.open = l.open[:0]
	for {
		for l.at < len(l.src) && strings.IndexByte(" \t\n\f\v", l.src[l.at]) >= 0 {
			l.at++
		}
		rest := l.src[l.at:]
		if rest == "" {
			l.fail(ErrSyntax, "unclosed tag")
		}
		if len(l.open) == 0 {
			if strings.HasPrefix(rest, closing) {
				l.at += len(closing)
				return 0
			}
			if (rest[0] == '-' || rest[0] == '+') && strings.HasPrefix(rest[1:], closing) {
				l.at += 1 + len(closing)
				return rest[0]
			}
		}
		switch c, _ := utf8.DecodeRuneInString(rest); {
		case c == '"' || c == '\'':
			l.text(byte(c))
		case c >= '0' && c <= '9':
			l.number()
		case c == '_' || unicode.IsLetter(c):
			l.name()
		default:
			l.operator()
		}
	}
}
