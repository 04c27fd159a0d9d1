package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// method returns the method of a value, or nil. No method changes its value, except for
// loop.changed.
func method(v any, name string) any {
	if t, ok := textOf(v); ok {
		if m, ok := stringMethods[name]; ok {
			return function(func(in *interp, a args) any {
				in.scan(len(t.s))
				return m(in, t, a)
			})
		}
		return nil
	}
	switch v := v.(type) {
	case *Dict:
		if m, ok := dictMethods[name]; ok {
			return function(func(in *interp, a args) any { return m(in, v, a) })
		}
	case *loop:
		if m, ok := loopMethods[name]; ok {
			return function(func(in *interp, a args) any { return m(in, v, a) })
		}
	}
	return nil
}

var loopMethods = map[string]func(in *interp, l *loop, a args) any{
	"cycle": func(in *interp, l *loop, a args) any {
		if len(a.pos) == 0 {
			in.fail("cycle needs values")
		}
		return a.pos[l.index%len(a.pos)]
	},
	"changed": func(in *interp, l *loop, a args) any {
		changed := l.seen == nil || !in.equal(l.seen, a.pos)
		l.seen = a.pos
		return changed
	},
}

var dictMethods = map[string]func(in *interp, d *Dict, a args) any{
	"get": func(in *interp, d *Dict, a args) any {
		p := in.take("get", a, "key", "default")
		if v, ok := in.lookup(d, p[0]); ok {
			return v
		}
		if _, ok := p[1].(undefined); ok {
			return nil
		}
		return p[1]
	},
	"keys": func(in *interp, d *Dict, _ args) any { return in.iterate(d) },
	"values": func(in *interp, d *Dict, _ args) any {
		in.list(len(d.keys))
		out := make([]any, 0, len(d.keys))
		for _, v := range d.pairs {
			out = append(out, v)
		}
		return out
	},
	"items": func(in *interp, d *Dict, _ args) any { return in.items(d) },
}

// items returns the pairs of keys and values of a dictionary.
func (in *interp) items(d *Dict) []any {
	in.list(3 * len(d.keys))
	out := make([]any, 0, len(d.keys))
	for k, v := range d.pairs {
		out = append(out, []any{k, v})
	}
	return out
}

// stringMethods maps names to Python's methods of str. The caller takes reading the
// string from the budget, the method takes its result.
var stringMethods = map[string]func(in *interp, t text, a args) any{
	"strip":      func(in *interp, t text, a args) any { return in.strip(t, a, true, true) },
	"lstrip":     func(in *interp, t text, a args) any { return in.strip(t, a, true, false) },
	"rstrip":     func(in *interp, t text, a args) any { return in.strip(t, a, false, true) },
	"upper":      func(in *interp, t text, a args) any { return in.mapped(t, unicode.ToUpper).value() },
	"lower":      func(in *interp, t text, a args) any { return in.lower(t).value() },
	"title":      func(in *interp, t text, a args) any { return in.title(t, notCased) },
	"capitalize": func(in *interp, t text, a args) any { return in.title(t, func(rune) bool { return false }) },
	"isdigit":    func(in *interp, t text, a args) any { return all(t.s, unicode.IsDigit) },
	"isalpha":    func(in *interp, t text, a args) any { return all(t.s, unicode.IsLetter) },
	"isalnum":    func(in *interp, t text, a args) any { return all(t.s, isAlnum) },
	"isspace":    func(in *interp, t text, a args) any { return all(t.s, isSpace) },
	"islower":    func(in *interp, t text, a args) any { return in.cased(t, unicode.IsLower) },
	"isupper":    func(in *interp, t text, a args) any { return in.cased(t, unicode.IsUpper) },
	"startswith": func(in *interp, t text, a args) any { return in.affix("startswith", t.s, a, strings.HasPrefix) },
	"endswith":   func(in *interp, t text, a args) any { return in.affix("endswith", t.s, a, strings.HasSuffix) },
	"removeprefix": func(in *interp, t text, a args) any {
		rest := strings.TrimPrefix(t.s, in.onlyText("removeprefix", a))
		return in.cut(t, len(t.s)-len(rest), len(t.s)).value()
	},
	"removesuffix": func(in *interp, t text, a args) any {
		return in.cut(t, 0, len(strings.TrimSuffix(t.s, in.onlyText("removesuffix", a)))).value()
	},
	"split":  func(in *interp, t text, a args) any { return in.split(t, a, false) },
	"rsplit": func(in *interp, t text, a args) any { return in.split(t, a, true) },
	"splitlines": func(in *interp, t text, a args) any {
		return in.splitLines(t, truth(in.take("splitlines", a, "keepends")[0]))
	},
	"replace": func(in *interp, t text, a args) any {
		p := in.take("replace", a, "old", "new", "count")
		return in.replace(t, in.needText("replace", p[0]), in.needTextOf("replace", p[1]), in.integer("replace", p[2], -1))
	},
	"find": func(in *interp, t text, a args) any {
		i := strings.Index(t.s, in.onlyText("find", a))
		if i < 0 {
			return -1
		}
		return utf8.RuneCountInString(t.s[:i])
	},
	"count": func(in *interp, t text, a args) any {
		return strings.Count(t.s, in.onlyText("count", a))
	},
	"join": func(in *interp, t text, a args) any {
		items := in.iterate(in.take("join", a, "items")[0])
		for _, item := range items {
			in.work(1)
			if _, ok := textOf(item); !ok {
				in.fail("join needs strings, not %s", typeName(item))
			}
		}
		return in.join(items, t)
	},
}

