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
//     thread may write A or B in shared memory. A product of the same shape may add to the same D.
//   - If another instruction has accessed a register of D or A, a wgmma.fence comes before the issue.
//   - Writes to shared A and B by threads need a fence.proxy.async before the issue.
//   - The four warps execute the same wgmma instructions with the same descriptors.
//
// Source: PTX ISA, asynchronous warpgroup level matrix instructions.
var wgmmaForms = []form{
	{pattern: "wgmma.fence.sync.aligned", needs: requirement{80, 90}, build: buildWarpgroup(0, (*warp).wgmmaFence)},
	{pattern: "wgmma.commit_group.sync.aligned", needs: requirement{80, 90}, build: buildWarpgroup(0, (*warp).wgmmaCommit)},
	{pattern: "wgmma.wait_group.sync.aligned", needs: requirement{80, 90}, build: buildWarpgroup(1, (*warp).wgmmaWait)},
	{pattern: "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", needs: requirement{80, 90}, build: buildWGMMA},
	{pattern: "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8", needs: requirement{84, 90}, build: buildWGMMA},
	{pattern: "wgmma.mma_async.sync.aligned." + shapesK16() + ".f32.f16.f16", needs: requirement{80, 90}, build: buildWGMMA},
	{pattern: "wgmma.mma_async.sync.aligned." + shapesK16() + ".f32.bf16.bf16", needs: requirement{80, 90}, build: buildWGMMA},
}

// shapesK16 are the alternatives m64n8k16 to m64n256k16.
func shapesK16() string {
	var all []string
	for n := 8; n <= maxMatrixSize; n += 8 {
		all = append(all, fmt.Sprintf("m64n%dk16", n))
	}
	return strings.Join(all, "|")
}

const (
	wgmmaPrefix    = "wgmma.mma_async."
	wgmmaRows      = 64
	wgmmaARegs     = 4 // per lane
	warpgroupWarps = 4
)

// product is what a wgmma.mma_async computes.
type product struct {
	shape          string // such as m64n256k16
	columns        int
	float          bool // of f16 or bf16, else of bytes
	bf16           bool
	unsigned       bool // the bytes of A
	transA, transB bool
}

// wgmmaState is what a warp has in flight.
type wgmmaState struct {
	inFlight  []asyncMMA // in the order of issue
	groups    []int      // how many of them each committed group has
	open      int        // how many were issued since the last commit
	registers []mmaRegister
	fences    uint32 // wgmma.fence executed
	calls     int    // wgmma instructions and setmaxnreg executed
}

// asyncMMA is a wgmma.mma_async in flight. Its op has the registers of D in list and those of A in
// more, the descriptor of B in a, and the predicate scale-d in c. If more is empty, the descriptor
// of A is in b.
type asyncMMA struct {
	op       *op
	matrices [2]sharedMatrix // B and, unless it is in registers, A
}

// shared returns the matrices in shared memory.
func (mma *asyncMMA) shared() []sharedMatrix {
	if len(mma.op.more) > 0 {
		return mma.matrices[:1]
	}
	return mma.matrices[:]
}

// mmaRegister is the state of a register of a program with wgmma, by register index.
type mmaRegister struct {
	inD, inA int32  // instructions in flight that use it in D and in A
	op       *op    // the last wgmma that used it
	issued   uint32 // wgmmaState.fences at that wgmma
	accessed bool   // by another instruction
	fences   uint32 // wgmmaState.fences at that access
}

func (s *wgmmaState) start(p *program) {
	registers := s.registers
	if p.wgmma && registers == nil {
		registers = make([]mmaRegister, p.regs)
	}
	clear(registers)
	*s = wgmmaState{inFlight: s.inFlight[:0], groups: s.groups[:0], registers: registers}
}

// warpgroup is four warps that execute the same wgmma instructions and setmaxnreg.
type warpgroup struct {
	calls []warpgroupCall // executed by some warps but not by all
	first int             // number of calls[0]
}

