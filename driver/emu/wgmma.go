package emu

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// The asynchronous matrix instruction of a warpgroup.
//
// On a GPU, wgmma.mma_async executes from its issue to the wait for its group. Here each of the
// four warps computes its own 16 rows of the result at issue. The results are the same if the
// kernel follows these rules, and a violation traps:
//
//   - Between issue and wait, no other instruction may access the registers of D and A, and no
//     thread may write B in shared memory.
//   - Other instructions on the registers of D and A need a wgmma.fence before the issue.
//   - Writes to B by threads need a fence.proxy.async before the issue.
//   - The four warps execute the same wgmma instructions with the same descriptors.
//
// Source: PTX ISA, asynchronous warpgroup level matrix instructions.
var wgmmaForms = []form{
	{pattern: "wgmma.fence.sync.aligned", needs: requirement{80, 90}, build: buildWarpgroup(0, (*warp).wgmmaFence)},
	{pattern: "wgmma.commit_group.sync.aligned", needs: requirement{80, 90}, build: buildWarpgroup(0, (*warp).wgmmaCommit)},
	{pattern: "wgmma.wait_group.sync.aligned", needs: requirement{80, 90}, build: buildWarpgroup(1, (*warp).wgmmaWait)},
	{pattern: "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", needs: requirement{80, 90}, build: buildWGMMA},
	{pattern: "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8", needs: requirement{84, 90}, build: buildWGMMA},
}

const wgmmaPrefix = "wgmma.mma_async."

// The shape m64n64k32. A core matrix is the tile in which B [columns, depth] is stored: 8 columns
// of 16 consecutive bytes.
const (
	wgmmaColumns   = 64
	wgmmaDepth     = 32
	wgmmaDRegs     = 32 // per lane
	wgmmaARegs     = 4  // per lane
	coreColumns    = 8
	coreDepth      = 16
	coreBytes      = coreColumns * coreDepth
	coresAlongK    = wgmmaDepth / coreDepth
	cores          = wgmmaColumns / coreColumns * coresAlongK
	warpgroupWarps = 4
)

// wgmmaState is what a warp has in flight.
type wgmmaState struct {
	open      []asyncMMA   // issued since the last commit
	groups    [][]asyncMMA // committed and not waited for
	registers []mmaRegister
	fences    uint32 // wgmma.fence executed
	calls     int    // wgmma instructions executed
}

// asyncMMA is a wgmma.mma_async in flight. Its op has the registers of D in list, those of A in
// more, the descriptor of B in a, and the predicate scale-d in c.
type asyncMMA struct {
	op *op
	b  descriptor
}

// mmaRegister is the state of a register of a program with wgmma, by register index.
type mmaRegister struct {
	inD, inA int32  // instructions in flight that use it in D and in A
	op       *op    // the last of them
	accessed bool   // by another instruction
	fences   uint32 // wgmmaState.fences at that access
}

func (s *wgmmaState) start(p *program) {
	registers := s.registers
	if p.wgmma && registers == nil {
		registers = make([]mmaRegister, p.regs)
	}
	clear(registers)
	*s = wgmmaState{registers: registers}
}

// inFlight lists everything that has not been waited for.
func (s *wgmmaState) inFlight() []asyncMMA {
	return slices.Concat(append(s.groups[:len(s.groups):len(s.groups)], s.open)...)
}

// warpgroup is four warps that execute the same wgmma instructions.
type warpgroup struct {
	calls []wgmmaCall // executed by some warps but not by all
	first int         // number of calls[0]
}

// wgmmaCall is an instruction with the operands that must be the same in all four warps.
type wgmmaCall struct {
	op         *op
	descriptor uint64
	accumulate uint32
}

// buildWarpgroup returns the build function of an instruction with numbers (0 or 1) immediates. run
// gets the immediate as n.
func buildWarpgroup(numbers int, run func(w *warp, o *op, n int) bool) func(*decoder, *syntax.Instruction, qualifiers) (op, error) {
	return func(d *decoder, in *syntax.Instruction, _ qualifiers) (op, error) {
		if err := d.requireSM90a(in); err != nil {
			return op{}, err
		}
		if err := wantOperands(in, numbers); err != nil {
			return op{}, err
		}
		n := 0
		if numbers > 0 {
			var err error
			if n, err = constantOperand(in.Operands[0], "the number of groups", maxPendingGroups); err != nil {
				return op{}, err
			}
		}
		return op{kind: opRun, aligned: true, run: wholeWarp(func(w *warp, o *op) bool {
			return w.sameCall(wgmmaCall{op: o}) && run(w, o, n)
		})}, nil
	}
}

