package jinja

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// binary evaluates a logical or arithmetic operator. "and" and "or" return one of their
// operands, and evaluate the second only if it decides.
func (in *interp) binary(op string, left, right expr, s *scope) any {
	a := in.eval(left, s)
	if op == "and" && !truth(a) || op == "or" && truth(a) {
		return a
	}
	b := in.eval(right, s)
	switch op {
	case "and", "or":
		return b
	case "~":
		x, y := in.str(a), in.str(b)
		return in.concat(x, y)
	}
	return in.arithmetic(op, a, b)
}

// compare evaluates a comparison or membership operator.
func (in *interp) compare(op string, a, b any) bool {
	switch op {
	case "==":
		return in.equal(a, b)
	case "!=":
		return !in.equal(a, b)
	case "in":
		return in.contains(b, a)
	case "not in":
		return !in.contains(b, a)
	}
	c, ordered := in.order(op, a, b)
	if !ordered {
		return false
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// order compares numbers, strings or lists for the operator op: c is negative, zero or
// positive. NaN is not ordered.
func (in *interp) order(op string, a, b any) (c int, ordered bool) {
	in.enter()
	defer in.leave()
	if x, i, isInt, ok := number(a); ok {
		if y, j, isInt2, ok := number(b); ok {
			if isInt && isInt2 {
				return cmp.Compare(i, j), true
			}
			return cmp.Compare(x, y), x == x && y == y
		}
	}
	x, isText := textOf(a)
	y, isText2 := textOf(b)
	if isText && isText2 {
		in.scan(min(len(x.s), len(y.s)))
		return strings.Compare(x.s, y.s), true
	}
	if x, ok := a.([]any); ok {
		if y, ok := b.([]any); ok {
			for i := range min(len(x), len(y)) {
				if !in.equal(x[i], y[i]) {
					return in.order(op, x[i], y[i])
				}
			}
			return cmp.Compare(len(x), len(y)), true
		}
	}
	in.operands(op, a, b)
	return 0, false
}

// operands fails because the operator does not take these operands.
func (in *interp) operands(op string, a, b any) {
	for _, v := range []any{a, b} {
		if u, ok := v.(undefined); ok {
			in.fail("%s is undefined", u.name)
		}
	}
	in.fail("%s and %s have no %s", typeName(a), typeName(b), op)
}

// arithmetic evaluates + - * / // % and **.
func (in *interp) arithmetic(op string, a, b any) any {
	x, i, isInt, ok := number(a)
	y, j, isInt2, ok2 := number(b)
	switch {
	case ok && ok2 && isInt && isInt2 && op != "/":
		return in.integers(op, i, j)
	case ok && ok2:
		return in.floats(op, x, y)
	case op == "+":
		return in.concatenate(a, b)
	case op == "*" && isInt2:
		return in.repeat(a, j)
	case op == "*" && isInt:
		return in.repeat(b, i)
	}
	in.operands(op, a, b)
	return nil
}

func (in *interp) concatenate(a, b any) any {
	x, isText := textOf(a)
	y, isText2 := textOf(b)
	if isText && isText2 {
		return in.concat(x, y)
	}
	if x, ok := a.([]any); ok {
		if y, ok := b.([]any); ok {
			in.list(len(x) + len(y))
			return slices.Concat(x, y)
		}
	}
	in.operands("+", a, b)
	return nil
}

func (in *interp) repeat(v any, n int) any {
	t, isText := textOf(v)
	list, ok := v.([]any)
	if !isText && !ok {
		in.operands("*", v, n)
	}
	length := len(t.s) + len(list)
	if length == 0 {
		return v
	}
	n = max(n, 0)
	n = min(n, math.MaxInt32/length+1) // cannot overflow, exceeds the budget
	if !isText {
		in.list(length * n)
		return slices.Repeat(list, n)
	}
	in.pay(length * n)
	if len(t.own) == 0 {
		return strings.Repeat(t.s, n)
	}
	b := builder{in: in}
	b.b.Grow(length * n)
	for range n {
		b.add(t, 0, length)
	}
	return b.text().value()
}

// concat is x + y.
func (in *interp) concat(x, y text) any {
	in.pay(len(x.s) + len(y.s))
	if len(x.own) == 0 && len(y.own) == 0 {
		return x.s + y.s
	}
	b := builder{in: in}
	b.b.Grow(len(x.s) + len(y.s))
	b.add(x, 0, len(x.s))
	b.add(y, 0, len(y.s))
	return b.text().value()
}

// integers computes with integers and fails on overflow.
func (in *interp) integers(op string, a, b int) any {
	exact := func(f float64, i int) any {
		if math.Abs(f) > 1<<62 {
			in.fail("integer overflow")
		}
		return i
	}
	x, y := float64(a), float64(b)
	switch op {
	case "+":
		return exact(x+y, a+b)
	case "-":
		return exact(x-y, a-b)
	case "*":
		return exact(x*y, a*b)
	case "**":
		if b < 0 {
			return in.floats(op, x, y)
		}
		return exact(math.Pow(x, y), power(a, b))
	}
	if b == 0 {
		in.fail("division by zero")
	}
	quotient, remainder := a/b, a%b
	if remainder != 0 && (remainder < 0) != (b < 0) {
		quotient, remainder = quotient-1, remainder+b
	}
	if op == "%" {
		return remainder
	}
	return quotient
}

// power returns a to the power of b, which may wrap around.
func power(a, b int) int {
	p := 1
	for ; b > 0; b >>= 1 {
		if b&1 != 0 {
			p *= a
		}
		a *= a
	}
	return p
}

func (in *interp) floats(op string, x, y float64) any {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		switch {
		case x == 0 && y < 0:
			in.fail("division by zero")
		case x < 0 && y != math.Trunc(y):
			in.fail("%v ** %v is not a real number", x, y)
		}
		return math.Pow(x, y)
	}
	if y == 0 {
		in.fail("division by zero")
	}
	switch op {
	case "//":
		return math.Floor(x / y)
	case "%":
		return x - float64(y*math.Floor(x/y))
	}
	return x / y
}

// signed is +v or -v.
func (in *interp) signed(sign string, v any) any {
	f, i, isInt, ok := number(v)
	switch {
	case !ok:
		in.operands("sign", v, v)
	case isInt && sign == "-":
		return -i
	case isInt:
		return i
	case sign == "-":
		return -f
	}
	return f
}

// contains is "item in v".
func (in *interp) contains(v, item any) bool {
	switch v := v.(type) {
	case undefined:
		return false
	case string, text:
		whole, _ := textOf(v)
		part, ok := textOf(item)
		if !ok {
			in.operands("in", item, v)
		}
		in.scan(len(whole.s) + len(part.s))
		return strings.Contains(whole.s, part.s)
	case []any:
		for _, e := range v {
			if in.equal(e, item) {
				return true
			}
		}
		return false
	case *Dict:
		_, found := in.lookup(v, item)
		return found
	}
	in.fail("%s is not iterable", typeName(v))
	return false
}
