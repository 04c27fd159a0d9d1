package jinja

import (
	"math"
	"strconv"
	"strings"
)

// filters maps names to filters. Some call methods of strings.
var filters map[string]func(in *interp, v any, a args) any

func init() { // a literal would be an initialization cycle, because map looks up filters
	filters = map[string]func(in *interp, v any, a args) any{
		"length": length, "count": length,
		"default": fallback, "d": fallback,
		"tojson":     toJSON,
		"string":     func(in *interp, v any, _ args) any { return in.str(v) },
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
		"indent":     indent,
		"map":        mapFilter,
		"select":     func(in *interp, v any, a args) any { return in.choose("select", v, a, false, true) },
		"reject":     func(in *interp, v any, a args) any { return in.choose("reject", v, a, false, false) },
		"selectattr": func(in *interp, v any, a args) any { return in.choose("selectattr", v, a, true, true) },
		"rejectattr": func(in *interp, v any, a args) any { return in.choose("rejectattr", v, a, true, false) },
	}
	for filter, method := range map[string]string{
		"trim": "strip", "upper": "upper", "lower": "lower", "title": "title",
		"capitalize": "capitalize", "replace": "replace",
	} {
		filters[filter] = func(in *interp, v any, a args) any {
			s := in.str(v)
			in.scan(len(s))
			return stringMethods[method](in, s, a)
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
	case string:
		return len(in.runes(v))
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
	p := in.take("default", a, "value", "boolean")
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
	if _, ok := v.(string); ok {
		return in.join(out, "")
	}
	return out
}

func joinFilter(in *interp, v any, a args) any {
	p := in.take("join", a, "d", "attribute")
	items := in.iterate(v)
	if name := in.text("join", p[1], ""); name != "" {
		items = in.attributes(items, name)
	}
	return in.join(items, in.text("join", p[0], ""))
}

func (in *interp) attributes(items []any, name string) []any {
	in.list(len(items))
	out := make([]any, len(items))
	for i, item := range items {
		out[i] = in.attribute(item, name)
	}
	return out
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
	otherwise := in.integer("int", p[0], 0)
	f, i, isInt, ok := number(v)
	if s, isString := v.(string); isString {
		in.scan(len(s))
		parsed, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		f, ok = parsed, err == nil
	}
	switch {
	case isInt:
		return i
	case ok && math.Abs(f) < 1<<62:
		return int(f)
	}
	return otherwise
}

func toFloat(in *interp, v any, a args) any {
	f, _, _, ok := number(v)
	if s, isString := v.(string); isString {
		in.scan(len(s))
		parsed, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		f, ok = parsed, err == nil
	}
	if !ok {
		return 0.0
	}
	return f
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

// indent indents all lines but the first and blank ones, unless asked to.
func indent(in *interp, v any, a args) any {
	p := in.take("indent", a, "width", "first", "blank")
	margin, ok := p[0].(string)
	if !ok {
		margin = strings.Repeat(" ", max(0, min(in.integer("indent", p[0], 4), 1000)))
	}
	s := in.str(v)
	lines := strings.Count(s, "\n") + 1
	in.list(lines)
	in.pay(len(s))
	var b strings.Builder
	for i, line := range strings.SplitAfter(s, "\n") {
		blank := strings.TrimSuffix(line, "\n") == ""
		if (i > 0 || truth(p[1])) && (!blank || truth(p[2])) {
			in.put(&b, margin)
		}
		b.WriteString(line)
	}
	return b.String()
}

// mapFilter implements map('filter', …) and map(attribute='name').
func mapFilter(in *interp, v any, a args) any {
	items := in.anyItems(v)
	if name, ok := a.kw["attribute"].(string); ok && len(a.pos) == 0 {
		out := in.attributes(items, name)
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
		out[i] = in.filter(name, item, args{pos: a.pos[1:], kw: a.kw})
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
		values = in.attributes(items, in.text(what, a.pos[0], ""))
		a.pos = a.pos[1:]
	}
	in.list(len(items))
	out := []any{}
	for i, item := range items {
		pass := truth(values[i])
		if len(a.pos) > 0 {
			pass = in.test(in.text(what, a.pos[0], ""), values[i], args{pos: a.pos[1:], kw: a.kw})
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
