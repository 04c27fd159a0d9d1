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

// body parses up to a tag whose name is one of ends, or up to the end of the template
// without ends. It skips the name of that tag and returns it.
func (p *parser) body(ends ...string) ([]stmt, string) {
	defer p.nest()()
	var body []stmt
	for {
		switch t := p.tokens[0]; {
		case t.kind == tokenText:
			p.next()
			body = append(body, func(in *interp, _ *scope) flow {
				in.write(t.text)
				return flowNext
			})
		case p.skip("{{"):
			e := p.expression()
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
	case "break":
		p.expect("%}")
		return func(*interp, *scope) flow { return flowBreak }
	case "continue":
		p.expect("%}")
		return func(*interp, *scope) flow { return flowContinue }
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
	f := &forLoop{names: []string{p.name()}}
	for p.skip(",") {
		f.names = append(f.names, p.name())
	}
	p.expect("in")
	f.items = p.operators(logic, p.not) // not a conditional: "if" belongs to the statement
	if p.skip("if") {
		f.filter = p.expression()
	}
	f.recursive = p.skip("recursive")
	p.expect("%}")
	body, tag := p.body("else", "endfor")
	f.body = body
	if tag == "else" {
		f.otherwise = p.block("endfor")
	} else {
		p.expect("%}")
	}
	return func(in *interp, s *scope) flow {
		f.run(in, s)
		return flowNext
	}
}

// setStatement parses {% set target = value %} and {% set target %}body{% endset %}.
func (p *parser) setStatement() stmt {
	name, attribute := p.name(), ""
	if p.skip(".") {
		attribute = p.name()
	}
	var value expr
	if p.skip("=") {
		value = p.expression()
		p.expect("%}")
	} else {
		body := p.block("endset")
		value = func(in *interp, s *scope) any {
			return in.capture(func() { in.run(body, &scope{parent: s}) })
		}
	}
	return func(in *interp, s *scope) flow {
		v := in.eval(value, s)
		if attribute == "" {
			s.set(name, v)
			return flowNext
		}
		ns, ok := in.name(name, s).(*namespace)
		if !ok {
			in.fail("only attributes of a namespace can be set")
		}
		in.pay(64)
		ns.set(attribute, v)
		return flowNext
	}
}

func (p *parser) macroStatement() stmt {
	m := macro{name: p.name()}
	p.expect("(")
	for !p.skip(")") {
		param := parameter{name: p.name()}
		if p.skip("=") {
			param.fallback = p.expression()
		}
		m.params = append(m.params, param)
		if !p.at(")") {
			p.expect(",")
		}
	}
	m.body = p.block("endmacro")
	return func(_ *interp, s *scope) flow {
		m := m
		m.scope = s
		s.set(m.name, &m)
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
	if !p.skip("if") {
		return value
	}
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
	sign, ok := p.accept("-", "+")
	if !ok {
		return p.postfix(p.primary(), filters)
	}
	defer p.nest()()
	operand := p.unary(false)
	return p.postfix(func(in *interp, s *scope) any { return in.signed(sign, in.eval(operand, s)) }, filters)
}

// postfix parses the attributes, subscripts, calls, filters and tests after v.
func (p *parser) postfix(v expr, filters bool) expr {
	for {
		switch {
		case p.skip("."):
			v = p.attribute(v)
		case p.skip("["):
			v = p.subscript(v)
		case p.skip("("):
			fn, arguments := v, p.arguments()
			v = func(in *interp, s *scope) any { return in.call(in.eval(fn, s), arguments(in, s)) }
		case filters && p.skip("|"):
			of, name, arguments := v, p.name(), noArguments
			if p.skip("(") {
				arguments = p.arguments()
			}
			v = func(in *interp, s *scope) any { return in.filter(name, in.eval(of, s), arguments(in, s)) }
		case filters && p.skip("is"):
			v = p.test(v)
		default:
			return v
		}
	}
}

// attribute parses the name after a dot and, for a method call, its arguments.
func (p *parser) attribute(v expr) expr {
	if t := p.tokens[0]; t.kind == tokenInt {
		i := p.integer()
		return func(in *interp, s *scope) any { return in.item(in.eval(v, s), i) }
	}
	name := p.name()
	if !p.skip("(") {
		return func(in *interp, s *scope) any { return in.attribute(in.eval(v, s), name) }
	}
	arguments := p.arguments()
	return func(in *interp, s *scope) any {
		receiver := in.eval(v, s)
		if m := method(receiver, name); m != nil {
			return m(in, arguments(in, s))
		}
		fn := in.attribute(receiver, name)
		return in.call(fn, arguments(in, s))
	}
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
		argument := p.postfix(p.primary(), false)
		arguments = func(in *interp, s *scope) args { return args{pos: []any{in.eval(argument, s)}} }
	}
	return func(in *interp, s *scope) any { return in.test(name, in.eval(v, s), arguments(in, s)) != negated }
}

func noArguments(*interp, *scope) args { return args{} }

// arguments parses the arguments of a call after its opening bracket. Named arguments
// are evaluated last, in order of name.
func (p *parser) arguments() func(in *interp, s *scope) args {
	var pos []expr
	var names []string
	named := map[string]expr{}
	for !p.skip(")") {
		if p.tokens[0].kind == tokenName && p.tokens[1].is("=") {
			name := p.name()
			p.expect("=")
			names, named[name] = append(names, name), p.expression()
		} else {
			pos = append(pos, p.expression())
		}
		if !p.at(")") {
			p.expect(",")
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return func(in *interp, s *scope) args {
		in.list(len(pos) + 4*len(names))
		a := args{pos: make([]any, len(pos))}
		for i, e := range pos {
			a.pos[i] = in.eval(e, s)
		}
		if len(names) > 0 {
			a.kw = make(map[string]any, len(names))
		}
		for _, name := range names {
			a.kw[name] = in.eval(named[name], s)
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
		var text strings.Builder
		for p.tokens[0].kind == tokenString { // neighboring strings are one
			text.WriteString(p.next().text)
		}
		return constant(text.String())
	case t.kind == tokenInt:
		return constant(p.integer())
	case t.kind == tokenFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.fail(ErrSyntax, "bad number %s", t.text)
		}
		p.next()
		return constant(f)
	case p.skip("("):
		return p.tuple()
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
	i, err := strconv.Atoi(p.tokens[0].text)
	if err != nil {
		p.fail(ErrSyntax, "bad integer %s", p.tokens[0].text)
	}
	p.next()
	return i
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

// tuple parses an expression in brackets, or a tuple, which becomes a list.
func (p *parser) tuple() expr {
	if p.skip(")") {
		return listOf(nil)
	}
	first := p.expression()
	if p.skip(")") {
		return first
	}
	p.expect(",")
	return listOf(append([]expr{first}, p.expressions(")")...))
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
			in.pay(64)
			key, ok := in.eval(keys[i], s).(string)
			if !ok {
				in.fail("a dictionary's key is not a string")
			}
			in.scan(len(key))
			d.set(key, in.eval(values[i], s))
		}
		return d
	}
}
