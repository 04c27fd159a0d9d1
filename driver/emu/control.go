package emu

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

var controlForms = []form{
	{pattern: "bra.uni?", build: buildBranch},
	{pattern: "ret|exit.uni?", build: buildExit},
	{pattern: "trap", build: buildTrap},
	{pattern: "bar.sync", build: buildBarrier},
	{pattern: "barrier.sync.aligned?", since: gate{60, 30}, build: buildBarrier},
	{pattern: "membar.cta|gl|sys", build: buildFence},
	{pattern: "fence.acq_rel|sc." + scopes, since: gate{60, 70}, build: buildFence},
	{pattern: "griddepcontrol.wait|launch_dependents", since: gate{78, 90}, build: buildDependency},
}

func buildBranch(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	if err := count(in, 1); err != nil {
		return op{}, err
	}
	o := op{kind: opBranch, uniform: q[1] == "uni"}
	var err error
	o.target, err = d.label(in.Operands[0])
	return o, err
}

func buildExit(_ *decoder, in *syntax.Instruction, _ quals) (op, error) {
	return op{kind: opExit}, count(in, 0)
}

func buildTrap(_ *decoder, in *syntax.Instruction, _ quals) (op, error) {
	return op{kind: opRun, run: func(w *warp, o *op, m uint32) step {
		return w.trap(TrapExplicit, o, bits.TrailingZeros32(m), "the kernel asked for it")
	}}, count(in, 0)
}

// buildBarrier decodes id[, threads].
func buildBarrier(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	o := op{kind: opRun, run: runBarrier, aligned: q[0] == "bar" || q.has("aligned"), b: -1}
	if len(in.Operands) < 1 || len(in.Operands) > 2 {
		return o, count(in, 2)
	}
	var err error
	if o.a, err = d.source(in.Operands[0], typeU32); err != nil || len(in.Operands) == 1 {
		return o, err
	}
	o.b, err = d.source(in.Operands[1], typeU32)
	return o, err
}

// buildFence decodes a fence: without effect on memory, which is sequentially
// consistent here, but it orders accesses for the detection of races.
func buildFence(_ *decoder, in *syntax.Instruction, q quals) (op, error) {
	return op{kind: opRun, order: order{cta: q.has("cta")}, run: runFence}, count(in, 0)
}

func runFence(w *warp, o *op, m uint32) step {
	w.fence(o, m)
	return stepNext
}
