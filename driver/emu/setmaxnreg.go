package emu

import (
	"fmt"

	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// setmaxnreg moves registers between warps. A warp gives some to a pool of its CTA, or takes some from
// it and waits until there are enough.
//
// The number of registers that each thread has at entry follows from the directives. ptxas ignores the
// instruction if they do not tell it (its warning C7508). The emulator does not see how many registers
// the compiled code uses, so it cannot tell whether they suffice after a setmaxnreg.dec. It assumes that
// warps that have exited keep their registers.
//
// Source: PTX ISA, setmaxnreg.
var setMaxNRegForms = []form{
	{pattern: "setmaxnreg.inc|dec.sync.aligned.u32", needs: requirement{80, 90}, build: buildSetMaxNReg},
}

const (
	registerUnit   = 8 // a thread gets a multiple of it
	leastRegisters = 24
	mostRegisters  = 256
	registersPerSM = 64 << 10
	registerPool   = 16 // in wait.barrier: the lane waits for registers
	warpMultiple   = 4  // an SM divides its registers among a multiple of it
)

// warpRegisters are the registers of a warp, per thread.
type warpRegisters struct {
	most    int      // that its threads may use
	lacking int      // that it waits for
	sets    []uint32 // times of its setmaxnreg
}

// buildSetMaxNReg decodes a number of registers.
func buildSetMaxNReg(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	if err := d.requireSM90a(in); err != nil {
		return op{}, err
	}
	if err := wantOperands(in, 1); err != nil {
		return op{}, err
	}
	n, err := constantOperand(in.Operands[0], "the number of registers", mostRegisters)
	if err == nil && (n < leastRegisters || n%registerUnit != 0) {
		err = fmt.Errorf("%d registers, want a multiple of %d from %d to %d", n, registerUnit, leastRegisters, mostRegisters)
	}
	if err != nil {
		return op{}, err
	}
	most := d.registerCap()
	if most == 0 {
		return op{}, fmt.Errorf("setmaxnreg needs .maxnreg, or .minnctapersm with .maxntid or .reqntid")
	}
	// The code is compiled for the largest number that it sets, if that is below the cap.
	d.prog.setMost = max(d.prog.setMost, n)
	d.prog.registers = (min(most, d.prog.setMost) + registerUnit - 1) / registerUnit * registerUnit
	grow := q[1] == "inc"
	return op{kind: opRun, aligned: true, run: func(w *warp, o *op, m uint32) result { return w.setMaxNReg(o, m, n, grow) }}, nil
}

// registerCap is the number of registers per thread that the directives allow, or 0 if they do not tell.
func (d *decoder) registerCap() int {
	e := d.entry
	threads := max(e.MaxNTID[0]*e.MaxNTID[1]*e.MaxNTID[2], e.ReqNTID[0]*e.ReqNTID[1]*e.ReqNTID[2])
	least := 0
	if e.MinCTAs > 0 {
		warps := (int(threads) + warpSize - 1) / warpSize * e.MinCTAs
		warps = (warps + warpMultiple - 1) / warpMultiple * warpMultiple
		least = registersPerSM / (warps * warpSize) / registerUnit * registerUnit
	}
	switch {
	case least == 0:
		return e.MaxNReg
	case e.MaxNReg == 0:
		return least
	}
	return min(e.MaxNReg, least)
}

// setMaxNReg sets the number of registers per thread of a warp, and waits for them if grow is set.
func (w *warp) setMaxNReg(o *op, m uint32, n int, grow bool) result {
	ready, res := w.convergeWarp(o, m)
	if !ready {
		return res
	}
	if !w.sameCall(warpgroupCall{op: o}) || !w.warpgroupSynchronized(o) {
		return resultTrap
	}
	more := n - w.registers.most
	if more != 0 && (more > 0) != grow {
		return w.trap(TrapWarpgroup, o, 0, "the warp has %d registers per thread before it sets %d", w.registers.most, n)
	}
	w.registers.most = n
	w.registers.sets = append(w.registers.sets, w.clock.now)
	w.clock.now++
	w.registers.lacking = max(more, 0)
	w.cta.registers -= min(more, 0)
	if grow {
		w.setPC(allLanes, w.pc+1)
		w.wait(allLanes, o, registerPool)
		res = resultReselect
	}
	w.cta.grantRegisters()
	return res
}

// warpgroupSynchronized traps unless the warps of the warpgroup have synchronized since the setmaxnreg
// before this one.
func (w *warp) warpgroupSynchronized(o *op) bool {
	n := len(w.registers.sets)
	if n == 0 || !w.cta.grid.races {
		return true
	}
	from := w.index / warpgroupWarps * warpgroupWarps
	for _, other := range w.cta.warps[from : from+warpgroupWarps] {
		if len(other.registers.sets) < n || other != w && !w.ordered(0, stamp(other.registers.sets[n-1])<<timeShift|stamp(other.gridIndex*warpSize)) {
			w.trap(TrapWarpgroup, o, 0, "warp %d has not synchronized with this one since its last setmaxnreg", other.index)
			return false
		}
	}
	return true
}

// grantRegisters gives free registers to warps that wait for them.
func (c *cta) grantRegisters() {
	for _, w := range c.warps {
		if w.waiting&1 != 0 && w.waits[0].barrier == registerPool && w.registers.lacking <= c.registers {
			c.registers -= w.registers.lacking
			w.waiting = 0
		}
	}
}
