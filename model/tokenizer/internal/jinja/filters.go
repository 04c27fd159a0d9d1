package jinja

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filters maps names to filters. Some call methods of strings.
var filters map[string]func(in *interp, v any, a args) any

func init() { // a literal would be an initialization cycle, because map looks up filters
	filters = map[string]func(in *interp, v any, a args) any{
		"length": length, "count": length,
		"default": fallback, "d": fallback,
		"tojson":     toJSON,
		"string":     func(in *interp, v any, _ args) any { return in.str(v).value() },
		"safe":       func(_ *interp, v any, _ args) any { return v },
		"list":       func(in *interp, v any, _ args) any { return in.iterate(v) },
		"first":      func(in *interp, v any, _ args) any { return in.end(v, true) },
		"last":       func(in *interp, v any, _ args) any { return in.end(v, false) },
		"reverse":    reverse,
		"join":       joinFilter,
		"items":      itemsFilter,
		"int":        toInt,
		"float":      toFloat,
		"abs":        abs,
		"round":      round,
		"indent":     indent,
		"replace":    replaceFilter,
		"sort":       sortFilter,
		"dictsort":   dictSort,
		"unique":     unique,
		"min":        func(in *interp, v any, a args) any { return in.extreme("min", v, a, -1) },
		"max":        func(in *interp, v any, a args) any { return in.extreme("max", v, a, 1) },
		"sum":        sum,
		"map":        mapFilter,
		"select":     func(in *interp, v any, a args) any { return in.choose("select", v, a, false, true) },
		"reject":     func(in *interp, v any, a args) any { return in.choose("reject", v, a, false, false) },
		"selectattr": func(in *interp, v any, a args) any { return in.choose("selectattr", v, a, true, true) },
		"rejectattr": func(in *interp, v any, a args) any { return in.choose("rejectattr", v, a, true, false) },
		"title": func(in *interp, v any, _ args) any {
			return in.title(in.str(v), func(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) })
		},
	}
	for filter, method := range map[string]string{
		"trim": "strip", "upper": "upper", "lower": "lower", "capitalize": "capitalize",
	} {
		filters[filter] = func(in *interp, v any, a args) any {
			t := in.str(v)
			in.scan(len(t.s))
			return stringMethods[method](in, t, a)
		}
	}
}

func (in *interp) filter(name string, v any, a args) any {
	f, ok := filters[name]
	if !ok {
		in.fail("unknown filter %s", name)
	}
	return f(in, v, a)
}

func length(in *interp, v any, _ args) any {
	switch v := v.(type) {
	case string, text:
		t, _ := textOf(v)
		in.scan(len(t.s))
		return utf8.RuneCountInString(t.s)
	case []any:
		return len(v)
	case *Dict:
		return len(v.keys)
	case undefined:
		return 0
	}
	in.fail("%s has no length", typeName(v))
	return nil
}

func fallback(in *interp, v any, a args) any {
	p := in.take("default", a, "default_value", "boolean")
	_, missing := v.(undefined)
	if !missing && !(truth(p[1]) && !truth(v)) {
		return v
	}
	if _, ok := p[0].(undefined); ok {
		return ""
	}
	return p[0]
}

// end returns the first or the last item.
func (in *interp) end(v any, first bool) any {
	items := in.iterate(v)
	switch {
	case len(items) == 0:
		return undefined{"item"}
	case first:
		return items[0]
	}
	return items[len(items)-1]
}

func reverse(in *interp, v any, _ args) any {
	items := in.iterate(v)
	in.list(len(items))
	out := make([]any, len(items))
	for i, item := range items {
		out[len(out)-1-i] = item
	}
	if _, ok := textOf(v); ok {
		return in.join(out, text{})
	}
	return out
}

func joinFilter(in *interp, v any, a args) any {
	p := in.take("join", a, "d", "attribute")
	return in.join(in.attributes(in.iterate(v), p[1]), in.str(p[0]))
}

// attributes returns the attribute of each item at a path such as "a.b" or 0, or the
// items themselves if the path is absent.
func (in *interp) attributes(items []any, path any) []any {
	if absent(path) {
		return items
	}
	parts := []any{path}
	if t, ok := textOf(path); ok {
		parts = parts[:0]
		in.scan(len(t.s)) // Atoi copies the text into its error
		for part := range strings.SplitSeq(t.s, ".") {
			in.list(1)
			if i, err := strconv.Atoi(part); err == nil {
				parts = append(parts, i)
			} else {
				parts = append(parts, part)
			}
		}
	}
	in.list(len(items))
	out := make([]any, len(items))
	for i, item := range items {
		for _, part := range parts {
			in.work(1)
			item = in.item(item, part)
		}
		out[i] = item
	}
	return out
}

func replaceFilter(in *interp, v any, a args) any {
	p := in.take("replace", a, "old", "new", "count")
	return in.replace(in.str(v), in.str(p[0]).s, in.str(p[1]), in.integer("replace", p[2], -1))
}

func itemsFilter(in *interp, v any, _ args) any {
	switch v := v.(type) {
	case *Dict:
		return in.items(v)
	case undefined:
		return []any{}
	}
	in.fail("items needs a dictionary, not %s", typeName(v))
	return nil
}

