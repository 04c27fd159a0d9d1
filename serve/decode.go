package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a body, in addition to its size.
const (
	maxDepth  = 64      // nested arrays and objects
	maxValues = 1 << 18 // values and keys
)

// decoder reads a JSON body value by value. Its first error names the field by its path, such as
// messages[0].content; afterwards every method returns zero values and reads nothing.
//
// encoding/json finds the first syntax error, and the decoder reads up to it. The decoder itself
// refuses duplicate keys, invalid UTF-8, lone surrogates, deep nesting and too many values.
type decoder struct {
	body   []byte
	at     int   // the next byte to read
	bad    int   // the byte of the first syntax error; len(body): none, or the body ends too early
	syntax error // nil: none
	path   []step
	depth  int
	values int
	err    *apiError
}

// step is a key, or an index of an array if it is not negative.
type step struct {
	key   string
	index int
}

// decodeBody calls field for each key of the object in body. field must read exactly one value. It
// is not called for null, which means that the key is absent.
func decodeBody(body []byte, field func(d *decoder, key string)) *apiError {
	d := newDecoder(body)
	if d.peek() == 0 {
		return badRequest("", "the body is empty, want a JSON object")
	}
	d.object(func(key string) { field(d, key) })
	if d.err == nil && d.syntax != nil {
		d.failSyntax()
	}
	return d.err
}

func newDecoder(body []byte) *decoder {
	d := &decoder{body: body, bad: len(body)}
	if json.Valid(body) {
		return d
	}
	var s *json.SyntaxError
	d.syntax = json.Unmarshal(body, new(json.RawMessage))
	if errors.As(d.syntax, &s) && s.Error() != "unexpected end of JSON input" {
		d.bad = int(s.Offset) - 1
	}
	return d
}

// fail records the first error, at the current path.
func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = badRequest(d.where(), format, args...)
	}
}

// where is the path of the current value, shortened if it is long.
func (d *decoder) where() string {
	var s strings.Builder
	for i, p := range d.path {
		switch {
		case p.index >= 0:
			fmt.Fprintf(&s, "[%d]", p.index)
		case i > 0:
			s.WriteString("." + p.key)
		default:
			s.WriteString(p.key)
		}
	}
	return shorten(s.String(), 200)
}

// shorten cuts s after n bytes and makes it valid UTF-8.
func shorten(s string, n int) string {
	if len(s) > n {
		s = s[:n] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}

// peek skips space and separators and returns the next byte: the first of a value or key, or the
// bracket that ends the array or object; 0 at the end of the body.
func (d *decoder) peek() byte {
	for ; d.at < len(d.body); d.at++ {
		if c := d.body[d.at]; c != ' ' && c != '\t' && c != '\r' && c != '\n' && c != ',' && c != ':' {
			return c
		}
	}
	return 0
}

// kind names the type of the next value.
func (d *decoder) kind() string {
	switch c := d.peek(); {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case c == '-' || c >= '0' && c <= '9':
		return "a number"
	}
	return "no value"
}

// token reads the next bracket, string, number or literal and returns its text.
func (d *decoder) token() []byte {
	if d.err != nil {
		return nil
	}
	if d.values++; d.values > maxValues {
		d.fail("the body has more than %d values", maxValues)
		return nil
	}
	c := d.peek()
	scalar := c != 0 && strings.IndexByte("{}[]", c) < 0
	start := d.at
	end := start + 1
	switch {
	case c == '"':
		for end < len(d.body) && d.body[end] != '"' {
			if d.body[end] == '\\' {
				end++
			}
			end++
		}
		end++
	case scalar:
		for end < len(d.body) && strings.IndexByte(" \t\r\n,:{}[]\"", d.body[end]) < 0 {
			end++
		}
	}
	if d.syntax != nil && (end > d.bad || scalar && !json.Valid(d.body[start:end])) {
		d.failSyntax()
		return nil
	}
	d.at = end
	return d.body[start:end]
}

func (d *decoder) failSyntax() {
	if d.bad == len(d.body) {
		d.fail("the JSON ends too early")
		return
	}
	d.fail("invalid JSON at byte %d: %s", d.bad, shorten(d.syntax.Error(), 100))
}

// loneSurrogate reports whether an escape \uD800 to \uDFFF of a valid JSON string has no partner.
func loneSurrogate(raw []byte) bool {
	unit := func(i int) uint64 { // of the escape at i, or 0
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0
		}
		u, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		return u
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xd800 && u < 0xdc00 && unit(i+6) >= 0xdc00 && unit(i+6) < 0xe000:
			i += 11
		case u >= 0xd800 && u < 0xe000:
			return true
		default:
			i++ // the escaped character
		}
	}
	return false
}

// want reads the next token if its first byte is one of those in first. Otherwise it fails with name
// as what it wants.
func (d *decoder) want(first, name string) []byte {
	if d.err != nil {
		return nil
	}
	if c := d.peek(); c != 0 && strings.IndexByte(first, c) >= 0 {
		return d.token()
	}
	if got := d.kind(); d.token() != nil || d.err == nil { // a syntax error goes first
		d.fail("want %s, got %s", name, got)
	}
	return nil
}

// null reads a null and reports whether there was one.
func (d *decoder) null() bool {
	if d.err != nil || d.peek() != 'n' {
		return false
	}
	d.token()
	return d.err == nil
}

