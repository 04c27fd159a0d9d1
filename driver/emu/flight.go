package emu

import "slices"

// Products of a warpgroup go on behind its threads' back from their instruction to the wait for their
// group. Until then nothing may touch the registers of A and D, and nobody may write B.
// What a thread did to those registers before is seen by a product only if a wgmma.fence
// lies between (PTX ISA, asynchronous warpgroup instructions).

// flight is what a warp has under way.
type flight struct {
	open      []landing   // products since the last commit
	groups    [][]landing // committed and not waited for
	registers []register  // by number; only of programs with products
	fences    uint32      // how many wgmma.fence it has executed
	calls     int         // how many instructions of its warpgroup
}

// start forgets everything.
func (f *flight) start(p *program) {
	registers := f.registers
	if p.products && registers == nil {
		registers = make([]register, p.regs)
	}
	clear(registers)
	*f = flight{registers: registers}
}

// underWay are all products not waited for.
func (f *flight) underWay() []landing {
	return slices.Concat(append(f.groups[:len(f.groups):len(f.groups)], f.open)...)
}

// landing is a product under way.
type landing struct {
	op *op
	b  descriptor
}

// register is the state of one that is A's or D's of some product.
type register struct {
	sums, factor int32  // products under way that have it in D and in A
	op           *op    // the last of them
	touched      bool   // by another instruction
	fences       uint32 // then
}

// call is an instruction of a warpgroup that not all of its warps have come to.
type call struct {
	op         *op
	descriptor uint64
	adds       uint32
}

// warpgroup is four warps that execute the same instructions.
type warpgroup struct {
	calls []call
	first int // the number of calls[0]
}

// agree checks that the warps of the group execute the same instructions with the same B.
func (w *warp) agree(o *op, descriptor uint64, adds uint32) bool {
	all := w.cta.warps
	from := w.index / groupWarps * groupWarps
	if from+groupWarps > len(all) || all[from+groupWarps-1].started != allLanes {
		w.trap(TrapProduct, o, 0, "the CTA has no whole warpgroup at warp %d", from)
		return false
	}
	g := &w.cta.groups[from/groupWarps]
	mine := call{o, descriptor, adds}
	if i := w.flight.calls - g.first; i < len(g.calls) {
		switch other := g.calls[i]; {
		case other.op != o:
			w.trap(TrapProduct, o, 0, "another warp of the warpgroup is at line %d", other.op.line)
			return false
		case other != mine:
			w.trap(TrapProduct, o, 0, "another warp of the warpgroup has the descriptor %#x, not %#x, or adds where this one does not",
				other.descriptor, descriptor)
			return false
		}
	} else {
		g.calls = append(g.calls, mine)
	}
	w.flight.calls++
	least := w.flight.calls
	for _, other := range all[from : from+groupWarps] {
		if other.live == 0 && other.flight.calls < w.flight.calls {
			w.trap(TrapProduct, o, 0, "warp %d of the warpgroup has exited", other.index)
			return false
		}
		least = min(least, other.flight.calls)
	}
	g.calls, g.first = g.calls[least-g.first:], least
	return true
}

// landed checks that a thread that ends has waited for its copies and its warp's products, and
// left no other warp of the warpgroup alone.
func (w *warp) landed(o *op, lane int) {
	f := &w.flight
	if len(f.underWay()) > 0 {
		w.trap(TrapProduct, o, lane, "the warp ends while products are under way")
	}
	for l, groups := range w.async {
		for _, group := range groups {
			if len(group) > 0 {
				w.trap(TrapAsync, o, l, "the thread ends while its copy of line %d is under way", group[0].op.line)
				return
			}
		}
	}
	if i := w.index / groupWarps; i < len(w.cta.groups) {
		if g := w.cta.groups[i]; f.calls < g.first+len(g.calls) {
			w.trap(TrapProduct, o, lane, "the warp ends and others of its warpgroup are at line %d", g.calls[f.calls-g.first].op.line)
		}
	}
}

// runRegisterFence is wgmma.fence.
func runRegisterFence(w *warp, o *op) bool {
	if !w.agree(o, 0, 0) {
		return false
	}
	w.flight.fences++
	return true
}

// runProductCommit closes a group, which may be empty.
func runProductCommit(w *warp, o *op) bool {
	if !w.agree(o, 0, 0) {
		return false
	}
	f := &w.flight
	f.groups, f.open = append(f.groups, f.open), nil
	return true
}

// runProductWait ends all groups but the last so many.
func runProductWait(w *warp, o *op) bool {
	if !w.agree(o, 0, 0) {
		return false
	}
	f := &w.flight
	if len(f.groups) <= int(o.target) {
		return true
	}
	for len(f.groups) > int(o.target) {
		for _, p := range f.groups[0] {
			if !w.land(p) {
				return false
			}
		}
		f.groups = f.groups[1:]
	}
	w.syncLanes(w.live) // each lane knows that B has been read
	return true
}

// takeOff begins a product: it checks its registers and B and reserves them.
func (w *warp) takeOff(o *op, d descriptor) bool {
	f := &w.flight
	if f.fences == 0 {
		w.trap(TrapProduct, o, 0, "no wgmma.fence comes before the first product")
		return false
	}
	for i, r := range append(o.list[:len(o.list):len(o.list)], o.more...) {
		held := &f.registers[r]
		name, sum := w.cta.grid.prog.names[r], i < len(o.list)
		switch {
		case sum && held.factor > 0, !sum && held.sums > 0:
			w.trap(TrapProduct, o, 0, "%s is of A in one product and of D in another, that of line %d, which is under way", name, held.op.line)
			return false
		case held.touched && held.fences == f.fences:
			w.trap(TrapProduct, o, 0, "%s was accessed and no wgmma.fence lies between", name)
			return false
		case sum:
			held.sums++
		default:
			held.factor++
		}
		held.op = o
	}
	if !w.readB(o, d, true) {
		return false
	}
	f.open = append(f.open, landing{o, d})
	return true
}

// land ends a product.
func (w *warp) land(p landing) bool {
	for _, r := range p.op.list {
		w.flight.registers[r].sums--
	}
	for _, r := range p.op.more {
		w.flight.registers[r].factor--
	}
	return w.readB(p.op, p.b, false)
}
