package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
)

// toJSON formats a value as Python's json.dumps does. The arguments are those of the
// filter of transformers.
func toJSON(in *interp, v any, a args) any {
	p := in.take("tojson", a, "ensure_ascii", "indent", "separators", "sort_keys")
	w := jsonWriter{in: in, ascii: truth(p[0]), indent: in.integer("tojson", p[1], -1), sorted: truth(p[3])}
	w.comma, w.colon = ", ", ": "
	if w.indent >= 0 {
		w.comma = ","
	}
	if !absent(p[2]) {
		pair := in.iterate(p[2])
		if len(pair) != 2 {
			in.fail("tojson needs two separators, not %d", len(pair))
		}
		w.comma, w.colon = in.text("tojson", pair[0], ""), in.text("tojson", pair[1], "")
	}
	w.value(v, 0)
	return w.out.String()
}

var jsonFloats = strings.NewReplacer("inf", "Infinity", "nan", "NaN")

type jsonWriter struct {
	in           *interp
	out          strings.Builder
	indent       int  // spaces per level, or negative for one line
	ascii        bool // escape all other characters
	sorted       bool // order dictionaries by key
	comma, colon string
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
		w.put(jsonFloats.Replace(formatFloat(v)))
	case string:
		w.text(v)
	case []any:
		w.sequence("[", "]", v, level, func(item any) { w.value(item, level+1) })
	case *Dict:
		keys := v.keys
		if w.sorted {
			keys = w.in.sort(keys, keys, false)
		}
		w.sequence("{", "}", keys, level, func(key any) {
			found, _ := w.in.lookup(v, key)
			w.key(key)
			w.put(w.colon)
			w.value(found, level+1)
		})
	default:
		w.in.fail("tojson cannot write %s", typeName(v))
	}
}

// key writes the key of a dictionary, which is a string in JSON.
func (w *jsonWriter) key(key any) {
	if s, ok := key.(string); ok {
		w.text(s)
		return
	}
	w.put(`"`)
	w.value(key, 0)
	w.put(`"`)
}

func (w *jsonWriter) sequence(open, closing string, items []any, level int, write func(item any)) {
	w.put(open)
	for i, item := range items {
		if i > 0 {
			w.put(w.comma)
		}
		w.newline(level + 1)
		write(item)
	}
	if len(items) > 0 {
		w.newline(level)
	}
	w.put(closing)
}

func (w *jsonWriter) newline(level int) {
	if w.indent >= 0 {
		w.put("\n")
		w.put(w.in.repeat(" ", min(w.indent, math.MaxInt/maxDepth)*level).(string))
	}
}

func (w *jsonWriter) text(s string) {
	w.in.grow(&w.out, 6*len(s)+2) // a control character becomes \u00XX
	w.out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.out.WriteByte('\\')
			w.out.WriteRune(r)
		case r < 0x20:
			if i := strings.IndexRune("\b\f\n\r\t", r); i >= 0 {
				w.out.WriteString(`\` + "bfnrt"[i:i+1])
			} else {
				escape(&w.out, 'u', 4, r)
			}
		case w.ascii && r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			escape(&w.out, 'u', 4, high)
			escape(&w.out, 'u', 4, low)
		case w.ascii && r > 0x7E:
			escape(&w.out, 'u', 4, r)
		default:
			w.out.WriteRune(r)
		}
	}
	w.out.WriteByte('"')
}
