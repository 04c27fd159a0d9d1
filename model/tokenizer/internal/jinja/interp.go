package jinja

import (
	"fmt"
	"strings"
	"time"
)

// interp is the state of one rendering.
type interp struct {
	now     time.Time
	globals *Dict
	out     *strings.Builder

	steps, bytes, output int // budgets left
	depth                int
	line                 int // of the current statement
}

// scope holds the variables of a block.
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

// enter takes one step from the budget and goes one level deeper, until leave.
func (in *interp) enter() {
	in.work(1)
	if in.depth++; in.depth > maxDepth {
		in.exceed("deep")
	}
}

func (in *interp) leave() { in.depth-- }

// work takes n steps from the budget.
func (in *interp) work(n int) {
	if n < 0 || n > in.steps {
		in.exceed("many steps")
	}
	in.steps -= n
}

// pay takes n bytes from the budget. Call it before allocating them.
func (in *interp) pay(n int) {
	if n < 0 || n > in.bytes {
		in.exceed("much memory")
	}
	in.bytes -= n
}

// scan takes n bytes from the budget for reading them.
func (in *interp) scan(n int) { in.pay(n) }

// list takes a list of n values from the budget.
func (in *interp) list(n int) {
	if n > maxSteps {
		in.exceed("long a list")
	}
	in.work(n)
	in.pay(16 * n)
}

// write appends to the output of the current block.
func (in *interp) write(s string) {
	if len(s) > in.output {
		in.exceed("much output")
	}
	in.output -= len(s)
	in.out.WriteString(s)
}

// capture returns the output of run.
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

// run runs the statements of a block.
func (in *interp) run(block []stmt, s *scope) flow {
	in.enter()
	defer in.leave()
	for _, run := range block {
		in.work(1)
		if f := run(in, s); f != flowNext {
			return f
		}
	}
	return flowNext
}

// eval evaluates an expression as one step, one level deeper.
func (in *interp) eval(e expr, s *scope) any {
	in.enter()
	defer in.leave()
	return e(in, s)
}

// name looks up a variable, a value given to Render, or a function.
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
	return undefined{name}
}

// call calls a function or a macro.
func (in *interp) call(fn any, a args) any {
	switch fn := fn.(type) {
	case function:
		return fn(in, a)
	case *macro:
		return in.expand(fn, a)
	}
	in.fail("%s is not callable", typeName(fn))
	return nil
}

// expand runs a macro with its arguments in the scope of its definition.
func (in *interp) expand(m *macro, a args) any {
	in.enter()
	defer in.leave()
	if len(a.pos) > len(m.params) {
		in.fail("macro %s takes %d arguments, not %d", m.name, len(m.params), len(a.pos))
	}
	inner := &scope{parent: m.scope}
	known := map[string]bool{}
	for i, param := range m.params {
		known[param.name] = true
		in.pay(64)
		var v any = undefined{param.name}
		if named, ok := a.kw[param.name]; ok {
			v = named
		} else if i < len(a.pos) {
			v = a.pos[i]
		} else if param.fallback != nil {
			v = in.eval(param.fallback, inner)
		}
		inner.set(param.name, v)
	}
	for name := range a.kw {
		if !known[name] {
			in.fail("macro %s takes no argument %s", m.name, name)
		}
	}
	return in.capture(func() { in.run(m.body, inner) })
}

// forLoop is {% for names in items if filter %}body{% else %}otherwise{% endfor %}.
type forLoop struct {
	names           []string
	items, filter   expr // filter may be nil
	recursive       bool
	body, otherwise []stmt
}

// run filters the items before the first iteration, so that loop.last and loop.length
// count only the items that pass.
func (f *forLoop) run(in *interp, s *scope) {
	if f.recursive {
		in.fail("recursive loops are not supported")
	}
	items := in.iterate(in.eval(f.items, s))
	if f.filter != nil {
		in.list(len(items))
		var passed []any
		for _, item := range items {
			inner := &scope{parent: s}
			f.bind(in, item, inner)
			if truth(in.eval(f.filter, inner)) {
				passed = append(passed, item)
			}
		}
		items = passed
	}
	if len(items) == 0 {
		in.run(f.otherwise, &scope{parent: s})
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
		f.bind(in, item, inner)
		inner.set("loop", &loop{items: items, index: i, depth: depth})
		if in.run(f.body, inner) == flowBreak {
			return
		}
	}
}

// bind sets the names to an item, or to its parts if there are several names.
func (f *forLoop) bind(in *interp, item any, s *scope) {
	in.pay(128 * len(f.names))
	if len(f.names) == 1 {
		s.set(f.names[0], item)
		return
	}
	parts, ok := item.([]any)
	if !ok || len(parts) != len(f.names) {
		in.fail("%s cannot be unpacked into %s", typeName(item), strings.Join(f.names, ", "))
	}
	for i, name := range f.names {
		s.set(name, parts[i])
	}
}

// iterate returns the items of a list, the keys of a dictionary, or the characters of a
// string.
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
