// Package jinja renders the chat templates that model files carry: Jinja
// source that nobody has vetted.
//
// The grammar is gonja's parser; what it is given and what is done with its
// tree is written here, because gonja's own lexer and evaluator can neither be
// bounded nor take the templates of today's models: a repeated string, a list
// that doubles, a macro that calls itself would use up memory or the stack,
// which no recover can undo, and expressions over several lines or with an
// inner "a if b else c" do not parse.
//
// So that a template cannot harm the process:
//
//   - its source has at most maxSource bytes and names of maxName, and brackets, blocks and
//     conditional expressions nest at most maxNesting deep, which bounds the
//     parser's recursion;
//   - rendering visits at most maxSteps nodes, items and characters' worth of
//     work, at most maxDepth deep, macro calls included;
//   - every string, list and dictionary is paid for before it is made, from a
//     budget that grows only with the messages given, and so is the output;
//   - there are no statements, functions or methods that read files, import
//     templates or change a value that has been made (but for namespaces), so
//     that values have no cycles to follow; those that namespaces could make
//     run into maxDepth.
//
// The limits count work, not time: the same template and messages always give
// the same result.
//
// The environment is that of Hugging Face's transformers: trim_blocks and
// lstrip_blocks are on, undefined values print as nothing and fail when they
// are computed with, tojson writes like Python's json.dumps, and
// raise_exception, strftime_now, break, continue and {% generation %} exist.
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Errors for errors.Is.
var (
	ErrSyntax = errors.New("the template cannot be parsed")
	ErrEval   = errors.New("the template fails")
	ErrLimit  = errors.New("the template asks for too much")
	ErrRaised = errors.New("the template refuses the messages")
)

// What a template may have and use. The largest that models come with are some
// 30 KB long, nest 20 deep and take 10,000 steps for a long conversation.
const (
	maxSource  = 128 << 10
	maxName    = 256
	maxNesting = 100
	maxSteps   = 1 << 20
	maxDepth   = 400

	// Bytes made while rendering and bytes of output: so many, and so many
	// times the size of the values given.
	maxBytes, maxBytesFactor   = 32 << 20, 32
	maxOutput, maxOutputFactor = 4 << 20, 4
)

// Template is a parsed template. It is read-only and safe for concurrent use.
type Template struct{ root *nodes.Template }

// Parse reads a template. Errors wrap ErrSyntax or ErrLimit.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w: %d bytes of source, at most %d", ErrLimit, len(source), maxSource)
	}
	defer func() {
		// The parser runs into nil here and there on malformed input.
		if r := recover(); r != nil {
			t, err = nil, recovered(r, ErrSyntax)
		}
	}()
	stream := tokens.NewStream(lex(source))
	root, err := parser.NewParser("", stream, config.New(), nil, statements).Parse()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrSyntax, shorten(err.Error()))
	}
	return &Template{root: root}, nil
}

// Render evaluates the template. Values may be nil, bool, int, float64, string,
// []any and *Dict; now is the clock of strftime_now. Errors wrap ErrEval,
// ErrLimit or ErrRaised.
func (t *Template) Render(vars *Dict, now time.Time) (text string, err error) {
	given := size(vars)
	in := &interp{
		now: now, globals: vars,
		steps:  maxSteps,
		bytes:  maxBytes + maxBytesFactor*given,
		output: maxOutput + maxOutputFactor*given,
	}
	defer func() {
		if r := recover(); r != nil {
			text, err = "", recovered(r, ErrEval)
		}
	}()
	in.out = &strings.Builder{}
	in.nodes(t.root.Nodes, &scope{})
	return in.out.String(), nil
}

// abort carries an error up to Parse or Render.
type abort struct{ err error }

// recovered makes an error of a panic: an abort's own, and kind for any other,
// because a bad template must not take the process down.
func recovered(r any, kind error) error {
	if a, ok := r.(abort); ok {
		return a.err
	}
	return fmt.Errorf("%w: %s", kind, shorten(fmt.Sprint(r)))
}

// shorten keeps messages that quote a template readable.
func shorten(s string) string {
	const most = 300
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// size is the number of bytes of the values given to a template.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		n := 16 * len(v)
		for _, e := range v {
			n += size(e)
		}
		return n
	case *Dict:
		n := 0
		for _, k := range v.keys {
			n += len(k) + size(v.values[k])
		}
		return n
	}
	return 16
}