// wholeWarp returns the run function of an instruction that all lanes execute together. run returns
// false after a trap.
func wholeWarp(run func(w *warp, o *op) bool) func(*warp, *op, uint32) result {
	return func(w *warp, o *op, m uint32) result {
		ready, res := w.convergeWarp(o, m)
		if ready && !run(w, o) {
			return resultTrap
		}
		return res
	}
}

// requireSM90a refuses an instruction that only .target sm_90a has.
func (d *decoder) requireSM90a(in *syntax.Instruction) error {
	if d.mod.Target != "sm_90a" {
		return fmt.Errorf("%s needs .target sm_90a, the text declares %s", in.Opcode, d.mod.Target)
	}
	return nil
}

// buildWGMMA decodes {d×32}, {a×4}, descriptor of b, scale-d.
func buildWGMMA(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	unsigned := q[6] == "u8"
	o := op{kind: opRun, aligned: true, run: wholeWarp(func(w *warp, o *op) bool { return w.mmaAsync(o, unsigned) })}
	if err := d.requireSM90a(in); err != nil {
		return o, err
	}
	if err := wantOperands(in, 4); err != nil {
		return o, err
	}
	var err error
	if o.list, err = d.vector(in.Operands[0], wgmmaDRegs, typeS32); err != nil {
		return o, fmt.Errorf("d: %w", err)
	}
	for i, r := range o.list {
		if slices.Contains(o.list[:i], r) {
			return o, fmt.Errorf("d has %s twice", d.prog.names[r])
		}
	}
	if o.more, err = d.vector(in.Operands[1], wgmmaARegs, typeB32); err != nil {
		return o, fmt.Errorf("a: %w", err)
	}
	if o.a, err = d.typed(in.Operands[2], typeB64, typeB64.Fits); err != nil {
		return o, fmt.Errorf("the descriptor: %w", err)
	}
	d.prog.wgmma = true
	o.c, err = d.source(in.Operands[3], typePred)
	return o, err
}

// descriptor holds the address and the strides of B in shared memory, in bytes: the PTX ISA's
// matrix descriptor without swizzling.
type descriptor struct{ start, leading, stride uint64 }

// descriptorZeros are the bits of a descriptor that must be zero without swizzling: those between
// the fields, the base offset and the swizzling mode.
const descriptorZeros = 3<<14 | 3<<30 | uint64(1<<18-1)<<46

// descriptor reads the operand, which must be the same in all lanes.
func (w *warp) descriptor(o *op) (bits uint64, d descriptor, ok bool) {
	bits = w.regs[o.a][0]
	for l, v := range w.regs[o.a] {
		if v != bits {
			w.trap(TrapWGMMA, o, l, "the descriptor is %#x in this lane and %#x in lane 0", v, bits)
			return 0, d, false
		}
	}
	if extra := bits & descriptorZeros; extra != 0 {
		w.trap(TrapWGMMA, o, 0, "the descriptor %#x has bits %#x, which must be zero without swizzling", bits, extra)
		return 0, d, false
	}
	field := func(at int) uint64 { return bits >> at & (1<<14 - 1) << 4 }
	return bits, descriptor{field(0), field(16), field(32)}, true
}

// core is the address of core matrix i of B. The matrices along K come first.
func (d descriptor) core(i int) uint64 {
	return d.start + uint64(i%coresAlongK)*d.leading + uint64(i/coresAlongK)*d.stride
}

