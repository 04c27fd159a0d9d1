package jinja

import (
	"strings"
	"unicode"
)

// test evaluates "v is name(arguments)".
func (in *interp) test(name string, v any, a args) bool {
	in.work(1)
	check, takes, ok := typeTests[name], 0, true
	if check == nil {
		check, ok = argumentTests[name]
		takes = 1
	}
	if !ok {
		in.fail("unknown test %s", name)
	}
	if len(a.pos) != takes || len(a.kw) > 0 {
		in.fail("test %s takes %d arguments, not %d", name, takes, len(a.pos)+len(a.kw))
	}
	var arg any
	if takes == 1 {
		arg = a.pos[0]
	}
	return check(in, v, arg)
}

// predicate is a test; arg is nil for tests without an argument.
type predicate func(in *interp, v, arg any) bool

// ofValue is a test that looks at nothing but the value.
func ofValue(check func(v any) bool) predicate {
	return func(_ *interp, v, _ any) bool { return check(v) }
}

// operator is a test that is a comparison.
func operator(op string) predicate {
	return func(in *interp, v, arg any) bool { return in.compare(op, v, arg) }
}

// typeTests maps names to the tests without an argument.
var typeTests = map[string]predicate{
	"defined":   ofValue(func(v any) bool { _, ok := v.(undefined); return !ok }),
	"undefined": ofValue(func(v any) bool { _, ok := v.(undefined); return ok }),
	"none":      ofValue(func(v any) bool { return v == nil }),
	"string":    ofValue(func(v any) bool { _, ok := textOf(v); return ok }),
	"boolean":   ofValue(func(v any) bool { _, ok := v.(bool); return ok }),
	"true":      ofValue(func(v any) bool { return v == true }),
	"false":     ofValue(func(v any) bool { return v == false }),
	"integer":   ofValue(func(v any) bool { _, ok := v.(int); return ok }),
	"float":     ofValue(func(v any) bool { _, ok := v.(float64); return ok }),
	"number":    ofValue(func(v any) bool { _, _, _, ok := number(v); return ok }),
	"mapping":   ofValue(func(v any) bool { _, ok := v.(*Dict); return ok }),
	"sequence":  ofValue(isIterable),
	"iterable":  ofValue(isIterable),
	"callable": ofValue(func(v any) bool {
		switch v.(type) {
		case function, *macro:
			return true
		}
		return false
	}),
	"lower": func(in *interp, v, _ any) bool { return in.cased(v, unicode.IsLower) },
	"upper": func(in *interp, v, _ any) bool { return in.cased(v, unicode.IsUpper) },
	"odd":   func(in *interp, v, _ any) bool { return in.compare("==", in.arithmetic("%", v, 2), 1) },
	"even":  func(in *interp, v, _ any) bool { return in.compare("==", in.arithmetic("%", v, 2), 0) },
}

func isIterable(v any) bool {
	switch v.(type) {
	case string, text, []any, *Dict, undefined:
		return true
	}
	return false
}

// cased reports whether v as a string has letters with a case, and all are in that case.
func (in *interp) cased(v any, is func(r rune) bool) bool {
	s := in.str(v).s
	in.scan(len(s))
	other := func(r rune) bool { return (unicode.IsLower(r) || unicode.IsUpper(r) || unicode.IsTitle(r)) && !is(r) }
	return strings.ContainsFunc(s, is) && !strings.ContainsFunc(s, other)
}

// argumentTests maps names to the tests with one argument.
var argumentTests = map[string]predicate{
	"in": operator("in"), "sameas": same,
	"eq": operator("=="), "equalto": operator("=="), "==": operator("=="),
	"ne": operator("!="), "!=": operator("!="),
	"lt": operator("<"), "lessthan": operator("<"), "<": operator("<"),
	"le": operator("<="), "<=": operator("<="),
	"gt": operator(">"), "greaterthan": operator(">"), ">": operator(">"),
	"ge": operator(">="), ">=": operator(">="),
	"divisibleby": func(in *interp, v, arg any) bool { return in.compare("==", in.arithmetic("%", v, arg), 0) },
}

// same reports whether v and arg are one object. Python decides that for strings and
// numbers by how it stores them; here equal ones of the same type are the same.
func same(in *interp, v, arg any) bool {
	a, ok := v.([]any)
	b, ok2 := arg.([]any)
	if ok && ok2 {
		return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	}
	if ok || ok2 || typeName(v) != typeName(arg) {
		return false
	}
	switch v := v.(type) {
	case *Dict:
		return v == arg
	case function:
		return false
	}
	return in.equal(v, arg)
}
