package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Moves and loads of parameters.
var moveForms = []form{
	{pattern: "mov.b16|" + words32 + "|" + words64, build: buildMove},
	{pattern: "mov.pred", build: buildMovePredicate},
	{pattern: "ld.param.u8|s8|b8|u16|s16|b16|" + words32 + "|" + words64, build: buildParam},
}

func copyLanes(d, a, _, _ *vec) { *d = *a }

// buildMove decodes a move of a register, an immediate, a special register, the address of a shared
// variable, or the two halves of a register.
func buildMove(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	t := q.typ()
	if err := wantOperands(in, 2); err != nil {
		return op{}, err
	}
	to, from := in.Operands[0], in.Operands[1]
	if to.Kind == syntax.Vector || from.Kind == syntax.Vector {
		return d.pack(to, from, t)
	}
	o := op{kind: opVec, vec: copyLanes}
	var err error
	if o.d, err = d.destination(to, t); err != nil {
		return o, err
	}
	if from.Kind != syntax.Name {
		o.a, err = d.source(from, t)
		return o, err
	}
	if s, ok := specialNames[from.Name]; ok {
		if t.Bits != 32 || t.Kind == syntax.Float {
			return o, fmt.Errorf("%s is a .u32", from.Name)
		}
		o.a = d.special(s)
		return o, nil
	}
	if at, ok := d.shared[from.Name]; ok {
		if t.Bits < 32 || t.Kind == syntax.Float {
			return o, fmt.Errorf("an address does not fit %v", t)
		}
		o.a = d.constant(at)
		return o, nil
	}
	o.a, err = d.source(from, t)
	return o, err
}

// special returns the register that holds the value of a special register.
func (d *decoder) special(s special) int32 {
	if d.prog.specials[s] < 0 {
		d.prog.specials[s] = d.newRegister()
	}
	return d.prog.specials[s]
}

// pack decodes mov d, {low, high} and mov {low, high}, a.
func (d *decoder) pack(to, from syntax.Operand, t syntax.Type) (op, error) {
	elem := syntax.Type{Kind: syntax.Bits, Bits: t.Bits / 2}
	o := op{kind: opVec}
	if t.Kind != syntax.Bits || t.Bits < 32 {
		return o, fmt.Errorf("only .b32 and .b64 are packed from two registers")
	}
	whole, vector := to, from
	if to.Kind == syntax.Vector {
		whole, vector = from, to
	}
	if len(vector.Elems) != 2 || whole.Kind != syntax.Name {
		return o, fmt.Errorf("want a register and a vector of 2 registers")
	}
	low, err := d.source(vector.Elems[0], elem)
	if err != nil {
		return o, err
	}
	high, err := d.source(vector.Elems[1], elem)
	if err != nil {
		return o, err
	}
	reg, err := d.source(whole, t)
	if to.Kind == syntax.Vector {
		if vector.Elems[0].Kind != syntax.Name || vector.Elems[1].Kind != syntax.Name {
			return o, fmt.Errorf("destination is not a register")
		}
		o.kind, o.a = opRun, reg
		o.run = func(w *warp, o *op, m uint32) result { return w.unpack(o, m, low, high, elem.Bits) }
		return o, err
	}
	o.d, o.a, o.b = reg, low, high
	o.vec = func(d, a, b, _ *vec) {
		for l := range d {
			d[l] = a[l] | b[l]<<elem.Bits
		}
	}
	return o, err
}

// unpack splits a register into two of a number of bits.
func (w *warp) unpack(o *op, m uint32, low, high int32, bits int) result {
	if !w.reads(o, m, o.a) {
		return resultTrap
	}
	for l := range lanesOf(m) {
		v := w.regs[o.a][l]
		w.set(low, l, v&ones(bits))
		w.set(high, l, v>>bits)
	}
	return resultNext
}

// buildMovePredicate decodes d, a, where a is a predicate or an immediate.
func buildMovePredicate(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := wantOperands(in, 2); err != nil {
		return op{}, err
	}
	o := op{kind: opRun}
	var err error
	if o.d, err = d.destination(in.Operands[0], typePred); err != nil {
		return o, err
	}
	from := in.Operands[1]
	if from.Kind == syntax.ImmInt {
		value := uint32(0)
		if from.Value != 0 {
			value = allLanes
		}
		o.run = func(w *warp, o *op, m uint32) result {
			w.setPred(o.d, m, value)
			return resultNext
		}
		return o, nil
	}
	o.run = func(w *warp, o *op, m uint32) result {
		if !w.readsPred(o, m, o.a) {
			return resultTrap
		}
		w.setPred(o.d, m, w.preds[o.a])
		return resultNext
	}
	o.a, err = d.source(from, typePred)
	return o, err
}

// buildParam decodes a load of a parameter, which is a move from an argument register.
func buildParam(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	t := q.typ()
	if err := wantOperands(in, 2); err != nil {
		return op{}, err
	}
	o := op{kind: opVec}
	var err error
	if o.d, err = d.typed(in.Operands[0], t, t.FitsWithin); err != nil {
		return o, err
	}
	reg, _ := d.entry.Register(in.Operands[0].Name)
	from := in.Operands[1]
	if from.Kind != syntax.Address {
		return o, fmt.Errorf("operand is not [parameter]")
	}
	for _, p := range d.entry.Params {
		if p.Name != from.Name {
			continue
		}
		at := int(from.Offset)
		if at < 0 || at+t.Bytes() > p.Bytes || at%t.Bytes() != 0 {
			return o, fmt.Errorf("%v at %d of parameter %s of %d bytes", t, at, p.Name, p.Bytes)
		}
		o.a = d.argument(p.Offset+at, t.Bytes())
		o.vec = copyLanes
		if reg.Bits > t.Bits && t.Kind == syntax.Signed {
			keep := ones(reg.Bits)
			o.vec = unaryU64(func(a uint64) uint64 { return extend(t, a) & keep })
		}
		return o, nil
	}
	return o, fmt.Errorf("no parameter %s", from.Name)
}

// argument returns the register that holds bytes of the parameter block.
func (d *decoder) argument(offset, bytes int) int32 {
	for _, a := range d.prog.arguments {
		if a.offset == offset && a.bytes == bytes {
			return a.reg
		}
	}
	r := d.newRegister()
	d.prog.arguments = append(d.prog.arguments, argument{r, offset, bytes})
	return r
}
