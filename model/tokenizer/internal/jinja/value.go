package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A value is a nil, bool, int, float64, string, text or []any, or a type of this file.
// Values are immutable, except for the attributes of a namespace.

// Costs in bytes of a value in a list, of a dictionary or a scope that is not empty, and
// of each entry.
const (
	valueBytes = 32
	mapBytes   = 400
	entryBytes = 128
)

// Dict is a dictionary in insertion order. As in Python, 1, 1.0 and true are one key.
type Dict struct {
	keys   []any
	values map[any]any // by hashKey
}

// NewDict returns a dictionary of alternating keys and values. Keys are strings.
func NewDict(pairs ...any) *Dict {
	d := &Dict{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.set(pairs[i], pairs[i], pairs[i+1])
	}
	return d
}

// Set adds or replaces an entry of a dictionary that no template uses at present.
func (d *Dict) Set(key string, v any) { d.set(key, key, v) }

// Get returns the value of a key, and whether the dictionary has the key.
func (d *Dict) Get(key string) (v any, ok bool) {
	v, ok = d.values[key]
	return v, ok
}

// hashKey returns the value by which a dictionary finds a key. Lists and dictionaries
// have none.
func hashKey(key any) (hash any, ok bool) {
	if f, i, isInt, ok := number(key); ok {
		if isInt {
			return i, true
		}
		if i := int(f); float64(i) == f {
			return i, true
		}
		return f, true
	}
	if key == nil {
		return nil, true
	}
	if t, ok := textOf(key); ok {
		return t.s, true
	}
	return nil, false
}

func (d *Dict) set(hash, key, v any) {
	if d.values == nil {
		d.values = map[any]any{}
	}
	if _, ok := d.values[hash]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[hash] = v
}

// hash is hashKey. It fails if there is none, and pays for reading the key.
func (in *interp) hash(key any) any {
	hash, ok := hashKey(key)
	if !ok {
		in.fail("%s cannot be a key", typeName(key))
	}
	if t, ok := textOf(key); ok {
		in.scan(len(t.s))
	}
	return hash
}

// set adds an entry to a dictionary that is being made.
func (in *interp) set(d *Dict, key, v any) {
	in.payEntry(d.values == nil)
	d.set(in.hash(key), key, v)
}

// lookup returns the value of a key in a dictionary. What is undefined is no key.
func (in *interp) lookup(d *Dict, key any) (v any, ok bool) {
	if _, missing := key.(undefined); missing {
		return nil, false
	}
	v, ok = d.values[in.hash(key)]
	return v, ok
}

// pairs calls yield with the keys and values of a dictionary in order.
func (d *Dict) pairs(yield func(key, v any) bool) {
	for _, key := range d.keys {
		hash, _ := hashKey(key)
		if !yield(key, d.values[hash]) {
			return
		}
	}
}

// namespace is the result of namespace(): the only value that set can change.
type namespace struct{ attributes Dict }

// undefined is a missing value; name is its name in the template.
type undefined struct{ name string }

// function is a function, or a method with its receiver.
type function func(in *interp, a args) any

// macro is a macro and the scope of its definition.
type macro struct {
	name   string
	params []parameter
	body   []stmt
	scope  *scope
}

type parameter struct {
	name     string
	fallback expr // nil without a default
}

// args are the arguments of a call.
type args struct {
	pos    []any
	kw     map[string]any
	names  []string // the keys of kw in the order of the template
	caller *macro   // the body of a call statement, or nil
}

// typeName returns the name of the type in Python.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int:
		return "int"
	case float64:
		return "float"
	case string, text:
		return "str"
	case []any:
		return "list"
	case *Dict:
		return "dict"
	case *namespace:
		return "namespace"
	case undefined:
		return "undefined '" + v.name + "'"
	}
	return "function"
}

// truth converts to a bool as Python does: empty and zero are false.
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case text:
		return v.s != ""
	case []any:
		return len(v) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

