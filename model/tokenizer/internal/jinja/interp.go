package jinja

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// interp is the state of one rendering.
type interp struct {
	now     time.Time
	globals *Dict
	out     *builder

	steps, bytes, output budget
	depth                int
	line                 int // of the current statement
}

// budget is a limit of which parts are taken.
type budget struct{ limit, left int }

// take returns whether n was left.
func (b *budget) take(n int) bool {
	if n < 0 || n > b.left {
		return false
	}
	b.left -= n
	return true
}

func newInterp(vars *Dict, now time.Time) *interp {
	full := func(n int) budget { return budget{n, n} }
	input := size(vars)
	in := &interp{
		now: now, globals: vars,
		steps:  full(maxSteps),
		bytes:  full(maxBytes + maxBytesFactor*input),
		output: full(maxOutput + maxOutputFactor*input),
	}
	in.out = &builder{in: in}
	return in
}

// render runs the statements of a template once.
func (in *interp) render(body []stmt) (out text, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = text{}, recovered(r, ErrEval)
		}
	}()
	in.run(body, &scope{})
	return in.out.text(), nil
}

// scope holds the variables of a block.
type scope struct {
	vars   map[string]any
	parent *scope
}

// assign sets a variable.
func (in *interp) assign(s *scope, name string, v any) {
	in.payEntry(s.vars == nil)
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

// fail ends the rendering with an error. Long strings among args are shortened.
func (in *interp) fail(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = shorten(s)
		}
	}
	panic(abort{fmt.Errorf("%w: line %d: %s", ErrEval, in.line, shorten(fmt.Sprintf(format, args...)))})
}

func (in *interp) exceed(format string, args ...any) {
	panic(abort{fmt.Errorf("%w: line %d: %s", ErrLimit, in.line, fmt.Sprintf(format, args...))})
}

// enter takes one step from the budget and goes one level deeper, until leave.
func (in *interp) enter() {
	in.work(1)
	if in.depth++; in.depth > maxDepth {
		in.exceed("expressions, blocks and calls nest more than %d deep", maxDepth)
	}
}

func (in *interp) leave() { in.depth-- }

// work takes n steps from the budget.
func (in *interp) work(n int) {
	if !in.steps.take(n) {
		in.exceed("more than %d steps", in.steps.limit)
	}
}

// pay takes n bytes from the budget. Call it before allocating them.
func (in *interp) pay(n int) {
	if !in.bytes.take(n) {
		in.exceed("more than %d bytes of values", in.bytes.limit)
	}
}

// payEntry takes an entry of a dictionary or a scope from the budget.
func (in *interp) payEntry(first bool) {
	if first {
		in.pay(mapBytes)
	}
	in.pay(entryBytes)
}

// scan takes n bytes from the budget for reading them.
func (in *interp) scan(n int) { in.pay(n) }

// list takes a list of n values from the budget. Call it before allocating the list.
func (in *interp) list(n int) {
	in.work(n)
	in.pay(valueBytes * n)
}

// write appends to the output of the current block.
func (in *interp) write(t text) {
	if !in.output.take(len(t.s)) {
		in.exceed("more than %d bytes of output", in.output.limit)
	}
	in.out.b.Grow(len(t.s)) // as in builder.grow
	in.out.add(t, 0, len(t.s))
}

// capture returns the output of run.
func (in *interp) capture(run func()) any {
	outer := in.out
	in.out = &builder{in: in}
	run()
	captured := in.out.text()
	in.out = outer
	return captured.value()
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
	if v, ok := in.globals.values[any(name)]; ok {
		return v
	}
	if f, ok := functions[name]; ok {
		return f
	}
	return undefined{name}
}

