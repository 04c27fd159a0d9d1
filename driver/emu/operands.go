package emu

import (
	"fmt"
	"math"
)

// register finds or numbers a register that holds values.
func (d *decoder) register(name string) int32 {
	r, ok := d.regs[name]
	if !ok {
		r = d.fresh()
		d.regs[name] = r
		d.prog.names[r] = name
	}
	return r
}

func (d *decoder) fresh() int32 {
	d.prog.regs++
	return int32(d.prog.regs - 1)
}

// constant is the register that holds a value in every lane.
func (d *decoder) constant(value uint64) int32 {
	r, ok := d.consts[value]
	if !ok {
		r = d.fresh()
		d.consts[value] = r
		d.prog.consts = append(d.prog.consts, constant{r, value})
	}
	return r
}

// predicate finds or numbers a predicate.
func (d *decoder) predicate(name string) (int32, error) {
	t, ok := d.entry.register(name)
	if !ok {
		return 0, fmt.Errorf("undeclared register %s", name)
	}
	if t.kind != kindPred {
		return 0, fmt.Errorf("register %s of type %v where a predicate is expected", name, t)
	}
	p, ok := d.preds[name]
	if !ok {
		p = int32(d.prog.preds)
		d.prog.preds++
		d.preds[name] = p
		d.prog.names[-p] = name
	}
	return p, nil
}

// typed checks that an operand is a register whose type the predicate ok accepts.
func (d *decoder) typed(o operand, t dtype, ok func(r dtype) bool) (int32, error) {
	if o.kind != opndName || o.pair != "" {
		return 0, fmt.Errorf("operand is not a register")
	}
	r, declared := d.entry.register(o.name)
	if !declared {
		return 0, fmt.Errorf("undeclared register %s", o.name)
	}
	if !ok(r) {
		return 0, fmt.Errorf("register %s of type %v where %v is expected", o.name, r, t)
	}
	return d.register(o.name), nil
}

// dest is a register that an instruction of type t writes.
func (d *decoder) dest(o operand, t dtype) (int32, error) {
	if t.kind == kindPred {
		if o.kind != opndName || o.pair != "" {
			return 0, fmt.Errorf("destination is not a predicate")
		}
		return d.predicate(o.name)
	}
	return d.typed(o, t, t.fits)
}

// source is a register that holds an operand of type t: an immediate becomes a constant.
func (d *decoder) source(o operand, t dtype) (int32, error) {
	if t.kind == kindPred {
		if o.kind != opndName || o.pair != "" {
			return 0, fmt.Errorf("operand is not a predicate")
		}
		return d.predicate(o.name)
	}
	switch o.kind {
	case opndInt, opndF32, opndF64:
		v, err := immediate(o, t)
		return d.constant(v), err
	}
	return d.typed(o, t, t.fits)
}

// immediate gives the bits of a number as an operand of type t.
func immediate(o operand, t dtype) (uint64, error) {
	switch {
	case o.kind == opndInt && t.kind != kindFloat:
		if s := int64(o.value); o.minus && s < -1<<(t.bits-1) || !o.minus && o.value > ones(t.bits) {
			return 0, fmt.Errorf("number does not fit %v", t)
		}
		return o.value & ones(t.bits), nil
	case o.kind == opndF32 && t.bits == 32 && (t.kind == kindFloat || t.kind == kindBits),
		o.kind == opndF64 && t.bits == 64 && (t.kind == kindFloat || t.kind == kindBits):
		return o.value, nil
	case o.kind == opndF32 && t == dtype{kindFloat, 64}:
		return math.Float64bits(float64(math.Float32frombits(uint32(o.value)))), nil
	}
	return 0, fmt.Errorf("number where %v is expected", t)
}

// wide is a source register that may be larger than t, as ld, st and cvt take it.
func (d *decoder) wide(o operand, t dtype) (int32, error) {
	if o.kind != opndName {
		return d.source(o, t)
	}
	return d.typed(o, t, t.fitsWithin)
}

// fitsWithin is fits for a register that may be larger than t; not if t is a float.
func (t dtype) fitsWithin(r dtype) bool {
	if r.bits <= t.bits || t.kind == kindFloat || t.kind == kindPred {
		return t.fits(r)
	}
	return r.kind == kindBits || r.kind != kindFloat && r.kind != kindPred
}

// address is the base register and the offset of an address in global memory or,
// if shared, in shared memory.
func (d *decoder) address(o operand, shared bool) (reg int32, offset int64, err error) {
	if o.kind != opndAddress {
		return 0, 0, fmt.Errorf("operand is not an address")
	}
	if o.name == "" {
		return 0, o.offset, nil
	}
	if at, ok := d.vars[o.name]; ok {
		if !shared {
			return 0, 0, fmt.Errorf("%s is in shared memory", o.name)
		}
		return 0, int64(at) + o.offset, nil
	}
	t, ok := d.entry.register(o.name)
	switch {
	case !ok:
		return 0, 0, fmt.Errorf("undeclared register %s", o.name)
	case t.kind == kindPred || t.kind == kindFloat || t.bits != 64 && !(shared && t.bits == 32):
		return 0, 0, fmt.Errorf("register %s of type %v cannot hold the address", o.name, t)
	}
	return d.register(o.name), o.offset, nil
}

// label is the op that a branch goes to.
func (d *decoder) label(o operand) (int32, error) {
	at, ok := d.entry.labels[o.name]
	if o.kind != opndName || !ok {
		return 0, fmt.Errorf("%q is no label", o.name)
	}
	return int32(at), nil
}
