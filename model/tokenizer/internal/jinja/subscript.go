package jinja

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// attribute is v.name: a method, an item of a dictionary, or a property of loop.
func (in *interp) attribute(v any, name string) any {
	if m := method(v, name); m != nil {
		return m
	}
	var found any
	ok := false
	switch v := v.(type) {
	case undefined:
		in.fail("%s is undefined, and so has no %s", v.name, name)
	case *Dict:
		found, ok = in.lookup(v, name)
	case *namespace:
		found, ok = in.lookup(&v.attributes, name)
	case *loop:
		found, ok = v.property(name)
	}
	if !ok {
		return undefined{name}
	}
	return found
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
	_, i, isInt, _ := number(key)
	switch v := v.(type) {
	case undefined:
		in.fail("%s is undefined, and so has no items", v.name)
	case []any:
		if at := fromEnd(i, len(v)); isInt && at >= 0 && at < len(v) {
			return v[at]
		}
	case string, text:
		t, _ := textOf(v)
		in.scan(len(t.s))
		n := utf8.RuneCountInString(t.s)
		if at := fromEnd(i, n); isInt && at >= 0 && at < n {
			from := offset(t.s, at)
			return in.cut(t, from, from+offset(t.s[from:], 1)).value()
		}
	case *Dict:
		if found, ok := in.lookup(v, key); ok {
			return found
		}
	}
	switch name, isString := textOf(key); {
	case isString:
		return in.attribute(v, name.s)
	case isInt:
		return undefined{"item " + strconv.Itoa(i)}
	}
	return undefined{"item"}
}

// fromEnd converts an index of n items that may count from the end to one that does not.
func fromEnd(i, n int) int {
	if i < 0 {
		return i + n
	}
	return i
}

// offset returns the offset in bytes of the character at index i.
func offset(s string, i int) int {
	at := 0
	for ; i > 0; i-- {
		_, n := utf8.DecodeRuneInString(s[at:])
		at += n
	}
	return at
}

// slice is v[start:end:step]. parts holds the three expressions, nil where missing.
func (in *interp) slice(v any, parts [3]expr, s *scope) any {
	switch v := v.(type) {
	case []any:
		start, step, n := in.indices(parts, len(v), s)
		in.list(n)
		out := make([]any, n)
		for i := range out {
			out[i] = v[start+i*step]
		}
		return out
	case string, text:
		t, _ := textOf(v)
		in.scan(len(t.s))
		length := utf8.RuneCountInString(t.s)
		start, step, n := in.indices(parts, length, s)
		return in.substring(t, length, start, step, n).value()
	case undefined:
		in.fail("%s is undefined, and so has no items", v.name)
	}
	in.fail("%s has no slices", typeName(v))
	return nil
}

// substring returns the n characters from start with a distance of step. length is the
// number of characters of t.
func (in *interp) substring(t text, length, start, step, n int) text {
	if n == 0 {
		return text{}
	}
	if step == 1 {
		from := offset(t.s, start)
		return in.cut(t, from, from+offset(t.s[from:], n))
	}
	in.pay(9 * len(t.s)) // the offsets and the result
	offsets := make([]int, 0, length+1)
	for i := range t.s {
		offsets = append(offsets, i)
	}
	offsets = append(offsets, len(t.s))
	b := builder{in: in}
	for i := start; n > 0; n-- {
		b.add(t, offsets[i], offsets[i+1])
		i += step
	}
	return b.text()
}

// indices returns the first index, the distance and the number of the indices that a
// slice selects of length items, by Python's rules.
func (in *interp) indices(parts [3]expr, length int, s *scope) (start, step, n int) {
	integer := func(e expr, otherwise int) int {
		if e == nil {
			return otherwise
		}
		v := in.eval(e, s)
		if v == nil {
			return otherwise
		}
		_, i, isInt, _ := number(v)
		if !isInt {
			in.fail("a slice's bound is not an integer but %s", typeName(v))
		}
		return i
	}
	const missing = math.MinInt
	first, last := integer(parts[0], missing), integer(parts[1], missing)
	step = max(-length-1, min(integer(parts[2], 1), length+1)) // cannot overflow, selects the same items
	if step == 0 {
		in.fail("a slice's step is zero")
	}
	low, high := 0, length // limits of start and end
	if step < 0 {
		low, high = -1, length-1
	}
	bound := func(i, otherwise int) int {
		if i == missing {
			return otherwise
		}
		return max(low, min(fromEnd(i, length), high))
	}
	if step > 0 {
		start = bound(first, low)
		return start, step, max(0, (bound(last, high)-start+step-1)/step)
	}
	start = bound(first, high)
	return start, step, max(0, (start-bound(last, low)-step-1)/-step)
}
