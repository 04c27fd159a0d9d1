package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// Matrix instructions of a warp.
var matrixForms = []form{
	{pattern: "ldmatrix.sync.aligned.m8n8.x1|x2|x4.trans?.shared|shared::cta.b16", needs: requirement{65, 75}, build: buildLdMatrix},
	{pattern: "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", needs: requirement{70, 80}, build: buildMMA},
	{pattern: "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", needs: requirement{70, 80}, build: buildMMA},
	{pattern: "mma.sync.aligned.m16n8k32.row.col.s32.s8|u8.s8.s32", needs: requirement{70, 80}, build: buildMMA},
	{pattern: "mma.sync.aligned.m16n8k16.row.col.s32.s8|u8.s8.s32", needs: requirement{70, 80}, build: buildMMA},
}

// vector decodes a vector of n registers of type t. One register needs no braces.
func (d *decoder) vector(o syntax.Operand, n int, t syntax.Type) ([]int32, error) {
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
func buildLdMatrix(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := wantOperands(in, 2); err != nil {
		return op{}, err
	}
	n, trans := int(q[4][1]-'0'), q.has("trans")
	o := op{kind: opRun, aligned: true}
	o.run = func(w *warp, o *op, m uint32) result { return w.ldMatrix(o, m, trans) }
	var err error
	if o.list, err = d.vector(in.Operands[0], n, typeB32); err != nil {
		return o, err
	}
	o.a, o.imm, err = d.address(in.Operands[1], true)
	return o, err
}

// ldMatrix loads len(o.list) matrices of 8 rows. Lane l has the address of row l.
func (w *warp) ldMatrix(o *op, m uint32, trans bool) result {
	ready, res := w.convergeWarp(o, m)
	if !ready {
		return res
	}
	n := len(o.list)
	rows := uint32(ones(8 * n))
	if !w.reads(o, rows, o.a) {
		return resultTrap
	}
	var data [warpSize][16]byte
	for l := range lanesOf(rows) {
		s, at := w.locate(o, true, l, w.regs[o.a][l]+uint64(o.imm), 16, 16)
		if s == nil || !w.checkDefined(o, s, at, 16, l) || !w.checkAccess(o, s, at, 16, l, accessRead) {
			return resultTrap
		}
		copy(data[l][:], s.data[at:])
	}
	out := alu.LdMatrix(func(lane int) [16]byte { return data[lane] }, n, trans)
	for i, r := range o.list {
		for l := range warpSize {
			w.set(r, l, uint64(out[l][i]))
		}
	}
	return res
}

// buildMMA decodes {d…}, {a…}, {b…}, {c…}. The op has the registers of d in list, and those of a, b
// and c in more.
func buildMMA(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := wantOperands(in, 4); err != nil {
		return op{}, err
	}
	sum, _ := syntax.ParseType(q[len(q)-1])
	regsA, regsB := 4, 2
	bf16 := q.has("bf16")
	multiply := func(w *warp, o *op) { w.mma16816(o, bf16) }
	if q.has("s32") {
		unsigned, k16 := q.has("u8"), q.has("m16n8k16")
		if k16 {
			regsA, regsB = 2, 1
		}
		multiply = func(w *warp, o *op) { w.mmaInt8(o, k16, unsigned) }
	}
	o := op{kind: opRun, aligned: true, run: func(w *warp, o *op, m uint32) result {
		ready, res := w.convergeWarp(o, m)
		if ready {
			if !w.reads(o, allLanes, o.more...) {
				return resultTrap
			}
			multiply(w, o)
		}
		return res
	}}
	for i, part := range []struct {
		n int
		t syntax.Type
	}{{4, sum}, {regsA, typeB32}, {regsB, typeB32}, {4, sum}} {
		regs, err := d.vector(in.Operands[i], part.n, part.t)
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

// mma16816 is mma.m16n8k16 of f16 or bf16.
func (w *warp) mma16816(o *op, bf16 bool) {
	var a [warpSize][4]uint32
	var b [warpSize][2]uint32
	var c, d [warpSize][4]float32
	for l := range warpSize {
		for i, r := range o.more[:4] {
			a[l][i] = uint32(w.regs[r][l])
		}
		for i, r := range o.more[4:6] {
			b[l][i] = uint32(w.regs[r][l])
		}
		for i, r := range o.more[6:10] {
			c[l][i] = float32Of(w.regs[r][l])
		}
	}
	w.cta.grid.tensor.MMA16816(&d, &a, &b, &c, bf16)
	for i, r := range o.list {
		for l := range d {
			w.set(r, l, bits32(d[l][i]))
		}
	}
}

// mmaInt8 is mma.m16n8k32 of bytes, or with k16 mma.m16n8k16. unsigned is the type of A.
func (w *warp) mmaInt8(o *op, k16, unsigned bool) {
	regsA, regsB := 4, 2
	if k16 {
		regsA, regsB = 2, 1
	}
	var a [warpSize][4]uint32 // K from 16 on is zero if k16
	var b [warpSize][2]uint32
	var c, d [warpSize][4]int32
	for l := range warpSize {
		for i, r := range o.more[:regsA] {
			a[l][i] = uint32(w.regs[r][l])
		}
		for i, r := range o.more[regsA : regsA+regsB] {
			b[l][i] = uint32(w.regs[r][l])
		}
		for i, r := range o.more[regsA+regsB:] {
			c[l][i] = int32(w.regs[r][l])
		}
	}
	alu.MMA16832S8(&d, &a, &b, &c, unsigned)
	for i, r := range o.list {
		for l := range d {
			w.set(r, l, uint64(uint32(d[l][i])))
		}
	}
}
