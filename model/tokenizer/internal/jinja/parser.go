package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// expr evaluates an expression. Call it through interp.eval, which counts steps.
type expr func(in *interp, s *scope) any

// stmt runs a statement.
type stmt func(in *interp, s *scope) flow

// parser is a recursive-descent parser of Jinja2's grammar that compiles a template to
// closures. It has no statement that reads another template.
type parser struct {
	tokens []token // the tokens left; the last one is tokenEOF
	depth  int     // nesting of blocks, brackets, signs and conditionals
	inLoop bool    // break and continue are allowed
}

func (p *parser) fail(kind error, format string, args ...any) {
	panic(abort{fmt.Errorf("%w: line %d: %s", kind, p.tokens[0].line, shorten(fmt.Sprintf(format, args...)))})
}

func (p *parser) unexpected() {
	if t := p.tokens[0]; t.kind != tokenEOF {
		p.fail(ErrSyntax, "unexpected %q", t.text)
	}
	p.fail(ErrSyntax, "unexpected end of the template")
}

// nest bounds the recursion of the parser. Call the result to leave the level.
func (p *parser) nest() (leave func()) {
	if p.depth++; p.depth > maxNesting {
		p.fail(ErrLimit, "blocks and expressions nest more than %d deep", maxNesting)
	}
	return func() { p.depth-- }
}

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != tokenEOF {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) at(text string) bool { return p.tokens[0].is(text) }

// accept skips the next token if it is one of those names or symbols, and returns it.
func (p *parser) accept(texts ...string) (string, bool) {
	for _, text := range texts {
		if p.at(text) {
			p.next()
			return text, true
		}
	}
	return "", false
}

func (p *parser) skip(text string) bool {
	_, ok := p.accept(text)
	return ok
}

func (p *parser) expect(text string) {
	if !p.skip(text) {
		p.unexpected()
	}
}

func (p *parser) name() string {
	if p.tokens[0].kind != tokenName {
		p.unexpected()
	}
	return p.next().text
}

// body parses up to a tag with one of the names ends, skips that name and returns it.
// Without ends it parses up to the end of the template.
func (p *parser) body(ends ...string) ([]stmt, string) {
	defer p.nest()()
	var body []stmt
	for {
		switch t := p.tokens[0]; {
		case t.kind == tokenText:
			p.next()
			own := text{t.text, []Span{{0, len(t.text)}}}
			body = append(body, func(in *interp, _ *scope) flow {
				in.write(own)
				return flowNext
			})
		case p.skip("{{"):
			e := p.tuple(p.expression)
			p.expect("}}")
			body = append(body, func(in *interp, s *scope) flow {
				in.line = t.line
				in.write(in.str(in.eval(e, s)))
				return flowNext
			})
		case p.skip("{%"):
			name := p.name()
			if slices.Contains(ends, name) {
				return body, name
			}
			run := p.statement(name)
			body = append(body, func(in *interp, s *scope) flow {
				in.line = t.line
				return run(in, s)
			})
		case len(ends) == 0 && t.kind == tokenEOF:
			return body, ""
		default:
			p.unexpected()
		}
	}
}

// block parses the end of a tag and a body up to the tag end, which has no arguments.
func (p *parser) block(end string) []stmt {
	p.expect("%}")
	body, _ := p.body(end)
	p.expect("%}")
	return body
}

func (p *parser) statement(name string) stmt {
	switch name {
	case "if":
		return p.ifStatement()
	case "for":
		return p.forStatement()
	case "set":
		return p.setStatement()
	case "macro":
		return p.macroStatement()
	case "generation": // marks the text that a model is trained on
		body := p.block("endgeneration")
		return func(in *interp, s *scope) flow { return in.run(body, &scope{parent: s}) }
	case "call":
		return p.callStatement()
	case "with":
		return p.withStatement()
	case "filter":
		return p.filterStatement()
	case "break", "continue":
		if !p.inLoop {
			p.fail(ErrSyntax, "%s outside of a loop", name)
		}
		p.expect("%}")
		how := map[string]flow{"break": flowBreak, "continue": flowContinue}[name]
		return func(*interp, *scope) flow { return how }
	}
	p.fail(ErrSyntax, "unknown statement %s", name)
	return nil
}