// call calls a function, a macro, or loop in a recursive loop.
func (in *interp) call(fn any, a args) any {
	switch fn := fn.(type) {
	case function:
		return fn(in, a)
	case *macro:
		return in.expand(fn, a)
	case *loop:
		if fn.statement.recursive {
			items := in.iterate(in.take("loop", a, "items")[0])
			return in.capture(func() { fn.statement.each(in, fn.scope, items, fn.depth+1) })
		}
	}
	if u, ok := fn.(undefined); ok {
		in.fail("%s is undefined, and so cannot be called", u.name)
	}
	in.fail("%s cannot be called", typeName(fn))
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
	used := 0
	for i, param := range m.params {
		var v any = undefined{param.name}
		if named, ok := a.kw[param.name]; ok {
			v = named
			used++
		} else if i < len(a.pos) {
			v = a.pos[i]
		} else if param.fallback != nil {
			v = in.eval(param.fallback, inner)
		}
		in.assign(inner, param.name, v)
	}
	if used < len(a.kw) {
		for _, name := range a.names {
			if !slices.ContainsFunc(m.params, func(p parameter) bool { return p.name == name }) {
				in.fail("macro %s takes no argument %s", m.name, name)
			}
		}
	}
	if a.caller != nil {
		in.assign(inner, "caller", a.caller)
	}
	return in.capture(func() { in.run(m.body, inner) })
}

// target is a variable, or several that take the items of a value.
type target struct {
	name  string
	parts []target // nil for one variable
}

// bind assigns a value to the variables.
func (t target) bind(in *interp, v any, s *scope) {
	if t.parts == nil {
		in.assign(s, t.name, v)
		return
	}
	items := in.iterate(v)
	if len(items) != len(t.parts) {
		in.fail("%s of %d items cannot be unpacked into %d variables", typeName(v), len(items), len(t.parts))
	}
	for i, part := range t.parts {
		part.bind(in, items[i], s)
	}
}

// forLoop is {% for target in items if filter %}body{% else %}otherwise{% endfor %}.
type forLoop struct {
	target          target
	items, filter   expr // filter may be nil
	recursive       bool
	body, otherwise []stmt
}

// loop is the variable loop inside a for statement.
type loop struct {
	statement *forLoop
	scope     *scope // around the statement
	items     []any
	index     int   // from 0
	depth     int   // from 1; each call of a recursive loop adds 1
	seen      []any // the last arguments of loop.changed
}

// each runs the body for the items that pass the filter. It filters them before the
// first iteration, so that loop.last and loop.length count only those. As in Jinja2,
// otherwise runs unless an iteration came to the end of the body without break or
// continue.
func (f *forLoop) each(in *interp, s *scope, items []any, depth int) flow {
	if f.filter != nil {
		in.list(len(items))
		passed := make([]any, 0, len(items))
		for _, item := range items {
			inner := &scope{parent: s}
			f.target.bind(in, item, inner)
			if truth(in.eval(f.filter, inner)) {
				passed = append(passed, item)
			}
		}
		items = passed
	}
	finished := false
	l := &loop{statement: f, scope: s, items: items, depth: depth}
	for i, item := range items {
		l.index = i
		inner := &scope{parent: s}
		in.assign(inner, "loop", l)
		f.target.bind(in, item, inner)
		how := in.run(f.body, inner)
		if how == flowBreak {
			break
		}
		finished = finished || how == flowNext
	}
	if finished {
		return flowNext
	}
	return in.run(f.otherwise, &scope{parent: s})
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
		return v.keys
	case string, text:
		t, _ := textOf(v)
		return in.characters(t)
	}
	in.fail("%s is not iterable", typeName(v))
	return nil
}

// characters returns the characters of a string.
func (in *interp) characters(t text) []any {
	in.scan(len(t.s))
	n := utf8.RuneCountInString(t.s)
	in.list(n)
	items := make([]any, n)
	at := 0
	for i := range items {
		_, n := utf8.DecodeRuneInString(t.s[at:])
		items[i] = in.cut(t, at, at+n).value()
		at += n
	}
	return items
}