// number returns v as a float and, if it is an integer or a bool, as an integer.
func number(v any) (f float64, i int, isInt, ok bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, 1, true, true
		}
		return 0, 0, true, true
	case int:
		return float64(v), v, true, true
	case float64:
		return v, 0, false, true
	}
	return 0, 0, false, false
}

// equal is the operator ==.
func (in *interp) equal(a, b any) bool {
	in.enter()
	defer in.leave()
	if x, i, isInt, ok := number(a); ok {
		y, j, isInt2, ok := number(b)
		if isInt && isInt2 {
			return ok && i == j
		}
		return ok && x == y
	}
	if s, ok := textOf(a); ok {
		t, ok := textOf(b)
		in.scan(min(len(s.s), len(t.s)))
		return ok && s.s == t.s
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case []any:
		l, ok := b.([]any)
		return ok && slices.EqualFunc(a, l, in.equal)
	case *Dict:
		d, ok := b.(*Dict)
		return ok && in.equalDicts(a, d)
	case *namespace:
		n, ok := b.(*namespace)
		return ok && a == n
	}
	return false
}

func (in *interp) equalDicts(a, b *Dict) bool {
	for k, v := range a.pairs {
		if w, ok := in.lookup(b, k); !ok || !in.equal(v, w) {
			return false
		}
	}
	return len(a.keys) == len(b.keys)
}

// str formats v as {{ v }} does.
func (in *interp) str(v any) text {
	if t, ok := textOf(v); ok {
		return t
	}
	if _, missing := v.(undefined); missing {
		return text{}
	}
	b := builder{in: in}
	b.repr(v)
	return b.text()
}

// repr formats v as Python's repr does.
func (b *builder) repr(v any) {
	b.in.enter()
	defer b.in.leave()
	switch v := v.(type) {
	case nil:
		b.put("None")
	case bool:
		b.put(map[bool]string{true: "True", false: "False"}[v])
	case int:
		b.put(strconv.Itoa(v))
	case float64:
		b.put(formatFloat(v))
	case string, text:
		t, _ := textOf(v)
		b.quote(t)
	case []any:
		sep := "["
		for _, e := range v {
			b.put(sep)
			b.repr(e)
			sep = ", "
		}
		b.put(strings.TrimSuffix(sep, ", ") + "]")
	case *Dict:
		sep := "{"
		for k, v := range v.pairs {
			b.put(sep)
			b.repr(k)
			b.put(": ")
			b.repr(v)
			sep = ", "
		}
		b.put(strings.TrimSuffix(sep, ", ") + "}")
	case undefined:
		b.put("Undefined")
	default:
		b.put("<" + typeName(v) + ">")
	}
}

// quote formats a string as Python's repr does.
func (b *builder) quote(t text) {
	b.grow(4*len(t.s) + 2) // a byte becomes at most \xHH
	out := &b.b
	q := '\''
	if strings.Contains(t.s, `'`) && !strings.Contains(t.s, `"`) {
		q = '"'
	}
	out.WriteRune(q)
	b.each(t, func(r rune) {
		if i := strings.IndexRune("\n\r\t", r); i >= 0 {
			out.WriteByte('\\')
			out.WriteByte("nrt"[i])
			return
		}
		switch {
		case r == q || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case unicode.IsPrint(r):
			out.WriteRune(r)
		case r < 0x100:
			escape(out, 'x', 2, r)
		case r < 0x10000:
			escape(out, 'u', 4, r)
		default:
			escape(out, 'U', 8, r)
		}
	})
	out.WriteRune(q)
}

// escape writes r as an escape sequence with hexadecimal digits, such as \x07.
func escape(b *strings.Builder, kind byte, digits int, r rune) {
	b.WriteByte('\\')
	b.WriteByte(kind)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b.WriteByte("0123456789abcdef"[r>>shift&15])
	}
}

// formatFloat formats a float as Python does: always with a point or an exponent.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	case f != 0 && (math.Abs(f) < 1e-4 || math.Abs(f) >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
