package ptx

import (
	"fmt"
	"strings"
)

// wgmma.mma_async multiplies matrices asynchronously for a warpgroup: four consecutive warps, the
// first a multiple of four (PTX ISA, wgmma.mma_async). It needs sm_90a.

// WGMMARows is the number of rows of a product's A and D.
const WGMMARows = 64

const (
	wgmma   = "wgmma."
	product = "mma_async.sync.aligned."
)

// HasWGMMA reports whether devices of t, and drivers that accept its PTX version, have the instructions
// of this file.
func (t Target) HasWGMMA() bool {
	need := requirements[wgmma]
	return t.SM == need.sm && t.Version >= need.version
}

// WGMMAFence emits wgmma.fence: it orders register accesses before later products. It is needed
// before the first product after each branch or label, which Finish checks, and after other
// instructions have touched registers of A or D. It is not needed between products that accumulate
// in the same D.
func (b *Builder) WGMMAFence() { b.warpgroup("fence.sync.aligned", 0) }

// WGMMACommit emits wgmma.commit_group: it closes a group of products. No branch may come between.
func (b *Builder) WGMMACommit() { b.warpgroup("commit_group.sync.aligned", 0) }

// WGMMAWait emits wgmma.wait_group: it waits until at most the last pending groups, 0 to 7, are
// incomplete. Before that, nothing may touch their registers of A and D or write their B.
func (b *Builder) WGMMAWait(pending int) {
	if pending < 0 || pending > 7 {
		b.fail("wgmma: a wait for all but %d groups, want 0 to 7", pending)
	}
	b.warpgroup("wait_group.sync.aligned", 0, number(int64(pending)))
}

// FenceProxyAsync emits fence.proxy.async: it makes the thread's writes to shared memory visible
// to products. Each thread that wrote executes it before the barrier that precedes the products.
func (b *Builder) FenceProxyAsync() { b.emit("fence.proxy.async.shared::cta", 0) }

// warpgroup emits an instruction that all threads of a warpgroup execute together.
func (b *Builder) warpgroup(op string, dsts int, args ...arg) *inst {
	b.noGuard("wgmma")
	b.wgmma = true
	return b.emit(wgmma+op, dsts, args...)
}

// matrixDescriptor returns the descriptor of a matrix that needs an alignment (PTX ISA, matrix descriptor). leading and
// stride are its byte offsets, multiples of 16. mode is the swizzling mode.
func (p Shared) matrixDescriptor(align, leading, stride int, mode uint64) U64 {
	if p.align < align {
		p.b.fail("wgmma: a matrix at a pointer known to be aligned to %d, want %d", p.align, align)
	}
	for _, n := range []int{leading, stride} {
		if n >= 1<<18 {
			p.b.fail("wgmma: a matrix with an offset of %d bytes, want less than 256 KiB", n)
		}
	}
	low := p.Address().ShrN(4).Or(p.b.U32(uint32(leading) >> 4 << 16))
	return low.U64().Or(p.b.U64(uint64(stride)>>4<<32 | mode<<62))
}

// multiply emits a product of a, in registers or a descriptor, and the matrix of a descriptor.
func multiply[A Value](op string, d []F32, a []A, desc U64, add bool, numbers ...int64) {
	b := desc.b
	var rd, ra []operand
	seen := map[operand]bool{}
	for _, x := range d {
		r := x.op
		if !b.vars[r] || seen[r] {
			b.fail("wgmma: the accumulator %v is not a distinct variable", r)
		}
		seen[r] = true
		rd = append(rd, r)
	}
	for _, x := range a {
		r := x.get().op
		if r.kind != register {
			b.fail("wgmma: a needs registers, not %v", r)
		}
		ra = append(ra, r)
	}
	scale, r := fresh[Pred](b)
	compare := "setp.ne.u32"
	if add {
		compare = "setp.eq.u32"
	}
	b.emit(compare, 1, one(r), number(0), number(0))
	args := []arg{braces(rd...), braces(ra...), one(desc.op), one(scale.op)}
	if len(ra) == 1 {
		args[1] = one(ra[0])
	}
	for _, n := range numbers {
		args = append(args, number(n))
	}
	b.warpgroup(op, 1, args...).readsDst = add
}

// WGMMA emits wgmma.mma_async.m64nNk16: d = a×b, or d += a×b if add is set, with float32
// accumulation. a is 64×16 by rows and b is 16×N, the first 16 of K of b's first N columns. N is twice
// the length of d, 8 to 256 in steps of 8. Warp w of the group holds rows 16w to 16w+15 of a and d.
// With g = lane/4 and t = lane%4, register i of
//   - a holds row 16w + g (+8 if i is odd), columns 2t and 2t+1 (+8 if i ≥ 2), as in MMA,
//   - d holds row 16w + g (+8 if i%4 ≥ 2), column 8(i/4) + 2t + i%2.
//
// The elements of d must be distinct variables. They need a value only if add is set.
func WGMMA[T Half2](d []F32, a [4]T, b SharedMatrix[T], add bool) {
	multiplyHalves(d, a[:], b, add)
}

// WGMMAShared is WGMMA with the first 64 rows and the first 16 of K of a matrix a in shared memory.
func WGMMAShared[T Half2](d []F32, a, b SharedMatrix[T], add bool) {
	a.check("a", WGMMARows)
	multiplyHalves(d, []U64{a.descriptor()}, b, add, a.transposed())
}

func multiplyHalves[T Half2, A Value](d []F32, a []A, b SharedMatrix[T], add bool, transposed ...int64) {
	columns := 2 * len(d)
	if columns%8 != 0 || columns < 8 || columns > 256 {
		b.desc.b.fail("wgmma: %d registers of d, want a multiple of 4 up to 128", len(d))
		return
	}
	b.check("b", columns)
	typ := halfName[T]()
	numbers := append([]int64{1, 1}, append(transposed, b.transposed())...)
	multiply(fmt.Sprintf("%sm64n%dk16.f32.%s.%s", product, columns, typ, typ), d, a, b.descriptor(), add, numbers...)
}

// products checks that wgmma.fence precedes each product and wgmma.commit_group follows it, with no
// branch between. Else the assembler inserts a fence, or an empty product before the commit (C7519).
func (v *verifier) products(list []node) {
	fenced, open := false, (*inst)(nil) // open is a product that is not committed
	branch := func() {
		if open != nil {
			v.fail(open.pc, "wgmma: a branch between a product and its WGMMACommit, or none follows")
		}
		fenced, open = false, nil
	}
	for _, n := range list {
		if in, ok := n.(*inst); ok {
			switch {
			case strings.HasPrefix(in.op, wgmma+"fence"):
				fenced = true
			case strings.HasPrefix(in.op, wgmma+"commit"):
				open = nil
			case strings.HasPrefix(in.op, wgmma+product):
				if open = in; !fenced {
					v.fail(in.pc, "wgmma: a branch between WGMMAFence and a product, or none precedes")
				}
			}
			continue
		}
		if _, ok := n.(*remark); !ok {
			branch()
		}
	}
	branch()
}

// asynchronous reports whether registers may still be in use after the instruction, so that no
// write may move across it.
func (in *inst) asynchronous() bool { return strings.HasPrefix(in.op, wgmma) }