// warpgroupCall is an instruction with the operands that must be the same in all four warps.
type warpgroupCall struct {
	op          *op
	descriptors [2]uint64 // of B and, unless it is in registers, A
	accumulate  uint32
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
			return w.sameCall(warpgroupCall{op: o}) && run(w, o, n)
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

// buildWGMMA decodes {d…}, {a×4} or the descriptor of a, the descriptor of b, scale-d. For f16 and bf16
// follow the scales of a and b, and whether a, unless in registers, and b are transposed.
func buildWGMMA(d *decoder, in *syntax.Instruction, q qualifiers) (op, error) {
	p := &product{shape: q[4], float: q[5] == "f32", bf16: q[6] == "bf16", unsigned: q[6] == "u8"}
	fmt.Sscanf(p.shape, "m64n%dk", &p.columns)
	o := op{kind: opRun, aligned: true, product: p, run: wholeWarp((*warp).mmaAsync)}
	if err := d.requireSM90a(in); err != nil {
		return o, err
	}
	inRegisters := len(in.Operands) > 1 && in.Operands[1].Kind == syntax.Vector
	scales, transposed := 0, []*bool{}
	typ := typeS32
	if p.float {
		scales, typ = 2, typeF32
		if !inRegisters {
			transposed = append(transposed, &p.transA)
		}
		transposed = append(transposed, &p.transB)
	}
	if err := wantOperands(in, 4+scales+len(transposed)); err != nil {
		return o, err
	}
	var err error
	if o.list, err = d.vector(in.Operands[0], p.columns/2, typ); err != nil {
		return o, fmt.Errorf("d: %w", err)
	}
	for i, r := range o.list {
		if slices.Contains(o.list[:i], r) {
			return o, fmt.Errorf("d has %s twice", d.prog.names[r])
		}
	}
	if inRegisters {
		o.more, err = d.vector(in.Operands[1], wgmmaARegs, typeB32)
	} else {
		o.b, err = d.typed(in.Operands[1], typeB64, typeB64.Fits)
	}
	if err != nil {
		return o, fmt.Errorf("a: %w", err)
	}
	if o.a, err = d.typed(in.Operands[2], typeB64, typeB64.Fits); err != nil {
		return o, fmt.Errorf("the descriptor of b: %w", err)
	}
	if o.c, err = d.source(in.Operands[3], typePred); err != nil {
		return o, err
	}
	for i, name := range []string{"imm-scale-a", "imm-scale-b"}[:scales] {
		if s := in.Operands[4+i]; s.Kind != syntax.ImmInt || s.Value != 1 {
			return o, fmt.Errorf("%s is not 1: negated matrices are not supported", name)
		}
	}
	for i, t := range transposed {
		n, err := constantOperand(in.Operands[4+scales+i], "imm-trans", 1)
		if err != nil {
			return o, err
		}
		*t = n == 1
	}
	d.prog.wgmma = true
	return o, nil
}

// mmaAsync issues a wgmma.mma_async.
func (w *warp) mmaAsync(o *op) bool {
	if !w.reads(o, allLanes, o.a, o.b) || !w.readsPred(o, allLanes, o.c) {
		return false
	}
	mma, call := asyncMMA{op: o}, warpgroupCall{op: o, accumulate: w.preds[o.c]}
	for i := range mma.shared() {
		reg, size, transposed := o.a, o.product.columns, o.product.transB
		if i > 0 {
			reg, size, transposed = o.b, wgmmaRows, o.product.transA
		}
		var ok bool
		if call.descriptors[i], mma.matrices[i], ok = w.matrix(o, reg, size, transposed); !ok {
			return false
		}
	}
	if call.accumulate != 0 && call.accumulate != allLanes {
		w.trap(TrapWarpgroup, o, lowestLane(^call.accumulate), "lanes %08x add to the accumulator and the others do not", call.accumulate)
		return false
	}
	if !w.sameCall(call) || !w.reads(o, allLanes, o.more...) || call.accumulate != 0 && !w.reads(o, allLanes, o.list...) {
		return false
	}
	if !w.reserveRegisters(o) || !w.readShared(&mma, true) {
		return false
	}
	w.wgmma.inFlight = append(w.wgmma.inFlight, mma)
	w.wgmma.open++
	w.multiply(&mma, call.accumulate != 0)
	return true
}

// multiply computes D from A, B and, if accumulate is set, D.
func (w *warp) multiply(mma *asyncMMA, accumulate bool) {
	o := mma.op
	var a [wgmmaRows / warpgroupWarps][depthBytes]byte
	var matrix [maxMatrixSize][depthBytes]byte
	if len(o.more) > 0 {
		var fragment [warpSize][wgmmaARegs]uint32
		for i, r := range o.more {
			for l := range warpSize {
				fragment[l][i] = uint32(w.regs[r][l])
			}
		}
		a = alu.WGMMARows(&fragment)
	} else {
		mma.matrices[1].gather(w.cta.shared, &matrix)
		copy(a[:], matrix[w.index%warpgroupWarps*len(a):])
	}
	mma.matrices[0].gather(w.cta.shared, &matrix)
	var sums [maxMatrixSize / 2][warpSize]uint32
	d, b := sums[:len(o.list)], matrix[:o.product.columns]
	if accumulate {
		for i, r := range o.list {
			for l, v := range w.regs[r] {
				d[i][l] = uint32(v)
			}
		}
	}
	if o.product.float {
		w.cta.grid.tensor.WGMMA16(d, &a, b, o.product.bf16)
	} else {
		alu.WGMMAS8(d, &a, b, o.product.unsigned)
	}
	for i, r := range o.list {
		for l, v := range d[i] {
			w.regs[r][l] = uint64(v)
		}
		w.written[r] = allLanes
	}
}

// sameCall checks that the four warps of the group execute the same instructions with the same
// descriptors and scale-d.
func (w *warp) sameCall(call warpgroupCall) bool {
	o, all := call.op, w.cta.warps
	from := w.index / warpgroupWarps * warpgroupWarps
	if from+warpgroupWarps > len(all) || all[from+warpgroupWarps-1].exists != allLanes {
		w.trap(TrapWarpgroup, o, 0, "the CTA has no whole warpgroup at warp %d", from)
		return false
	}
	g := &w.cta.warpgroups[from/warpgroupWarps]
	if i := w.wgmma.calls - g.first; i < len(g.calls) {
		switch other := g.calls[i]; {
		case other.op != o:
			w.trap(TrapWarpgroup, o, 0, "another warp of the warpgroup is at line %d", other.op.line)
			return false
		case other != call:
			w.trap(TrapWarpgroup, o, 0, "the descriptors of b and a are %#x and scale-d is %t, and in another warp of the warpgroup %#x and %t",
				call.descriptors, call.accumulate != 0, other.descriptors, other.accumulate != 0)
			return false
		}
	} else {
		g.calls = append(g.calls, call)
	}
	w.wgmma.calls++
	least := w.wgmma.calls
	for _, other := range all[from : from+warpgroupWarps] {
		if other.live == 0 && other.wgmma.calls < w.wgmma.calls {
			w.trap(TrapWarpgroup, o, 0, "warp %d of the warpgroup has exited", other.index)
			return false
		}
		least = min(least, other.wgmma.calls)
	}
	g.calls, g.first = slices.Delete(g.calls, 0, least-g.first), least
	return true
}

// checkWGMMAAtExit traps if a warp ends while a wgmma is in flight. It also traps if other warps of
// the warpgroup have executed instructions of the warpgroup that this warp has not.
func (w *warp) checkWGMMAAtExit(o *op, lane int) {
	if len(w.wgmma.inFlight) > 0 {
		w.trap(TrapWarpgroup, o, lane, "the warp ends while wgmma.mma_async is in flight")
	}
	if i := w.index / warpgroupWarps; i < len(w.cta.warpgroups) {
		if g := w.cta.warpgroups[i]; w.wgmma.calls < g.first+len(g.calls) {
			w.trap(TrapWarpgroup, o, lane, "the warp ends and others of its warpgroup are at line %d", g.calls[w.wgmma.calls-g.first].op.line)
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
	s.groups, s.open = append(s.groups, s.open), 0
	return true
}

// wgmmaWait completes the oldest groups until at most pending are left.
func (w *warp) wgmmaWait(_ *op, pending int) bool {
	s := &w.wgmma
	due := len(s.groups) - pending
	if due <= 0 {
		return true
	}
	n := 0
	for _, k := range s.groups[:due] {
		n += k
	}
	for i := range n {
		if !w.completeMMA(&s.inFlight[i]) {
			return false
		}
	}
	s.inFlight, s.groups = slices.Delete(s.inFlight, 0, n), slices.Delete(s.groups, 0, due)
	w.syncLanes(w.live) // each lane knows that the matrices have been read
	return true
}

func (w *warp) completeMMA(mma *asyncMMA) bool {
	for _, r := range mma.op.list {
		w.wgmma.registers[r].inD--
	}
	for _, r := range mma.op.more {
		w.wgmma.registers[r].inA--
	}
	return w.readShared(mma, false)
}

// reserveRegisters checks the registers of D and A, and marks them as used in flight.
func (w *warp) reserveRegisters(o *op) bool {
	if w.wgmma.fences == 0 {
		w.trap(TrapWarpgroup, o, 0, "no wgmma.fence comes before the first wgmma.mma_async")
		return false
	}
	for _, r := range o.list {
		reg := &w.wgmma.registers[r]
		// Products of one shape are ordered by default.
		other := reg.op != nil && reg.op.product.shape != o.product.shape
		if !w.mayUse(o, r, reg.inA > 0 || other && reg.inD > 0, other && reg.issued == w.wgmma.fences) {
			return false
		}
		reg.inD++
	}
	for _, r := range o.more {
		reg := &w.wgmma.registers[r]
		if !w.mayUse(o, r, reg.inD > 0, false) {
			return false
		}
		reg.inA++
	}
	for _, regs := range [2][]int32{o.list, o.more} {
		for _, r := range regs {
			reg := &w.wgmma.registers[r]
			reg.op, reg.issued = o, w.wgmma.fences
		}
	}
	return true
}

// mayUse traps if an instruction in flight uses a register in another way, or if a wgmma.fence is
// missing after another use.
func (w *warp) mayUse(o *op, r int32, inFlight, unfenced bool) bool {
	reg, name := &w.wgmma.registers[r], w.cta.grid.prog.names[r]
	switch {
	case inFlight:
		w.trap(TrapWarpgroup, o, 0, "%s is in use by the wgmma.mma_async of line %d, which is in flight, in another matrix or shape", name, reg.op.line)
	case unfenced:
		w.trap(TrapWarpgroup, o, 0, "%s was used by the wgmma.mma_async of line %d of another shape, and no wgmma.fence followed", name, reg.op.line)
	case reg.accessed && reg.fences == w.wgmma.fences:
		w.trap(TrapWarpgroup, o, 0, "%s was accessed by another instruction, and no wgmma.fence followed", name)
	default:
		return true
	}
	return false
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
			w.trap(TrapWarpgroup, o, lowestLane(m), "%s is in use by the wgmma.mma_async of line %d, whose group has not been waited for",
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
	chunks   []int16
}

const chunkBytes = 16

func (r *wgmmaReads) start(p *program, sharedBytes int) {
	if p.wgmma && r.chunks == nil {
		r.chunks = make([]int16, (sharedBytes+chunkBytes-1)/chunkBytes)
	}
	r.inFlight = 0
	clear(r.chunks)
}

// checkWGMMAReads traps if a write to shared memory hits bytes that an instruction in flight reads.
func (w *warp) checkWGMMAReads(o *op, at, n, lane int) bool {
	r := &w.cta.wgmmaReads
	if r.inFlight == 0 {
		return true
	}
	for i := at / chunkBytes; i <= (at+n-1)/chunkBytes; i++ {
		if r.chunks[i] > 0 {
			w.trap(TrapRace, o, lane, "byte %d of shared memory is written while %s still reads it", max(at, i*chunkBytes), w.cta.wgmmaReader(i*chunkBytes))
			return false
		}
	}
	return true
}

// wgmmaReader describes an instruction in flight that reads the chunk at an offset.
func (c *cta) wgmmaReader(at int) string {
	for _, w := range c.warps {
		for i := range w.wgmma.inFlight {
			mma := &w.wgmma.inFlight[i]
			for _, m := range mma.shared() {
				if !m.blocks(func(b block) bool {
					first := int(b.at - c.shared.base)
					return at < first || at >= first+b.bytes
				}) {
					return fmt.Sprintf("the wgmma.mma_async of line %d of warp %d", mma.op.line, w.index)
				}
			}
		}
	}
	return "a wgmma.mma_async"
}

// readShared records a read of the matrices in shared memory. It is called at issue and again at
// completion, because a write between the two is also a race. A warp reads all rows of A.
func (w *warp) readShared(mma *asyncMMA, issue bool) bool {
	o, all := mma.op, mma.shared()
	var fenced stamp
	for i := range all {
		if !all[i].blocks(func(b block) bool {
			s, at := w.locate(o, true, 0, b.at, b.bytes, chunkBytes)
			return s != nil && w.checkDefined(o, s, at, b.bytes, 0) && w.checkAccess(o, s, at, b.bytes, 0, accessRead) &&
				(!issue || w.checkProxyFences(o, s, at, b.bytes, &fenced))
		}) {
			return false
		}
	}
	reads, n := &w.cta.wgmmaReads, int16(-1)
	if issue {
		n = 1
	}
	for i := range all {
		all[i].blocks(func(b block) bool {
			first := int(b.at-w.cta.shared.base) / chunkBytes
			for chunk := range b.bytes / chunkBytes {
				reads.chunks[first+chunk] += n
			}
			return true
		})
	}
	reads.inFlight += int(n)
	return true
}

// proxyFence is a fence.proxy.async that lanes executed at a time of their warp.
type proxyFence struct{ time, lanes uint32 }

// checkProxyFences traps unless each thread that wrote some of n bytes of shared memory has
// executed a fence.proxy.async since, which is ordered before now. Bulk copies need none. fenced is
// the last write that passed.
func (w *warp) checkProxyFences(o *op, s *allocation, at, n int, fenced *stamp) bool {
	if !w.cta.grid.races {
		return true
	}
	for end, size := at+n, 0; at < end; at += size {
		p := w.page(s, at, n)
		if size = wordBytes; p.fine {
			size = 1
		}
		c := &p.cells[at%shadowPageBytes/size]
		if c.write == 0 || c.bulk() || c.write == *fenced {
			continue
		}
		if !w.proxyFencedAfter(c.write) {
			w.trap(TrapRace, o, 0, "byte %d of %s was written at line %d by thread %d, and no fence.proxy.async of that thread followed",
				at, s.name, c.writeLine, w.threadInCTA(c.write))
			return false
		}
		*fenced = c.write
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
