package jinja

import (
	"maps"
	"slices"

	"github.com/nikolalohinski/gonja/v2/nodes"
)

// args evaluates the arguments of a call, named ones in order of name.
func (in *interp) args(pos []nodes.Expression, kw map[string]nodes.Expression, s *scope) args {
	in.list(len(pos) + 4*len(kw))
	a := args{pos: make([]any, len(pos))}
	for i, e := range pos {
		a.pos[i] = in.eval(e, s)
	}
	if len(kw) > 0 {
		a.kw = make(map[string]any, len(kw))
		for _, name := range slices.Sorted(maps.Keys(kw)) {
			a.kw[name] = in.eval(kw[name], s)
		}
	}
	return a
}

// call calls a function, a method or a macro.
func (in *interp) call(n *nodes.Call, s *scope) any {
	var fn any
	switch f := n.Func.(type) {
	case *nodes.Name:
		if f.Name.Val == ternary {
			return in.conditional(n.Args, s)
		}
		fn = in.eval(f, s)
	case *nodes.GetAttribute:
		v := in.eval(f.Node, s)
		if m := method(v, f.Attribute); m != nil {
			fn = m
		} else {
			fn = in.attribute(v, f.Attribute)
		}
	default:
		fn = in.eval(f, s)
	}
	a := in.args(n.Args, n.Kwargs, s)
	switch fn := fn.(type) {
	case function:
		return fn(in, a)
	case *macro:
		return in.expand(fn, a)
	}
	in.fail("%s is not callable", typeName(fn))
	return nil
}

// conditional evaluates "a if b else c", of which rewrite has made ?(a, b, c).
func (in *interp) conditional(parts []nodes.Expression, s *scope) any {
	switch {
	case len(parts) < 2:
		in.fail("a conditional expression lacks a part")
	case truth(in.eval(parts[1], s)):
		return in.eval(parts[0], s)
	case len(parts) > 2:
		return in.eval(parts[2], s)
	}
	return undefined{"else"}
}

// expand calls a macro: its body, with the arguments, in the scope of its
// definition.
func (in *interp) expand(m *macro, a args) any {
	in.enter()
	defer in.leave()
	if m.node.VarArgsName != "" || m.node.KwArgsName != "" {
		in.fail("macro %s: * and ** parameters are not supported", m.node.Name)
	}
	if len(a.pos) > len(m.node.Kwargs) {
		in.fail("macro %s takes %d arguments, not %d", m.node.Name, len(m.node.Kwargs), len(a.pos))
	}
	inner := &scope{parent: m.scope}
	known := map[string]bool{}
	for i, param := range m.node.Kwargs {
		name := param.Key.(*nodes.String).Val
		known[name] = true
		in.pay(64)
		if v, ok := a.kw[name]; ok {
			inner.set(name, v)
		} else if i < len(a.pos) {
			inner.set(name, a.pos[i])
		} else if none, ok := param.Value.(*nodes.None); ok && none.Location.Val == name {
			inner.set(name, undefined{name}) // the parser's way to say that there is no default
		} else {
			inner.set(name, in.eval(param.Value, inner))
		}
	}
	for name := range a.kw {
		if !known[name] {
			in.fail("macro %s takes no argument %s", m.node.Name, name)
		}
	}
	return in.capture(func() { in.nodes(m.node.Wrapper.Nodes, inner) })
}