// enter reads the bracket that opens an array or object.
func (d *decoder) enter(first, name string) bool {
	if d.depth++; d.depth > maxDepth {
		d.fail("more than %d nested arrays and objects", maxDepth)
	}
	d.want(first, name)
	return d.err == nil
}

// leave reads the bracket that closes it.
func (d *decoder) leave() {
	d.depth--
	if d.err == nil {
		d.token()
	}
}

// object reads an object. field must read the value of a key. It is not called for null.
func (d *decoder) object(field func(key string)) {
	if !d.enter("{", "an object") {
		return
	}
	seen := map[string]bool{}
	for d.err == nil && d.peek() != '}' {
		key := d.string()
		if d.err != nil {
			return
		}
		d.path = append(d.path, step{key, -1})
		if seen[key] {
			d.fail("the key appears twice")
		}
		seen[key] = true
		if !d.null() && d.err == nil {
			field(key)
		}
		d.path = d.path[:len(d.path)-1]
	}
	d.leave()
}

// array reads an array. element must read one element.
func (d *decoder) array(element func(i int)) {
	if !d.enter("[", "an array") {
		return
	}
	for i := 0; d.err == nil && d.peek() != ']'; i++ {
		d.path = append(d.path, step{index: i})
		element(i)
		d.path = d.path[:len(d.path)-1]
	}
	d.leave()
}

func (d *decoder) string() string {
	raw := d.want(`"`, "a string")
	if raw == nil {
		return ""
	}
	text := raw[1 : len(raw)-1]
	switch {
	case !utf8.Valid(text):
		d.fail("the string is not valid UTF-8")
	case bytes.IndexByte(text, '\\') < 0:
		return string(text)
	case loneSurrogate(text):
		d.fail("the string has a UTF-16 surrogate without its partner")
	default:
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			d.fail("invalid string: %v", err)
		}
		return s
	}
	return ""
}

// stringOf reads one of the given strings.
func (d *decoder) stringOf(choices ...string) string {
	s := d.string()
	for _, c := range choices {
		if s == c {
			return s
		}
	}
	d.fail("%q is not supported, want %s", shorten(s, 64), quoted(choices))
	return ""
}

func quoted(choices []string) string {
	var s []string
	for _, c := range choices {
		s = append(s, strconv.Quote(c))
	}
	return strings.Join(s, " or ")
}

func (d *decoder) bool() bool {
	return string(d.want("tf", "true or false")) == "true"
}

// number reads a finite number.
func (d *decoder) number() (text json.Number, x float64) {
	text = json.Number(d.want("-0123456789", "a number"))
	if d.err != nil {
		return "0", 0
	}
	x, err := text.Float64()
	if err != nil {
		d.fail("%s is out of range", shorten(string(text), 64))
	}
	return text, x
}

// float reads a number in [lo, hi].
func (d *decoder) float(lo, hi float64) float64 {
	text, x := d.number()
	if d.err == nil && !(x >= lo && x <= hi) {
		d.fail("%s, want %v to %v", shorten(string(text), 64), lo, hi)
	}
	return x
}

// int reads a whole number in [lo, hi]. 2.0 and 1e3 are whole numbers.
func (d *decoder) int(lo, hi int64) int64 {
	text, x := d.number()
	if d.err != nil {
		return 0
	}
	n, err := text.Int64()
	if err != nil {
		if x != math.Trunc(x) {
			d.fail("%s, want a whole number", shorten(string(text), 64))
			return 0
		}
		if math.Abs(x) > 1<<62 {
			d.fail("%s is out of range", shorten(string(text), 64))
			return 0
		}
		n = int64(x)
	}
	if n < lo || n > hi {
		d.fail("%s, want %d to %d", shorten(string(text), 64), lo, hi)
		return 0
	}
	return n
}

// skip reads any value and checks it.
func (d *decoder) skip() {
	switch d.peek() {
	case '{':
		d.object(func(string) { d.skip() })
	case '[':
		d.array(func(int) { d.skip() })
	case '"':
		d.string()
	default:
		d.want("tfn-0123456789", "a value")
	}
}

// raw reads any value and returns its text without insignificant space.
func (d *decoder) raw() json.RawMessage {
	start := d.at
	d.skip()
	return d.since(start)
}

// since returns the text of the value that began after offset start, without insignificant space.
func (d *decoder) since(start int) json.RawMessage {
	if d.err != nil {
		return nil
	}
	text := bytes.TrimLeft(d.body[start:d.at], " \t\r\n,:")
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		d.fail("invalid JSON: %s", shorten(err.Error(), 100))
	}
	return compact.Bytes()
}

// rawObject is raw for an object.
func (d *decoder) rawObject() json.RawMessage {
	if d.err == nil && d.peek() != '{' {
		d.want("{", "an object")
		return nil
	}
	return d.raw()
}

// require fails unless ok: then key is missing in the current object.
func (d *decoder) require(ok bool, key string) {
	if ok || d.err != nil {
		return
	}
	d.path = append(d.path, step{key, -1})
	d.fail("the field is missing")
	d.path = d.path[:len(d.path)-1]
}

// unsupportedHere refuses the current value.
func (d *decoder) unsupportedHere() {
	if d.err == nil {
		d.err = unsupported(d.where(), "this server does not support it")
	}
}
