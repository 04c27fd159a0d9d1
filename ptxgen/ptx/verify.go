package ptx

import (
	"fmt"
	"strings"
)

// verify checks what the Go types cannot: that every register is written on each
// path before it is read, that a register that is no variable is written once, and
// that each instruction's form is known. It sets what the kernel needs at least.
func verify(b *Builder, k *Kernel) error {
	v := &verifier{b: b}
	v.list(b.body, registers{})
	k.Least = Target{Version: 74, SM: 80}
	each(b.body, func(in *inst) {
		f, ok := formOf(in.op)
		if !ok {
			v.fail(in.pc, "%s is no known instruction", in.op)
			return
		}
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
	b   *Builder
	err error
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
		v.use(in.pc, in.op, o, defined)
	}
	for _, o := range in.writes() {
		if o.kind != register {
			v.fail(in.pc, "%s writes %v", in.op, o)
		}
		if defined[o] && !v.b.vars[o] {
			v.fail(in.pc, "%s writes %v again, which is no variable", in.op, o)
		}
		if in.guard == nil {
			defined[o] = true
		}
	}
	if in.guard != nil {
		v.guarded(in, defined)
	}
}

// guarded lets later instructions under the same predicate read what this one wrote.
func (v *verifier) guarded(in *inst, defined registers) {
	for _, o := range in.writes() {
		if !v.b.vars[o] {
			defined[o] = true
		}
	}
}

func (v *verifier) use(pc uintptr, op string, o operand, defined registers) {
	if o.kind == register && !defined[o] {
		v.fail(pc, "%s reads %v, which is not written on every path to it", op, o)
	}
}

// form is what an instruction needs.
type form struct{ version, sm int }

// forms maps the beginning of an instruction to what it needs; the longest wins.
var forms = map[string]form{
	"mov.": {}, "ld.": {}, "st.": {}, "add.": {}, "sub.": {}, "mul.": {}, "mad.": {}, "fma.": {}, "div.": {}, "rem.": {},
	"min.": {}, "max.": {}, "and.": {}, "or.": {}, "xor.": {}, "not.": {}, "neg.": {}, "abs.": {}, "shl.": {}, "shr.": {},
	"bfe.": {}, "bfi.": {}, "lop3.": {}, "prmt.": {}, "popc.": {}, "clz.": {}, "dp4a.": {}, "cvt.": {}, "setp.": {},
	"selp.": {}, "sqrt.": {}, "rcp.": {}, "rsqrt.": {}, "ex2.": {}, "lg2.": {}, "ret": {}, "bar.": {}, "fence.": {},
	"shfl.": {}, "vote.": {}, "redux.": {}, "atom.": {}, "red.": {}, "cp.async.": {}, "ldmatrix.": {}, "mma.": {},
}

func formOf(op string) (form, bool) {
	for p := op; p != ""; p = p[:len(p)-1] {
		if f, ok := forms[p]; ok {
			return f, true
		}
	}
	return form{}, false
}

// leastVersion is the PTX version that first knew a target, from the release notes
// of the PTX ISA.
func leastVersion(t Target) int {
	if t.Arch {
		return 80
	}
	for _, s := range []struct{ sm, version int }{{120, 87}, {100, 86}, {89, 78}, {86, 71}, {80, 70}} {
		if t.SM >= s.sm {
			return s.version
		}
	}
	return 63
}

// ParseTarget reads a target such as "sm_90" or "sm_90a".
func ParseTarget(s string) (Target, error) {
	var t Target
	digits, arch := strings.CutSuffix(s, "a")
	if n, err := fmt.Sscanf(digits, "sm_%d", &t.SM); n != 1 || err != nil || t.SM < 50 || t.SM > 999 || fmt.Sprintf("sm_%d", t.SM) != digits {
		return Target{}, fmt.Errorf("ptx: %q is no target, want one such as sm_80 or sm_90a", s)
	}
	t.Arch = arch
	t.Version = leastVersion(t)
	return t, nil
}

// atLeast raises what is asked for to what is needed.
func (need Target) atLeast(ask Target) (Target, error) {
	if need.Arch && ask.SM != 0 && (ask.SM != need.SM || !ask.Arch) {
		return ask, fmt.Errorf("needs %v and runs on nothing else, not %v", need, ask)
	}
	if ask.SM != 0 && ask.SM < need.SM {
		return ask, fmt.Errorf("needs %v at least, not %v", need, ask)
	}
	ask.SM = max(ask.SM, need.SM)
	ask.Arch = ask.Arch || need.Arch
	ask.Version = max(ask.Version, need.Version, leastVersion(ask))
	return ask, nil
}
