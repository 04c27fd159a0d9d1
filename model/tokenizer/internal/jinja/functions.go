package jinja

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// functions maps names to the global functions.
var functions map[string]function

func init() { // a literal would be an initialization cycle, because expressions look up functions
	functions = map[string]function{
		"range":           rangeFunction,
		"namespace":       func(in *interp, a args) any { return &namespace{*in.newDict("namespace", a)} },
		"dict":            func(in *interp, a args) any { return in.newDict("dict", a) },
		"raise_exception": raise,
		"strftime_now":    strftimeNow,
	}
}

// take returns the arguments of a call in the order of names. A missing argument is
// undefined.
func (in *interp) take(what string, a args, names ...string) []any {
	if len(a.pos) > len(names) {
		in.fail("%s takes %d arguments, not %d", what, len(names), len(a.pos))
	}
	out := make([]any, len(names))
	used := 0
	for i, name := range names {
		out[i] = undefined{name}
		if v, ok := a.kw[name]; ok {
			out[i] = v
			used++
		} else if i < len(a.pos) {
			out[i] = a.pos[i]
		}
	}
	if used < len(a.kw) {
		in.fail("%s has an unknown argument", what)
	}
	return out
}

// text returns a string argument, or otherwise if it is missing or none.
func (in *interp) text(what string, v any, otherwise string) string {
	switch v := v.(type) {
	case string:
		return v
	case undefined, nil:
		return otherwise
	}
	in.fail("%s needs a string, not %s", what, typeName(v))
	return ""
}

// integer returns an integer argument, or otherwise if it is missing or none.
func (in *interp) integer(what string, v any, otherwise int) int {
	switch v := v.(type) {
	case int:
		return v
	case undefined, nil:
		return otherwise
	}
	in.fail("%s needs an integer, not %s", what, typeName(v))
	return 0
}

func rangeFunction(in *interp, a args) any {
	if len(a.pos) == 1 {
		a.pos = []any{0, a.pos[0]}
	}
	p := in.take("range", a, "start", "stop", "step")
	start, stop, step := in.integer("range", p[0], 0), in.integer("range", p[1], 0), in.integer("range", p[2], 1)
	if step == 0 {
		in.fail("range's step is zero")
	}
	out := []any{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		in.list(1)
		out = append(out, i)
		if next := i + step; (next > i) != (step > 0) {
			break // overflow
		}
	}
	return out
}

func (in *interp) newDict(what string, a args) *Dict {
	d := &Dict{}
	for _, v := range a.pos {
		from, ok := v.(*Dict)
		if !ok || len(a.pos) > 1 {
			in.fail("%s takes a dictionary and named values", what)
		}
		in.list(4 * len(from.keys))
		for _, k := range from.keys {
			in.scan(len(k))
			d.set(k, from.values[k])
		}
	}
	in.list(4 * len(a.kw))
	for _, k := range slices.Sorted(maps.Keys(a.kw)) {
		d.set(k, a.kw[k])
	}
	return d
}

func raise(in *interp, a args) any {
	p := in.take("raise_exception", a, "message")
	panic(abort{fmt.Errorf("%w: %s", ErrRaised, shorten(in.str(p[0])))})
}

// directives maps directives of strftime to Go's layouts.
var directives = map[byte]string{
	'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'Z': "MST", 'z': "-0700",
}

func strftimeNow(in *interp, a args) any {
	format := in.text("strftime_now", in.take("strftime_now", a, "format")[0], "")
	in.pay(16 * len(format))
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		if i++; i == len(format) {
			in.fail("strftime_now: %q ends with %%", format)
		}
		b.WriteString(in.directive(format[i]))
	}
	return b.String()
}

func (in *interp) directive(c byte) string {
	if layout, ok := directives[c]; ok {
		return in.now.Format(layout)
	}
	switch c {
	case '%':
		return "%"
	case 'j':
		return fmt.Sprintf("%03d", in.now.YearDay())
	case 'F':
		return in.now.Format(time.DateOnly)
	case 'T':
		return in.now.Format(time.TimeOnly)
	case 's':
		return strconv.FormatInt(in.now.Unix(), 10)
	}
	in.fail("strftime_now: unknown directive %%%c", c)
	return ""
}
