package emu

import (
	"strconv"
	"strings"
)

// parser reads a module by recursive descent over its tokens.
type parser struct {
	toks []token
	pos  int
	mod  *module
}

// parse reads PTX text. Its errors are *syntaxError.
func parse(source []byte) (*module, error) {
	text := string(source)
	for i, c := range source {
		if c == 0 || c > 0x7e {
			return nil, errorAt(1+strings.Count(text[:i], "\n"), "byte %#02x: PTX is ASCII text without NUL", c)
		}
	}
	toks, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, mod: &module{lines: strings.Split(text, "\n")}}
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

// accept takes the next token if it reads so.
func (p *parser) accept(text string) bool {
	if t := p.peek(); t.kind != tokEnd && t.kind != tokString && t.text == text {
		p.pos++
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if t := p.peek(); !p.accept(text) {
		return errorAt(t.line, "%q where %q is expected", t.text, text)
	}
	return nil
}

func (p *parser) word(what string) (token, error) {
	t := p.next()
	if t.kind != tokWord {
		return t, errorAt(t.line, "%q where %s is expected", t.text, what)
	}
	return t, nil
}

// integer reads a plain number within lo…hi.
func (p *parser) integer(what string, lo, hi int) (int, error) {
	t := p.next()
	n, err := strconv.ParseInt(t.text, 0, 64)
	if t.kind != tokNumber || err != nil || n < int64(lo) || n > int64(hi) {
		return 0, errorAt(t.line, "%q where %s (%d to %d) is expected", t.text, what, lo, hi)
	}
	return int(n), nil
}

// header reads .version, .target and .address_size, which come first and in this order.
func (p *parser) header() error {
	if err := p.expect(".version"); err != nil {
		return err
	}
	t := p.next()
	major, minor, _ := strings.Cut(t.text, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	if errA != nil || errB != nil || b < 0 || b > 9 {
		return errorAt(t.line, "version %q is not major.minor", t.text)
	}
	p.mod.version = a*10 + b
	if err := p.expect(".target"); err != nil {
		return err
	}
	t = p.next()
	arch, ok := strings.CutPrefix(t.text, "sm_")
	sm, err := strconv.Atoi(strings.TrimRight(arch, "af"))
	if !ok || err != nil {
		return errorAt(t.line, "target %q is not sm_NN", t.text)
	}
	p.mod.sm, p.mod.arch = sm, t.text
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
		p.mod.shared = append(p.mod.shared, v)
		return err
	default:
		return errorAt(t.line, "%q at the top of a module", t.text)
	}
}

// variable reads [.extern] .shared [.align n] .type name[[elements]];
func (p *parser) variable() (variable, error) {
	v := variable{extern: p.accept(".extern")}
	if err := p.expect(".shared"); err != nil {
		return v, err
	}
	var err error
	if v.align, err = p.alignment(1 << 16); err != nil {
		return v, err
	}
	t := p.next()
	typ, ok := typeOf(strings.TrimPrefix(t.text, "."))
	if !ok || typ.bits < 8 {
		return v, errorAt(t.line, "%q where a type is expected", t.text)
	}
	v.align = max(v.align, typ.bytes())
	name, err := p.word("a name")
	if err != nil {
		return v, err
	}
	v.name, v.bytes = name.text, typ.bytes()
	if p.accept("[") {
		v.bytes = 0
		if p.peek().text != "]" {
			n, err := p.integer("a number of elements", 0, 1<<24)
			if err != nil {
				return v, err
			}
			v.bytes = n * typ.bytes()
		}
		if err := p.expect("]"); err != nil {
			return v, err
		}
	}
	if v.extern != (v.bytes == 0) {
		return v, errorAt(name.line, "%s: a size goes with .shared, none with .extern .shared", v.name)
	}
	return v, p.expect(";")
}
