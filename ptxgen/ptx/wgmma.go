package ptx

import "strings"

// The matrix instruction of a warpgroup: four consecutive warps, of which the first is a
// multiple of four, that multiply behind the threads' back (PTX ISA, wgmma.mma_async). It
// needs sm_90a.

const (
	// WGMMARows, WGMMAColumns and WGMMADepth are the shape of a product: A is
	// 64×32, B 32×64, D 64×64.
	WGMMARows, WGMMAColumns, WGMMADepth = 64, 64, 32

	// WGMMASums is how many elements of D a thread holds.
	WGMMASums = WGMMARows * WGMMAColumns / 128
)

// Warpgroups reports whether devices of t, and drivers that take PTX of its version, know
// products of warpgroups with bytes of either sign.
func (t Target) Warpgroups() bool {
	need := forms[wgmma+mixedProduct]
	return t.SM == need.sm && t.Version >= need.version
}

// The beginnings of the instructions: of all, and of the products of factors of two types.
const (
	wgmma        = "wgmma."
	product      = "mma_async.sync.aligned.m64n64k32.s32."
	mixedProduct = product + "u8."
)

// WGMMAFence lets later products see what the warp did to the registers of A and D
// before. It is needed before the first product, and again after other instructions
// touched such registers; between products that add to the same D it is not.
func (b *Builder) WGMMAFence() { b.warpgroup("fence.sync.aligned", 0) }

// WGMMACommit closes a group of products.
func (b *Builder) WGMMACommit() { b.warpgroup("commit_group.sync.aligned", 0) }

// WGMMAWait waits until all but the last pending groups have ended. Until then nothing may
// touch the registers of their A and D, nor write the shared memory of their B.
func (b *Builder) WGMMAWait(pending int) {
	if pending < 0 || pending > 7 {
		b.fail("wgmma: a wait for all but %d groups, want 0 to 7", pending)
	}
	b.warpgroup("wait_group.sync.aligned", 0, number(int64(pending)))
}

// FenceProxyAsync shows what the thread wrote to shared memory, by stores and by copies that it
// has waited for, to products. Each thread that wrote executes it before the barrier after
// which a product reads.
func (b *Builder) FenceProxyAsync() { b.effect("fence.proxy.async.shared::cta", 0) }

// Warpgroups reports whether the kernel has products of warpgroups so far.
func (b *Builder) Warpgroups() bool { return b.warpgroups }

// warpgroup appends an instruction that all threads of a warpgroup execute together.
func (b *Builder) warpgroup(op string, dsts int, args ...arg) *inst {
	b.noGuard("wgmma")
	b.warpgroups = true
	in := b.emit(wgmma+op, dsts, args...)
	in.effect = true
	return in
}

// MatrixDescriptor tells a product where its B is: in shared memory at p, column by
// column, without swizzling. B is made of core matrices of eight columns of 16 bytes each,
// 128 bytes in a row; leading is the distance in bytes from one to the next in K, stride
// from one to the next in N. All three are multiples of 16 (PTX ISA, matrix descriptor).
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
	return low.Wide().Or(p.b.U64(uint64(stride) >> 4 << 32))
}

// WGMMAS8 begins d = a×b, or d = a×b + d if add is set, where a (64×32, by rows) and b
// (32×64, by columns, where desc tells) are signed bytes; sums wrap. The registers of a
// of warp w of the group are those of MMAS8's a for rows 16w to 16w+15. With g = lane/4
// and t = lane%4, d[i] is row 16w + g (+8 if i%4 ≥ 2), column 8(i/4) + 2t + i%2. The
// elements of d must be variables, WGMMASums of them; they need no value unless add is
// set.
func (b *Builder) WGMMAS8(d []S32, a [4]U32, desc U64, add bool) { b.multiply("s8", d, a, desc, add) }

// WGMMAU8 is WGMMAS8 where the bytes of a are unsigned. It needs PTX 8.4.
func (b *Builder) WGMMAU8(d []S32, a [4]U32, desc U64, add bool) { b.multiply("u8", d, a, desc, add) }

func (b *Builder) multiply(typ string, d []S32, a [4]U32, desc U64, add bool) {
	if len(d) != WGMMASums {
		b.fail("wgmma: %d registers of d, want %d", len(d), WGMMASums)
		return
	}
	var rd, ra []operand
	seen := map[operand]bool{}
	for _, x := range d {
		if !b.vars[x.op] || seen[x.op] {
			b.fail("wgmma: the accumulator %v is not a variable of its own", x.op)
		}
		seen[x.op] = true
		rd = append(rd, x.op)
	}
	for _, x := range a {
		if x.op.kind != register || seen[x.op] {
			b.fail("wgmma: a takes registers that are not the accumulator's, not %v", x.op)
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
		braces(rd...), braces(ra...), one(desc.op), one(scale.op)).update = add
}

// inFlight reports whether registers may be in use behind the instruction's back, so
// that no write may be moved across it.
func (in *inst) inFlight() bool { return strings.HasPrefix(in.op, wgmma) }