func all(s string, is func(r rune) bool) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !is(r) })
}

// isSpace reports whether Python takes r for white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F }

func isAlnum(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }

func notCased(r rune) bool { return !unicode.IsUpper(r) && !unicode.IsLower(r) && !unicode.IsTitle(r) }

// strip removes white space, or the characters of the argument, from the ends.
func (in *interp) strip(t text, a args, left, right bool) any {
	drop := isSpace
	if v := in.take("strip", a, "chars")[0]; !absent(v) {
		chars := in.text("strip", v, "")
		drop = func(r rune) bool {
			in.scan(len(chars))
			return strings.ContainsRune(chars, r)
		}
	}
	from, to := 0, len(t.s)
	if left {
		from = to - len(strings.TrimLeftFunc(t.s, drop))
	}
	if right {
		to = from + len(strings.TrimRightFunc(t.s[from:], drop))
	}
	return in.cut(t, from, to).value()
}

// affix implements startswith and endswith, with a string or a list of strings.
func (in *interp) affix(what, s string, a args, has func(s, affix string) bool) bool {
	v := in.take(what, a, "affix")[0]
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, e := range list {
		in.work(1)
		affix := in.needText(what, e)
		in.scan(len(affix))
		if has(s, affix) {
			return true
		}
	}
	return false
}

// split implements split and rsplit with the arguments sep and maxsplit. Without sep the
// parts are separated by white space and not empty.
func (in *interp) split(t text, a args, fromRight bool) any {
	p := in.take("split", a, "sep", "maxsplit")
	sep, most := in.text("split", p[0], ""), in.integer("split", p[1], -1)
	spaces := absent(p[0])
	if !spaces && sep == "" {
		in.fail("split needs a separator that is not empty")
	}
	index, indexSpace, size := strings.Index, strings.IndexFunc, len(sep)
	if fromRight {
		index, indexSpace = strings.LastIndex, strings.LastIndexFunc
	}
	out := []any{}
	from, to := 0, len(t.s) // of what is left
	for more := true; more; {
		if spaces && fromRight {
			to = from + len(strings.TrimRightFunc(t.s[from:to], isSpace))
		} else if spaces {
			from = to - len(strings.TrimLeftFunc(t.s[from:to], isSpace))
		}
		if spaces && from == to {
			break
		}
		rest := t.s[from:to]
		i := -1
		switch {
		case most >= 0 && len(out) >= most: // the rest is one part
		case spaces:
			if i = indexSpace(rest, isSpace); i >= 0 {
				_, size = utf8.DecodeRuneInString(rest[i:])
			}
		default:
			i = index(rest, sep)
		}
		first, end := from, to // of the part
		if more = i >= 0; more && fromRight {
			first, to = from+i+size, from+i
		} else if more {
			end, from = from+i, from+i+size
		}
		in.list(1)
		out = append(out, in.cut(t, first, end).value())
	}
	if fromRight {
		slices.Reverse(out)
	}
	return out
}

// splitLines splits at the line ends of Python's splitlines.
func (in *interp) splitLines(t text, keepEnds bool) any {
	out := []any{}
	for at := 0; at < len(t.s); {
		s := t.s[at:]
		end := strings.IndexAny(s, "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029")
		next := len(s)
		if end < 0 {
			end = len(s)
		} else if strings.HasPrefix(s[end:], "\r\n") {
			next = end + 2
		} else {
			_, n := utf8.DecodeRuneInString(s[end:])
			next = end + n
		}
		if keepEnds {
			end = next
		}
		in.list(1)
		out = append(out, in.cut(t, at, at+end).value())
		at += next
	}
	return out
}

func (in *interp) replace(t text, old string, with text, count int) any {
	n := strings.Count(t.s, old)
	if count >= 0 {
		n = min(n, count)
	}
	in.scan(len(t.s))
	in.pay(len(t.s) + n*len(with.s))
	if len(t.own) == 0 && len(with.own) == 0 {
		return strings.Replace(t.s, old, with.s, count)
	}
	b := builder{in: in}
	b.b.Grow(len(t.s) + n*max(0, len(with.s)-len(old)))
	at := 0
	for i := range n {
		next := at + strings.Index(t.s[at:], old)
		if old == "" && i > 0 { // matches before each character and at the end
			_, size := utf8.DecodeRuneInString(t.s[at:])
			next = at + size
		}
		b.add(t, at, next)
		b.add(with, 0, len(with.s))
		at = next + len(old)
	}
	b.add(t, at, len(t.s))
	return b.text().value()
}

func (in *interp) join(items []any, sep text) any {
	in.list(len(items))
	parts := make([]text, len(items))
	total := 0
	for i, item := range items {
		parts[i] = in.str(item)
		total += len(parts[i].s) + len(sep.s)
	}
	in.pay(total)
	b := builder{in: in}
	b.b.Grow(total)
	for i, part := range parts {
		if i > 0 {
			b.add(sep, 0, len(sep.s))
		}
		b.add(part, 0, len(part.s))
	}
	return b.text().value()
}

func (in *interp) lower(t text) text { return in.mapped(t, unicode.ToLower) }

// title writes the first character in upper case, the others in lower case, and starts
// again after each character for which separates is true.
func (in *interp) title(t text, separates func(r rune) bool) any {
	first := true
	return in.mapped(t, func(r rune) rune {
		was := first
		first = separates(r)
		if was {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}).value()
}