// mmaAsync issues a wgmma.mma_async.
func (w *warp) mmaAsync(o *op, unsigned bool) bool {
	if !w.reads(o, allLanes, o.a) || !w.readsPred(o, allLanes, o.c) {
		return false
	}
	bits, d, ok := w.descriptor(o)
	if !ok {
		return false
	}
	accumulate := w.preds[o.c]
	if accumulate != 0 && accumulate != allLanes {
		w.trap(TrapWGMMA, o, lowestLane(^accumulate), "lanes %08x add to the accumulator and the others do not", accumulate)
		return false
	}
	if !w.sameCall(wgmmaCall{o, bits, accumulate}) || !w.reads(o, allLanes, o.more...) || accumulate != 0 && !w.reads(o, allLanes, o.list...) {
		return false
	}
	if !w.reserveRegisters(o) || !w.readB(o, d, true) {
		return false
	}
	w.wgmma.open = append(w.wgmma.open, asyncMMA{o, d})
	w.multiply(o, d, accumulate != 0, unsigned)
	return true
}

// multiply computes D from A, B and, if accumulate is set, D.
func (w *warp) multiply(o *op, d descriptor, accumulate, unsigned bool) {
	var b [wgmmaColumns][wgmmaDepth]byte
	for i := range cores {
		data := w.cta.shared.data[d.core(i)-w.cta.shared.base:]
		column, k := i/coresAlongK*coreColumns, i%coresAlongK*coreDepth
		for j := range coreColumns {
			copy(b[column+j][k:], data[j*coreDepth:(j+1)*coreDepth])
		}
	}
	var a [warpSize][wgmmaARegs]uint32
	var sums [warpSize][wgmmaDRegs]int32
	for l := range warpSize {
		for i, r := range o.more {
			a[l][i] = uint32(w.regs[r][l])
		}
		if accumulate {
			for i, r := range o.list {
				sums[l][i] = int32(w.regs[r][l])
			}
		}
	}
	alu.WGMMAS8(&sums, &a, &b, unsigned)
	for i, r := range o.list {
		for l := range warpSize {
			w.set(r, l, uint64(uint32(sums[l][i])))
		}
	}
}

// sameCall checks that the four warps of the group execute the same instructions with the same B.
func (w *warp) sameCall(call wgmmaCall) bool {
	o, all := call.op, w.cta.warps
	from := w.index / warpgroupWarps * warpgroupWarps
	if from+warpgroupWarps > len(all) || all[from+warpgroupWarps-1].exists != allLanes {
		w.trap(TrapWGMMA, o, 0, "the CTA has no whole warpgroup at warp %d", from)
		return false
	}
	g := &w.cta.warpgroups[from/warpgroupWarps]
	if i := w.wgmma.calls - g.first; i < len(g.calls) {
		switch other := g.calls[i]; {
		case other.op != o:
			w.trap(TrapWGMMA, o, 0, "another warp of the warpgroup is at line %d", other.op.line)
			return false
		case other != call:
			w.trap(TrapWGMMA, o, 0, "the descriptor is %#x and scale-d %t, and in another warp of the warpgroup %#x and %t",
				call.descriptor, call.accumulate != 0, other.descriptor, other.accumulate != 0)
			return false
		}
	} else {
		g.calls = append(g.calls, call)
	}
	w.wgmma.calls++
	least := w.wgmma.calls
	for _, other := range all[from : from+warpgroupWarps] {
		if other.live == 0 && other.wgmma.calls < w.wgmma.calls {
			w.trap(TrapWGMMA, o, 0, "warp %d of the warpgroup has exited", other.index)
			return false
		}
		least = min(least, other.wgmma.calls)
	}
	g.calls, g.first = g.calls[least-g.first:], least
	return true
}

// checkWGMMAAtExit traps if a warp ends while a wgmma is in flight. It also traps if other warps of
// the warpgroup have executed wgmma instructions that this warp has not.
func (w *warp) checkWGMMAAtExit(o *op, lane int) {
	if len(w.wgmma.inFlight()) > 0 {
		w.trap(TrapWGMMA, o, lane, "the warp ends while wgmma.mma_async is in flight")
	}
	if i := w.index / warpgroupWarps; i < len(w.cta.warpgroups) {
		if g := w.cta.warpgroups[i]; w.wgmma.calls < g.first+len(g.calls) {
			w.trap(TrapWGMMA, o, lane, "the warp ends and others of its warpgroup are at line %d", g.calls[w.wgmma.calls-g.first].op.line)
		}
	}
}

