package ptx

import (
	"strings"
	"testing"
)

// TestTypes checks instructions that the typed methods cannot build.
func TestTypes(t *testing.T) {
	reg := func(c class) arg { return one(operand{kind: register, class: c}) }
	mem := at(operand{kind: register, class: b64}, 0)
	for _, c := range []struct {
		op   string
		args []arg
		want string // "" if valid
	}{
		{"add.rn.f32", []arg{reg(f32), reg(f32), reg(f32)}, ""},
		{"add.rn.f32", []arg{reg(f32), reg(f32), reg(b32)}, "operand 3"},
		{"add.u32", []arg{reg(f32), reg(b32), reg(b32)}, "operand 1"},
		{"add.u32", []arg{reg(b32), reg(b32)}, "2 operands, want 3"},
		{"and.b32", []arg{reg(b32), reg(b32), reg(f32)}, ""},
		{"mul.wide.u32", []arg{reg(b64), reg(b32), reg(b32)}, ""},
		{"mul.wide.u32", []arg{reg(b32), reg(b32), reg(b32)}, "operand 1"},
		{"mad.wide.u32", []arg{reg(b64), reg(b32), number(4), reg(b32)}, "operand 4"},
		{"setp.lt.f32", []arg{reg(b32), reg(f32), reg(f32)}, "operand 1"},
		{"selp.f32", []arg{reg(f32), reg(f32), reg(f32), reg(b32)}, "operand 4"},
		{"cvt.rn.f32.u32", []arg{reg(f32), reg(f32)}, "operand 2"},
		{"cvt.rn.f16x2.f32", []arg{reg(b32), reg(f32), reg(f32)}, ""},
		{"cvt.f32.f16", []arg{reg(f32), reg(b16)}, ""},
		{"cvt.f32.f16", []arg{reg(f32), one(operand{kind: immediate, class: b16, n: 7})}, "operand 2 is the constant"},
		{"add.rn.f16x2", []arg{reg(b32), reg(b32), reg(b32)}, ""},
		{"add.rn.f16x2", []arg{reg(b32), reg(b32), number(7)}, "operand 3 is the constant 7"},
		{"fma.rn.bf16x2", []arg{reg(b32), reg(b32), number(7), reg(b32)}, "operand 3 is the constant 7"},
		{"cvt.rn.f16x2.f32", []arg{reg(b32), one(operand{kind: immediate, class: f32}), reg(f32)}, ""},
		{"atom.acq_rel.gpu.global.add.u32", []arg{reg(b32), at(operand{kind: immediate, class: b64}, 0), reg(b32)}, "is a constant"},
		{"shl.b64", []arg{reg(b64), reg(b64), reg(b64)}, "operand 3"},
		{"ld.global.f32", []arg{reg(f32), mem}, ""},
		{"ld.global.u8", []arg{reg(b32), mem}, ""},
		{"ld.global.f32", []arg{reg(b32), mem}, "cannot hold .f32"},
		{"ld.global.v4.f32", []arg{braces(operand{kind: register, class: f32}), mem}, "1 registers for a vector of 4"},
		{"atom.acq_rel.gpu.global.add.u32", []arg{reg(b32), reg(b64), reg(b32)}, "not an address"},
	} {
		err := checkTypes(&inst{op: c.op, args: c.args, dsts: 1})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", &inst{op: c.op, args: c.args}, err, c.want)
		}
	}
}

// TestCoalesce checks that a result is written directly to the variable it is moved to, if nothing
// between uses the variable and nothing else reads the result.
func TestCoalesce(t *testing.T) {
	for _, c := range []struct {
		name  string
		moves int
		make  func(b *Builder, v F32, x F32)
	}{
		{"at once", 0, func(b *Builder, v, x F32) { Set(v, x.Add(v)) }},
		{"read between", 1, func(b *Builder, v, x F32) { s := x.Add(x); v.Neg(); Set(v, s) }},
		{"read afterwards", 1, func(b *Builder, v, x F32) { s := x.Add(x); Set(v, s); s.Neg() }},
		{"written between", 1, func(b *Builder, v, x F32) { s := x.Add(x); Set(v, x.Neg()); Set(v, s) }},
		{"another variable", 1, func(b *Builder, v, x F32) { Set(v, Var(x.Neg())) }},
		{"under a predicate", 0, func(b *Builder, v, x F32) { b.When(x.Lt(v), func() { Set(v, x.Neg()) }) }},
		{"made outside the predicate", 1, func(b *Builder, v, x F32) {
			p, s := x.Lt(x), x.Neg()
			b.When(p, func() { Set(v, s) })
		}},
	} {
		b := New("k")
		x := b.ParamF32("x")
		v := Var(x.Neg())
		c.make(b, v, x)
		if _, err := b.Finish(MaxThreads(32)); err != nil {
			t.Fatal(err)
		}
		moves := 0
		each(b.body, func(in *inst) {
			if strings.HasPrefix(in.op, "mov.f32") {
				moves++
			}
		})
		if moves != c.moves {
			t.Errorf("%s: %d moves, want %d", c.name, moves, c.moves)
		}
	}
}