func (p *parser) ifStatement() stmt {
	type branch struct {
		condition expr // nil for else
		body      []stmt
	}
	var branches []branch
	for tag := "if"; tag != "endif"; {
		var b branch
		ends := []string{"endif"}
		if tag != "else" {
			b.condition = p.expression()
			ends = []string{"elif", "else", "endif"}
		}
		p.expect("%}")
		b.body, tag = p.body(ends...)
		branches = append(branches, b)
	}
	p.expect("%}")
	return func(in *interp, s *scope) flow {
		for _, b := range branches {
			if b.condition == nil || truth(in.eval(b.condition, s)) {
				return in.run(b.body, s)
			}
		}
		return flowNext
	}
}

func (p *parser) forStatement() stmt {
	f := &forLoop{target: p.target()}
	p.expect("in")
	f.items = p.tuple(func() expr { return p.operators(logic, p.not) }) // "if" belongs to the statement
	if p.skip("if") {
		f.filter = p.expression()
	}
	f.recursive = p.skip("recursive")
	p.expect("%}")
	tag := ""
	p.within(true, func() { f.body, tag = p.body("else", "endfor") })
	if tag == "else" {
		f.otherwise = p.block("endfor")
	} else {
		p.expect("%}")
	}
	return func(in *interp, s *scope) flow { return f.each(in, s, in.iterate(in.eval(f.items, s)), 1) }
}

// target parses "a", "a, b" and "a, (b, c)".
func (p *parser) target() target {
	one := func() target {
		if p.skip("(") {
			defer p.nest()()
			t := p.target()
			p.expect(")")
			return t
		}
		return target{name: p.name()}
	}
	t := one()
	if p.at(",") {
		t = target{parts: []target{t}}
	}
	for p.skip(",") {
		t.parts = append(t.parts, one())
	}
	return t
}

// within parses a block. If inLoop is set, break and continue outside of the block's own
// loops belong to the loop around it; else they are errors.
func (p *parser) within(inLoop bool, parse func()) {
	outer := p.inLoop
	p.inLoop = inLoop
	parse()
	p.inLoop = outer
}

// captured parses filters and a block up to the tag end. The value is what the block
// renders, filtered.
func (p *parser) captured(end string, filters func(v expr) expr) expr {
	var body []stmt
	value := filters(func(in *interp, s *scope) any {
		return in.capture(func() { in.run(body, &scope{parent: s}) })
	})
	p.within(false, func() { body = p.block(end) })
	return value
}

// setStatement parses {% set target = value %} and {% set target %}body{% endset %}.
func (p *parser) setStatement() stmt {
	to, attribute := p.target(), ""
	if to.parts == nil && p.skip(".") {
		attribute = p.name()
	}
	var value expr
	if p.skip("=") {
		value = p.tuple(p.expression)
		p.expect("%}")
	} else {
		value = p.captured("endset", p.filters)
	}
	return func(in *interp, s *scope) flow {
		v := in.eval(value, s)
		if attribute == "" {
			to.bind(in, v, s)
			return flowNext
		}
		ns, ok := in.name(to.name, s).(*namespace)
		if !ok {
			in.fail("only attributes of a namespace can be set")
		}
		in.set(&ns.attributes, attribute, v)
		return flowNext
	}
}

func (p *parser) macroStatement() stmt {
	m := macro{name: p.name()}
	p.expect("(")
	m.params = p.parameters()
	p.within(false, func() { m.body = p.block("endmacro") })
	return func(in *interp, s *scope) flow {
		m := m
		m.scope = s
		in.assign(s, m.name, &m)
		return flowNext
	}
}

