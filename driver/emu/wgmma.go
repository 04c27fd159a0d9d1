package emu

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/lockstep-go/lockstep/driver/emu/internal/alu"
	"github.com/lockstep-go/lockstep/driver/emu/internal/syntax"
)

// The matrix instruction of a warpgroup. Each of its four warps multiplies its own 16 rows
// when it comes to the product, and flight.go holds them to what makes that the same as a
// product that goes on until the wait.

var wgmmaForms = []form{
	{pattern: "wgmma.fence.sync.aligned", since: gate{80, 90}, build: buildWarpgroup(0, runRegisterFence)},
	{pattern: "wgmma.commit_group.sync.aligned", since: gate{80, 90}, build: buildWarpgroup(0, runProductCommit)},
	{pattern: "wgmma.wait_group.sync.aligned", since: gate{80, 90}, build: buildWarpgroup(1, runProductWait)},
	{pattern: "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", since: gate{80, 90}, build: buildProduct},
	{pattern: "wgmma.mma_async.sync.aligned.m64n64k32.s32.u8.s8", since: gate{84, 90}, build: buildProduct},
}

// The shape of a product, and of the core matrices that B is made of in shared memory.
const (
	productColumns = 64
	productDepth   = 32
	productSums    = 32 // registers of D
	productFactors = 4  // registers of A
	coreColumns    = 8
	coreDepth      = 16
	coreBytes      = coreColumns * coreDepth
	groupWarps     = 4
)

// together makes run what a warpgroup's warps do at an instruction, each with all its lanes.
func together(run func(w *warp, o *op) bool) func(*warp, *op, uint32) step {
	return func(w *warp, o *op, m uint32) step {
		ready, st := w.whole(o, m)
		if ready && !run(w, o) {
			return stepFault
		}
		return st
	}
}

// ofSM90a refuses an instruction that only .target sm_90a has.
func (d *decoder) ofSM90a(in *syntax.Instruction) error {
	if d.mod.Target != "sm_90a" {
		return fmt.Errorf("%s needs .target sm_90a, the text declares %s", in.Opcode, d.mod.Target)
	}
	return nil
}

// buildWarpgroup decodes an instruction with so many numbers, none or one.
func buildWarpgroup(numbers int, run func(*warp, *op) bool) func(*decoder, *syntax.Instruction, quals) (op, error) {
	return func(d *decoder, in *syntax.Instruction, _ quals) (op, error) {
		o := op{kind: opRun, aligned: true, run: together(run)}
		if err := d.ofSM90a(in); err != nil {
			return o, err
		}
		if err := count(in, numbers); err != nil || numbers == 0 {
			return o, err
		}
		n := in.Operands[0]
		if n.Kind != syntax.ImmInt || n.Value > 1<<20 {
			return o, fmt.Errorf("the number of groups is not a number")
		}
		o.target = int32(n.Value)
		return o, nil
	}
}

// buildProduct decodes {d×32}, {a×4}, descriptor of b, whether to add.
func buildProduct(d *decoder, in *syntax.Instruction, q quals) (op, error) {
	o := op{kind: opRun, aligned: true, run: together(runProduct), signed: q[6] == "s8"}
	if err := d.ofSM90a(in); err != nil {
		return o, err
	}
	if err := count(in, 4); err != nil {
		return o, err
	}
	var err error
	if o.list, err = d.fragment(in.Operands[0], productSums, typeS32); err != nil {
		return o, fmt.Errorf("d: %w", err)
	}
	for i, r := range o.list {
		if slices.Contains(o.list[:i], r) {
			return o, fmt.Errorf("d has %s twice", d.prog.names[r])
		}
	}
	b32, b64 := typeB32, typeB64
	if o.more, err = d.fragment(in.Operands[1], productFactors, b32); err != nil {
		return o, fmt.Errorf("a: %w", err)
	}
	if o.a, err = d.typed(in.Operands[2], b64, b64.Fits); err != nil {
		return o, fmt.Errorf("the descriptor: %w", err)
	}
	d.prog.products = true
	o.c, err = d.source(in.Operands[3], typePred)
	return o, err
}

// descriptor is where B is: PTX ISA, matrix descriptor, without swizzling.
type descriptor struct{ start, leading, stride uint64 }

// Bits of a descriptor that are zero where nothing is swizzled: between the fields, the base offset
// and the swizzling.
const descriptorZeros = 3<<14 | 3<<30 | uint64(1<<18-1)<<46

// descriptor reads the operand, which is the same in all lanes.
func (w *warp) descriptor(o *op) (bits uint64, d descriptor, ok bool) {
	bits = w.regs[o.a][0]
	for l, v := range w.regs[o.a] {
		if v != bits {
			w.trap(TrapProduct, o, l, "the descriptor is %#x in this lane and %#x in lane 0", v, bits)
			return 0, d, false
		}
	}
	if extra := bits & descriptorZeros; extra != 0 {
		w.trap(TrapProduct, o, 0, "the descriptor %#x has bits %#x, which are zero in one without swizzling", bits, extra)
		return 0, d, false
	}
	field := func(at int) uint64 { return bits >> at & (1<<14 - 1) << 4 }
	return bits, descriptor{field(0), field(16), field(32)}, true
}

// core is the address of a core matrix of B.
func (d descriptor) core(i int) uint64 {
	const across = productDepth / coreDepth
	return d.start + uint64(i%across)*d.leading + uint64(i/across)*d.stride
}

// cores is how many there are.
const cores = productColumns / coreColumns * productDepth / coreDepth

func runProduct(w *warp, o *op) bool {
	if !w.reads(o, allLanes, o.a) || !w.readsPred(o, allLanes, o.c) {
		return false
	}
	bits, d, ok := w.descriptor(o)
	if !ok {
		return false
	}
	adds := w.preds[o.c]
	if adds != 0 && adds != allLanes {
		w.trap(TrapProduct, o, firstOf(^adds), "lanes %08x add to the accumulator and the others do not", adds)
		return false
	}
	if !w.agree(o, bits, adds) || !w.reads(o, allLanes, o.more...) || adds != 0 && !w.reads(o, allLanes, o.list...) {
		return false
	}
	if !w.takeOff(o, d) {
		return false
	}
	w.multiply(o, d, adds != 0)
	return true
}

// firstOf is the lowest lane of a mask.
func firstOf(m uint32) int { return bits.TrailingZeros32(m) }

// multiply writes the accumulator.
func (w *warp) multiply(o *op, d descriptor, add bool) {
	var b [productColumns][productDepth]byte
	for i := range cores {
		data := w.cta.shared.data[d.core(i)-w.cta.shared.base:]
		column, depth := i*coreDepth/productDepth*coreColumns, i*coreDepth%productDepth
		for j := range coreColumns {
			copy(b[column+j][depth:], data[j*coreDepth:(j+1)*coreDepth])
		}
	}
	var a [warpSize][productFactors]uint32
	var sums [warpSize][productSums]int32
	for l := range warpSize {
		for i, r := range o.more {
			a[l][i] = uint32(w.regs[r][l])
		}
		if add {
			for i, r := range o.list {
				sums[l][i] = int32(w.regs[r][l])
			}
		}
	}
	alu.WGMMAS8(&sums, &a, &b, !o.signed)
	for i, r := range o.list {
		for l := range warpSize {
			w.set(r, l, uint64(uint32(sums[l][i])))
		}
	}
}
