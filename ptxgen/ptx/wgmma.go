package ptx

import "strings"

// wgmma.mma_async multiplies matrices asynchronously for a warpgroup: four consecutive warps, the
// first a multiple of four (PTX ISA, wgmma.mma_async). It needs sm_90a.

const (
	// WGMMARows is the number of rows of a product's A and D. A is 64×32, B is 32×64 and D is
	// 64×64.
	WGMMARows = 64
	// WGMMAAccumulators is the number of elements of D per thread.
	WGMMAAccumulators = WGMMARows * 64 / 128
)

const (
	wgmma        = "wgmma."
	product      = "mma_async.sync.aligned.m64n64k32.s32."
	mixedProduct = product + "u8." // A unsigned, B signed
)

// HasWGMMA reports whether devices of t, and drivers that accept its PTX version, have WGMMAS8
// and WGMMAU8.
func (t Target) HasWGMMA() bool {
	need := requirements[wgmma+mixedProduct]
	return t.SM == need.sm && t.Version >= need.version
}

// UsesWGMMA reports whether the kernel has wgmma instructions so far.
func (b *Builder) UsesWGMMA() bool { return b.wgmma }

// WGMMAFence emits wgmma.fence: it orders register accesses before later products. It is needed
// before the first product and after other instructions have touched registers of A or D. It is
// not needed between products that accumulate in the same D.
func (b *Builder) WGMMAFence() { b.warpgroup("fence.sync.aligned", 0) }

// WGMMACommit emits wgmma.commit_group: it closes a group of products.
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

// MatrixDescriptor returns the descriptor of a product's B at p, without swizzling (PTX ISA, matrix
// descriptor). B consists of core matrices of eight columns of 16 bytes each, 128 contiguous bytes.
// leading is the distance in bytes between core matrices along K, stride along N. Both and the
// address are multiples of 16.
func (p Shared) MatrixDescriptor(leading, stride int) U64 {
	if p.align < 16 {
		p.b.fail("wgmma: a matrix at a pointer known to be aligned to %d, want 16", p.align)
	}
	for _, n := range []int{leading, stride} {
		if n < 0 || n >= 1<<18 || n%16 != 0 {
			p.b.fail("wgmma: a matrix with an offset of %d bytes, want a multiple of 16 below 256 KiB", n)
		}
	}
	low := p.Address().ShrN(4).Or(p.b.U32(uint32(leading) >> 4 << 16))
	return low.U64().Or(p.b.U64(uint64(stride) >> 4 << 32))
}

// WGMMAS8 emits wgmma.mma_async.m64n64k32 for signed bytes: d = a×b, or d += a×b if add is set. Sums
// wrap. a is 64×32 by rows, b is 32×64 by columns at desc. Warp w of the group holds rows 16w to
// 16w+15 of a in the registers of MMAS8's a. With g = lane/4 and t = lane%4, d[i] is row 16w + g
// (+8 if i%4 ≥ 2), column 8(i/4) + 2t + i%2. d must be WGMMAAccumulators distinct variables. They
// need a value only if add is set.
func (b *Builder) WGMMAS8(d []S32, a [4]U32, desc U64, add bool) { b.multiply("s8", d, a, desc, add) }

// WGMMAU8 is WGMMAS8 with unsigned bytes in a. It needs PTX 8.4.
func (b *Builder) WGMMAU8(d []S32, a [4]U32, desc U64, add bool) { b.multiply("u8", d, a, desc, add) }

func (b *Builder) multiply(typ string, d []S32, a [4]U32, desc U64, add bool) {
	if len(d) != WGMMAAccumulators {
		b.fail("wgmma: %d registers of d, want %d", len(d), WGMMAAccumulators)
		return
	}
	var rd, ra []operand
	seen := map[operand]bool{}
	for _, x := range d {
		if !b.vars[x.op] || seen[x.op] {
			b.fail("wgmma: the accumulator %v is not a distinct variable", x.op)
		}
		seen[x.op] = true
		rd = append(rd, x.op)
	}
	for _, x := range a {
		if x.op.kind != register || seen[x.op] {
			b.fail("wgmma: a needs registers that are not accumulators, not %v", x.op)
		}
		ra = append(ra, x.op)
	}
	if desc.op.kind != register {
		b.fail("wgmma: the descriptor is %v, not a register", desc.op)
	}
	scale, r := fresh[Pred](b)
	compare := "setp.ne.u32"
	if add {
		compare = "setp.eq.u32"
	}
	b.emit(compare, 1, one(r), number(0), number(0))
	b.warpgroup(product+typ+".s8", 1,
		braces(rd...), braces(ra...), one(desc.op), one(scale.op)).readsDst = add
}

// asynchronous reports whether registers may still be in use after the instruction, so that no
// write may move across it.
func (in *inst) asynchronous() bool { return strings.HasPrefix(in.op, wgmma) }
