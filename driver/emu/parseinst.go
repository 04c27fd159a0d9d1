package emu

import (
	"math"
	"strconv"
	"strings"
)

// instruction reads [@[!]p] opcode operands;
func (p *parser) instruction(e *entry) error {
	in := instruction{line: p.peek().line}
	if p.accept("@") {
		in.negated = p.accept("!")
		g, err := p.word("a predicate")
		if err != nil {
			return err
		}
		in.guard = g.text
	}
	op, err := p.word("an instruction")
	if err != nil {
		return err
	}
	if strings.HasPrefix(op.text, ".") || strings.HasPrefix(op.text, "%") {
		return errorAt(op.line, "%q where an instruction is expected", op.text)
	}
	in.line, in.opcode = op.line, op.text
	for !p.accept(";") {
		if len(in.operands) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		o, err := p.operand()
		if err != nil {
			return err
		}
		in.operands = append(in.operands, o)
	}
	e.body = append(e.body, in)
	return nil
}

func (p *parser) operand() (operand, error) {
	switch t := p.peek(); {
	case t.text == "[":
		p.next()
		return p.address()
	case t.text == "{":
		p.next()
		v := operand{kind: opndVector}
		for {
			o, err := p.operand()
			if err != nil {
				return v, err
			}
			v.elems = append(v.elems, o)
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
		o := operand{kind: opndName, negated: p.accept("!")}
		name, err := p.word("an operand")
		if err != nil {
			return operand{}, err
		}
		o.name = name.text
		if p.accept("|") {
			pair, err := p.word("a predicate")
			if err != nil {
				return o, err
			}
			o.pair = pair.text
		}
		return o, nil
	}
}

// address reads the rest of [name], [name+n] or [n], where n may be negative. ptxas
// refuses [name-n].
func (p *parser) address() (operand, error) {
	a := operand{kind: opndAddress}
	named := p.peek().kind == tokWord
	if named {
		a.name = p.next().text
	}
	if !named || p.accept("+") {
		t := p.peek()
		n, err := p.immediate()
		if err != nil {
			return a, err
		}
		if n.kind != opndInt || int64(n.value) != int64(int32(n.value)) {
			return a, errorAt(t.line, "an offset must be an integer of 32 bits")
		}
		a.offset = int64(n.value)
	}
	return a, p.expect("]")
}

// immediate reads a number: 12, -3, 0x1F, 0f3F800000 or 0d3FF0000000000000.
func (p *parser) immediate() (operand, error) {
	minus := p.accept("-")
	t := p.next()
	if t.kind != tokNumber {
		return operand{}, errorAt(t.line, "%q where a number is expected", t.text)
	}
	if len(t.text) > 2 && t.text[0] == '0' {
		kind, digits, sign := opndF32, 8, uint64(1)<<31
		switch t.text[1] | 0x20 {
		case 'd':
			kind, digits, sign = opndF64, 16, 1<<63
			fallthrough
		case 'f':
			v, err := strconv.ParseUint(t.text[2:], 16, 64)
			if err != nil || len(t.text) != 2+digits {
				return operand{}, errorAt(t.line, "%q is not a floating-point number of %d hexadecimal digits", t.text, digits)
			}
			if minus {
				v ^= sign
			}
			return operand{kind: kind, value: v}, nil
		}
	}
	v, err := strconv.ParseUint(strings.TrimSuffix(t.text, "U"), 0, 64)
	if err != nil || minus && v > math.MaxInt64+1 {
		return operand{}, errorAt(t.line, "%q is not a number that the emulator reads", t.text)
	}
	if minus {
		v = -v
	}
	return operand{kind: opndInt, value: v, minus: minus && v != 0}, nil
}
