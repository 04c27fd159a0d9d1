package jinja

import "github.com/nikolalohinski/gonja/v2/nodes"

// eval evaluates an expression.
func (in *interp) eval(n nodes.Node, s *scope) any {
	in.enter()
	defer in.leave()
	switch n := n.(type) {
	case *nodes.Name:
		return in.name(n.Name.Val, s)
	case *nodes.List:
		return in.values(n.Val, s)
	case *nodes.Tuple:
		return in.values(n.Val, s)
	case *nodes.Dict:
		return in.dict(n, s)
	case *nodes.Call:
		return in.call(n, s)
	case *nodes.GetAttribute:
		if n.Attribute == "" {
			return in.item(in.eval(n.Node, s), n.Index)
		}
		return in.attribute(in.eval(n.Node, s), n.Attribute)
	case *nodes.GetItem:
		return in.item(in.eval(n.Node, s), in.eval(n.Arg, s))
	case *nodes.GetSlice:
		return in.slice(n, s)
	case *nodes.Negation:
		return !truth(in.eval(n.Term, s))
	case *nodes.UnaryExpression:
		return in.unary(n.Negative, in.eval(n.Term, s))
	case *nodes.BinaryExpression:
		return in.binary(n, s)
	case *nodes.FilteredExpression:
		return in.filtered(n, s)
	case *nodes.TestExpression:
		v := in.eval(n.Expression, s)
		return in.test(n.Test.Name, v, in.args(n.Test.Args, n.Test.Kwargs, s))
	}
	return in.constant(n)
}

func (in *interp) filtered(n *nodes.FilteredExpression, s *scope) any {
	v := in.eval(n.Expression, s)
	for _, f := range n.Filters {
		v = in.filter(f.Name, v, in.args(f.Args, f.Kwargs, s))
	}
	return v
}

// constant is what stands for itself. The parser leaves nil where it has
// overlooked that an expression is missing.
func (in *interp) constant(n nodes.Node) any {
	switch n := n.(type) {
	case *nodes.None:
		return nil
	case *nodes.Bool:
		return n.Val
	case *nodes.Integer:
		return n.Val
	case *nodes.Float:
		return n.Val
	case *nodes.String:
		return n.Val
	}
	in.fail("an expression is missing")
	return nil
}

func (in *interp) name(name string, s *scope) any {
	if v, ok := s.get(name); ok {
		return v
	}
	if v, ok := in.globals.values[name]; ok {
		return v
	}
	if f, ok := functions[name]; ok {
		return f
	}
	if name == "none" {
		return nil // the parser knows it as None only
	}
	return undefined{name}
}

func (in *interp) values(list []nodes.Expression, s *scope) any {
	in.list(len(list))
	values := make([]any, len(list))
	for i, e := range list {
		values[i] = in.eval(e, s)
	}
	return values
}

func (in *interp) dict(n *nodes.Dict, s *scope) any {
	d := &Dict{}
	for _, pair := range n.Pairs {
		in.pay(64)
		key, ok := in.eval(pair.Key, s).(string)
		if !ok {
			in.fail("a dictionary's key is not a string")
		}
		in.scan(len(key))
		d.set(key, in.eval(pair.Value, s))
	}
	return d
}
