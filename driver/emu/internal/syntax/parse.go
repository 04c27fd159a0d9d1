package syntax

import (
	"math"
	"strconv"
	"strings"
)

// maxParamBytes is the limit of the PTX ISA for the parameters of an entry.
const maxParamBytes = 4352

// parser reads a module by recursive descent.
type parser struct {
	toks []token
	pos  int
	mod  *Module
}

// Parse parses PTX text. Errors are of type *Error.
func Parse(source []byte) (*Module, error) {
	text := string(source)
	for i, c := range source {
		if c == 0 || c > 0x7e {
			return nil, Errorf(1+strings.Count(text[:i], "\n"), "byte %#02x: PTX is ASCII text without NUL", c)
		}
	}
	toks, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, mod: &Module{Lines: strings.Split(text, "\n")}}
	if err := p.header(); err != nil {
		return nil, err
	}
	for p.peek().kind != tokEnd {
		if err := p.topLevel(); err != nil {
			return nil, err
		}
	}
	return p.mod, nil
}

func (p *parser) peek() token { return p.toks[p.pos] }

func (p *parser) next() token {
	t := p.toks[p.pos]
	if t.kind != tokEnd {
		p.pos++
	}
	return t
}

// accept consumes the next token if its text is as given, and reports whether it did.
func (p *parser) accept(text string) bool {
	if t := p.peek(); t.kind != tokEnd && t.kind != tokString && t.text == text {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if t := p.peek(); !p.accept(text) {
		return Errorf(t.line, "%q where %q is expected", t.text, text)
	}
	return nil
}

func (p *parser) word(what string) (token, error) {
	t := p.next()
	if t.kind != tokWord {
		return t, Errorf(t.line, "%q where %s is expected", t.text, what)
	}
	return t, nil
}

// integer reads an integer from lo to hi.
func (p *parser) integer(what string, lo, hi int) (int, error) {
	t := p.next()
	n, err := strconv.ParseInt(t.text, 0, 64)
	if t.kind != tokNumber || err != nil || n < int64(lo) || n > int64(hi) {
		return 0, Errorf(t.line, "%q where %s (%d to %d) is expected", t.text, what, lo, hi)
	}
	return int(n), nil
}

// header reads .version, .target and .address_size, in this order.
func (p *parser) header() error {
	if err := p.expect(".version"); err != nil {
		return err
	}
	t := p.next()
	major, minor, _ := strings.Cut(t.text, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	if errA != nil || errB != nil || b < 0 || b > 9 {
		return Errorf(t.line, "version %q is not major.minor", t.text)
	}
	p.mod.Version = a*10 + b
	if err := p.expect(".target"); err != nil {
		return err
	}
	t = p.next()
	arch, ok := strings.CutPrefix(t.text, "sm_")
	sm, err := strconv.Atoi(strings.TrimRight(arch, "af"))
	if !ok || err != nil {
		return Errorf(t.line, "target %q is not sm_NN", t.text)
	}
	p.mod.SM, p.mod.Target = sm, t.text
	if err := p.expect(".address_size"); err != nil {
		return err
	}
	return p.expect("64")
}

func (p *parser) topLevel() error {
	switch t := p.peek(); t.text {
	case ".visible", ".entry":
		p.accept(".visible")
		if err := p.expect(".entry"); err != nil {
			return err
		}
		return p.entry()
	case ".extern", ".shared":
		v, err := p.variable()
		p.mod.Shared = append(p.mod.Shared, v)
		return err
	default:
		return Errorf(t.line, "%q at the top of a module", t.text)
	}
}

// variable reads [.extern] .shared [.align n] .type name[[elements]];
func (p *parser) variable() (Variable, error) {
	v := Variable{Extern: p.accept(".extern")}
	if err := p.expect(".shared"); err != nil {
		return v, err
	}
	var err error
	if v.Align, err = p.alignment(1 << 16); err != nil {
		return v, err
	}
	t := p.next()
	typ, ok := ParseType(strings.TrimPrefix(t.text, "."))
	if !ok || typ.Bits < 8 {
		return v, Errorf(t.line, "%q where a type is expected", t.text)
	}
	v.Align = max(v.Align, typ.Bytes())
	name, err := p.word("a name")
	if err != nil {
		return v, err
	}
	v.Name, v.Bytes = name.text, typ.Bytes()
	if p.accept("[") {
		v.Bytes = 0
		if p.peek().text != "]" {
			n, err := p.integer("a number of elements", 0, 1<<24)
			if err != nil {
				return v, err
			}
			v.Bytes = n * typ.Bytes()
		}
		if err := p.expect("]"); err != nil {
			return v, err
		}
	}
	if v.Extern != (v.Bytes == 0) {
		return v, Errorf(name.line, "%s: .shared needs a size, .extern .shared must not have one", v.Name)
	}
	return v, p.expect(";")
}

// entry reads a kernel after the .entry directive.
func (p *parser) entry() error {
	name, err := p.word("a name")
	if err != nil {
		return err
	}
	e := &Entry{
		Name: name.text, Line: name.line,
		registers: map[string]Type{}, ranges: map[string]registerRange{}, Labels: map[string]int{},
	}
	for _, other := range p.mod.Entries {
		if other.Name == e.Name {
			return Errorf(name.line, "entry %s is declared twice, first on line %d", e.Name, other.Line)
		}
	}
	p.mod.Entries = append(p.mod.Entries, e)
	if p.accept("(") && !p.accept(")") {
		for {
			if err := p.param(e); err != nil {
				return err
			}
			if p.accept(")") {
				break
			}
			if err := p.expect(","); err != nil {
				return err
			}
		}
	}
	for p.peek().text != "{" {
		if err := p.performanceDirective(e); err != nil {
			return err
		}
	}
	p.next()
	for !p.accept("}") {
		if err := p.statement(e); err != nil {
			return err
		}
	}
	return nil
}

// param reads .param [.align n] .type [.ptr [.global] [.align n]] name[[bytes]].
func (p *parser) param(e *Entry) error {
	if err := p.expect(".param"); err != nil {
		return err
	}
	align, err := p.alignment(256)
	if err != nil {
		return err
	}
	t := p.next()
	typ, ok := ParseType(strings.TrimPrefix(t.text, "."))
	if !ok || typ.Bits < 8 {
		return Errorf(t.line, "%q where a parameter's type is expected", t.text)
	}
	q := Param{Type: typ, Bytes: typ.Bytes(), Pointer: p.accept(".ptr")}
	if q.Pointer {
		p.accept(".global")
		if q.Align, err = p.alignment(1 << 16); err != nil {
			return err
		}
		if typ.Bits != 64 {
			return Errorf(t.line, "a pointer parameter of type %v", typ)
		}
	}
	name, err := p.word("a parameter's name")
	if err != nil {
		return err
	}
	q.Name = name.text
	if p.accept("[") {
		n, err := p.integer("a number of elements", 1, maxParamBytes)
		if err != nil {
			return err
		}
		q.Bytes *= n
		if err := p.expect("]"); err != nil {
			return err
		}
	}
	return e.addParam(q, max(align, typ.Bytes()), name.line)
}

// alignment reads an optional .align n. The default is 1.
func (p *parser) alignment(most int) (int, error) {
	t := p.peek()
	if !p.accept(".align") {
		return 1, nil
	}
	n, err := p.integer("an alignment", 1, most)
	if err == nil && n&(n-1) != 0 {
		err = Errorf(t.line, "alignment %d is not a power of two", n)
	}
	return n, err
}

// addParam adds a parameter at the next aligned offset.
func (e *Entry) addParam(q Param, align, line int) error {
	for _, other := range e.Params {
		if other.Name == q.Name {
			return Errorf(line, "parameter %s is declared twice", q.Name)
		}
	}
	q.Offset = (e.ParamBytes() + align - 1) / align * align
	e.Params = append(e.Params, q)
	if e.ParamBytes() > maxParamBytes {
		return Errorf(line, "parameters of more than %d bytes", maxParamBytes)
	}
	return nil
}

// performanceDirective reads a directive between the parameters and the body.
func (p *parser) performanceDirective(e *Entry) error {
	t := p.next()
	switch t.text {
	case ".maxntid", ".reqntid":
		dims := [3]uint32{1, 1, 1}
		for i := range dims {
			n, err := p.integer("an extent", 1, 1024)
			if err != nil {
				return err
			}
			dims[i] = uint32(n)
			if i == 2 || !p.accept(",") {
				break
			}
		}
		if t.text == ".maxntid" {
			e.MaxNTID = dims
		} else {
			e.ReqNTID = dims
		}
		if e.MaxNTID[0] != 0 && e.ReqNTID[0] != 0 {
			return Errorf(t.line, ".maxntid and .reqntid exclude each other")
		}
	case ".minnctapersm":
		var err error
		if e.MinCTAs, err = p.integer("a number of CTAs", 1, 32); err != nil {
			return err
		}
		if e.MaxNTID[0] == 0 && e.ReqNTID[0] == 0 {
			return Errorf(t.line, ".minnctapersm without .maxntid or .reqntid before it")
		}
	case ".maxnreg":
		var err error
		e.MaxNReg, err = p.integer("a number of registers", 1, 255)
		return err
	default:
		return Errorf(t.line, "%q between the parameters and the body", t.text)
	}
	return nil
}

// statement reads a declaration, a label or an instruction in a body.
func (p *parser) statement(e *Entry) error {
	switch t := p.peek(); {
	case t.text == ".reg":
		p.next()
		return p.registers(e)
	case t.text == ".shared":
		v, err := p.variable()
		e.Shared = append(e.Shared, v)
		return err
	case t.text == ".pragma":
		p.next()
		if s := p.next(); s.kind != tokString {
			return Errorf(s.line, "%q where a string is expected", s.text)
		}
		return p.expect(";")
	case t.kind == tokWord && p.toks[p.pos+1].text == ":":
		if _, ok := e.Labels[t.text]; ok {
			return Errorf(t.line, "label %s is declared twice", t.text)
		}
		e.Labels[t.text] = len(e.Body)
		p.pos += 2
		return nil
	default:
		return p.instruction(e)
	}
}

// registers reads the rest of .reg .type %a, %b<n>;
func (p *parser) registers(e *Entry) error {
	t := p.next()
	typ, ok := ParseType(strings.TrimPrefix(t.text, "."))
	if !ok || typ.Bits == 8 || typ == (Type{Float, 16}) {
		return Errorf(t.line, "%q where a register type is expected", t.text)
	}
	for {
		name, err := p.word("a register")
		if err != nil {
			return err
		}
		_, one := e.registers[name.text]
		if _, many := e.ranges[name.text]; one || many {
			return Errorf(name.line, "register %s is declared twice", name.text)
		}
		if p.accept("<") {
			n, err := p.integer("a number of registers", 1, 1<<20)
			if err != nil {
				return err
			}
			e.ranges[name.text] = registerRange{typ, n}
			if err := p.expect(">"); err != nil {
				return err
			}
		} else {
			e.registers[name.text] = typ
		}
		if p.accept(";") {
			return nil
		}
		if err := p.expect(","); err != nil {
			return err
		}
	}
}

// instruction reads [@[!]p] opcode operands;
func (p *parser) instruction(e *Entry) error {
	in := Instruction{Line: p.peek().line}
	if p.accept("@") {
		in.Negated = p.accept("!")
		g, err := p.word("a predicate")
		if err != nil {
			return err
		}
		in.Guard = g.text
	}
	op, err := p.word("an instruction")
	if err != nil {
		return err
	}
	if strings.HasPrefix(op.text, ".") || strings.HasPrefix(op.text, "%") {
		return Errorf(op.line, "%q where an instruction is expected", op.text)
	}
	in.Line, in.Opcode = op.line, op.text
	for !p.accept(";") {
		if len(in.Operands) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		o, err := p.operand()
		if err != nil {
			return err
		}
		in.Operands = append(in.Operands, o)
	}
	e.Body = append(e.Body, in)
	return nil
}

func (p *parser) operand() (Operand, error) {
	switch t := p.peek(); {
	case t.text == "[":
		p.next()
		return p.address()
	case t.text == "{":
		p.next()
		v := Operand{Kind: Vector}
		for {
			o, err := p.operand()
			if err != nil {
				return v, err
			}
			v.Elems = append(v.Elems, o)
			if p.accept("}") {
				return v, nil
			}
			if err := p.expect(","); err != nil {
				return v, err
			}
		}
	case t.text == "-" || t.kind == tokNumber:
		return p.immediate()
	default:
		o := Operand{Kind: Name, Negated: p.accept("!")}
		name, err := p.word("an operand")
		if err != nil {
			return Operand{}, err
		}
		o.Name = name.text
		if p.accept("|") {
			pair, err := p.word("a predicate")
			if err != nil {
				return o, err
			}
			o.Pair = pair.text
		}
		return o, nil
	}
}

// address reads the rest of [name], [name+n] or [n]. n may be negative, but [name-n] is refused, as
// by ptxas.
func (p *parser) address() (Operand, error) {
	a := Operand{Kind: Address}
	named := p.peek().kind == tokWord
	if named {
		a.Name = p.next().text
	}
	if !named || p.accept("+") {
		t := p.peek()
		n, err := p.immediate()
		if err != nil {
			return a, err
		}
		if n.Kind != ImmInt || int64(n.Value) != int64(int32(n.Value)) {
			return a, Errorf(t.line, "an offset must be an integer of 32 bits")
		}
		a.Offset = int64(n.Value)
	}
	return a, p.expect("]")
}

// immediate reads a number: 12, -3, 0x1F, 0f3F800000 or 0d3FF0000000000000.
func (p *parser) immediate() (Operand, error) {
	minus := p.accept("-")
	t := p.next()
	if t.kind != tokNumber {
		return Operand{}, Errorf(t.line, "%q where a number is expected", t.text)
	}
	if len(t.text) > 2 && t.text[0] == '0' {
		kind, digits, sign := ImmF32, 8, uint64(1)<<31
		switch t.text[1] | 0x20 {
		case 'd':
			kind, digits, sign = ImmF64, 16, 1<<63
			fallthrough
		case 'f':
			v, err := strconv.ParseUint(t.text[2:], 16, 64)
			if err != nil || len(t.text) != 2+digits {
				return Operand{}, Errorf(t.line, "%q is not a floating-point number of %d hexadecimal digits", t.text, digits)
			}
			if minus {
				v ^= sign
			}
			return Operand{Kind: kind, Value: v}, nil
		}
	}
	v, err := strconv.ParseUint(strings.TrimSuffix(t.text, "U"), 0, 64)
	if err != nil || minus && v > math.MaxInt64+1 {
		return Operand{}, Errorf(t.line, "%q is not a number", t.text)
	}
	if minus {
		v = -v
	}
	return Operand{Kind: ImmInt, Value: v, Minus: minus && v != 0}, nil
}
