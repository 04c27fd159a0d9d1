package ptx

import "fmt"

// FullMask names all 32 lanes.
const FullMask = 0xFFFFFFFF

func (b *Builder) special(name string) U32 {
	res, r := fresh[U32](b)
	b.emit("mov.u32", 1, one(r), one(operand{kind: special, class: b32, name: name}))
	return res
}

// ThreadX is the thread's index in the CTA along x.
func (b *Builder) ThreadX() U32 { return b.special("%tid.x") }

// BlockX is the CTA's index in the grid along x.
func (b *Builder) BlockX() U32 { return b.special("%ctaid.x") }

// BlockY is the CTA's index in the grid along y.
func (b *Builder) BlockY() U32 { return b.special("%ctaid.y") }

// BlockZ is the CTA's index in the grid along z.
func (b *Builder) BlockZ() U32 { return b.special("%ctaid.z") }

// GridX is the number of CTAs along x.
func (b *Builder) GridX() U32 { return b.special("%nctaid.x") }

// GridY is the number of CTAs along y.
func (b *Builder) GridY() U32 { return b.special("%nctaid.y") }

// GridZ is the number of CTAs along z.
func (b *Builder) GridZ() U32 { return b.special("%nctaid.z") }

// ThreadsX is the number of threads of the CTA along x.
func (b *Builder) ThreadsX() U32 { return b.special("%ntid.x") }

// Lane is the lane in a CTA of one dimension.
func (b *Builder) Lane() U32 { return b.ThreadX().AndN(31) }

// Warp is the warp's index in a CTA of one dimension.
func (b *Builder) Warp() U32 { return b.ThreadX().ShrN(5) }

// Barrier waits until all threads of the CTA have come here; it orders memory.
func (b *Builder) Barrier() { b.effect("bar.sync", 0, number(0)) }

// BarrierN waits for so many threads, a multiple of 32, at barrier id, 1 to 15.
func (b *Builder) BarrierN(id, threads int) {
	if id < 1 || id > 15 || threads <= 0 || threads%32 != 0 {
		b.fail("barrier %d of %d threads", id, threads)
	}
	b.effect("bar.sync", 0, number(int64(id)), number(int64(threads)))
}

// WarpSync waits for all lanes of the warp and orders memory among them.
func (b *Builder) WarpSync() { b.effect("bar.warp.sync", 0, number(FullMask)) }

// Register32 is what a shuffle moves.
type Register32 interface {
	U32 | S32 | F32 | F16x2 | BF16x2
	get() value
}

func shuffle[T Register32](x T, mode string, by value, clamp int64) T {
	v := x.get()
	res, r := fresh[T](v.b)
	v.b.effect("shfl.sync."+mode+".b32", 1, one(r), one(v.op), one(by.op), number(clamp), number(FullMask))
	return res
}

// ShuffleXor gives the x of lane ^ mask. All 32 lanes take part.
func ShuffleXor[T Register32](x T, mask int) T {
	return shuffle(x, "bfly", x.get().b.N(mask).value, 31)
}

// ShuffleIdx gives the x of the lane named. All 32 lanes take part.
func ShuffleIdx[T Register32](x T, lane U32) T { return shuffle(x, "idx", lane.value, 31) }

// ShuffleDown gives the x of lane + n, or the lane's own beyond the end.
func ShuffleDown[T Register32](x T, n int) T {
	return shuffle(x, "down", x.get().b.N(n).value, 31)
}

// ShuffleUp gives the x of lane - n, or the lane's own before the start.
func ShuffleUp[T Register32](x T, n int) T { return shuffle(x, "up", x.get().b.N(n).value, 0) }

// WarpSum adds x over the 32 lanes by a butterfly, whose order of additions is the
// same for every lane, so all have the same bits.
func WarpSum(x F32) F32 {
	for mask := 16; mask > 0; mask /= 2 {
		x = x.Add(ShuffleXor(x, mask))
	}
	return x
}

// WarpMax is the largest x of the 32 lanes; a NaN loses to a number.
func WarpMax(x F32) F32 {
	for mask := 16; mask > 0; mask /= 2 {
		x = x.Max(ShuffleXor(x, mask))
	}
	return x
}

func vote[T Value](p Pred, op string) T {
	res, r := fresh[T](p.b)
	p.b.effect("vote.sync."+op, 1, one(r), one(p.op), number(FullMask))
	return res
}

// Ballot has bit i set where p holds in lane i. All 32 lanes take part.
func (p Pred) Ballot() U32 { return vote[U32](p, "ballot.b32") }

// Any holds in all lanes if p holds in one.
func (p Pred) Any() Pred { return vote[Pred](p, "any.pred") }

// All holds in all lanes if p holds in all.
func (p Pred) All() Pred { return vote[Pred](p, "all.pred") }

// WarpReduce combines x over the 32 lanes by "add", "min" or "max".
func (x U32) WarpReduce(op string) U32 {
	res, r := fresh[U32](x.b)
	x.b.effect(fmt.Sprintf("redux.sync.%s.u32", op), 1, one(r), one(x.op), number(FullMask))
	return res
}

// ExchangeU32 puts x in the place of the number at p, for the whole device, and gives what
// was there. It orders no other accesses.
func (p Global) ExchangeU32(x U32) U32 { return exchange(p, "u32", x) }

// ExchangeU64 is ExchangeU32 for 64 bits.
func (p Global) ExchangeU64(x U64) U64 { return exchange(p, "u64", x) }

func exchange[T Value](p Global, typ string, x T) T {
	p.checkAlign("atomic", typ, 1)
	res, r := fresh[T](p.b)
	p.b.effect(fmt.Sprintf("atom.relaxed.gpu.global.exch.b%d", 8*width[typ]), 1, one(r), at(p.base, p.off), one(x.get().op))
	return res
}

// AtomicMax makes the 64-bit number at p the larger of itself and x.
func (p Global) AtomicMax(x U64) {
	p.checkAlign("atomic", "u64", 1)
	p.b.effect("red.relaxed.gpu.global.max.u64", 0, at(p.base, p.off), one(x.op))
}