// parameters parses the parameters of a macro after the opening bracket.
func (p *parser) parameters() (params []parameter) {
	for !p.skip(")") {
		param := parameter{name: p.name()}
		if p.skip("=") {
			param.fallback = p.expression()
		}
		params = append(params, param)
		if !p.at(")") {
			p.expect(",")
		}
	}
	return params
}

// callStatement parses {% call(parameters) macro(arguments) %}body{% endcall %}. The
// macro sees the body as the macro caller.
func (p *parser) callStatement() stmt {
	caller := macro{name: "caller"}
	if p.skip("(") {
		caller.params = p.parameters()
	}
	name := p.name()
	p.expect("(")
	arguments := p.arguments()
	p.within(false, func() { caller.body = p.block("endcall") })
	return func(in *interp, s *scope) flow {
		caller := caller
		caller.scope = s
		a := arguments(in, s)
		a.caller = &caller
		in.write(in.str(in.call(in.name(name, s), a)))
		return flowNext
	}
}

// withStatement parses {% with name = value, … %}body{% endwith %}.
func (p *parser) withStatement() stmt {
	var targets []target
	var values []expr
	for !p.at("%}") {
		if len(targets) > 0 {
			p.expect(",")
		}
		targets = append(targets, target{name: p.name()})
		p.expect("=")
		values = append(values, p.expression())
	}
	body := p.block("endwith")
	return func(in *interp, s *scope) flow {
		inner := &scope{parent: s}
		for i, to := range targets {
			to.bind(in, in.eval(values[i], s), inner)
		}
		return in.run(body, inner)
	}
}

func (p *parser) filterStatement() stmt {
	value := p.captured("endfilter", func(v expr) expr { return p.filters(p.filter(v)) })
	return func(in *interp, s *scope) flow {
		in.write(in.str(in.eval(value, s)))
		return flowNext
	}
}

// Binary operators from the weakest to the strongest. "not" and comparisons lie between
// logic and arithmetic.
var (
	logic      = [][]string{{"or"}, {"and"}}
	arithmetic = [][]string{{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}}
)

// operators parses operands joined by left-associative operators. levels[0] binds
// weakest; operand parses an operand of the last level.
func (p *parser) operators(levels [][]string, operand func() expr) expr {
	if len(levels) == 0 {
		return operand()
	}
	left := p.operators(levels[1:], operand)
	for {
		op, ok := p.accept(levels[0]...)
		if !ok {
			return left
		}
		a, b := left, p.operators(levels[1:], operand)
		left = func(in *interp, s *scope) any { return in.binary(op, a, b, s) }
	}
}

// expression parses "a", "a if b" and "a if b else c".
func (p *parser) expression() expr {
	defer p.nest()()
	value := p.operators(logic, p.not)
	for p.skip("if") {
		value = p.conditional(value)
	}
	return value
}

func (p *parser) conditional(value expr) expr {
	condition := p.operators(logic, p.not)
	otherwise := func(*interp, *scope) any { return undefined{"else"} }
	if p.skip("else") {
		otherwise = p.expression()
	}
	return func(in *interp, s *scope) any {
		if truth(in.eval(condition, s)) {
			return in.eval(value, s)
		}
		return in.eval(otherwise, s)
	}
}

func (p *parser) not() expr {
	if !p.skip("not") {
		return p.comparison()
	}
	defer p.nest()()
	e := p.not()
	return func(in *interp, s *scope) any { return !truth(in.eval(e, s)) }
}

// comparison parses chains such as "a < b <= c", which hold if every link holds.
func (p *parser) comparison() expr {
	operand := func() expr { return p.operators(arithmetic, func() expr { return p.unary(true) }) }
	first := operand()
	var ops []string
	var others []expr
	for {
		op, ok := p.accept("==", "!=", "<", "<=", ">", ">=", "in")
		if !ok && p.at("not") && p.tokens[1].is("in") {
			p.tokens = p.tokens[2:]
			op, ok = "not in", true
		}
		if !ok {
			break
		}
		ops, others = append(ops, op), append(others, operand())
	}
	if len(ops) == 0 {
		return first
	}
	return func(in *interp, s *scope) any {
		a := in.eval(first, s)
		for i, op := range ops {
			b := in.eval(others[i], s)
			if !in.compare(op, a, b) {
				return false
			}
			a = b
		}
		return true
	}
}

