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
	switch v := v.(type) {
	case string:
		if m, ok := stringMethods[name]; ok {
			return function(func(in *interp, a args) any {
				in.scan(len(v))
				return m(in, v, a)
			})
		}
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
var stringMethods = map[string]func(in *interp, s string, a args) any{
	"strip":  func(in *interp, s string, a args) any { return in.strip(s, a, true, true) },
	"lstrip": func(in *interp, s string, a args) any { return in.strip(s, a, true, false) },
	"rstrip": func(in *interp, s string, a args) any { return in.strip(s, a, false, true) },
	"upper": func(in *interp, s string, a args) any {
		in.pay(3 * len(s))
		return strings.ToUpper(s)
	},
	"lower":      func(in *interp, s string, a args) any { return in.lower(s) },
	"title":      func(in *interp, s string, a args) any { return in.title(s, notCased) },
	"capitalize": func(in *interp, s string, a args) any { return in.title(s, func(rune) bool { return false }) },
	"isdigit":    func(in *interp, s string, a args) any { return all(s, unicode.IsDigit) },
	"isalpha":    func(in *interp, s string, a args) any { return all(s, unicode.IsLetter) },
	"isalnum":    func(in *interp, s string, a args) any { return all(s, isAlnum) },
	"isspace":    func(in *interp, s string, a args) any { return all(s, isSpace) },
	"islower":    func(in *interp, s string, a args) any { return in.cased(s, unicode.IsLower) },
	"isupper":    func(in *interp, s string, a args) any { return in.cased(s, unicode.IsUpper) },
	"startswith": func(in *interp, s string, a args) any { return in.affix("startswith", s, a, strings.HasPrefix) },
	"endswith":   func(in *interp, s string, a args) any { return in.affix("endswith", s, a, strings.HasSuffix) },
	"removeprefix": func(in *interp, s string, a args) any {
		return strings.TrimPrefix(s, in.onlyText("removeprefix", a))
	},
	"removesuffix": func(in *interp, s string, a args) any {
		return strings.TrimSuffix(s, in.onlyText("removesuffix", a))
	},
	"split":  func(in *interp, s string, a args) any { return in.split(s, a, false) },
	"rsplit": func(in *interp, s string, a args) any { return in.split(s, a, true) },
	"splitlines": func(in *interp, s string, a args) any {
		return in.splitLines(s, truth(in.take("splitlines", a, "keepends")[0]))
	},
	"replace": func(in *interp, s string, a args) any {
		p := in.take("replace", a, "old", "new", "count")
		return in.replace(s, in.needText("replace", p[0]), in.needText("replace", p[1]), in.integer("replace", p[2], -1))
	},
	"find": func(in *interp, s string, a args) any {
		i := strings.Index(s, in.onlyText("find", a))
		if i < 0 {
			return -1
		}
		return utf8.RuneCountInString(s[:i])
	},
	"count": func(in *interp, s string, a args) any {
		return strings.Count(s, in.onlyText("count", a))
	},
	"join": func(in *interp, s string, a args) any {
		items := in.iterate(in.take("join", a, "items")[0])
		for _, item := range items {
			in.work(1)
			if _, ok := item.(string); !ok {
				in.fail("join needs strings, not %s", typeName(item))
			}
		}
		return in.join(items, s)
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
func (in *interp) strip(s string, a args, left, right bool) string {
	drop := isSpace
	if v := in.take("strip", a, "chars")[0]; !absent(v) {
		chars := in.text("strip", v, "")
		drop = func(r rune) bool {
			in.scan(len(chars))
			return strings.ContainsRune(chars, r)
		}
	}
	if left {
		s = strings.TrimLeftFunc(s, drop)
	}
	if right {
		s = strings.TrimRightFunc(s, drop)
	}
	return s
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
		affix, ok := e.(string)
		if !ok {
			in.fail("%s needs a string, not %s", what, typeName(e))
		}
		in.scan(len(affix))
		if has(s, affix) {
			return true
		}
	}
	return false
}

// split implements split and rsplit with the arguments sep and maxsplit. Without sep the
// parts are separated by white space and not empty.
func (in *interp) split(s string, a args, fromRight bool) any {
	p := in.take("split", a, "sep", "maxsplit")
	sep, most := in.text("split", p[0], ""), in.integer("split", p[1], -1)
	spaces := absent(p[0])
	if !spaces && sep == "" {
		in.fail("split needs a separator that is not empty")
	}
	trim, index, size := strings.TrimLeftFunc, strings.Index, len(sep)
	indexSpace := strings.IndexFunc
	if fromRight {
		trim, index, indexSpace = strings.TrimRightFunc, strings.LastIndex, strings.LastIndexFunc
	}
	out := []any{}
	for rest, more := s, true; more; {
		if spaces {
			if rest = trim(rest, isSpace); rest == "" {
				break
			}
		}
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
		part := rest
		if more = i >= 0; more && fromRight {
			part, rest = rest[i+size:], rest[:i]
		} else if more {
			part, rest = rest[:i], rest[i+size:]
		}
		in.list(1)
		out = append(out, part)
	}
	if fromRight {
		slices.Reverse(out)
	}
	return out
}

// splitLines splits at the line ends of Python's splitlines.
func (in *interp) splitLines(s string, keepEnds bool) any {
	out := []any{}
	for s != "" {
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
		out = append(out, s[:end])
		s = s[next:]
	}
	return out
}

func (in *interp) replace(s, old, with string, count int) string {
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	in.scan(len(s))
	in.pay(len(s) + n*len(with))
	return strings.Replace(s, old, with, count)
}

func (in *interp) join(items []any, sep string) string {
	in.list(len(items))
	parts := make([]string, len(items))
	total := 0
	for i, item := range items {
		parts[i] = in.str(item)
		total += len(parts[i]) + len(sep)
	}
	in.pay(total)
	return strings.Join(parts, sep)
}

func (in *interp) lower(s string) string {
	in.pay(3 * len(s))
	return strings.ToLower(s)
}

// title writes the first character in upper case, the others in lower case, and starts
// again after each character for which separates is true.
func (in *interp) title(s string, separates func(r rune) bool) string {
	in.pay(3 * len(s))
	first := true
	return strings.Map(func(r rune) rune {
		was := first
		first = separates(r)
		if was {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}