func (w *warp) wgmmaFence(*op, int) bool {
	w.wgmma.fences++
	return true
}

// wgmmaCommit closes a group, which may be empty.
func (w *warp) wgmmaCommit(*op, int) bool {
	s := &w.wgmma
	s.groups, s.open = append(s.groups, s.open), nil
	return true
}

// wgmmaWait completes the oldest groups until at most pending are left.
func (w *warp) wgmmaWait(_ *op, pending int) bool {
	s := &w.wgmma
	if len(s.groups) <= pending {
		return true
	}
	for len(s.groups) > pending {
		for _, mma := range s.groups[0] {
			if !w.completeMMA(mma) {
				return false
			}
		}
		s.groups = s.groups[1:]
	}
	w.syncLanes(w.live) // each lane knows that B has been read
	return true
}

func (w *warp) completeMMA(mma asyncMMA) bool {
	for _, r := range mma.op.list {
		w.wgmma.registers[r].inD--
	}
	for _, r := range mma.op.more {
		w.wgmma.registers[r].inA--
	}
	return w.readB(mma.op, mma.b, false)
}

// reserveRegisters checks the registers of D and A, and marks them as used in flight.
func (w *warp) reserveRegisters(o *op) bool {
	s := &w.wgmma
	if s.fences == 0 {
		w.trap(TrapWGMMA, o, 0, "no wgmma.fence comes before the first wgmma.mma_async")
		return false
	}
	for i, r := range slices.Concat(o.list, o.more) {
		reg, name, isD := &s.registers[r], w.cta.grid.prog.names[r], i < len(o.list)
		switch {
		case isD && reg.inA > 0, !isD && reg.inD > 0:
			w.trap(TrapWGMMA, o, 0, "%s is used in A by one instruction and in D by another, that of line %d, which is in flight", name, reg.op.line)
			return false
		case reg.accessed && reg.fences == s.fences:
			w.trap(TrapWGMMA, o, 0, "%s was accessed by another instruction, and no wgmma.fence followed", name)
			return false
		case isD:
			reg.inD++
		default:
			reg.inA++
		}
		reg.op = o
	}
	return true
}

// watchWGMMARegisters finds the other instructions that access a register of some D or A. It makes
// them call noteAccess first.
func (d *decoder) watchWGMMARegisters() {
	if !d.prog.wgmma {
		return
	}
	used := map[string]bool{}
	for _, in := range d.entry.Body {
		if strings.HasPrefix(in.Opcode, wgmmaPrefix) && len(in.Operands) > 1 {
			for _, e := range append(in.Operands[0].Elems, in.Operands[1].Elems...) {
				used[e.Name] = true
			}
		}
	}
	for i, in := range d.entry.Body {
		var regs []int32
		for _, o := range in.Operands {
			for _, e := range append([]syntax.Operand{o}, o.Elems...) {
				if used[e.Name] {
					regs = append(regs, d.regs[e.Name])
				}
			}
		}
		if o := &d.prog.ops[i]; len(regs) > 0 && !strings.HasPrefix(in.Opcode, wgmmaPrefix) {
			inner := *o
			*o = op{kind: opRun, guard: o.guard, negated: o.negated, line: o.line, run: func(w *warp, o *op, m uint32) result {
				if !w.noteAccess(o, m, regs) {
					return resultTrap
				}
				return w.execute(&inner, m)
			}}
		}
	}
}

// noteAccess records an access of another instruction to registers of D or A. It traps if a wgmma in
// flight uses them.
func (w *warp) noteAccess(o *op, m uint32, regs []int32) bool {
	s := &w.wgmma
	for _, r := range regs {
		reg := &s.registers[r]
		if reg.inD+reg.inA > 0 {
			w.trap(TrapWGMMA, o, lowestLane(m), "%s is in use by the wgmma.mma_async of line %d, whose group has not been waited for",
				w.cta.grid.prog.names[r], reg.op.line)
			return false
		}
		reg.accessed, reg.fences = true, s.fences
	}
	return true
}

// wgmmaReads counts, for each 16 bytes of shared memory, the instructions in flight that read them.
type wgmmaReads struct {
	inFlight int
	chunks   []uint16
}