// unary parses a signed operand. A filter or test applies to the operand with its sign.
func (p *parser) unary(filters bool) expr {
	var v expr
	if sign, ok := p.accept("-", "+"); ok {
		defer p.nest()()
		operand := p.unary(false)
		v = func(in *interp, s *scope) any { return in.signed(sign, in.eval(operand, s)) }
	} else {
		v = p.primary()
	}
	v = p.postfix(v)
	if filters {
		v = p.filters(v)
	}
	return v
}

// postfix parses the attributes, subscripts and calls after v.
func (p *parser) postfix(v expr) expr {
	for {
		switch {
		case p.skip("."):
			v = p.attribute(v)
		case p.skip("["):
			v = p.subscript(v)
		case p.skip("("):
			v = p.call(v)
		default:
			return v
		}
	}
}

// filters parses the filters and tests after v, and calls of their results.
func (p *parser) filters(v expr) expr {
	for {
		switch {
		case p.skip("|"):
			v = p.filter(v)
		case p.skip("is"):
			v = p.test(v)
		case p.skip("("):
			v = p.call(v)
		default:
			return v
		}
	}
}

// filter parses "name" and "name(arguments)".
func (p *parser) filter(v expr) expr {
	name, arguments := p.name(), noArguments
	if p.skip("(") {
		arguments = p.arguments()
	}
	return func(in *interp, s *scope) any { return in.filter(name, in.eval(v, s), arguments(in, s)) }
}

// call parses the arguments of a call of v.
func (p *parser) call(v expr) expr {
	arguments := p.arguments()
	return func(in *interp, s *scope) any { return in.call(in.eval(v, s), arguments(in, s)) }
}

// attribute parses the name or index after a dot.
func (p *parser) attribute(v expr) expr {
	if p.tokens[0].kind == tokenInt {
		i := p.integer()
		return func(in *interp, s *scope) any { return in.item(in.eval(v, s), i) }
	}
	name := p.name()
	return func(in *interp, s *scope) any { return in.attribute(in.eval(v, s), name) }
}

// subscript parses "i]" and "start:end:step]".
func (p *parser) subscript(v expr) expr {
	var bounds [3]expr
	colons := 0
	for !p.skip("]") {
		switch {
		case colons < 2 && p.skip(":"):
			colons++
		case bounds[colons] == nil:
			bounds[colons] = p.expression()
		default:
			p.unexpected()
		}
	}
	switch {
	case colons > 0:
		return func(in *interp, s *scope) any { return in.slice(in.eval(v, s), bounds, s) }
	case bounds[0] == nil:
		p.fail(ErrSyntax, "a subscript is missing")
	}
	return func(in *interp, s *scope) any { return in.item(in.eval(v, s), in.eval(bounds[0], s)) }
}

// test parses "name", "name(arguments)" and "name argument", each after an optional not.
func (p *parser) test(v expr) expr {
	negated := p.skip("not")
	name, arguments := p.name(), noArguments
	t := p.tokens[0]
	switch {
	case p.skip("("):
		arguments = p.arguments()
	case t.kind == tokenName && !keywords[t.text], t.kind == tokenString, t.kind == tokenInt, t.kind == tokenFloat, p.at("["), p.at("{"):
		argument := p.postfix(p.primary())
		arguments = func(in *interp, s *scope) args { return args{pos: []any{in.eval(argument, s)}} }
	}
	return func(in *interp, s *scope) any { return in.test(name, in.eval(v, s), arguments(in, s)) != negated }
}

func noArguments(*interp, *scope) args { return args{} }

