package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// A value is a nil, bool, int, float64, string or []any, or a type of this file. Values
// are immutable, except for the attributes of a namespace.

// Dict is a dictionary with string keys in insertion order.
type Dict struct {
	keys   []string
	values map[string]any
}

// NewDict returns a dictionary of alternating keys and values.
func NewDict(pairs ...any) *Dict {
	d := &Dict{}
	for i := 0; i+1 < len(pairs); i += 2 {
		d.set(pairs[i].(string), pairs[i+1])
	}
	return d
}

func (d *Dict) set(key string, v any) {
	if d.values == nil {
		d.values = map[string]any{}
	}
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = v
}

// namespace is the result of namespace(): the only value that set can change.
type namespace struct{ Dict }

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
	pos []any
	kw  map[string]any
}

// loop is the variable loop inside a for statement.
type loop struct {
	items []any
	index int // from 0
	depth int // from 1
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
	case string:
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
	switch a := a.(type) {
	case nil:
		return b == nil
	case undefined:
		_, ok := b.(undefined)
		return ok
	case string:
		s, ok := b.(string)
		in.scan(min(len(a), len(s)))
		return ok && a == s
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
	for _, k := range a.keys {
		if v, ok := in.lookup(b, k); !ok || !in.equal(a.values[k], v) {
			return false
		}
	}
	return len(a.keys) == len(b.keys)
}

// str formats v as {{ v }} does.
func (in *interp) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case undefined:
		return ""
	}
	var b strings.Builder
	in.repr(&b, v)
	return b.String()
}

// repr formats v as Python's repr does.
func (in *interp) repr(b *strings.Builder, v any) {
	in.enter()
	defer in.leave()
	switch v := v.(type) {
	case nil:
		in.put(b, "None")
	case bool:
		in.put(b, map[bool]string{true: "True", false: "False"}[v])
	case int:
		in.put(b, strconv.Itoa(v))
	case float64:
		in.put(b, formatFloat(v))
	case string:
		in.put(b, in.quote(v))
	case []any:
		sep := "["
		for _, e := range v {
			in.put(b, sep)
			in.repr(b, e)
			sep = ", "
		}
		in.put(b, strings.TrimSuffix(sep, ", ")+"]")
	case *Dict:
		sep := "{"
		for _, k := range v.keys {
			in.put(b, sep+in.quote(k)+": ")
			in.repr(b, v.values[k])
			sep = ", "
		}
		in.put(b, strings.TrimSuffix(sep, ", ")+"}")
	case undefined:
		in.put(b, "Undefined")
	default:
		in.put(b, "<"+typeName(v)+">")
	}
}

// put appends s to b and takes its bytes from the budget.
func (in *interp) put(b *strings.Builder, s string) {
	in.pay(len(s))
	b.WriteString(s)
}

// quote formats a string as Python's repr does.
func (in *interp) quote(s string) string {
	in.pay(2 * len(s))
	q := `'`
	if strings.Contains(s, `'`) && !strings.Contains(s, `"`) {
		q = `"`
	}
	return q + strings.NewReplacer(`\`, `\\`, q, `\`+q, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + q
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
