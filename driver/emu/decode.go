package emu

import (
	"errors"
	"fmt"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
	"slices"
	"strings"
)

// decoder turns an entry into a program.
type decoder struct {
	mod    *syntax.Module
	entry  *syntax.Entry
	prog   *program
	regs   map[string]int32
	preds  map[string]int32
	consts map[uint64]int32
	vars   map[string]uint64 // addresses of shared variables
}

// sharedBase is the address of a CTA's shared memory: like a GPU, the first
// kilobyte belongs to the system, so that address zero is not memory.
const sharedBase = 1024

// maxStatic is how many bytes of static shared memory ptxas lets an entry have on
// every target; more must be dynamic.
const maxStatic = 48 << 10

// decode checks and decodes an entry. The error names every line that was refused.
func decode(mod *syntax.Module, e *syntax.Entry) (*program, error) {
	d := &decoder{
		mod: mod, entry: e,
		prog: &program{
			name: e.Name, entry: e, lines: mod.Lines, regs: 1, preds: 1, target: mod.SM,
			names: map[int32]string{},
		},
		regs: map[string]int32{}, preds: map[string]int32{}, consts: map[uint64]int32{0: 0},
		vars: map[string]uint64{},
	}
	for i := range d.prog.specials {
		d.prog.specials[i] = -1
	}
	errs := []error{d.layout()}
	for i := range e.Body {
		in := &e.Body[i]
		o, err := d.instruction(in)
		if err != nil {
			errs = append(errs, syntax.Errorf(in.Line, "%v: %s", err, strings.TrimSpace(mod.Lines[in.Line-1])))
		}
		o.line = int32(in.Line)
		d.prog.ops = append(d.prog.ops, o)
	}
	d.prog.ops = append(d.prog.ops, op{kind: opExit, line: d.lastLine()})
	d.watch()
	return d.prog, errors.Join(errs...)
}

func (d *decoder) lastLine() int32 {
	if n := len(d.entry.Body); n > 0 {
		return int32(d.entry.Body[n-1].Line)
	}
	return int32(d.entry.Line)
}

// layout gives the shared variables their addresses: static ones in the order of
// declaration, the dynamic ones all at the first multiple of their alignment after.
func (d *decoder) layout() error {
	all := append(append([]syntax.Variable(nil), d.mod.Shared...), d.entry.Shared...)
	at, align := 0, 1
	for _, v := range all {
		if _, ok := d.vars[v.Name]; ok {
			return syntax.Errorf(d.entry.Line, "shared variable %s is declared twice", v.Name)
		}
		if v.Extern {
			align = max(align, v.Align)
			d.vars[v.Name] = 0
			continue
		}
		at = (at + v.Align - 1) &^ (v.Align - 1)
		d.vars[v.Name] = uint64(sharedBase + at)
		at += v.Bytes
	}
	if at > maxStatic {
		return syntax.Errorf(d.entry.Line, "%d bytes of static shared memory, at most %d", at, maxStatic)
	}
	d.prog.static = at
	d.prog.dynamic = (at + align - 1) &^ (align - 1)
	for _, v := range all {
		if v.Extern {
			d.vars[v.Name] = uint64(sharedBase + d.prog.dynamic)
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
	if f.since.ptx > d.mod.Version || f.since.sm > d.mod.SM {
		return op{}, fmt.Errorf("%s needs .version %d.%d and .target sm_%d, the text declares %d.%d and %s",
			in.Opcode, max(f.since.ptx, 10)/10, f.since.ptx%10, f.since.sm, d.mod.Version/10, d.mod.Version%10, d.mod.Target)
	}
	var o op
	var err error
	if f.build != nil {
		o, err = f.build(d, in, q)
	} else {
		o, err = d.plain(f, in, q)
	}
	if err == nil && in.Guard != "" {
		o.negated = in.Negated
		o.guard, err = d.predicate(in.Guard)
	}
	return o, err
}

// plain decodes an instruction whose operands are registers as the form's args say.
func (d *decoder) plain(f *form, in *syntax.Instruction, q quals) (op, error) {
	o := op{kind: opVec, vec: f.vec, cmp: f.cmp, run: f.run}
	switch {
	case f.cmp != nil:
		o.kind = opCmp
	case f.run != nil:
		o.kind = opRun
	}
	args := strings.Fields(f.args)
	if err := count(in, len(args)); err != nil {
		return o, err
	}
	where := [...]*int32{&o.d, &o.a, &o.b, &o.c}
	for i, arg := range args {
		t := q.typ()
		arg, register := strings.CutPrefix(arg, "reg:")
		if arg != "T" {
			t, _ = syntax.ParseType(arg)
		}
		if register && in.Operands[i].Kind != syntax.Name {
			return o, fmt.Errorf("operand %d is not a register", i+1)
		}
		var err error
		if i == 0 {
			*where[i], err = d.dest(in.Operands[i], t)
			o.keep = ones(t.Bits)
		} else {
			*where[i], err = d.source(in.Operands[i], t)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// ones is a mask of the lowest bits.
func ones(bits int) uint64 { return ^uint64(0) >> (64 - bits) }

// count checks the number of operands.
func count(in *syntax.Instruction, want int) error {
	if len(in.Operands) != want {
		return fmt.Errorf("%d operands where %s takes %d", len(in.Operands), in.Opcode, want)
	}
	return nil
}