// arguments parses the arguments of a call after its opening bracket.
func (p *parser) arguments() func(in *interp, s *scope) args {
	var pos, named []expr
	var names []string
	for !p.skip(")") {
		if p.tokens[0].kind == tokenName && p.tokens[1].is("=") {
			name := p.name()
			p.expect("=")
			names, named = append(names, name), append(named, p.expression())
		} else {
			pos = append(pos, p.expression())
		}
		if !p.at(")") {
			p.expect(",")
		}
	}
	return func(in *interp, s *scope) args {
		in.list(len(pos))
		a := args{pos: make([]any, len(pos)), names: names}
		for i, e := range pos {
			a.pos[i] = in.eval(e, s)
		}
		if len(names) > 0 {
			in.pay(mapBytes + entryBytes*len(names))
			a.kw = make(map[string]any, len(names))
		}
		for i, name := range names {
			if _, ok := a.kw[name]; ok {
				in.fail("argument %s is given twice", name)
			}
			a.kw[name] = in.eval(named[i], s)
		}
		return a
	}
}

// keywords cannot be variables.
var keywords = map[string]bool{
	"and": true, "or": true, "not": true, "in": true, "is": true, "if": true, "elif": true, "else": true,
}

var constants = map[string]any{
	"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil,
}

func (p *parser) primary() expr {
	t := p.tokens[0]
	switch {
	case t.kind == tokenName && !keywords[t.text]:
		p.next()
		if v, ok := constants[t.text]; ok {
			return constant(v)
		}
		return func(in *interp, s *scope) any { return in.name(t.text, s) }
	case t.kind == tokenString:
		var literal strings.Builder
		for p.tokens[0].kind == tokenString { // neighboring strings are one
			literal.WriteString(p.next().text)
		}
		return constant(Own(literal.String()))
	case t.kind == tokenInt:
		return constant(p.integer())
	case t.kind == tokenFloat:
		p.next()
		f, _ := strconv.ParseFloat(t.text, 64) // infinite if it is too large, as in Python
		return constant(f)
	case p.skip("("):
		if p.skip(")") {
			return listOf(nil)
		}
		v := p.tuple(p.expression)
		p.expect(")")
		return v
	case p.skip("["):
		return listOf(p.expressions("]"))
	case p.skip("{"):
		return p.dict()
	}
	p.unexpected()
	return nil
}

func constant(v any) expr { return func(*interp, *scope) any { return v } }

func (p *parser) integer() int {
	i, err := strconv.ParseInt(p.tokens[0].text, 0, 64)
	if err != nil {
		p.fail(ErrSyntax, "bad integer %s", p.tokens[0].text)
	}
	p.next()
	return int(i)
}

// expressions parses expressions, each but the last followed by a comma, up to end.
func (p *parser) expressions(end string) (list []expr) {
	for !p.skip(end) {
		list = append(list, p.expression())
		if !p.at(end) {
			p.expect(",")
		}
	}
	return list
}

// tuple parses "a", and "a, b" and "a," as a list.
func (p *parser) tuple(item func() expr) expr {
	first := item()
	if !p.at(",") {
		return first
	}
	items := []expr{first}
	for p.skip(",") {
		if p.at(")") || p.at("}}") || p.at("%}") {
			break
		}
		items = append(items, item())
	}
	return listOf(items)
}

func listOf(items []expr) expr {
	return func(in *interp, s *scope) any {
		in.list(len(items))
		values := make([]any, len(items))
		for i, e := range items {
			values[i] = in.eval(e, s)
		}
		return values
	}
}

func (p *parser) dict() expr {
	var keys, values []expr
	for !p.skip("}") {
		keys = append(keys, p.expression())
		p.expect(":")
		values = append(values, p.expression())
		if !p.at("}") {
			p.expect(",")
		}
	}
	return func(in *interp, s *scope) any {
		d := &Dict{}
		for i := range keys {
			key := in.eval(keys[i], s)
			in.set(d, key, in.eval(values[i], s))
		}
		return d
	}
}
