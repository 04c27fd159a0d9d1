package jinja

// test evaluates "v is name(arguments)".
func (in *interp) test(name string, v any, a args) bool {
	in.work(1)
	if check, ok := typeTests[name]; ok {
		return check(v)
	}
	if len(a.pos) != 1 {
		if _, ok := argumentTests[name]; ok {
			in.fail("test %s needs one argument", name)
		}
		in.fail("unknown test %s", name)
	}
	check, ok := argumentTests[name]
	if !ok {
		in.fail("unknown test %s", name)
	}
	return check(in, v, a.pos[0])
}

// typeTests maps names to the tests without an argument.
var typeTests = map[string]func(v any) bool{
	"defined":   func(v any) bool { _, ok := v.(undefined); return !ok },
	"undefined": func(v any) bool { _, ok := v.(undefined); return ok },
	"none":      func(v any) bool { return v == nil },
	"None":      func(v any) bool { return v == nil },
	"string":    func(v any) bool { _, ok := v.(string); return ok },
	"boolean":   func(v any) bool { _, ok := v.(bool); return ok },
	"true":      func(v any) bool { return v == true },
	"false":     func(v any) bool { return v == false },
	"integer":   func(v any) bool { _, ok := v.(int); return ok },
	"float":     func(v any) bool { _, ok := v.(float64); return ok },
	"number":    func(v any) bool { _, _, _, ok := number(v); return ok },
	"mapping":   func(v any) bool { _, ok := v.(*Dict); return ok },
	"sequence":  isIterable,
	"iterable":  isIterable,
	"callable": func(v any) bool {
		switch v.(type) {
		case function, *macro:
			return true
		}
		return false
	},
	"odd":  func(v any) bool { _, i, isInt, _ := number(v); return isInt && i%2 != 0 },
	"even": func(v any) bool { _, i, isInt, _ := number(v); return isInt && i%2 == 0 },
}

func isIterable(v any) bool {
	switch v.(type) {
	case string, []any, *Dict, undefined:
		return true
	}
	return false
}

// argumentTests maps names to the tests with one argument.
var argumentTests = map[string]func(in *interp, v, arg any) bool{
	"in":      func(in *interp, v, arg any) bool { return in.contains(arg, v) },
	"eq":      func(in *interp, v, arg any) bool { return in.equal(v, arg) },
	"equalto": func(in *interp, v, arg any) bool { return in.equal(v, arg) },
	"sameas":  func(in *interp, v, arg any) bool { return in.equal(v, arg) },
	"==":      func(in *interp, v, arg any) bool { return in.equal(v, arg) },
	"ne":      func(in *interp, v, arg any) bool { return !in.equal(v, arg) },
	"!=":      func(in *interp, v, arg any) bool { return !in.equal(v, arg) },
	"divisibleby": func(in *interp, v, arg any) bool {
		i, ok := v.(int)
		n, ok2 := arg.(int)
		if !ok || !ok2 || n == 0 {
			in.operands("divisibleby", v, arg)
		}
		return i%n == 0
	},
}
