package jinja

import (
	"fmt"

	"github.com/nikolalohinski/gonja/v2/tokens"
)

// ternary names the function that conditional expressions become. No template
// can spell it.
const ternary = "?"

// rewrite spells a tag's expressions so that gonja's grammar reads them as
// Jinja's does:
//
//   - "a if b else c" becomes the call "?(a, b, c)", which may stand anywhere,
//     whereas gonja has conditionals only at the outside of some tags;
//   - "a in b" gets brackets around b, of which gonja takes only the beginning;
//   - tests after an operator, as in "a ~ b is none", and chained comparisons
//     are refused: gonja would bind them the wrong way round.
//
// block says that the first token is a statement's name.
func rewrite(tag []*tokens.Token, block bool) []*tokens.Token {
	if !block || len(tag) == 0 {
		return list(tag)
	}
	if tag[0].Val != "for" {
		return append(tag[:1:1], list(tag[1:])...)
	}
	// In "for x in xs if c" the in and the if belong to the statement.
	in, condition := -1, -1
	for i, t := range tag {
		switch {
		case in < 0 && t.Type == tokens.In:
			in = i
		case in >= 0 && condition < 0 && isName(t, "if") && outermost(tag[in:i]):
			condition = i
		}
	}
	if in < 0 {
		return tag
	}
	out := tag[: in+1 : in+1]
	if condition < 0 {
		return append(out, list(tag[in+1:])...)
	}
	out = append(append(out, list(tag[in+1:condition])...), tag[condition])
	return append(out, list(tag[condition+1:])...)
}

func isName(t *tokens.Token, name string) bool { return t.Type == tokens.Name && t.Val == name }

// outermost reports that no bracket is open after the tokens.
func outermost(ts []*tokens.Token) bool {
	open := 0
	for _, t := range ts {
		switch t.Type {
		case tokens.LeftParenthesis, tokens.LeftBracket, tokens.LeftBrace:
			open++
		case tokens.RightParenthesis, tokens.RightBracket, tokens.RightBrace:
			open--
		}
	}
	return open == 0
}

// list rewrites expressions between separators.
func list(ts []*tokens.Token) (out []*tokens.Token) {
	var e expression
	for i := 0; i < len(ts); i++ {
		switch t := ts[i]; t.Type {
		case tokens.LeftParenthesis, tokens.LeftBracket, tokens.LeftBrace:
			end := closing(ts, i)
			e.begun = true
			e.out = append(append(append(e.out, t), list(ts[i+1:end])...), ts[end])
			i = end
		case tokens.Comma, tokens.Colon, tokens.Assign:
			out = append(append(out, e.finish()...), t)
			e = expression{}
		default:
			e.add(t)
		}
	}
	return append(out, e.finish()...)
}

// closing gives the place of the bracket that closes the one at open. The lexer
// has seen to it that there is one.
func closing(ts []*tokens.Token, open int) int {
	depth := 0
	for i := open; ; i++ {
		switch ts[i].Type {
		case tokens.LeftParenthesis, tokens.LeftBracket, tokens.LeftBrace:
			depth++
		case tokens.RightParenthesis, tokens.RightBracket, tokens.RightBrace:
			if depth--; depth == 0 {
				return i
			}
		}
	}
}

// expression is an expression that is being rewritten: the outermost level of
// it, brackets being rewritten already.
type expression struct {
	out   []*tokens.Token
	marks []int // the places of if and else in out

	// In the current operand of and, or, not, if and else:
	begun    bool // something stands there
	math     bool // an arithmetic operator does
	compared bool // a comparison does
	inside   bool // the bracket after in is open
}

// next ends the current operand.
func (e *expression) next(t *tokens.Token) {
	e.bracket(t)
	e.begun, e.math, e.compared = false, false, false
}

// bracket closes the bracket after in.
func (e *expression) bracket(t *tokens.Token) {
	if e.inside {
		e.out = append(e.out, like(t, tokens.RightParenthesis, ")"))
		e.inside = false
	}
}

func (e *expression) add(t *tokens.Token) {
	switch t.Type {
	case tokens.And, tokens.Or:
		e.next(t)
	case tokens.Not:
		if !e.begun {
			break
		}
		e.bracket(t) // of a chain with "not in"
	case tokens.Is:
		if e.math || e.compared {
			refuse(t, "a test after an operator needs brackets around what it tests")
		}
	case tokens.In:
		e.compare(t)
		e.out = append(e.out, t)
		e.out = append(e.out, like(t, tokens.LeftParenthesis, "("))
		e.inside, e.begun, e.math = true, false, false
		return
	case tokens.Equals, tokens.Ne, tokens.LowerThan, tokens.LowerThanOrEqual, tokens.GreaterThan, tokens.GreaterThanOrEqual:
		e.compare(t)
		e.math = false
	case tokens.Addition, tokens.Subtraction, tokens.Multiply, tokens.Division, tokens.FloorDivision,
		tokens.Modulo, tokens.Power, tokens.Tilde:
		e.math = e.math || e.begun
	default:
		if isName(t, "if") || isName(t, "else") {
			e.next(t)
			e.marks = append(e.marks, len(e.out))
		} else {
			e.begun = true
		}
	}
	e.out = append(e.out, t)
}

// compare notes a comparison, of which an operand can have one.
func (e *expression) compare(t *tokens.Token) {
	if e.compared {
		refuse(t, "chained comparisons need brackets")
	}
	e.compared = true
}

func (e *expression) finish() []*tokens.Token {
	if len(e.out) > 0 {
		e.bracket(e.out[len(e.out)-1])
	}
	return conditional(e.out, e.marks, 0)
}

func refuse(t *tokens.Token, why string) {
	panic(abort{fmt.Errorf("%w: line %d: %s", ErrSyntax, t.Line, why)})
}

// like makes a token at another's place.
func like(t *tokens.Token, kind tokens.Type, val string) *tokens.Token {
	return &tokens.Token{Type: kind, Val: val, Pos: t.Pos, Line: t.Line, Col: t.Col}
}

// conditional rewrites one expression whose if and else, at marks, stand at its
// outermost level. What follows else is an expression that may be conditional
// again.
func conditional(expr []*tokens.Token, marks []int, depth int) []*tokens.Token {
	if len(marks) == 0 || expr[marks[0]].Val != "if" {
		return expr
	}
	at := expr[marks[0]]
	if depth > maxNesting {
		panic(abort{fmt.Errorf("%w: line %d: conditional expressions nest more than %d deep", ErrLimit, at.Line, maxNesting)})
	}
	out := []*tokens.Token{like(at, tokens.Name, ternary), like(at, tokens.LeftParenthesis, "(")}
	out = append(append(out, expr[:marks[0]]...), like(at, tokens.Comma, ","))
	end := len(expr)
	if len(marks) > 1 {
		end = marks[1]
	}
	out = append(out, expr[marks[0]+1:end]...)
	if end < len(expr) {
		rest := make([]int, len(marks)-2)
		for i := range rest {
			rest[i] = marks[i+2] - end - 1
		}
		out = append(out, like(at, tokens.Comma, ","))
		out = append(out, conditional(expr[end+1:], rest, depth+1)...)
	}
	return append(out, like(at, tokens.RightParenthesis, ")"))
}
