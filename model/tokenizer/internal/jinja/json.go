package jinja

import (
	"fmt"
	"strconv"
	"strings"
)

// toJSON formats a value as Python's json.dumps(v, ensure_ascii=False, indent=…) does.
func toJSON(in *interp, v any, a args) any {
	p := in.take("tojson", a, "indent", "ensure_ascii")
	w := jsonWriter{in: in, indent: -1}
	if n := in.integer("tojson", p[0], -1); n >= 0 {
		w.indent = min(n, 100)
	}
	w.value(v, 0)
	return w.out.String()
}

type jsonWriter struct {
	in     *interp
	out    strings.Builder
	indent int // spaces per level, or -1 for one line
}

func (w *jsonWriter) put(s string) { w.in.put(&w.out, s) }

func (w *jsonWriter) value(v any, level int) {
	w.in.enter()
	defer w.in.leave()
	switch v := v.(type) {
	case nil:
		w.put("null")
	case bool:
		w.put(strconv.FormatBool(v))
	case int:
		w.put(strconv.Itoa(v))
	case float64:
		w.put(formatFloat(v))
	case string:
		w.text(v)
	case []any:
		w.sequence("[", "]", len(v), level, func(i int) { w.value(v[i], level+1) })
	case *Dict:
		w.sequence("{", "}", len(v.keys), level, func(i int) {
			w.text(v.keys[i])
			w.put(": ")
			w.value(v.values[v.keys[i]], level+1)
		})
	default:
		w.in.fail("tojson cannot write %s", typeName(v))
	}
}

func (w *jsonWriter) sequence(open, closing string, n, level int, item func(i int)) {
	w.put(open)
	for i := range n {
		if i > 0 && w.indent < 0 {
			w.put(", ")
		} else if i > 0 {
			w.put(",")
		}
		w.newline(level + 1)
		item(i)
	}
	if n > 0 {
		w.newline(level)
	}
	w.put(closing)
}

func (w *jsonWriter) newline(level int) {
	if w.indent >= 0 {
		w.put("\n" + strings.Repeat(" ", w.indent*level))
	}
}

func (w *jsonWriter) text(s string) {
	w.in.pay(6 * len(s)) // a control character becomes \u00XX
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20:
			if i := strings.IndexRune("\b\f\n\r\t", r); i >= 0 {
				b.WriteString(`\` + "bfnrt"[i:i+1])
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	w.put(b.String())
}
