package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// method returns the method of a value, or nil. No method changes its value.
func method(v any, name string) function {
	switch v := v.(type) {
	case string:
		if m, ok := stringMethods[name]; ok {
			return func(in *interp, a args) any {
				in.scan(len(v))
				return m(in, v, a)
			}
		}
	case *Dict:
		return v.method(name)
	case *loop:
		if name == "cycle" {
			return func(in *interp, a args) any {
				if len(a.pos) == 0 {
					in.fail("cycle needs values")
				}
				return a.pos[v.index%len(a.pos)]
			}
		}
	}
	return nil
}

func (d *Dict) method(name string) function {
	switch name {
	case "get":
		return func(in *interp, a args) any {
			p := in.take("get", a, "key", "default")
			key := in.text("get", p[0], "")
			if v, ok := in.lookup(d, key); ok {
				return v
			}
			if _, ok := p[1].(undefined); ok {
				return nil
			}
			return p[1]
		}
	case "keys":
		return func(in *interp, _ args) any { return in.iterate(d) }
	case "values":
		return func(in *interp, _ args) any {
			in.list(len(d.keys))
			out := make([]any, len(d.keys))
			for i, k := range d.keys {
				out[i] = d.values[k]
			}
			return out
		}
	case "items":
		return func(in *interp, _ args) any { return in.items(d) }
	}
	return nil
}

// items returns the pairs of keys and values of a dictionary.
func (in *interp) items(d *Dict) any {
	in.list(3 * len(d.keys))
	out := make([]any, len(d.keys))
	for i, k := range d.keys {
		out[i] = []any{k, d.values[k]}
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
	"lower": func(in *interp, s string, a args) any {
		in.pay(3 * len(s))
		return strings.ToLower(s)
	},
	"title":      func(in *interp, s string, a args) any { return in.title(s) },
	"capitalize": func(in *interp, s string, a args) any { return in.capitalize(s) },
	"startswith": func(in *interp, s string, a args) any { return in.affix("startswith", s, a, strings.HasPrefix) },
	"endswith":   func(in *interp, s string, a args) any { return in.affix("endswith", s, a, strings.HasSuffix) },
	"removeprefix": func(in *interp, s string, a args) any {
		return strings.TrimPrefix(s, in.text("removeprefix", in.take("removeprefix", a, "prefix")[0], ""))
	},
	"removesuffix": func(in *interp, s string, a args) any {
		return strings.TrimSuffix(s, in.text("removesuffix", in.take("removesuffix", a, "suffix")[0], ""))
	},
	"split":  func(in *interp, s string, a args) any { return in.split(s, a, false) },
	"rsplit": func(in *interp, s string, a args) any { return in.split(s, a, true) },
	"splitlines": func(in *interp, s string, a args) any {
		if s == "" {
			return []any{}
		}
		s = strings.TrimSuffix(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
		return in.parts(strings.Split(s, "\n"))
	},
	"replace": func(in *interp, s string, a args) any {
		p := in.take("replace", a, "old", "new", "count")
		return in.replace(s, in.text("replace", p[0], ""), in.text("replace", p[1], ""), in.integer("replace", p[2], -1))
	},
	"find": func(in *interp, s string, a args) any {
		i := strings.Index(s, in.text("find", in.take("find", a, "sub")[0], ""))
		if i < 0 {
			return -1
		}
		return utf8.RuneCountInString(s[:i])
	},
	"count": func(in *interp, s string, a args) any {
		return strings.Count(s, in.text("count", in.take("count", a, "sub")[0], ""))
	},
	"join": func(in *interp, s string, a args) any {
		return in.join(in.iterate(in.take("join", a, "items")[0]), s)
	},
}

// strip removes white space, or the characters of the argument, from the ends.
func (in *interp) strip(s string, a args, left, right bool) string {
	chars := in.text("strip", in.take("strip", a, "chars")[0], "")
	drop := unicode.IsSpace
	if chars != "" {
		in.scan(len(s) * len(chars))
		drop = func(r rune) bool { return strings.ContainsRune(chars, r) }
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

// split implements split and rsplit with the arguments sep and maxsplit.
func (in *interp) split(s string, a args, fromRight bool) any {
	p := in.take("split", a, "sep", "maxsplit")
	sep, most := in.text("split", p[0], ""), in.integer("split", p[1], -1)
	if _, given := p[0].(string); given && sep == "" {
		in.fail("split needs a separator that is not empty")
	}
	if sep == "" {
		in.list(len(s)/2 + 1)
		fields := strings.Fields(s)
		if most >= 0 && len(fields) > most+1 {
			in.fail("split at white space takes no limit here")
		}
		return in.parts(fields)
	}
	n := strings.Count(s, sep)
	in.list(n + 1)
	all := strings.Split(s, sep)
	if most < 0 || n <= most {
		return in.parts(all)
	}
	if fromRight {
		head := strings.Join(all[:len(all)-most], sep)
		in.pay(len(head))
		return in.parts(append([]string{head}, all[len(all)-most:]...))
	}
	return in.parts(strings.SplitN(s, sep, most+1))
}

func (in *interp) parts(list []string) any {
	in.list(len(list))
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
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
	var b strings.Builder
	for i, item := range items {
		in.work(1)
		if i > 0 {
			in.put(&b, sep)
		}
		in.put(&b, in.str(item))
	}
	return b.String()
}

func (in *interp) title(s string) string {
	in.pay(3 * len(s))
	inside := false
	return strings.Map(func(r rune) rune {
		was := inside
		inside = unicode.IsLetter(r)
		if was {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, s)
}

func (in *interp) capitalize(s string) string {
	in.pay(3 * len(s))
	first := true
	return strings.Map(func(r rune) rune {
		if first {
			first = false
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, s)
}
