package jinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEOF    tokenKind = iota
	tokenText             // template text outside tags, after whitespace control
	tokenName             // a name or keyword
	tokenString           // a string literal, unescaped
	tokenInt
	tokenFloat
	tokenSymbol // an operator, a bracket, or one of {{ }} {% %}
)

type token struct {
	kind tokenKind
	text string
	line int
}

// is reports whether t is that name or symbol.
func (t token) is(text string) bool {
	return t.text == text && (t.kind == tokenName || t.kind == tokenSymbol)
}

// lexer splits a template into tokens. It applies the whitespace control of Jinja with
// trim_blocks and lstrip_blocks.
type lexer struct {
	src    string
	at     int
	tokens []token

	line    int // line number of src[counted]
	counted int
}

// lex returns the tokens of a template; the last one is tokenEOF.
func lex(source string) []token {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1}
	lineStart := true
	for l.at < len(l.src) {
		if !l.text(lineStart) {
			break
		}
		lineStart = l.tag()
	}
	l.emit(tokenEOF, "")
	return l.tokens
}

// text emits the text before the next tag and moves to the tag. It returns false at the
// end of the template. lineStart means that the text starts at the start of a line.
func (l *lexer) text(lineStart bool) bool {
	open := l.at
	for {
		i := strings.IndexByte(l.src[open:], '{')
		if i < 0 || open+i+1 >= len(l.src) {
			l.emitText(l.src[l.at:])
			return false
		}
		open += i
		if c := l.src[open+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		open++
	}
	sign := byte(0)
	if open+2 < len(l.src) {
		sign = l.src[open+2]
	}
	l.emitText(trimBefore(l.src[l.at:open], sign, l.src[open+1] != '{', lineStart))
	l.at = open
	return true
}

func (l *lexer) emitText(text string) {
	if text != "" {
		l.emit(tokenText, text)
	}
}

// trimBefore removes the white space that a tag strips from the end of the text before
// it: all of it if the tag begins with "-", else the indentation of a block or comment
// that begins its line, unless the tag begins with "+".
func trimBefore(text string, sign byte, block, lineStart bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	begin := strings.LastIndexByte(text, '\n') + 1
	if block && sign != '+' && (begin > 0 || lineStart) && strings.TrimFunc(text[begin:], isSpace) == "" {
		return text[:begin]
	}
	return text
}

// trimAfter skips the white space that a tag strips from the text after it: all of it
// if the tag ends with "-", else one line end after a block or comment. It returns
// whether the text continues at the start of a line.
func (l *lexer) trimAfter(sign byte, block bool) (lineStart bool) {
	rest := l.src[l.at:]
	switch {
	case sign == '-':
		trimmed := strings.TrimLeftFunc(rest, isSpace)
		n := len(rest) - len(trimmed)
		l.at += n
		return n > 0 && rest[n-1] == '\n'
	case block && sign != '+' && strings.HasPrefix(rest, "\n"):
		l.at++
		return true
	}
	return false
}

// tag emits the tokens of the tag at l.at. It returns whether the text after the tag
// starts at the start of a line.
func (l *lexer) tag() (lineStart bool) {
	opening := l.src[l.at : l.at+2]
	if opening == "{#" {
		return l.comment()
	}
	block, closing := opening == "{%", "}}"
	if block {
		closing = "%}"
	}
	l.emit(tokenSymbol, opening)
	l.at += len(opening)
	if l.at < len(l.src) && (l.src[l.at] == '-' || block && l.src[l.at] == '+') {
		l.at++
	}
	first := len(l.tokens)
	sign := l.expression(closing)
	if inner := l.tokens[first:]; block && len(inner) == 1 && inner[0].is("raw") {
		l.tokens = l.tokens[:first-1]
		return l.raw(l.trimAfter(sign, false)) // trim_blocks does not apply
	}
	l.emit(tokenSymbol, closing)
	return l.trimAfter(sign, block)
}

func (l *lexer) comment() (lineStart bool) {
	l.at += 2
	n := strings.Index(l.src[l.at:], "#}")
	if n < 0 {
		l.fail(ErrSyntax, "unclosed comment")
	}
	sign := byte(0)
	if n > 0 {
		sign = l.src[l.at+n-1]
	}
	l.at += n + 2
	return l.trimAfter(sign, true)
}

var endRaw = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)

// raw emits the text up to {% endraw %} and skips that tag.
func (l *lexer) raw(lineStart bool) bool {
	m := endRaw.FindStringSubmatchIndex(l.src[l.at:])
	if m == nil {
		l.fail(ErrSyntax, "unclosed raw")
	}
	sign := func(from, to int) byte {
		if from == to {
			return 0
		}
		return l.src[l.at+from]
	}
	before, after := sign(m[2], m[3]), sign(m[4], m[5])
	l.emitText(trimBefore(l.src[l.at:l.at+m[0]], before, true, lineStart))
	l.at += m[1]
	return l.trimAfter(after, true)
}

