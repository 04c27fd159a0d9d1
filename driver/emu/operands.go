package emu

import (
	"fmt"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
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
	t, ok := d.entry.Register(name)
	if !ok {
		return 0, fmt.Errorf("undeclared register %s", name)
	}
	if t.Kind != syntax.Pred {
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
func (d *decoder) typed(o syntax.Operand, t syntax.Type, ok func(r syntax.Type) bool) (int32, error) {
	if o.Kind != syntax.Name || o.Pair != "" {
		return 0, fmt.Errorf("operand is not a register")
	}
	r, declared := d.entry.Register(o.Name)
	if !declared {
		return 0, fmt.Errorf("undeclared register %s", o.Name)
	}
	if !ok(r) {
		return 0, fmt.Errorf("register %s of type %v where %v is expected", o.Name, r, t)
	}
	return d.register(o.Name), nil
}

// dest is a register that an instruction of type t writes.
func (d *decoder) dest(o syntax.Operand, t syntax.Type) (int32, error) {
	if t.Kind == syntax.Pred {
		if o.Kind != syntax.Name || o.Pair != "" {
			return 0, fmt.Errorf("destination is not a predicate")
		}
		return d.predicate(o.Name)
	}
	return d.typed(o, t, t.Fits)
}

// source is a register that holds an operand of type t: an immediate becomes a constant.
func (d *decoder) source(o syntax.Operand, t syntax.Type) (int32, error) {
	if t.Kind == syntax.Pred {
		if o.Kind != syntax.Name || o.Pair != "" {
			return 0, fmt.Errorf("operand is not a predicate")
		}
		return d.predicate(o.Name)
	}
	switch o.Kind {
	case syntax.ImmInt, syntax.ImmF32, syntax.ImmF64:
		v, err := immediate(o, t)
		return d.constant(v), err
	}
	return d.typed(o, t, t.Fits)
}

// immediate gives the bits of a number as an operand of type t.
func immediate(o syntax.Operand, t syntax.Type) (uint64, error) {
	switch {
	case o.Kind == syntax.ImmInt && t.Kind != syntax.Float:
		if s := int64(o.Value); o.Minus && s < -1<<(t.Bits-1) || !o.Minus && o.Value > ones(t.Bits) {
			return 0, fmt.Errorf("number does not fit %v", t)
		}
		return o.Value & ones(t.Bits), nil
	case o.Kind == syntax.ImmF32 && t.Bits == 32 && (t.Kind == syntax.Float || t.Kind == syntax.Bits),
		o.Kind == syntax.ImmF64 && t.Bits == 64 && (t.Kind == syntax.Float || t.Kind == syntax.Bits):
		return o.Value, nil
	case o.Kind == syntax.ImmF32 && t == typeF64:
		return math.Float64bits(float64(math.Float32frombits(uint32(o.Value)))), nil
	}
	return 0, fmt.Errorf("number where %v is expected", t)
}

// wide is a source register that may be larger than t, as ld, st and cvt take it.
func (d *decoder) wide(o syntax.Operand, t syntax.Type) (int32, error) {
	if o.Kind != syntax.Name {
		return d.source(o, t)
	}
	return d.typed(o, t, t.FitsWithin)
}

// address is the base register and the offset of an address in global memory or,
// if shared, in shared memory.
func (d *decoder) address(o syntax.Operand, shared bool) (reg int32, offset int64, err error) {
	if o.Kind != syntax.Address {
		return 0, 0, fmt.Errorf("operand is not an address")
	}
	if o.Name == "" {
		return 0, o.Offset, nil
	}
	if at, ok := d.vars[o.Name]; ok {
		if !shared {
			return 0, 0, fmt.Errorf("%s is in shared memory", o.Name)
		}
		return 0, int64(at) + o.Offset, nil
	}
	t, ok := d.entry.Register(o.Name)
	switch {
	case !ok:
		return 0, 0, fmt.Errorf("undeclared register %s", o.Name)
	case t.Kind == syntax.Pred || t.Kind == syntax.Float || t.Bits != 64 && !(shared && t.Bits == 32):
		return 0, 0, fmt.Errorf("register %s of type %v cannot hold the address", o.Name, t)
	}
	return d.register(o.Name), o.Offset, nil
}

// label is the op that a branch goes to.
func (d *decoder) label(o syntax.Operand) (int32, error) {
	at, ok := d.entry.Labels[o.Name]
	if o.Kind != syntax.Name || !ok {
		return 0, fmt.Errorf("%q is no label", o.Name)
	}
	return int32(at), nil
}
