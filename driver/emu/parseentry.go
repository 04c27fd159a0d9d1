package emu

import (
	"strconv"
	"strings"
)

// entry reads a kernel after its .entry.
func (p *parser) entry() error {
	name, err := p.word("a name")
	if err != nil {
		return err
	}
	e := &entry{
		name: name.text, line: name.line,
		regs: map[string]dtype{}, ranges: map[string]regRange{}, labels: map[string]int{},
	}
	for _, other := range p.mod.entries {
		if other.name == e.name {
			return errorAt(name.line, "entry %s is already on line %d", e.name, other.line)
		}
	}
	p.mod.entries = append(p.mod.entries, e)
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
		if err := p.performance(e); err != nil {
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
func (p *parser) param(e *entry) error {
	if err := p.expect(".param"); err != nil {
		return err
	}
	align, err := p.alignment(256)
	if err != nil {
		return err
	}
	t := p.next()
	typ, ok := typeOf(strings.TrimPrefix(t.text, "."))
	if !ok || typ.bits < 8 {
		return errorAt(t.line, "%q where a parameter's type is expected", t.text)
	}
	q := param{typ: typ, bytes: typ.bytes(), pointer: p.accept(".ptr")}
	if q.pointer {
		p.accept(".global")
		if q.align, err = p.alignment(1 << 16); err != nil {
			return err
		}
		if typ.bits != 64 {
			return errorAt(t.line, "a pointer parameter of type %v", typ)
		}
	}
	name, err := p.word("a parameter's name")
	if err != nil {
		return err
	}
	q.name = name.text
	if p.accept("[") {
		n, err := p.integer("a number of elements", 1, maxParams)
		if err != nil {
			return err
		}
		q.bytes *= n
		if err := p.expect("]"); err != nil {
			return err
		}
	}
	return e.addParam(q, max(align, typ.bytes()), name.line)
}

// maxParams is how many bytes of parameters an entry may have.
const maxParams = 4352

// alignment reads an optional .align n; 1 without it.
func (p *parser) alignment(most int) (int, error) {
	t := p.peek()
	if !p.accept(".align") {
		return 1, nil
	}
	n, err := p.integer("an alignment", 1, most)
	if err == nil && n&(n-1) != 0 {
		err = errorAt(t.line, "alignment %d is not a power of two", n)
	}
	return n, err
}

// addParam gives a parameter its offset.
func (e *entry) addParam(q param, align, line int) error {
	for _, other := range e.params {
		if other.name == q.name {
			return errorAt(line, "parameter %s is declared twice", q.name)
		}
	}
	q.offset = (e.paramBytes() + align - 1) / align * align
	e.params = append(e.params, q)
	if e.paramBytes() > maxParams {
		return errorAt(line, "parameters of more than %d bytes", maxParams)
	}
	return nil
}

// performance reads a directive between the parameters and the body.
func (p *parser) performance(e *entry) error {
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
			e.maxntid = dims
		} else {
			e.reqntid = dims
		}
		if e.maxntid[0] != 0 && e.reqntid[0] != 0 {
			return errorAt(t.line, ".maxntid and .reqntid exclude each other")
		}
	case ".minnctapersm":
		if _, err := p.integer("a number of CTAs", 1, 32); err != nil {
			return err
		}
		if e.maxntid[0] == 0 && e.reqntid[0] == 0 {
			return errorAt(t.line, ".minnctapersm without .maxntid or .reqntid before it")
		}
	case ".maxnreg":
		_, err := p.integer("a number of registers", 1, 255)
		return err
	default:
		return errorAt(t.line, "%q between the parameters and the body", t.text)
	}
	return nil
}

// statement reads one statement of a body: a declaration, a label or an instruction.
func (p *parser) statement(e *entry) error {
	switch t := p.peek(); {
	case t.text == ".reg":
		p.next()
		return p.registers(e)
	case t.text == ".shared": // .extern ones are of the module
		v, err := p.variable()
		e.shared = append(e.shared, v)
		return err
	case t.text == ".pragma":
		p.next()
		if s := p.next(); s.kind != tokString {
			return errorAt(s.line, "%q where a string is expected", s.text)
		}
		return p.expect(";")
	case t.kind == tokWord && p.toks[p.pos+1].text == ":":
		if _, ok := e.labels[t.text]; ok {
			return errorAt(t.line, "label %s is declared twice", t.text)
		}
		e.labels[t.text] = len(e.body)
		p.pos += 2
		return nil
	default:
		return p.instruction(e)
	}
}

// registers reads the rest of .reg .type %a, %b<n>;
func (p *parser) registers(e *entry) error {
	t := p.next()
	typ, ok := typeOf(strings.TrimPrefix(t.text, "."))
	if !ok || typ.bits == 8 || typ == (dtype{kindFloat, 16}) {
		return errorAt(t.line, "%q where a register type is expected", t.text)
	}
	for {
		name, err := p.word("a register")
		if err != nil {
			return err
		}
		_, one := e.regs[name.text]
		if _, many := e.ranges[name.text]; one || many {
			return errorAt(name.line, "register %s is declared twice", name.text)
		}
		if p.accept("<") {
			n, err := p.integer("a number of registers", 1, 1<<20)
			if err != nil {
				return err
			}
			e.ranges[name.text] = regRange{typ, n}
			if err := p.expect(">"); err != nil {
				return err
			}
		} else {
			e.regs[name.text] = typ
		}
		if p.accept(";") {
			return nil
		}
		if err := p.expect(","); err != nil {
			return err
		}
	}
}

// register looks up a declared register's type.
func (e *entry) register(name string) (dtype, bool) {
	if t, ok := e.regs[name]; ok {
		return t, true
	}
	prefix := strings.TrimRight(name, "0123456789")
	digits := name[len(prefix):]
	// A prefix may itself end in digits: try the longest number first.
	for ; digits != ""; prefix, digits = prefix+digits[:1], digits[1:] {
		r, ok := e.ranges[prefix]
		if n, err := strconv.Atoi(digits); ok && err == nil && n < r.count && digits == strconv.Itoa(n) {
			return r.typ, true
		}
	}
	return dtype{}, false
}
