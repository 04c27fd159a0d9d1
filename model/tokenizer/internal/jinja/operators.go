package jinja

import (
	"math"
	"strings"

	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// binary evaluates an operator with two operands; "and" and "or" look at the
// second only when they must, and give one of the operands.
func (in *interp) binary(n *nodes.BinaryExpression, s *scope) any {
	a := in.eval(n.Left, s)
	switch op := n.Operator.Token.Type; op {
	case tokens.And:
		if !truth(a) {
			return a
		}
		return in.eval(n.Right, s)
	case tokens.Or:
		if truth(a) {
			return a
		}
		return in.eval(n.Right, s)
	case tokens.Equals:
		return in.equal(a, in.eval(n.Right, s))
	case tokens.Ne:
		return !in.equal(a, in.eval(n.Right, s))
	case tokens.Tilde:
		x, y := in.str(a), in.str(in.eval(n.Right, s))
		in.pay(len(x) + len(y))
		return x + y
	case tokens.LowerThan, tokens.LowerThanOrEqual, tokens.GreaterThan, tokens.GreaterThanOrEqual:
		return in.compare(op, n.Operator.Token.Val, a, in.eval(n.Right, s))
	default:
		return in.arithmetic(op, n.Operator.Token.Val, a, in.eval(n.Right, s))
	}
}

// compare orders numbers and strings.
func (in *interp) compare(op tokens.Type, sign string, a, b any) bool {
	var less, equal bool
	if x, i, isInt, ok := number(a); ok {
		y, j, isInt2, ok := number(b)
		if !ok {
			in.operands(sign, a, b)
		}
		less, equal = x < y, x == y
		if isInt && isInt2 {
			less, equal = i < j, i == j
		}
	} else {
		x, ok := a.(string)
		y, ok2 := b.(string)
		if !ok || !ok2 {
			in.operands(sign, a, b)
		}
		in.scan(min(len(x), len(y)))
		less, equal = x < y, x == y
	}
	switch op {
	case tokens.LowerThan:
		return less
	case tokens.LowerThanOrEqual:
		return less || equal
	case tokens.GreaterThan:
		return !less && !equal
	}
	return !less
}

func (in *interp) operands(sign string, a, b any) {
	for _, v := range []any{a, b} {
		if u, ok := v.(undefined); ok {
			in.fail("%s is undefined", u.name)
		}
	}
	in.fail("%s and %s have no %s", typeName(a), typeName(b), sign)
}

// arithmetic evaluates + - * / // % **.
func (in *interp) arithmetic(op tokens.Type, sign string, a, b any) any {
	x, i, isInt, ok := number(a)
	y, j, isInt2, ok2 := number(b)
	switch {
	case ok && ok2 && isInt && isInt2 && op != tokens.Division:
		return in.integers(op, i, j)
	case ok && ok2:
		return in.floats(op, x, y)
	case op == tokens.Addition:
		return in.concatenate(a, b)
	case op == tokens.Multiply && isInt2:
		return in.repeat(a, j)
	case op == tokens.Multiply && isInt:
		return in.repeat(b, i)
	}
	in.operands(sign, a, b)
	return nil
}

func (in *interp) concatenate(a, b any) any {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			in.pay(len(x) + len(y))
			return x + y
		}
	case []any:
		if y, ok := b.([]any); ok {
			in.list(len(x) + len(y))
			return append(append([]any{}, x...), y...)
		}
	}
	in.operands("+", a, b)
	return nil
}

func (in *interp) repeat(v any, n int) any {
	length := 0
	switch v := v.(type) {
	case string:
		length = len(v)
	case []any:
		length = len(v)
	default:
		in.operands("*", v, n)
	}
	if length == 0 {
		return v // as often as it likes
	}
	n = max(n, 0)
	if n > math.MaxInt32/length {
		in.exceed("much memory")
	}
	if s, ok := v.(string); ok {
		in.pay(length * n)
		return strings.Repeat(s, n)
	}
	in.list(length * n)
	out := []any{}
	for range n {
		out = append(out, v.([]any)...)
	}
	return out
}

// integers computes with integers and fails where they would overflow.
func (in *interp) integers(op tokens.Type, a, b int) any {
	exact := func(f float64, i int) any {
		if math.Abs(f) > 1<<62 {
			in.fail("integer overflow")
		}
		return i
	}
	x, y := float64(a), float64(b)
	switch op {
	case tokens.Addition:
		return exact(x+y, a+b)
	case tokens.Subtraction:
		return exact(x-y, a-b)
	case tokens.Multiply:
		return exact(x*y, a*b)
	case tokens.Power:
		if b < 0 {
			return math.Pow(x, y)
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
	if op == tokens.Modulo {
		return remainder
	}
	return quotient
}

// power is a to the b by squaring; it may wrap around.
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

func (in *interp) floats(op tokens.Type, x, y float64) any {
	switch op {
	case tokens.Addition:
		return x + y
	case tokens.Subtraction:
		return x - y
	case tokens.Multiply:
		return x * y
	case tokens.Power:
		return math.Pow(x, y)
	}
	if y == 0 {
		in.fail("division by zero")
	}
	switch op {
	case tokens.FloorDivision:
		return math.Floor(x / y)
	case tokens.Modulo:
		return x - float64(y*math.Floor(x/y))
	}
	return x / y
}

func (in *interp) unary(negative bool, v any) any {
	f, i, isInt, ok := number(v)
	switch {
	case !ok:
		in.operands("sign", v, v)
	case isInt && negative:
		return -i
	case isInt:
		return i
	case negative:
		return -f
	}
	return f
}

// contains is "item in v".
func (in *interp) contains(v, item any) bool {
	switch v := v.(type) {
	case undefined:
		return false
	case string:
		part, ok := item.(string)
		if !ok {
			in.operands("in", item, v)
		}
		in.scan(len(v) + len(part))
		return strings.Contains(v, part)
	case []any:
		for _, e := range v {
			if in.equal(e, item) {
				return true
			}
		}
		return false
	case *Dict:
		key, ok := item.(string)
		_, found := in.lookup(v, key)
		return ok && found
	}
	in.fail("%s is not iterable", typeName(v))
	return false
}