func (r *wgmmaReads) start(p *program, sharedBytes int) {
	if p.wgmma && r.chunks == nil {
		r.chunks = make([]uint16, (sharedBytes+coreDepth-1)/coreDepth)
	}
	r.inFlight = 0
	clear(r.chunks)
}

// add adds n to the counts of the core matrix at an offset.
func (r *wgmmaReads) add(at int, n int) {
	for i := range coreBytes / coreDepth {
		r.chunks[at/coreDepth+i] += uint16(n)
	}
}

// checkWGMMAReads traps if a write to shared memory hits bytes that an instruction in flight reads.
func (w *warp) checkWGMMAReads(o *op, at, n, lane int) bool {
	r := &w.cta.wgmmaReads
	if r.inFlight == 0 {
		return true
	}
	for i := at / coreDepth; i <= (at+n-1)/coreDepth; i++ {
		if r.chunks[i] > 0 {
			w.trap(TrapRace, o, lane, "byte %d of shared memory is written while %s still reads it", max(at, i*coreDepth), w.cta.wgmmaReader(i))
			return false
		}
	}
	return true
}

// wgmmaReader describes an instruction in flight that reads a chunk.
func (c *cta) wgmmaReader(chunk int) string {
	for _, w := range c.warps {
		for _, mma := range w.wgmma.inFlight() {
			for i := range cores {
				if at := int(mma.b.core(i)-c.shared.base) / coreDepth; at <= chunk && chunk < at+coreBytes/coreDepth {
					return fmt.Sprintf("the wgmma.mma_async of line %d of warp %d", mma.op.line, w.index)
				}
			}
		}
	}
	return "a wgmma.mma_async"
}

// readB records a read of B. It is called at issue and again at completion, because a write between
// the two is also a race.
func (w *warp) readB(o *op, d descriptor, issue bool) bool {
	for i := range cores {
		s, at := w.locate(o, true, 0, d.core(i), coreBytes, coreDepth)
		if s == nil || !w.checkDefined(o, s, at, coreBytes, 0) || !w.checkAccess(o, s, at, coreBytes, 0, accessRead) {
			return false
		}
		if issue && !w.checkProxyFences(o, s, at, coreBytes) {
			return false
		}
	}
	n := 1
	if !issue {
		n = -1
	}
	for i := range cores {
		w.cta.wgmmaReads.add(int(d.core(i)-w.cta.shared.base), n)
	}
	w.cta.wgmmaReads.inFlight += n
	return true
}

// proxyFence is a fence.proxy.async that lanes executed at a time of their warp.
type proxyFence struct{ time, lanes uint32 }

// checkProxyFences traps unless each thread that wrote some of n bytes of shared memory has
// executed a fence.proxy.async since, which is ordered before now. Bulk copies need none.
func (w *warp) checkProxyFences(o *op, s *segment, at, n int) bool {
	if !w.cta.grid.races {
		return true
	}
	var seen stamp
	for end, size := at+n, 0; at < end; at += size {
		p := w.page(s, at, n)
		if size = wordBytes; p.fine {
			size = 1
		}
		c := &p.cells[at%pageBytes/size]
		if c.write == 0 || c.bulk || c.write == seen {
			continue
		}
		if seen = c.write; !w.proxyFencedAfter(seen) {
			w.trap(TrapRace, o, 0, "byte %d of %s was written at line %d by thread %d, and no fence.proxy.async of that thread followed",
				at, s.name, c.writeLine, w.threadInCTA(seen))
			return false
		}
	}
	return true
}

func (w *warp) threadInCTA(s stamp) int {
	return int(s.thread()) - w.cta.number*len(w.cta.warps)*warpSize
}

// proxyFencedAfter finds the first fence.proxy.async that a thread executed after a write, and
// reports whether it is ordered before now.
func (w *warp) proxyFencedAfter(s stamp) bool {
	all := w.cta.warps[w.threadInCTA(s)/warpSize].clock.proxyFences
	for _, f := range all[sort.Search(len(all), func(i int) bool { return all[i].time >= s.time() }):] {
		if f.lanes>>(s.thread()%warpSize)&1 != 0 {
			return w.ordered(0, stamp(f.time)<<timeShift|stamp(s.thread()))
		}
	}
	return false
}
