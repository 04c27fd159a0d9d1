// Package jinja renders the chat templates of model files. Templates are untrusted
// programs in Jinja2.
//
// A lexer (lexer.go) and a recursive-descent parser (parser.go) follow Jinja2's grammar
// and compile a template to closures. The interpreter (interp.go) bounds what these
// closures do:
//
//   - A source has at most maxSource bytes, a name maxName bytes. Blocks and expressions
//     nest at most maxNesting deep, which bounds the recursion of the parser.
//   - A rendering takes at most maxSteps steps and nests at most maxDepth deep, macro calls
//     included. Each expression, statement, iteration and list item is a step.
//   - Every string, list and dictionary is taken from a budget of bytes before it is
//     allocated, and every string that is searched or compared before it is read. The
//     budget grows with the size of the messages, and so does the budget of the output.
//   - No statement, function or method reads files, loads other templates, or changes a
//     value other than a namespace and what loop.changed has seen.
//
// The limits count work, not time: equal templates and messages give equal results.
//
// The environment is that of Hugging Face's transformers: trim_blocks and lstrip_blocks
// are on, undefined values print as nothing and fail in operations, tojson formats like
// Python's json.dumps, and raise_exception, strftime_now, break, continue and
// {% generation %} exist.
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors for errors.Is.
var (
	ErrSyntax = errors.New("the template cannot be parsed")
	ErrEval   = errors.New("the template fails")
	ErrLimit  = errors.New("the template asks for too much")
	ErrRaised = errors.New("the template refuses the messages")
)

// Limits of a template. The largest templates of published models have some 30 KB, nest
// 20 deep and take 10,000 steps for a long conversation.
const (
	maxSource  = 128 << 10
	maxName    = 256
	maxNesting = 100
	maxSteps   = 1 << 20
	maxDepth   = 400

	// The budgets of bytes and of output are max + factor × size of the variables.
	maxBytes, maxBytesFactor   = 32 << 20, 32
	maxOutput, maxOutputFactor = 4 << 20, 4
)

// Template is a parsed template. It is read-only and safe for concurrent use.
type Template struct{ body []stmt }

// Parse compiles a template. Errors wrap ErrSyntax or ErrLimit.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w: %d bytes of source, at most %d", ErrLimit, len(source), maxSource)
	}
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, recovered(r, ErrSyntax)
		}
	}()
	p := parser{tokens: lex(source)}
	body, _ := p.body()
	return &Template{body}, nil
}

// Render runs the template. Variables are nil, bool, int, float64, string, []any, *Dict,
// or values of Own. now is the time for strftime_now. Errors wrap ErrEval, ErrLimit or
// ErrRaised.
//
// own lists the parts of the result that come from the template: from its text, its string
// literals and the values of Own. They stay so through operators, filters and methods.
// Everything else is data.
func (t *Template) Render(vars *Dict, now time.Time) (result string, own []Span, err error) {
	out, err := newInterp(vars, now).render(t.body)
	return out.s, out.own, err
}

// abort carries an error up to Parse or Render.
type abort struct{ err error }

// recovered converts a panic to an error: the error of an abort, and kind for any other
// panic, because a bad template must not crash the process.
func recovered(r any, kind error) error {
	if a, ok := r.(abort); ok {
		return a.err
	}
	return fmt.Errorf("%w: %s", kind, shorten(fmt.Sprint(r)))
}

// shorten limits the length of a message that quotes a template.
func shorten(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// size returns the approximate number of bytes of a value.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case text:
		return len(v.s)
	case []any:
		n := 0
		for _, e := range v {
			n += size(e)
		}
		return n
	case *Dict:
		n := 0
		for k, v := range v.pairs {
			n += size(k) + size(v)
		}
		return n
	}
	return 16
}
