package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/tokens"
)

// operators by their text, the longer ones first.
var operators = []struct {
	text string
	kind tokens.Type
}{
	{"**", tokens.Power}, {"//", tokens.FloorDivision}, {"==", tokens.Equals}, {"!=", tokens.Ne},
	{"<=", tokens.LowerThanOrEqual}, {">=", tokens.GreaterThanOrEqual},
	{"+", tokens.Addition}, {"-", tokens.Subtraction}, {"*", tokens.Multiply}, {"/", tokens.Division},
	{"%", tokens.Modulo}, {"~", tokens.Tilde}, {"<", tokens.LowerThan}, {">", tokens.GreaterThan},
	{"=", tokens.Assign}, {"|", tokens.Pipe}, {".", tokens.Dot}, {",", tokens.Comma}, {":", tokens.Colon},
	{"(", tokens.LeftParenthesis}, {"[", tokens.LeftBracket}, {"{", tokens.LeftBrace},
	{")", tokens.RightParenthesis}, {"]", tokens.RightBracket}, {"}", tokens.RightBrace},
}

// keywords are the names that the parser wants as tokens of their own.
var keywords = map[string]tokens.Type{
	"and": tokens.And, "or": tokens.Or, "not": tokens.Not, "in": tokens.In, "is": tokens.Is,
}

func (l *lexer) operator() {
	rest := l.src[l.at:]
	for _, op := range operators {
		if !strings.HasPrefix(rest, op.text) {
			continue
		}
		l.bracket(op.text[0])
		l.emit(op.kind, op.text)
		l.at += len(op.text)
		return
	}
	r, _ := utf8.DecodeRuneInString(rest)
	l.fail(ErrSyntax, "unexpected %q", r)
}

// bracket checks that brackets match and do not nest too deep.
func (l *lexer) bracket(c byte) {
	switch c {
	case '(', '[', '{':
		l.open = append(l.open, map[byte]byte{'(': ')', '[': ']', '{': '}'}[c])
		if len(l.open) > maxNesting {
			l.fail(ErrLimit, "brackets nest more than %d deep", maxNesting)
		}
	case ')', ']', '}':
		if len(l.open) == 0 || l.open[len(l.open)-1] != c {
			l.fail(ErrSyntax, "unexpected %q", c)
		}
		l.open = l.open[:len(l.open)-1]
	}
}

func (l *lexer) name() {
	end := l.at
	for i, r := range l.src[l.at:] {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		end = l.at + i + len(string(r))
	}
	name := l.src[l.at:end]
	if len(name) > maxName {
		l.fail(ErrLimit, "a name has %d bytes, at most %d", len(name), maxName)
	}
	kind := tokens.Name
	after := len(l.out) > 0 && l.out[len(l.out)-1].Type == tokens.Dot
	if k, ok := keywords[name]; ok && !after {
		kind = k
	}
	l.emit(kind, name)
	l.at = end
}

// number reads 12, 1_000, 1.5 and 1e9.
func (l *lexer) number() {
	rest := l.src[l.at:]
	n := digits(rest, 0)
	kind := tokens.Integer
	if n < len(rest) && rest[n] == '.' {
		if m := digits(rest, n+1); m > n+1 {
			n, kind = m, tokens.Float
		}
	}
	if n < len(rest) && (rest[n] == 'e' || rest[n] == 'E') {
		m := n + 1
		if m < len(rest) && (rest[m] == '+' || rest[m] == '-') {
			m++
		}
		if e := digits(rest, m); e > m {
			n, kind = e, tokens.Float
		}
	}
	l.emit(kind, rest[:n])
	l.at += n
}

func digits(s string, i int) int {
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '_') {
		i++
	}
	return i
}

// text reads a string with Python's escapes. Neighboring strings are one.
func (l *lexer) text(quote byte) {
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
		i += escape(&b, l.src[i:]) - 1
	}
	// The parser reads backslashes in tokens as escapes once more; written so
	// they survive it.
	val := strings.ReplaceAll(b.String(), `\`, `\x5c`)
	if last := l.out[len(l.out)-1]; last.Type == tokens.String {
		last.Val += val
	} else {
		l.emit(tokens.String, val)
	}
	l.at = i + 1
}

// escape writes what the escape sequence at the start of s stands for and gives
// its length. An unknown one stands for itself, as in Python.
func escape(b *strings.Builder, s string) int {
	if len(s) < 2 {
		b.WriteByte('\\')
		return 1
	}
	if i := strings.IndexByte(`ntrbfav0\'"`, s[1]); i >= 0 {
		b.WriteByte("\n\t\r\b\f\a\v\x00\\'\""[i])
		return 2
	}
	for kind, n := range map[byte]int{'x': 2, 'u': 4, 'U': 8} {
		if s[1] == kind && len(s) >= 2+n {
			if r, err := strconv.ParseUint(s[2:2+n], 16, 32); err == nil && r <= unicode.MaxRune {
				b.WriteRune(rune(r))
				return 2 + n
			}
		}
	}
	if s[1] != '\n' {
		b.WriteByte('\\')
		return 1
	}
	return 2
}
