package jinja

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
)

// FromJSON returns the value for Render of a JSON text. Objects keep the order of their
// keys. Of equal keys the last value counts.
func FromJSON(source []byte) (any, error) {
	var check json.RawMessage
	if err := json.Unmarshal(source, &check); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(source))
	d.UseNumber()
	return decodeJSON(d), nil
}

// decodeJSON reads the next value of valid JSON.
func decodeJSON(d *json.Decoder) any {
	token, _ := d.Token()
	switch token := token.(type) {
	case json.Number:
		if i, err := token.Int64(); err == nil {
			return int(i)
		}
		f, _ := token.Float64()
		return f
	case json.Delim:
		list, dict := []any{}, NewDict()
		for d.More() {
			if token == '[' {
				list = append(list, decodeJSON(d))
				continue
			}
			key, _ := d.Token()
			dict.set(key, key, decodeJSON(d))
		}
		d.Token() // the closing bracket
		if token == '[' {
			return list
		}
		return dict
	}
	return token
}

// toJSON formats a value as Python's json.dumps does. The arguments are those of the
// filter of transformers.
func toJSON(in *interp, v any, a args) any {
	p := in.take("tojson", a, "ensure_ascii", "indent", "separators", "sort_keys")
	w := jsonWriter{in: in, out: builder{in: in}, ascii: truth(p[0]), indent: in.integer("tojson", p[1], -1), sorted: truth(p[3])}
	w.comma, w.colon = text{s: ", "}, text{s: ": "}
	if w.indent >= 0 {
		w.comma = text{s: ","}
	}
	if !absent(p[2]) {
		pair := in.iterate(p[2])
		if len(pair) != 2 {
			in.fail("tojson needs two separators, not %d", len(pair))
		}
		for i, separator := range []*text{&w.comma, &w.colon} {
			*separator = text{}
			if !absent(pair[i]) {
				*separator = in.needTextOf("tojson", pair[i])
			}
		}
	}
	w.value(v, 0)
	return w.out.text().value()
}

var jsonFloats = strings.NewReplacer("inf", "Infinity", "nan", "NaN")

type jsonWriter struct {
	in           *interp
	out          builder
	indent       int  // spaces per level, or negative for one line
	ascii        bool // escape all other characters
	sorted       bool // order dictionaries by key
	comma, colon text
}

func (w *jsonWriter) put(s string) { w.out.put(s) }

// separate writes a separator.
func (w *jsonWriter) separate(t text) {
	w.out.grow(len(t.s))
	w.out.add(t, 0, len(t.s))
}

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
	case string, text:
		t, _ := textOf(v)
		w.text(t)
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
			w.separate(w.colon)
			w.value(found, level+1)
		})
	default:
		w.in.fail("tojson cannot write %s", typeName(v))
	}
}

// key writes the key of a dictionary, which is a string in JSON.
func (w *jsonWriter) key(key any) {
	if t, ok := textOf(key); ok {
		w.text(t)
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
			w.separate(w.comma)
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

func (w *jsonWriter) text(t text) {
	w.out.grow(6*len(t.s) + 2) // a control character becomes \u00XX
	out := &w.out.b
	out.WriteByte('"')
	w.out.each(t, func(r rune) {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < 0x20:
			if i := strings.IndexRune("\b\f\n\r\t", r); i >= 0 {
				out.WriteString(`\` + "bfnrt"[i:i+1])
			} else {
				escape(out, 'u', 4, r)
			}
		case w.ascii && r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			escape(out, 'u', 4, high)
			escape(out, 'u', 4, low)
		case w.ascii && r > 0x7E:
			escape(out, 'u', 4, r)
		default:
			out.WriteRune(r)
		}
	})
	out.WriteByte('"')
}
