package emu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// decoder turns an entry into a program.
type decoder struct {
	mod    *module
	entry  *entry
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
func decode(mod *module, e *entry) (*program, error) {
	d := &decoder{
		mod: mod, entry: e,
		prog: &program{
			name: e.name, entry: e, lines: mod.lines, regs: 1, preds: 1, target: mod.sm,
			names: map[int32]string{},
		},
		regs: map[string]int32{}, preds: map[string]int32{}, consts: map[uint64]int32{0: 0},
		vars: map[string]uint64{},
	}
	for i := range d.prog.specials {
		d.prog.specials[i] = -1
	}
	errs := []error{d.layout()}
	for i := range e.body {
		in := &e.body[i]
		o, err := d.instruction(in)
		if err != nil {
			errs = append(errs, errorAt(in.line, "%v: %s", err, strings.TrimSpace(mod.lines[in.line-1])))
		}
		o.line = int32(in.line)
		d.prog.ops = append(d.prog.ops, o)
	}
	d.prog.ops = append(d.prog.ops, op{kind: opExit, line: d.lastLine()})
	d.watch()
	return d.prog, errors.Join(errs...)
}

func (d *decoder) lastLine() int32 {
	if n := len(d.entry.body); n > 0 {
		return int32(d.entry.body[n-1].line)
	}
	return int32(d.entry.line)
}

// layout gives the shared variables their addresses: static ones in the order of
// declaration, the dynamic ones all at the first multiple of their alignment after.
func (d *decoder) layout() error {
	all := append(append([]variable(nil), d.mod.shared...), d.entry.shared...)
	at, align := 0, 1
	for _, v := range all {
		if _, ok := d.vars[v.name]; ok {
			return errorAt(d.entry.line, "shared variable %s is declared twice", v.name)
		}
		if v.extern {
			align = max(align, v.align)
			d.vars[v.name] = 0
			continue
		}
		at = (at + v.align - 1) &^ (v.align - 1)
		d.vars[v.name] = uint64(sharedBase + at)
		at += v.bytes
	}
	if at > maxStatic {
		return errorAt(d.entry.line, "%d bytes of static shared memory, at most %d", at, maxStatic)
	}
	d.prog.static = at
	d.prog.dynamic = (at + align - 1) &^ (align - 1)
	for _, v := range all {
		if v.extern {
			d.vars[v.name] = uint64(sharedBase + d.prog.dynamic)
		}
	}
	return nil
}

func (d *decoder) instruction(in *instruction) (op, error) {
	for i, o := range in.operands {
		negated := slices.ContainsFunc(o.elems, func(e operand) bool { return e.negated })
		if negated || o.negated && (i != 1 || !strings.HasPrefix(in.opcode, "vote.")) {
			return op{}, fmt.Errorf("! before an operand of %s", in.opcode)
		}
	}
	f, q, ok := lookup(in.opcode)
	if !ok {
		return op{}, fmt.Errorf("unknown instruction %s", in.opcode)
	}
	if f.since.ptx > d.mod.version || f.since.sm > d.mod.sm {
		return op{}, fmt.Errorf("%s needs .version %d.%d and .target sm_%d, the text declares %d.%d and %s",
			in.opcode, max(f.since.ptx, 10)/10, f.since.ptx%10, f.since.sm, d.mod.version/10, d.mod.version%10, d.mod.arch)
	}
	var o op
	var err error
	if f.build != nil {
		o, err = f.build(d, in, q)
	} else {
		o, err = d.plain(f, in, q)
	}
	if err == nil && in.guard != "" {
		o.negated = in.negated
		o.guard, err = d.predicate(in.guard)
	}
	return o, err
}

// plain decodes an instruction whose operands are registers as the form's args say.
func (d *decoder) plain(f *form, in *instruction, q quals) (op, error) {
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
			t, _ = typeOf(arg)
		}
		if register && in.operands[i].kind != opndName {
			return o, fmt.Errorf("operand %d is not a register", i+1)
		}
		var err error
		if i == 0 {
			*where[i], err = d.dest(in.operands[i], t)
			o.keep = ones(t.bits)
		} else {
			*where[i], err = d.source(in.operands[i], t)
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
func count(in *instruction, want int) error {
	if len(in.operands) != want {
		return fmt.Errorf("%d operands where %s takes %d", len(in.operands), in.opcode, want)
	}
	return nil
}
