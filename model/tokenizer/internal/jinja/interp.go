package jinja

import (
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/nodes"
)

// interp is one rendering: its budgets, its output and where it is.
type interp struct {
	now     time.Time
	globals *Dict
	out     *strings.Builder

	steps, bytes, output int // what may still be spent
	depth                int
	line                 int // of the statement that runs
}

// scope holds the variables of a block that has its own.
type scope struct {
	vars   map[string]any
	parent *scope
}

func (s *scope) set(name string, v any) {
	if s.vars == nil {
		s.vars = map[string]any{}
	}
	s.vars[name] = v
}

func (s *scope) get(name string) (any, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// fail ends the rendering with an error.
func (in *interp) fail(format string, args ...any) {
	panic(abort{fmt.Errorf("%w: line %d: %s", ErrEval, in.line, shorten(fmt.Sprintf(format, args...)))})
}

func (in *interp) exceed(what string) {
	panic(abort{fmt.Errorf("%w: line %d: too %s", ErrLimit, in.line, what)})
}

// enter pays for one step and goes one level deeper; leave comes back up.
func (in *interp) enter() {
	in.work(1)
	if in.depth++; in.depth > maxDepth {
		in.exceed("deep")
	}
}

func (in *interp) leave() { in.depth-- }

// work pays for n steps.
func (in *interp) work(n int) {
	if n < 0 || n > in.steps {
		in.exceed("many steps")
	}
	in.steps -= n
}

// pay pays for n bytes before they are made.
func (in *interp) pay(n int) {
	if n < 0 || n > in.bytes {
		in.exceed("much memory")
	}
	in.bytes -= n
}

// scan pays for looking through n bytes, which costs as much as making them.
func (in *interp) scan(n int) { in.pay(n) }

// list pays for a list of n values.
func (in *interp) list(n int) {
	if n > maxSteps {
		in.exceed("long a list")
	}
	in.work(n)
	in.pay(16 * n)
}

// write appends to the output of the block that runs.
func (in *interp) write(s string) {
	if len(s) > in.output {
		in.exceed("much output")
	}
	in.output -= len(s)
	in.out.WriteString(s)
}

// capture gives what run writes.
func (in *interp) capture(run func()) string {
	outer := in.out
	in.out = &strings.Builder{}
	run()
	text := in.out.String()
	in.out = outer
	return text
}

// flow says how a block ended.
type flow int

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// nodes runs the nodes of a block.
func (in *interp) nodes(list []nodes.Node, s *scope) flow {
	in.enter()
	defer in.leave()
	for _, n := range list {
		in.work(1)
		switch n := n.(type) {
		case nil, *nodes.Comment:
		case *nodes.Data:
			in.write(n.Data.Val)
		case *nodes.Output:
			in.line = n.Start.Line
			in.write(in.str(in.eval(n.Expression, s)))
		case *nodes.ControlStructureBlock:
			in.line = n.Location.Line
			if f := in.statement(n.ControlStructure, s); f != flowNext {
				return f
			}
		default:
			in.fail("unexpected %T", n)
		}
	}
	return flowNext
}

func (in *interp) statement(n nodes.ControlStructure, s *scope) flow {
	switch n := n.(type) {
	case *controlStructures.IfControlStructure:
		return in.branch(n, s)
	case *controlStructures.ForControlStructure:
		in.loop(n, s)
	case *controlStructures.MacroControlStructure:
		s.set(n.Macro.Name, &macro{node: n.Macro, scope: s})
	case *controlStructures.BreakControlStructure:
		return flowBreak
	case *controlStructures.ContinueControlStructure:
		return flowContinue
	case *set:
		in.assign(n, s)
	case *generation:
		return in.nodes(n.body.Nodes, &scope{parent: s})
	default:
		in.fail("unexpected %T", n)
	}
	return flowNext
}

func (in *interp) branch(n *controlStructures.IfControlStructure, s *scope) flow {
	for i, condition := range n.Conditions {
		if truth(in.eval(condition, s)) {
			return in.nodes(n.Wrappers[i].Nodes, s)
		}
	}
	if len(n.Wrappers) > len(n.Conditions) {
		return in.nodes(n.Wrappers[len(n.Conditions)].Nodes, s)
	}
	return flowNext
}

func (in *interp) assign(n *set, s *scope) {
	var v any
	if n.body != nil {
		v = in.capture(func() { in.nodes(n.body.Nodes, &scope{parent: s}) })
	} else {
		v = in.eval(n.value, s)
	}
	switch target := n.target.(type) {
	case *nodes.Name:
		s.set(target.Name.Val, v)
	case *nodes.GetAttribute:
		ns, ok := in.eval(target.Node, s).(*namespace)
		if !ok || target.Attribute == "" {
			in.fail("only attributes of a namespace can be set")
		}
		in.pay(64)
		ns.set(target.Attribute, v)
	}
}

// loop runs a for statement. Its items are filtered first, so that loop.last
// and loop.length know them.
func (in *interp) loop(n *controlStructures.ForControlStructure, s *scope) {
	if n.Recursive {
		in.fail("recursive loops are not supported")
	}
	items := in.iterate(in.eval(n.ObjectEvaluator, s))
	if n.IfCondition != nil {
		in.list(len(items))
		var kept []any
		for _, item := range items {
			inner := &scope{parent: s}
			in.bindItem(n, item, inner)
			if truth(in.eval(n.IfCondition, inner)) {
				kept = append(kept, item)
			}
		}
		items = kept
	}
	if len(items) == 0 {
		if n.EmptyWrapper != nil {
			in.nodes(n.EmptyWrapper.Nodes, &scope{parent: s})
		}
		return
	}
	depth := 1
	outer, _ := s.get("loop")
	if outer, ok := outer.(*loop); ok {
		depth = outer.depth + 1
	}
	for i, item := range items {
		in.work(1)
		inner := &scope{parent: s}
		in.bindItem(n, item, inner)
		inner.set("loop", &loop{items: items, index: i, depth: depth})
		if in.nodes(n.BodyWrapper.Nodes, inner) == flowBreak {
			return
		}
	}
}

func (in *interp) bindItem(n *controlStructures.ForControlStructure, item any, s *scope) {
	in.pay(128)
	if n.Value == "" {
		s.set(n.Key, item)
		return
	}
	pair, ok := item.([]any)
	if !ok || len(pair) != 2 {
		in.fail("%s is not a pair of %s and %s", typeName(item), n.Key, n.Value)
	}
	s.set(n.Key, pair[0])
	s.set(n.Value, pair[1])
}

// iterate gives the items of a value: a list's, a dictionary's keys, a string's
// characters.
func (in *interp) iterate(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case undefined:
		return nil
	case *Dict:
		in.list(len(v.keys))
		items := make([]any, len(v.keys))
		for i, k := range v.keys {
			items[i] = k
		}
		return items
	case string:
		in.list(len(v))
		items := make([]any, 0, len(v))
		for _, r := range v {
			items = append(items, string(r))
		}
		return items
	}
	in.fail("%s is not iterable", typeName(v))
	return nil
}
