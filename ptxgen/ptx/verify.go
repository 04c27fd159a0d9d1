package ptx

// verify checks what the Go types cannot: that every register is written on each
// path before it is read, that a register that is no variable is written once,
// that each instruction is known and its operands have its types. It sets what the
// kernel needs at least.
func verify(b *Builder, k *Kernel) error {
	v := &verifier{b: b, guarded: map[operand]guard{}}
	v.list(b.body, registers{})
	v.waits(b.body)
	k.Least = Target{Version: 74, SM: 80}
	each(b.body, func(in *inst) {
		f, ok := formOf(in.op)
		if !ok {
			v.fail(in.pc, "%s is no known instruction", in.op)
			return
		}
		if err := checkTypes(in); err != nil {
			v.fail(in.pc, "%s: %v", in, err)
		}
		if in.spare {
			return
		}
		k.Least.Arch = k.Least.Arch || f.arch
		k.Least.Version = max(k.Least.Version, f.version)
		k.Least.SM = max(k.Least.SM, f.sm)
	})
	k.Least.Version = max(k.Least.Version, leastVersion(k.Least))
	return v.err
}

type registers map[operand]bool

func (r registers) clone() registers {
	c := make(registers, len(r))
	for o := range r {
		c[o] = true
	}
	return c
}

type verifier struct {
	b       *Builder
	guarded map[operand]guard // what wrote a register under a predicate
	err     error
}

func (v *verifier) fail(pc uintptr, format string, args ...any) {
	if v.err == nil {
		v.err = v.b.errorAt(pc, format, args...)
	}
}

// list walks straight-line code; defined holds what is written on every path so far.
func (v *verifier) list(list []node, defined registers) {
	for _, n := range list {
		switch n := n.(type) {
		case *inst:
			v.inst(n, defined)
		case *branch:
			v.use(n.pc, "a branch", n.pred, defined)
			then, alt := defined.clone(), defined.clone()
			v.list(n.then, then)
			v.list(n.alt, alt)
			for o := range then {
				if alt[o] {
					defined[o] = true
				}
			}
		case *loop:
			v.list(n.head, defined)
			inside := defined
			if !n.bottom {
				v.use(n.pc, "a loop", n.pred, defined)
				inside = defined.clone()
			}
			v.list(n.body, inside)
			if n.bottom {
				v.use(n.pc, "a loop", n.pred, inside)
			}
		}
	}
}

func (v *verifier) inst(in *inst, defined registers) {
	for _, o := range in.reads() {
		if g, ok := v.guarded[o]; ok && in.guard != nil && *in.guard == g {
			continue
		}
		v.use(in.pc, in.op, o, defined)
	}
	for _, o := range in.writes() {
		switch {
		case o == sink:
		case o.kind != register:
			v.fail(in.pc, "%s writes %v", in.op, o)
		case defined[o] && !v.b.vars[o]:
			v.fail(in.pc, "%s writes %v again, which is no variable", in.op, o)
		case in.guard == nil:
			defined[o] = true
		default:
			v.guarded[o] = *in.guard
		}
	}
}

func (v *verifier) use(pc uintptr, op string, o operand, defined registers) {
	if o.kind == register && !defined[o] {
		v.fail(pc, "%s reads %v, which is not written on every path to it", op, o)
	}
}
