package emu

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// decoder turns an entry into a program.
type decoder struct {
	mod    *syntax.Module
	entry  *syntax.Entry
	prog   *program
	regs   map[string]int32
	preds  map[string]int32
	consts map[uint64]int32
	shared map[string]uint64 // addresses of shared variables
}

// sharedBase is the address of the shared memory of a CTA. As on a GPU, the system uses the
// first kilobyte, so address zero is out of bounds.
const sharedBase = 1024

// maxStaticShared is the limit of ptxas for static shared memory in bytes, on every target.
const maxStaticShared = 48 << 10

// decode checks an entry and decodes it. The error names every line that was refused.
func decode(mod *syntax.Module, e *syntax.Entry) (*program, error) {
	d := &decoder{
		mod: mod, entry: e,
		prog: &program{
			name: e.Name, entry: e, lines: mod.Lines, regs: 1, preds: 1, target: mod.SM,
			names: map[int32]string{},
		},
		regs: map[string]int32{}, preds: map[string]int32{}, consts: map[uint64]int32{0: 0},
		shared: map[string]uint64{},
	}
	for i := range d.prog.specials {
		d.prog.specials[i] = -1
	}
	errs := []error{d.placeShared()}
	for i := range e.Body {
		in := &e.Body[i]
		o, err := d.instruction(in)
		if err != nil {
			errs = append(errs, syntax.Errorf(in.Line, "%v: %s", err, d.prog.text(in.Line)))
		}
		o.line = int32(in.Line)
		d.prog.ops = append(d.prog.ops, o)
	}
	d.prog.ops = append(d.prog.ops, op{kind: opExit, line: d.lastLine()})
	d.watchWGMMARegisters()
	return d.prog, errors.Join(errs...)
}

func (d *decoder) lastLine() int32 {
	if n := len(d.entry.Body); n > 0 {
		return int32(d.entry.Body[n-1].Line)
	}
	return int32(d.entry.Line)
}

// dynamicAlign is the alignment in bytes of dynamic shared memory that a kernel may rely on, even if
// the text declares a larger one.
const dynamicAlign = 16

// placeShared assigns addresses to the shared variables. Static ones follow one another in the
// order of declaration. All dynamic ones get the first address after these that is a multiple of
// dynamicAlign and not of more, so that a kernel which relies on more fails.
func (d *decoder) placeShared() error {
	all := slices.Concat(d.mod.Shared, d.entry.Shared)
	at, dynamic := 0, false
	for _, v := range all {
		if _, ok := d.shared[v.Name]; ok {
			return syntax.Errorf(d.entry.Line, "shared variable %s is declared twice", v.Name)
		}
		if v.Extern {
			dynamic = true
			d.shared[v.Name] = 0
			continue
		}
		at = (at + v.Align - 1) &^ (v.Align - 1)
		d.shared[v.Name] = uint64(sharedBase + at)
		at += v.Bytes
	}
	if at > maxStaticShared {
		return syntax.Errorf(d.entry.Line, "%d bytes of static shared memory, at most %d", at, maxStaticShared)
	}
	d.prog.static, d.prog.dynamic = at, at
	if dynamic {
		d.prog.static = (at + dynamicAlign - 1) &^ (dynamicAlign - 1)
		d.prog.dynamic = d.prog.static | dynamicAlign
	}
	for _, v := range all {
		if v.Extern {
			d.shared[v.Name] = uint64(sharedBase + d.prog.dynamic)
		}
	}
	return nil
}

func (d *decoder) instruction(in *syntax.Instruction) (op, error) {
	for i, o := range in.Operands {
		negated := slices.ContainsFunc(o.Elems, func(e syntax.Operand) bool { return e.Negated })
		if negated || o.Negated && (i != 1 || !strings.HasPrefix(in.Opcode, "vote.")) {
			return op{}, fmt.Errorf("! before an operand of %s", in.Opcode)
		}
	}
	f, q, ok := lookup(in.Opcode)
	if !ok {
		return op{}, fmt.Errorf("unknown instruction %s", in.Opcode)
	}
	if err := d.require(in.Opcode, f.needs); err != nil {
		return op{}, err
	}
	var o op
	var err error
	if f.build != nil {
		o, err = f.build(d, in, q)
	} else {
		o, err = d.fromArgs(f, in, q)
	}
	if err == nil && in.Guard != "" {
		o.negated = in.Negated
		o.guard, err = d.predicate(in.Guard)
	}
	return o, err
}

