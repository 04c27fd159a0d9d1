package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// The memory orders of atom and red. red returns no value, so it cannot acquire.
const (
	atomPrefix = "atom.relaxed|acquire|release|acq_rel?." + scopes + "?.global|shared."
	redPrefix  = "red.relaxed|release?." + scopes + "?.global|shared."
)

// atomicKinds are the operations and their types. Floats are refused because their sums depend on
// the order.
var atomicKinds = []string{
	"add.u32|s32|u64", "inc|dec.u32", "min|max.u32|s32|u64|s64", "and|or|xor|exch|cas.b32|b64",
}

// Atomic operations on memory.
var atomicForms = func() (forms []form) {
	for _, k := range atomicKinds {
		forms = append(forms,
			form{pattern: atomPrefix + k, needs: requirement{31, 20}, build: buildAtomic},
			form{pattern: redPrefix + k, needs: requirement{31, 20}, build: buildAtomic})
	}
	return forms
}()

// update computes the new value from the old one and the operands b and c.
type update func(old, b, c uint64) uint64

func updateOf(name string, t syntax.Type) update {
	switch name {
	case "exch":
		return func(_, b, _ uint64) uint64 { return b }
	case "cas":
		return func(old, b, c uint64) uint64 {
			if old == b {
				return c
			}
			return old
		}
	case "inc":
		return func(old, b, _ uint64) uint64 {
			if old >= b {
				return 0
			}
			return old + 1
		}
	case "dec":
		return func(old, b, _ uint64) uint64 {
			if old == 0 || old > b {
				return b
			}
			return old - 1
		}
	}
	f := reduction(name, t)
	return func(old, b, _ uint64) uint64 { return f(old, b) }
}

// buildAtomic decodes atom d, [a], b[, c] and red [a], b. Register d is -1 for red.
func buildAtomic(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	t, name := q.typ(), q[len(q)-2]
	o := op{kind: opRun, d: -1, shared: q.has("shared"), order: orderOf(q), size: int32(t.Bytes())}
	o.order.strong = true
	if q[1] != "" {
		if q[2] == "" {
			return o, fmt.Errorf("a memory order without a scope")
		}
		if err := d.require(q[0]+"."+q[1], requirement{60, 70}); err != nil {
			return o, err
		}
	}
	if q[0] == "red" && (name == "cas" || name == "exch") {
		return o, fmt.Errorf("red does not return the old value")
	}
	f, keep := updateOf(name, t), ones(t.Bits)
	o.run = func(w *warp, o *op, m uint32) result { return w.atomic(o, m, f, keep) }

	sources := []*int32{&o.b}
	if name == "cas" {
		sources = append(sources, &o.c)
	}
	operands := in.Operands
	if q[0] == "atom" && len(operands) > 0 {
		var err error
		if o.d, err = d.destination(operands[0], t); err != nil {
			return o, err
		}
		operands = operands[1:]
	}
	if len(operands) != 1+len(sources) {
		return o, wantOperands(in, len(in.Operands)-len(operands)+1+len(sources))
	}
	var err error
	if o.a, o.imm, err = d.address(operands[0], o.shared); err != nil {
		return o, err
	}
	for i, s := range sources {
		if *s, err = d.source(operands[1+i], t); err != nil {
			return o, err
		}
	}
	return o, nil
}

// atomic updates memory lane by lane.
func (w *warp) atomic(o *op, m uint32, f update, keep uint64) result {
	if !w.reads(o, m, o.a, o.b, o.c) {
		return resultTrap
	}
	defer w.unlockRange()
	w.cta.polls++
	n := int(o.size)
	for l := range lanesOf(m) {
		s, at := w.locate(o, o.shared, l, w.regs[o.a][l]+uint64(o.imm), n, n)
		if s == nil || !w.checkDefined(o, s, at, n, l) || !w.checkAccess(o, s, at, n, l, accessAtomic) {
			return resultTrap
		}
		old := s.load(at, o.size)
		s.store(at, o.size, f(old, w.regs[o.b][l], w.regs[o.c][l])&keep)
		if o.d >= 0 {
			w.set(o.d, l, old)
		}
	}
	return resultNext
}
