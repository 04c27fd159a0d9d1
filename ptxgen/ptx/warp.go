package ptx

import "fmt"

const fullMask = 0xFFFFFFFF // all 32 lanes

func (b *Builder) special(name string) U32 {
	res, r := fresh[U32](b)
	b.emit("mov.u32", 1, one(r), one(operand{kind: special, class: b32, name: name}))
	return res
}

// ThreadX reads %tid.x: the index of the thread in its CTA.
func (b *Builder) ThreadX() U32 { return b.special("%tid.x") }

// ThreadsX reads %ntid.x: the number of threads per CTA.
func (b *Builder) ThreadsX() U32 { return b.special("%ntid.x") }

// BlockX reads %ctaid.x: the index of the CTA in the grid. In a part of Beside, it returns the index in the part.
func (b *Builder) BlockX() U32 {
	if b.part != nil {
		return b.part.block
	}
	return b.special("%ctaid.x")
}

// BlockY reads %ctaid.y.
func (b *Builder) BlockY() U32 { return b.special("%ctaid.y") }

// BlockZ reads %ctaid.z.
func (b *Builder) BlockZ() U32 { return b.special("%ctaid.z") }

// GridX reads %nctaid.x: the number of CTAs in the grid. In a part of Beside, it returns those of the part.
func (b *Builder) GridX() U32 {
	if b.part != nil {
		return b.part.ctas
	}
	return b.special("%nctaid.x")
}

// GridY reads %nctaid.y.
func (b *Builder) GridY() U32 { return b.special("%nctaid.y") }

// Lane returns ThreadX modulo 32: the lane, if the CTA has one dimension.
func (b *Builder) Lane() U32 { return b.ThreadX().AndN(31) }

// Warp returns ThreadX / 32: the index of the warp, if the CTA has one dimension.
func (b *Builder) Warp() U32 { return b.ThreadX().ShrN(5) }

// Barrier emits bar.sync 0: it waits for all threads of the CTA and orders their memory
// accesses.
func (b *Builder) Barrier() { b.emit("bar.sync", 0, number(0)) }

// NamedBarrier is a barrier of some warps of the CTA.
type NamedBarrier struct {
	id      U32
	threads int
}

// NamedBarrier returns barrier id, 1 to 15; Barrier uses 0. threads is how many threads Sync or Arrive
// per phase. It emits nothing.
func (b *Builder) NamedBarrier(id U32, threads int) NamedBarrier {
	if id.op.kind == immediate && (id.op.n < 1 || id.op.n > 15) {
		b.fail("barrier %v, want 1 to 15", id.op)
	}
	if threads < 32 || threads > 1024 || threads%32 != 0 {
		b.fail("a barrier for %d threads, want a multiple of 32 up to 1024", threads)
	}
	return NamedBarrier{id, threads}
}

// Sync emits bar.sync: it waits until all threads of the barrier have come. It orders their memory
// accesses before those that follow.
func (n NamedBarrier) Sync() { n.emit("bar.sync") }

// Arrive emits bar.arrive: the warp does not wait. Its memory accesses before are ordered before what
// follows a Sync. It must not arrive again before the phase is complete.
func (n NamedBarrier) Arrive() { n.emit("bar.arrive") }

func (n NamedBarrier) emit(op string) {
	n.id.b.emit(op, 0, one(n.id.op), number(int64(n.threads)))
}

const minRegisters = 24 // per thread, of setmaxnreg

// IncreaseRegisters emits setmaxnreg.inc: it waits until the CTA has registers for n per thread of the
// warpgroup, 24 to 256 in steps of 8. They come from DecreaseRegisters of other warpgroups. All warps of
// a warpgroup execute it, and synchronize before the next change. It needs sm_90a, and the option
// MaxRegisters or MinCTAs.
func (b *Builder) IncreaseRegisters(n int) { b.setMaxRegisters("inc", n) }

