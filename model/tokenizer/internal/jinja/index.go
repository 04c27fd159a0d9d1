package jinja

import "github.com/nikolalohinski/gonja/v2/nodes"

// attribute is v.name: an item, or a property of loop.
func (in *interp) attribute(v any, name string) any {
	var found any
	ok := false
	switch v := v.(type) {
	case undefined:
		in.fail("%s is undefined, and so has no %q", v.name, name)
	case *Dict:
		found, ok = in.lookup(v, name)
	case *namespace:
		found, ok = in.lookup(&v.Dict, name)
	case *loop:
		found, ok = v.property(name)
	}
	if !ok {
		return undefined{name}
	}
	return found
}

// lookup finds a key in a dictionary and pays for hashing it.
func (in *interp) lookup(d *Dict, key string) (any, bool) {
	in.scan(len(key))
	v, ok := d.values[key]
	return v, ok
}

// property gives loop.index and the like.
func (l *loop) property(name string) (any, bool) {
	n := len(l.items)
	switch name {
	case "index":
		return l.index + 1, true
	case "index0":
		return l.index, true
	case "revindex":
		return n - l.index, true
	case "revindex0":
		return n - l.index - 1, true
	case "first":
		return l.index == 0, true
	case "last":
		return l.index == n-1, true
	case "length":
		return n, true
	case "depth":
		return l.depth, true
	case "depth0":
		return l.depth - 1, true
	case "previtem":
		if l.index > 0 {
			return l.items[l.index-1], true
		}
	case "nextitem":
		if l.index < n-1 {
			return l.items[l.index+1], true
		}
	}
	return nil, false
}

// item is v[key].
func (in *interp) item(v, key any) any {
	i, isInt := key.(int)
	switch v := v.(type) {
	case undefined:
		in.fail("%s is undefined, and so has no items", v.name)
	case []any:
		if i < 0 {
			i += len(v)
		}
		if isInt && i >= 0 && i < len(v) {
			return v[i]
		}
	case string:
		if isInt {
			runes := in.runes(v)
			if i < 0 {
				i += len(runes)
			}
			if i >= 0 && i < len(runes) {
				return string(runes[i])
			}
		}
	default:
		if name, ok := key.(string); ok {
			return in.attribute(v, name)
		}
	}
	return undefined{"item"}
}

func (in *interp) runes(s string) []rune {
	in.pay(4 * len(s))
	return []rune(s)
}

// slice is v[start:end:step].
func (in *interp) slice(n *nodes.GetSlice, s *scope) any {
	v := in.eval(n.Node, s)
	b := bounds{step: 1}
	b.start, b.hasStart = in.bound(n.Start, s)
	b.end, b.hasEnd = in.bound(n.End, s)
	if step, ok := in.bound(n.Step, s); ok {
		b.step = step
	}
	if b.step == 0 {
		in.fail("a slice's step is zero")
	}
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, i := range in.places(b, len(v)) {
			out = append(out, v[i])
		}
		return out
	case string:
		runes := in.runes(v)
		var out []rune
		for _, i := range in.places(b, len(runes)) {
			out = append(out, runes[i])
		}
		return string(out)
	case undefined:
		in.fail("%s is undefined, and so has no items", v.name)
	}
	return undefined{"slice"}
}

// bounds are a slice's as the template states them.
type bounds struct {
	start, end, step int
	hasStart, hasEnd bool
}

// bound evaluates one bound, of which none is the same as nothing.
func (in *interp) bound(n nodes.Node, s *scope) (i int, ok bool) {
	if n == nil {
		return 0, false
	}
	switch v := in.eval(n, s).(type) {
	case nil:
		return 0, false
	case int:
		return v, true
	}
	in.fail("a slice's bound is not an integer")
	return 0, false
}

// places lists what a slice takes of n items, by Python's rules.
func (in *interp) places(b bounds, n int) (list []int) {
	low, high := 0, n
	if b.step < 0 {
		low, high = -1, n-1
	}
	clamp := func(i int, given bool, otherwise int) int {
		if !given {
			return otherwise
		}
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	start, end := clamp(b.start, b.hasStart, low), clamp(b.end, b.hasEnd, high)
	if b.step < 0 {
		start, end = clamp(b.start, b.hasStart, high), clamp(b.end, b.hasEnd, low)
	}
	step := max(-n-1, min(b.step, n+1)) // the same places, without overflow
	for i := start; step > 0 && i < end || step < 0 && i > end; i += step {
		list = append(list, i)
	}
	in.list(len(list))
	return list
}