// fromArgs decodes an instruction whose operands are described by the args of its form.
func (d *decoder) fromArgs(f *form, in *syntax.Instruction, q qualifiers) (op, error) {
	o := op{kind: opVec, vec: f.vec, cmp: f.cmp, run: f.run}
	switch {
	case f.cmp != nil:
		o.kind = opCmp
	case f.run != nil:
		o.kind = opRun
	}
	args := strings.Fields(f.args)
	if err := wantOperands(in, len(args)); err != nil {
		return o, err
	}
	registers := [...]*int32{&o.d, &o.a, &o.b, &o.c}
	for i, arg := range args {
		t := q.typ()
		arg, noImmediate := strings.CutPrefix(arg, "reg:")
		if arg != "T" {
			t, _ = syntax.ParseType(arg)
		}
		if noImmediate && in.Operands[i].Kind != syntax.Name {
			return o, fmt.Errorf("operand %d is not a register", i+1)
		}
		var err error
		if i == 0 {
			*registers[i], err = d.destination(in.Operands[i], t)
		} else {
			*registers[i], err = d.source(in.Operands[i], t)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// ones is a mask of the lowest bits.
func ones(bits int) uint64 { return ^uint64(0) >> (64 - bits) }

// wantOperands checks the number of operands.
func wantOperands(in *syntax.Instruction, n int) error {
	if len(in.Operands) != n {
		return fmt.Errorf("%d operands where %s takes %d", len(in.Operands), in.Opcode, n)
	}
	return nil
}

// register returns the index of a declared register that is not a predicate.
func (d *decoder) register(name string) int32 {
	r, ok := d.regs[name]
	if !ok {
		r = d.newRegister()
		d.regs[name] = r
		d.prog.names[r] = name
	}
	return r
}

func (d *decoder) newRegister() int32 {
	d.prog.regs++
	return int32(d.prog.regs - 1)
}

// constant returns a register that holds value in every lane.
func (d *decoder) constant(value uint64) int32 {
	r, ok := d.consts[value]
	if !ok {
		r = d.newRegister()
		d.consts[value] = r
		d.prog.consts = append(d.prog.consts, constant{r, value})
	}
	return r
}

// predicate returns the index of a declared predicate.
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

// typed returns the register of an operand. fits tells which types are allowed instead of t.
func (d *decoder) typed(o syntax.Operand, t syntax.Type, fits func(syntax.Type) bool) (int32, error) {
	if o.Kind != syntax.Name || o.Pair != "" {
		return 0, fmt.Errorf("operand is not a register")
	}
	r, declared := d.entry.Register(o.Name)
	if !declared {
		return 0, fmt.Errorf("undeclared register %s", o.Name)
	}
	if !fits(r) {
		return 0, fmt.Errorf("register %s of type %v where %v is expected", o.Name, r, t)
	}
	return d.register(o.Name), nil
}

// destination returns the register or predicate that an instruction writes.
func (d *decoder) destination(o syntax.Operand, t syntax.Type) (int32, error) {
	if t.Kind == syntax.Pred {
		if o.Kind != syntax.Name || o.Pair != "" {
			return 0, fmt.Errorf("destination is not a predicate")
		}
		return d.predicate(o.Name)
	}
	return d.typed(o, t, t.Fits)
}

// source returns the register or predicate that an instruction reads. An immediate becomes a
// constant register.
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

// sourceWithin is source for loads, stores and conversions: a register may be larger than t.
func (d *decoder) sourceWithin(o syntax.Operand, t syntax.Type) (int32, error) {
	if o.Kind != syntax.Name {
		return d.source(o, t)
	}
	return d.typed(o, t, t.FitsWithin)
}

// immediate returns the bits of an immediate as an operand of type t.
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

// constantOperand returns the value of an operand that must be an integer from 0 to most.
func constantOperand(o syntax.Operand, what string, most uint64) (int, error) {
	if o.Kind != syntax.ImmInt || o.Value > most {
		return 0, fmt.Errorf("%s is not a number from 0 to %d", what, most)
	}
	return int(o.Value), nil
}

// address returns the base register and the offset of an address, in shared memory if shared is
// set and else in global memory.
func (d *decoder) address(o syntax.Operand, shared bool) (reg int32, offset int64, err error) {
	if o.Kind != syntax.Address {
		return 0, 0, fmt.Errorf("operand is not an address")
	}
	if o.Name == "" {
		return 0, o.Offset, nil
	}
	if at, ok := d.shared[o.Name]; ok {
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

// label returns the index of the op that follows a label.
func (d *decoder) label(o syntax.Operand) (int32, error) {
	at, ok := d.entry.Labels[o.Name]
	if o.Kind != syntax.Name || !ok {
		return 0, fmt.Errorf("%q is not a label", o.Name)
	}
	return int32(at), nil
}