// DecreaseRegisters emits setmaxnreg.dec: it keeps n registers per thread of the warpgroup and leaves the
// others to the CTA. See IncreaseRegisters.
func (b *Builder) DecreaseRegisters(n int) { b.setMaxRegisters("dec", n) }

func (b *Builder) setMaxRegisters(action string, n int) {
	b.noGuard("setmaxnreg")
	if n < minRegisters || n > 256 || n%8 != 0 {
		b.fail("setmaxnreg: %d registers, want a multiple of 8 from %d to 256", n, minRegisters)
	}
	b.setsMax = true
	b.emit("setmaxnreg."+action+".sync.aligned.u32", 0, number(int64(n)))
}

// WarpSync emits bar.warp.sync: it waits for all lanes of the warp and orders their memory
// accesses.
func (b *Builder) WarpSync() { b.emit("bar.warp.sync", 0, number(fullMask)) }

// Register32 is a 32-bit value that a shuffle can exchange.
type Register32 interface {
	U32 | S32 | F32 | F16x2 | BF16x2
	get() value
}

func shuffle[T Register32](x T, mode string, by value, clamp int64) T {
	v := x.get()
	res, r := fresh[T](v.b)
	v.b.emit("shfl.sync."+mode+".b32", 1, one(r), one(v.op), one(by.op), number(clamp), number(fullMask))
	return res
}

// ShuffleXor emits shfl.sync.bfly: x of lane ^ mask. All 32 lanes must take part.
func ShuffleXor[T Register32](x T, mask int) T {
	return shuffle(x, "bfly", x.get().b.N(mask).value, 31)
}

// ShuffleIdx emits shfl.sync.idx: x of the given lane. All 32 lanes must take part.
func ShuffleIdx[T Register32](x T, lane U32) T { return shuffle(x, "idx", lane.value, 31) }

// ShuffleUp64 shuffles both halves of x: x of lane - n, or the lane's own x if lane < n. All 32
// lanes must take part.
func ShuffleUp64(x U64, n int) U64 {
	return ShuffleUp(x.Low(), n).U64().Or(ShuffleUp(x.ShrN(32).Low(), n).U64().ShlN(32))
}

// ShuffleUp emits shfl.sync.up: x of lane - n, or the lane's own x if lane < n. All 32 lanes must
// take part.
func ShuffleUp[T Register32](x T, n int) T { return shuffle(x, "up", x.get().b.N(n).value, 0) }

// WarpSum returns the sum of x over the 32 lanes. It adds in a butterfly, lane distance 16 first,
// so all lanes get the same bits.
func WarpSum(x F32) F32 {
	for mask := 16; mask > 0; mask /= 2 {
		x = x.Add(ShuffleXor(x, mask))
	}
	return x
}

// WarpMax returns the maximum of x over the 32 lanes. It ignores NaN unless all are NaN.
func WarpMax(x F32) F32 {
	for mask := 16; mask > 0; mask /= 2 {
		x = x.Max(ShuffleXor(x, mask))
	}
	return x
}

func vote[T Value](p Pred, op string) T {
	res, r := fresh[T](p.b)
	p.b.emit("vote.sync."+op, 1, one(r), one(p.op), number(fullMask))
	return res
}

// Ballot emits vote.sync.ballot: bit i is set if p holds in lane i. All 32 lanes must take part.
func (p Pred) Ballot() U32 { return vote[U32](p, "ballot.b32") }

// Any emits vote.sync.any: whether p holds in any lane. All 32 lanes must take part.
func (p Pred) Any() Pred { return vote[Pred](p, "any.pred") }

// WarpReduce emits redux.sync: x of all 32 lanes combined by "add", "min" or "max".
func (x U32) WarpReduce(op string) U32 {
	res, r := fresh[U32](x.b)
	x.b.emit(fmt.Sprintf("redux.sync.%s.u32", op), 1, one(r), one(x.op), number(fullMask))
	return res
}