func toInt(in *interp, v any, a args) any {
	p := in.take("int", a, "default")
	f, i, isInt, ok := number(v)
	if t, isString := textOf(v); isString {
		s := in.digits(t.s)
		parsed, err := strconv.ParseInt(s, 10, 64)
		i, isInt = int(parsed), err == nil
		f, ok = parseFloat(s)
	}
	switch _, missing := p[0].(undefined); {
	case isInt:
		return i
	case ok && math.Abs(f) < 1<<62:
		return int(f)
	case missing:
		return 0
	}
	return p[0]
}

func toFloat(in *interp, v any, a args) any {
	p := in.take("float", a, "default")
	f, _, _, ok := number(v)
	if t, isString := textOf(v); isString {
		f, ok = parseFloat(in.digits(t.s))
	}
	switch _, missing := p[0].(undefined); {
	case ok:
		return f
	case missing:
		return 0.0
	}
	return p[0]
}

var digitGroups = regexp.MustCompile(`([0-9])_([0-9])`)

// digits removes from the text of a number what Python ignores: white space around it,
// and a "_" between digits.
func (in *interp) digits(s string) string {
	in.pay(2 * len(s))
	s = strings.TrimFunc(s, isSpace)
	if len(s) > maxName || !strings.Contains(s, "_") {
		return s
	}
	s = digitGroups.ReplaceAllString(s, "$1$2")
	return digitGroups.ReplaceAllString(s, "$1$2") // 1_2_3 overlaps
}

// parseFloat reads a float as Python does: in decimal.
func parseFloat(s string) (f float64, ok bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, (err == nil || errors.Is(err, strconv.ErrRange)) && !strings.ContainsAny(s, "xX_")
}

// round rounds to a number of decimal places, ties to even.
func round(in *interp, v any, a args) any {
	p := in.take("round", a, "precision", "method")
	f, i, isInt, ok := number(v)
	places, method := in.integer("round", p[0], 0), in.text("round", p[1], "common")
	towards, directed := map[string]func(float64) float64{"floor": math.Floor, "ceil": math.Ceil}[method]
	switch {
	case !ok || places < 0 || places > 300 || !directed && method != "common":
		in.fail("round takes a number, 0 to 300 places, and common, floor or ceil")
	case directed:
		scale := math.Pow(10, float64(places))
		return towards(f*scale) / scale
	case isInt:
		return i
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', places, 64), 64)
	return rounded
}

func abs(in *interp, v any, _ args) any {
	f, i, isInt, ok := number(v)
	if !ok {
		in.operands("abs", v, v)
	}
	if isInt {
		return max(i, -i)
	}
	return math.Abs(f)
}

// indent indents lines: the first one and blank ones only if asked to.
func indent(in *interp, v any, a args) any {
	p := in.take("indent", a, "width", "first", "blank")
	margin, ok := textOf(p[0])
	if !ok {
		margin, _ = textOf(in.repeat(" ", in.integer("indent", p[0], 4)))
	}
	t := in.needTextOf("indent", v)
	in.scan(len(t.s))
	lines := strings.Count(t.s, "\n") + 1
	in.work(lines)
	b := builder{in: in}
	b.grow(len(t.s) + lines*len(margin.s))
	at := 0
	for line := range strings.SplitAfterSeq(t.s, "\n") {
		first := at == 0
		if first && truth(p[1]) || !first && (truth(p[2]) || strings.TrimSuffix(line, "\n") != "") {
			b.add(margin, 0, len(margin.s))
		}
		b.add(t, at, at+len(line))
		at += len(line)
	}
	return b.text().value()
}

// mapFilter implements map('filter', …) and map(attribute='name').
func mapFilter(in *interp, v any, a args) any {
	items := in.anyItems(v)
	if path, ok := a.kw["attribute"]; ok && len(a.pos) == 0 {
		out := in.attributes(items, path)
		if otherwise, ok := a.kw["default"]; ok {
			for i := range out {
				if _, missing := out[i].(undefined); missing {
					out[i] = otherwise
				}
			}
		}
		return out
	}
	if len(a.pos) == 0 {
		in.fail("map needs a filter or an attribute")
	}
	name := in.text("map", a.pos[0], "")
	in.list(len(items))
	out := make([]any, len(items))
	for i, item := range items {
		in.enter()
		out[i] = in.filter(name, item, args{pos: a.pos[1:], kw: a.kw, names: a.names})
		in.leave()
	}
	return out
}

// choose returns the items for which the result of a test equals keep. The test applies
// to the item or to an attribute of it; without a test it is the truth of the value.
func (in *interp) choose(what string, v any, a args, byAttribute, keep bool) any {
	items := in.anyItems(v)
	values := items
	if byAttribute {
		if len(a.pos) == 0 {
			in.fail("%s needs an attribute", what)
		}
		values = in.attributes(items, a.pos[0])
		a.pos = a.pos[1:]
	}
	in.list(len(items))
	out := []any{}
	for i, item := range items {
		pass := truth(values[i])
		if len(a.pos) > 0 {
			pass = in.test(in.text(what, a.pos[0], ""), values[i], args{pos: a.pos[1:], kw: a.kw, names: a.names})
		}
		if pass == keep {
			out = append(out, item)
		}
	}
	return out
}

// anyItems is iterate, but none and other false values have no items.
func (in *interp) anyItems(v any) []any {
	if !truth(v) {
		return nil
	}
	return in.iterate(v)
}
