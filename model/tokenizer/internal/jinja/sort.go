package jinja

import "slices"

// keys returns what each item is ordered by: itself or an attribute. Strings are in lower
// case unless their case matters.
func (in *interp) keys(items []any, attribute, caseMatters any) []any {
	in.list(len(items))
	keys := slices.Clone(in.attributes(items, attribute))
	for i, key := range keys {
		if t, ok := textOf(key); ok && !truth(caseMatters) {
			keys[i] = in.lower(t).value()
		}
	}
	return keys
}

// sort returns the items in the order of their keys. Items with equal keys keep their
// order, in reverse too.
func (in *interp) sort(items, keys []any, reverse bool) []any {
	in.list(2 * len(items))
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if reverse {
			i, j = j, i
		}
		c, _ := in.order("<", keys[i], keys[j])
		return c
	})
	out := make([]any, len(items))
	for i, at := range order {
		out[i] = items[at]
	}
	return out
}

func sortFilter(in *interp, v any, a args) any {
	p := in.take("sort", a, "reverse", "case_sensitive", "attribute")
	items := in.iterate(v)
	return in.sort(items, in.keys(items, p[2], p[1]), truth(p[0]))
}

// dictSort returns the pairs of a dictionary in the order of their keys or values.
func dictSort(in *interp, v any, a args) any {
	p := in.take("dictsort", a, "case_sensitive", "by", "reverse")
	d, ok := v.(*Dict)
	if !ok {
		in.fail("dictsort needs a dictionary, not %s", typeName(v))
	}
	by, ok := map[string]int{"key": 0, "value": 1}[in.text("dictsort", p[1], "key")]
	if !ok {
		in.fail("dictsort orders by key or value")
	}
	pairs := in.items(d)
	return in.sort(pairs, in.keys(pairs, by, p[0]), truth(p[2]))
}

// unique returns the first item of each key.
func unique(in *interp, v any, a args) any {
	p := in.take("unique", a, "case_sensitive", "attribute")
	items := in.iterate(v)
	seen := &Dict{}
	out := []any{}
	for i, key := range in.keys(items, p[1], p[0]) {
		if _, ok := in.lookup(seen, key); !ok {
			in.set(seen, key, nil)
			in.list(1)
			out = append(out, items[i])
		}
	}
	return out
}

// extreme returns the first of the smallest items, or of the largest if sign is 1.
func (in *interp) extreme(what string, v any, a args, sign int) any {
	p := in.take(what, a, "case_sensitive", "attribute")
	items := in.iterate(v)
	if len(items) == 0 {
		return undefined{what}
	}
	best := 0
	keys := in.keys(items, p[1], p[0])
	for i := range keys {
		if c, _ := in.order("<", keys[i], keys[best]); c*sign > 0 {
			best = i
		}
	}
	return items[best]
}

func sum(in *interp, v any, a args) any {
	p := in.take("sum", a, "attribute", "start")
	total := p[1]
	if absent(total) {
		total = 0
	}
	for _, item := range in.attributes(in.iterate(v), p[0]) {
		in.work(1)
		total = in.arithmetic("+", total, item)
	}
	return total
}
