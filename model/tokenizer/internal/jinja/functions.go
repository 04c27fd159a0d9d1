package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

// absent reports whether an argument is missing or none.
func absent(v any) bool {
	_, missing := v.(undefined)
	return missing || v == nil
}

// text returns a string argument, or otherwise if it is absent.
func (in *interp) text(what string, v any, otherwise string) string {
	if absent(v) {
		return otherwise
	}
	return in.needText(what, v)
}

// needText returns a string argument.
func (in *interp) needText(what string, v any) string {
	return in.needTextOf(what, v).s
}

// needTextOf is needText with the origin of the text.
func (in *interp) needTextOf(what string, v any) text {
	t, ok := textOf(v)
	if !ok {
		in.fail("%s needs a string, not %s", what, typeName(v))
	}
	return t
}

// onlyText returns the only argument of a call, a string.
func (in *interp) onlyText(what string, a args) string {
	return in.needText(what, in.take(what, a, "argument")[0])
}

// integer returns an integer argument, or otherwise if it is absent.
func (in *interp) integer(what string, v any, otherwise int) int {
	if absent(v) {
		return otherwise
	}
	_, i, isInt, _ := number(v)
	if !isInt {
		in.fail("%s needs an integer, not %s", what, typeName(v))
	}
	return i
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
	// As unsigned numbers, because the distance may not fit in an int.
	distance, stride := uint(stop)-uint(start), uint(step)
	if step < 0 {
		distance, stride = -distance, -stride
	}
	n := uint(0)
	if start != stop && (start < stop) == (step > 0) {
		n = (distance-1)/stride + 1
	}
	in.list(int(min(n, math.MaxInt)))
	out := make([]any, n)
	for i := range out {
		out[i] = start + i*step
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
		for k, v := range from.pairs {
			in.work(1)
			in.set(d, k, v)
		}
	}
	for _, k := range a.names {
		in.set(d, k, a.kw[k])
	}
	return d
}

func raise(in *interp, a args) any {
	p := in.take("raise_exception", a, "message")
	panic(abort{fmt.Errorf("%w: %s", ErrRaised, shorten(in.str(p[0]).s))})
}

// directives maps directives of strftime to Go's layouts. The time has no zone, as that
// of transformers.
var directives = map[byte]string{
	'd': "02", 'e': "_2", 'm': "01", 'y': "06", 'Y': "2006", 'b': "Jan", 'h': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'Z': "", 'z': "",
	'F': "2006-01-02", 'D': "01/02/06", 'x': "01/02/06", 'T': "15:04:05", 'X': "15:04:05", 'R': "15:04",
	'c': "Mon Jan _2 15:04:05 2006", 'n': "\n", 't': "\t", '%': "%",
}

func strftimeNow(in *interp, a args) any {
	format := in.text("strftime_now", in.take("strftime_now", a, "format")[0], "")
	in.pay(16 * len(format)) // two bytes become at most 24
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := i < len(format) && format[i] == '-' // without leading zeros
		if plain {
			i++
		}
		if i == len(format) {
			in.fail("strftime_now: %q ends within a directive", format)
		}
		text := in.directive(format[i])
		if plain && text != "" {
			text = strings.TrimLeft(text[:len(text)-1], "0 ") + text[len(text)-1:]
		}
		b.WriteString(text)
	}
	return b.String()
}

func (in *interp) directive(c byte) string {
	if layout, ok := directives[c]; ok {
		return in.now.Format(layout)
	}
	switch c {
	case 'j':
		return fmt.Sprintf("%03d", in.now.YearDay())
	case 's':
		return strconv.FormatInt(in.now.Unix(), 10)
	}
	in.fail("strftime_now: unknown directive %%%c", c)
	return ""
}
