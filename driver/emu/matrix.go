package emu

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

var matrixForms = []form{
	{pattern: "ldmatrix.sync.aligned.m8n8.x1|x2|x4.trans?.shared|shared::cta.b16", since: gate{65, 75}, build: buildLdMatrix},
	{pattern: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", since: gate{70, 80}, build: buildMMA},
	{pattern: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", since: gate{70, 80}, build: buildMMA},
	{pattern: "mma.sync.aligned.m16n8k32.row.col.s32.s8|u8.s8.s32", since: gate{70, 80}, build: buildMMA},
	{pattern: "mma.sync.aligned.m16n8k16.row.col.s32.s8|u8.s8.s32", since: gate{70, 80}, build: buildMMA},
}

// fragment decodes a vector of n registers of type t.
func (d *decoder) fragment(o syntax.Operand, n int, t syntax.Type) ([]int32, error) {
	elems := o.Elems
	if o.Kind == syntax.Name && n == 1 {
		elems = []syntax.Operand{o}
	}
	if len(elems) != n {
		return nil, fmt.Errorf("want a vector of %d registers", n)
	}
	var regs []int32
	for _, e := range elems {
		r, err := d.typed(e, t, t.Fits)
		if err != nil {
			return nil, err
		}
		regs = append(regs, r)
	}
	return regs, nil
}

// buildLdMatrix decodes {d…}, [row].
func buildLdMatrix(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 2); err != nil {
		return op{}, err
	}
	n := int(q[4][1] - '0')
	o := op{kind: opRun, run: runLdMatrix, aligned: true, shared: true, signed: q.has("trans"), size: 16}
	var err error
	if o.list, err = d.fragment(in.Operands[0], n, typeB32); err != nil {
		return o, err
	}
	o.a, o.imm, err = d.address(in.Operands[1], true)
	return o, err
}

// whole brings a warp's 32 lanes together for an instruction that takes them all.
func (w *warp) whole(o *op, m uint32) (bool, step) {
	lanes, st := w.assemble(o, m, m, allLanes)
	return lanes != 0, st
}

func runLdMatrix(w *warp, o *op, m uint32) step {
	ready, st := w.whole(o, m)
	if !ready {
		return st
	}
	n := len(o.list)
	rows := uint32(ones(8 * n))
	if !w.reads(o, rows, o.a) {
		return stepFault
	}
	var data [warpSize][16]byte
	for l := range lanesOf(rows) {
		s, at := w.locate(o, true, l, w.regs[o.a][l]+uint64(o.imm), 16, 16)
		if s == nil || !w.checkDefined(o, s, at, 16, l) || !w.note(o, s, at, 16, l, accessRead) {
			return stepFault
		}
		copy(data[l][:], s.data[at:])
	}
	got := alu.LdMatrix(func(lane int) [16]byte { return data[lane] }, n, o.signed)
	for i, d := range o.list {
		for l := range warpSize {
			w.set(d, l, uint64(got[l][i]))
		}
	}
	return st
}

// buildMMA decodes {d×4}, {a×4}, {b×2}, {c×4}, or half of a and b.
func buildMMA(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 4); err != nil {
		return op{}, err
	}
	result, _ := syntax.ParseType(q.last())
	o := op{kind: opRun, aligned: true, run: runMMA(q.has("bf16"))}
	ofA, ofB := 4, 2
	switch {
	case q.has("m16n8k16") && q.has("s32"):
		o.run, ofA, ofB = runShortMMA(q.has("u8")), 2, 1
	case q.has("s8"):
		o.run = runIntegerMMA(q.has("u8"))
	}
	b32 := typeB32
	for i, part := range []struct {
		n int
		t syntax.Type
	}{{4, result}, {ofA, b32}, {ofB, b32}, {4, result}} {
		regs, err := d.fragment(in.Operands[i], part.n, part.t)
		if err != nil {
			return o, fmt.Errorf("operand %d: %w", i+1, err)
		}
		if i == 0 {
			o.list = regs
		} else {
			o.more = append(o.more, regs...)
		}
	}
	return o, nil
}

// last is the last segment.
func (q quals) last() string { return q[len(q)-1] }

// factors reads the registers of A, B and C.
func (w *warp) factors(o *op) (a [warpSize][4]uint32, b [warpSize][2]uint32, c [warpSize][4]uint32) {
	for l := range warpSize {
		for i := range 4 {
			a[l][i] = uint32(w.regs[o.more[i]][l])
			c[l][i] = uint32(w.regs[o.more[6+i]][l])
		}
		for i := range 2 {
			b[l][i] = uint32(w.regs[o.more[4+i]][l])
		}
	}
	return
}

func runMMA(bf16 bool) func(*warp, *op, uint32) step {
	return func(w *warp, o *op, m uint32) step {
		ready, st := w.whole(o, m)
		if !ready {
			return st
		}
		if !w.reads(o, allLanes, o.more...) {
			return stepFault
		}
		a, b, bits := w.factors(o)
		var c, d [warpSize][4]float32
		for l := range c {
			for i := range c[l] {
				c[l][i] = math.Float32frombits(bits[l][i])
			}
		}
		w.cta.grid.tensor.MMA16816(&d, &a, &b, &c, bf16)
		for i, r := range o.list {
			for l := range d {
				w.set(r, l, bits32(d[l][i]))
			}
		}
		return st
	}
}

// runIntegerMMA takes bytes; those of A may be unsigned.
func runIntegerMMA(unsigned bool) func(*warp, *op, uint32) step {
	return func(w *warp, o *op, m uint32) step {
		return w.integerMMA(o, m, func(d, c *[warpSize][4]int32) {
			a, b, _ := w.factors(o)
			alu.MMA16832S8(d, &a, &b, c, unsigned)
		})
	}
}

// runShortMMA is that of half the columns of A and rows of B.
func runShortMMA(unsigned bool) func(*warp, *op, uint32) step {
	return func(w *warp, o *op, m uint32) step {
		return w.integerMMA(o, m, func(d, c *[warpSize][4]int32) {
			var a [warpSize][2]uint32
			var b [warpSize]uint32
			for l := range a {
				a[l] = [2]uint32{uint32(w.regs[o.more[0]][l]), uint32(w.regs[o.more[1]][l])}
				b[l] = uint32(w.regs[o.more[2]][l])
			}
			alu.MMA16816S8(d, &a, &b, c, unsigned)
		})
	}
}

// integerMMA brings a warp together, reads C, the last four registers, and writes D.
func (w *warp) integerMMA(o *op, m uint32, product func(d, c *[warpSize][4]int32)) step {
	ready, st := w.whole(o, m)
	if !ready {
		return st
	}
	if !w.reads(o, allLanes, o.more...) {
		return stepFault
	}
	var c, d [warpSize][4]int32
	for l := range c {
		for i, r := range o.more[len(o.more)-4:] {
			c[l][i] = int32(w.regs[r][l])
		}
	}
	product(&d, &c)
	for i, r := range o.list {
		for l := range d {
			w.set(r, l, uint64(uint32(d[l][i])))
		}
	}
	return st
}