// emit appends a token that begins at l.at.
func (l *lexer) emit(kind tokenKind, text string) {
	l.line += strings.Count(l.src[l.counted:l.at], "\n")
	l.counted = l.at
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

func (l *lexer) fail(kind error, format string, args ...any) {
	line := 1 + strings.Count(l.src[:l.at], "\n")
	panic(abort{fmt.Errorf("%w: line %d: %s", kind, line, shorten(fmt.Sprintf(format, args...)))})
}

// expression emits the tokens up to closing and skips it. It returns the sign before
// closing, or 0.
func (l *lexer) expression(closing string) (sign byte) {
	brackets := 0
	for {
		rest := strings.TrimLeftFunc(l.src[l.at:], isSpace)
		l.at = len(l.src) - len(rest)
		if rest == "" {
			l.fail(ErrSyntax, "unclosed tag")
		}
		if brackets == 0 {
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
			l.str(byte(c))
		case c >= '0' && c <= '9':
			l.number()
		case c == '_' || unicode.IsLetter(c):
			l.name()
		default:
			switch l.symbol() {
			case "(", "[", "{":
				brackets++
			case ")", "]", "}":
				brackets = max(0, brackets-1)
			}
		}
	}
}

func (l *lexer) symbol() string {
	rest := l.src[l.at:]
	n := 0
	for _, long := range []string{"**", "//", "==", "!=", "<=", ">="} {
		if strings.HasPrefix(rest, long) {
			n = 2
		}
	}
	if n == 0 && strings.IndexByte("+-*/%~<>=|.,:()[]{}", rest[0]) >= 0 {
		n = 1
	}
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(rest)
		l.fail(ErrSyntax, "unexpected %q", r)
	}
	l.emit(tokenSymbol, rest[:n])
	l.at += n
	return rest[:n]
}

func (l *lexer) name() {
	end := len(l.src)
	for i, r := range l.src[l.at:] {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			end = l.at + i
			break
		}
	}
	if n := end - l.at; n > maxName {
		l.fail(ErrLimit, "a name has %d bytes, at most %d", n, maxName)
	}
	l.emit(tokenName, l.src[l.at:end])
	l.at = end
}

var (
	integerSyntax = regexp.MustCompile(`^(?i:0b(_?[01])+|0o(_?[0-7])+|0x(_?[0-9a-f])+|[1-9](_?[0-9])*|0(_?0)*)`)
	floatSyntax   = regexp.MustCompile(`^[0-9]+(_[0-9]+)*(\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?|[eE][-+]?[0-9]+(_[0-9]+)*)`)
)

// number reads 12, 1_000, 0x1F, 1.5 and 1e9. After a dot it is an index.
func (l *lexer) number() {
	rest, kind := l.src[l.at:], tokenFloat
	n := len(floatSyntax.FindString(rest))
	if n == 0 || l.src[l.at-1] == '.' {
		n, kind = len(integerSyntax.FindString(rest)), tokenInt
	}
	l.emit(kind, strings.ReplaceAll(rest[:n], "_", ""))
	l.at += n
}

// str reads a string with Python's escapes.
func (l *lexer) str(quote byte) {
	var b strings.Builder
	i := l.at + 1
	for ; ; i++ {
		if i >= len(l.src) {
			l.fail(ErrSyntax, "unclosed string")
		}
		if l.src[i] == quote {
			break
		}
		if l.src[i] != '\\' {
			b.WriteByte(l.src[i])
			continue
		}
		n := unescape(&b, l.src[i:])
		if n == 0 {
			l.fail(ErrSyntax, "bad escape sequence in a string")
		}
		i += n - 1
	}
	l.emit(tokenString, b.String())
	l.at = i + 1
}

// unescape writes the character of the escape sequence at the start of s, as Python
// reads it, and returns the length of the sequence, or 0 if it is incomplete. An unknown
// sequence stands for itself.
func unescape(b *strings.Builder, s string) int {
	if len(s) < 2 {
		return 0
	}
	c := s[1]
	if i := strings.IndexByte(`ntrbfav\'"`, c); i >= 0 {
		b.WriteByte("\n\t\r\b\f\a\v\\'\""[i])
		return 2
	}
	base, digits := 16, map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	from := 2
	switch {
	case c == '\n': // continues the line
		return 2
	case c == 'N': // names of characters are not known
		return 0
	case c >= '0' && c <= '7':
		base, from, digits = 8, 1, 1
		for digits < 3 && from+digits < len(s) && s[from+digits] >= '0' && s[from+digits] <= '7' {
			digits++
		}
	case digits == 0:
		b.WriteByte('\\')
		return 1
	}
	if len(s) < from+digits {
		return 0
	}
	r, err := strconv.ParseUint(s[from:from+digits], base, 32)
	if err != nil || r > unicode.MaxRune {
		return 0
	}
	b.WriteRune(rune(r))
	return from + digits
}
