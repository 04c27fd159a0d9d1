package jinja

import "math"

// attribute is v.name: an item of a dictionary, or a property of loop.
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

// lookup returns the value of a key in a dictionary.
func (in *interp) lookup(d *Dict, key string) (any, bool) {
	in.scan(len(key))
	v, ok := d.values[key]
	return v, ok
}

// property returns loop.index and the like.
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

// slice is v[start:end:step]. parts holds the three expressions, nil where missing.
func (in *interp) slice(v any, parts [3]expr, s *scope) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, i := range in.indices(parts, len(v), s) {
			out = append(out, v[i])
		}
		return out
	case string:
		runes := in.runes(v)
		var out []rune
		for _, i := range in.indices(parts, len(runes), s) {
			out = append(out, runes[i])
		}
		return string(out)
	case undefined:
		in.fail("%s is undefined, and so has no items", v.name)
	}
	return undefined{"slice"}
}

// indices returns the indices that a slice selects of n items, by Python's rules.
func (in *interp) indices(parts [3]expr, n int, s *scope) (list []int) {
	integer := func(e expr, otherwise int) int {
		if e == nil {
			return otherwise
		}
		switch i := in.eval(e, s).(type) {
		case nil:
			return otherwise
		case int:
			return i
		}
		in.fail("a slice's bound is not an integer")
		return 0
	}
	step := max(-n-1, min(integer(parts[2], 1), n+1)) // cannot overflow, selects the same items
	if step == 0 {
		in.fail("a slice's step is zero")
	}
	low, high := 0, n // limits of start and end
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(e expr, otherwise int) int {
		const missing = math.MinInt
		i := integer(e, missing)
		switch {
		case i == missing:
			return otherwise
		case i < 0:
			i += n
		}
		return max(low, min(i, high))
	}
	first, last := low, high
	if step < 0 {
		first, last = high, low
	}
	end := bound(parts[1], last)
	for i := bound(parts[0], first); step > 0 && i < end || step < 0 && i > end; i += step {
		list = append(list, i)
	}
	in.list(len(list))
	return list
}
