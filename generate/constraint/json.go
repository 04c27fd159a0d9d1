package constraint

import (
	"context"
	"strings"
)

// The parts of JSON, as regular expressions over bytes.
//
// White space is optional after an opening bracket, a comma and a colon, and before a
// closing bracket: one space, or a new line with up to 64 spaces or tabs. Numbers have
// bounded digits. Without these bounds a model could write zeros or spaces for ever.
const (
	spaceExpr   = `(?: |\r?\n[ \t]{0,64})?`
	digitsExpr  = `(?:0|[1-9][0-9]{0,17})`
	integerExpr = `(?:0|-?[1-9][0-9]{0,17})`
	decimalExpr = `-?` + digitsExpr + `(?:\.[0-9]{1,18})?`
	numberExpr  = decimalExpr + `(?:[eE][-+]?[0-9]{1,2})?`

	hex         = `[0-9a-fA-F]`
	unicodeExpr = `u(?:(?:[0-9abcefABCEF]` + hex + `|[dD][0-7])` + hex + hex +
		`|[dD][89abAB]` + hex + hex + `\\u[dD][c-fC-F]` + hex + hex + `)`
	charExpr   = `(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|` + unicodeExpr + `))`
	stringExpr = `"` + charExpr + `*"`
)

// maxDigits is the digits that integerExpr and each part of decimalExpr allow.
const maxDigits = 18

// jsonParts are the automata that all schemas share.
type jsonParts struct {
	space, open, colon, comma, closeObject, closeArray, openArray, endObject, endArray *automaton
	str, quote, char, integer, number, decimal, boolean, null                          *automaton
	key                                                                                *automaton // a string whose characters have one spelling each
}

func newJSONParts() (jsonParts, error) {
	var p jsonParts
	work := budget{context.Background(), maxWork}
	for _, part := range []struct {
		to   **automaton
		expr string
	}{
		{&p.space, spaceExpr}, {&p.colon, `:` + spaceExpr}, {&p.comma, `,` + spaceExpr},
		{&p.open, `\{` + spaceExpr}, {&p.openArray, `\[` + spaceExpr},
		{&p.closeObject, spaceExpr + `\}`}, {&p.closeArray, spaceExpr + `\]`},
		{&p.endObject, `\}`}, {&p.endArray, `\]`},
		{&p.str, stringExpr}, {&p.quote, `"`}, {&p.char, charExpr},
		{&p.integer, integerExpr}, {&p.number, numberExpr}, {&p.decimal, decimalExpr},
		{&p.boolean, `true|false`}, {&p.null, `null`},
		{&p.key, `"(?:[^"\\\x00-\x1f]|\\(?:["\\bfnrt]|u00(?:0[0-7be-f]|1[0-9a-f])))*"`},
	} {
		var err error
		if *part.to, err = compileExpr(part.expr, plain, &work); err != nil {
			return p, err
		}
		(*part.to).shared = true
	}
	return p, nil
}

// quote returns s as a JSON string, each character in its one spelling.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if e := escape(r); e != "" {
			b.WriteString(e)
		} else {
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
