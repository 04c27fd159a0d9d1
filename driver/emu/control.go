package emu

import "github.com/lockstep-go/lockstep/driver/emu/internal/syntax"

// Branches, exits, traps and fences.
var controlForms = []form{
	{pattern: "bra.uni?", build: buildBranch},
	{pattern: "ret|exit.uni?", build: buildExit},
	{pattern: "trap", build: buildTrap},
	{pattern: "membar.cta|gl|sys", build: buildFence},
	{pattern: "fence.acq_rel|sc." + scopes, needs: requirement{60, 70}, build: buildFence},
	{pattern: "fence.mbarrier_init.release.cluster", needs: requirement{80, 90}, build: buildFence},
	{pattern: "fence.proxy.async.global|shared::cta|shared::cluster?", needs: requirement{80, 90}, build: buildProxyFence},
	{pattern: "griddepcontrol.wait|launch_dependents", needs: requirement{78, 90}, build: buildGridDependency},
}

func buildBranch(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := wantOperands(in, 1); err != nil {
		return op{}, err
	}
	o := op{kind: opBranch, uniform: q[1] == "uni"}
	var err error
	o.target, err = d.label(in.Operands[0])
	return o, err
}

func buildExit(_ *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
	return op{kind: opExit}, wantOperands(in, 0)
}

func buildTrap(_ *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
	return op{kind: opRun, run: func(w *warp, o *op, m uint32) result {
		return w.trap(TrapExplicit, o, lowestLane(m), "the kernel executed a trap instruction")
	}}, wantOperands(in, 0)
}

// buildFence decodes a fence. Memory is sequentially consistent here, so a fence matters only for
// the detection of races.
func buildFence(_ *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	return op{kind: opRun, order: order{cta: q.has("cta")}, run: func(w *warp, o *op, m uint32) result {
		w.fence(o, m)
		return resultNext
	}}, wantOperands(in, 0)
}

// buildProxyFence decodes fence.proxy.async, which makes earlier writes of a thread to shared
// memory visible to wgmma. It is a fence, too.
func buildProxyFence(_ *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	shared := !q.has("global")
	return op{kind: opRun, run: func(w *warp, o *op, m uint32) result {
		if shared && w.cta.grid.races {
			w.clock.proxyFences = append(w.clock.proxyFences, proxyFence{w.clock.now, m})
		}
		w.fence(o, m)
		return resultNext
	}}, wantOperands(in, 0)
}
