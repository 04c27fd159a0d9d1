package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// TopK finds the K largest of a row of logits: values and indices, the largest first,
// the lowest index first among equals. NaN and -Inf are never among them; where fewer
// are left, the rest is -Inf with NoIndex.
//
// A CTA takes a slice of a row and gives the slice's K largest, in order. Where a row
// has several slices, further launches with Merge take what those before them gave,
// until one slice is left: see Slices. Within a slice the K-th largest value is found
// bit by bit from the top, by counting how many lie at or above a candidate. All of it
// is integers, so that no order of evaluation matters.
type TopK struct{ Merge bool }

const (
	topKThreads = 256
	topKEach    = 16 // consecutive candidates of a thread
	topKSlice   = topKThreads * topKEach
	topKMost    = topKThreads
)

func topKSpecs() []Spec { return []Spec{TopK{}, TopK{Merge: true}} }

// Name implements Spec.
func (s TopK) Name() string {
	if s.Merge {
		return "topk_merge"
	}
	return "topk_slice"
}

// topKKernel is what the parts of the generator share.
type topKKernel struct {
	b      *ptx.Builder
	k      ptx.U32
	keys   [topKEach]ptx.U32 // ordered values; 0 for what cannot be chosen
	counts ptx.Shared        // of each warp, twice
	list   ptx.Shared        // key and place of each candidate chosen
}

// Build implements Spec.
func (s TopK) Build() (*ptx.Kernel, error) {
	b := begin(s)
	b.Doc("out[row][slice] = the k largest of the slice of %d, the largest first", topKSlice)
	values, indices := b.Global("values", 4), b.Global("indices", 4)
	outValues, outIndices := b.Global("out_values", 4), b.Global("out_indices", 4)
	n, stride := b.ParamU32("n"), b.ParamU32("stride")
	t := &topKKernel{b: b, k: b.ParamU32("k"), counts: b.Shared("counts", 2*4*32, 4), list: b.Shared("list", 8*topKMost, 8)}
	slice, r, thread := b.BlockX(), b.BlockY(), b.ThreadX()
	in := rowAt(b, quant.F32, values.AtBytes(r.MulWide(stride).ShlN(2)).Aligned(4), n)
	first := slice.MulN(topKSlice).Add(thread.MulN(topKEach))
	for q := range topKEach / 4 {
		for j, x := range in.load(first.DivN(4).AddN(q), float32(math.Inf(-1))) {
			possible := x.Gt(b.F32(float32(math.Inf(-1)))) // false for NaN
			t.keys[4*q+j] = ptx.Select(possible, ordered(b, x), b.U32(0))
		}
	}
	chosen := t.collect(t.threshold(), first)

	b.Comment("the place of each in the order is the number of those before it")
	base := r.Mul(b.GridX()).Add(slice).Mul(t.k)
	put := func(at ptx.U32, value ptx.F32, index ptx.U32) {
		outValues.At(base.Add(at), 4).StoreF32(value)
		outIndices.At(base.Add(at), 4).StoreU32(index)
	}
	b.If(thread.Lt(chosen), func() {
		mine, rank := t.list.At(thread, 8).LoadU32x2(), ptx.Var(b.U32(0))
		b.For(b.U32(0), chosen, b.U32(1), func(i ptx.U32) {
			other := t.list.At(i, 8).LoadU32x2()
			before := other[0].Gt(mine[0]).Or(other[0].Eq(mine[0]).And(other[1].Lt(mine[1])))
			ptx.Set(rank, rank.Add(ptx.Select(before, b.U32(1), b.U32(0))))
		})
		index := mine[1]
		if s.Merge { // equals come in the order of their indices from every slice
			index = indices.AtBytes(r.MulWide(stride).Add(mine[1].U64()).ShlN(2)).Aligned(4).LoadU32()
		}
		put(rank, in.at.At(mine[1], 4).LoadF32(), index)
	})
	b.If(thread.Ge(chosen).And(thread.Lt(t.k)), func() { put(thread, b.F32(float32(math.Inf(-1))), b.U32(NoIndex)) })
	return b.Finish(ptx.MaxThreads(topKThreads))
}

// threshold is the largest key that at least k candidates reach, or 0 if fewer than k
// can be chosen. It may be any key between the k-th largest and the next, too.
func (t *topKKernel) threshold() ptx.U32 {
	b := t.b
	found, bit, buffer := ptx.Var(b.U32(0)), ptx.Var(b.U32(1<<31)), ptx.Var(b.U32(0))
	b.While(func() ptx.Pred { return bit.Ne(b.U32(0)) }, func() {
		try := found.Or(bit)
		mine := ptx.Var(b.U32(0))
		for _, key := range t.keys {
			ptx.Set(mine, mine.Add(ptx.Select(key.Ge(try), b.U32(1), b.U32(0))))
		}
		// Two buffers in turn: what is written now was last read before the barrier
		// that the round between has passed.
		slots := t.counts.At(buffer, 4*32)
		sum := mine.WarpReduce("add")
		b.If(b.Lane().EqN(0), func() { slots.At(b.Warp(), 4).StoreU32(sum) })
		b.Barrier()
		all := t.perWarp(slots).WarpReduce("add")
		ptx.Set(found, ptx.Select(all.Ge(t.k), try, found))
		ptx.Set(bit, ptx.Select(all.Eq(t.k), b.U32(0), bit.ShrN(1)))
		ptx.Set(buffer, buffer.Xor(b.U32(1)))
	}, ptx.NoUnroll)
	b.Barrier()
	return found
}

// perWarp gives lane w what warp w left in its slot, and 0 to the other lanes.
func (t *topKKernel) perWarp(slots ptx.Shared) ptx.U32 {
	b := t.b
	part := ptx.Var(b.U32(0))
	b.If(b.Lane().LtN(topKThreads/32), func() { ptx.Set(part, slots.At(b.Lane(), 4).LoadU32()) })
	return part
}

// collect lists the candidates above the threshold, then of those equal to it, in the
// order of their places, as many as are left of k. It gives their number.
func (t *topKKernel) collect(threshold, first ptx.U32) ptx.U32 {
	b := t.b
	above, equal := func(key ptx.U32) ptx.Pred { return key.Gt(threshold) }, func(key ptx.U32) ptx.Pred {
		return key.Eq(threshold).And(threshold.Ne(b.U32(0)))
	}
	count := func(p ptx.Pred, unit uint32) ptx.U32 { return ptx.Select(p, b.U32(unit), b.U32(0)) }
	b.Comment("both numbers in one word, each at most %d, summed over the threads before", topKSlice)
	mine := b.U32(0)
	for _, key := range t.keys {
		mine = mine.Add(count(above(key), 1)).Add(count(equal(key), 1<<16))
	}
	before, all := t.scan(mine)
	aboveAll := all.AndN(0xFFFF)
	room := t.k.Sub(aboveAll.Min(t.k))
	nextAbove, nextEqual := ptx.Var(before.AndN(0xFFFF)), ptx.Var(before.ShrN(16))
	for j, key := range t.keys {
		put := func(at ptx.U32) { t.list.At(at, 8).StoreU32x2([2]ptx.U32{key, first.AddN(j)}) }
		b.If(above(key), func() {
			put(nextAbove)
			ptx.Set(nextAbove, nextAbove.AddN(1))
		})
		b.If(equal(key).And(nextEqual.Lt(room)), func() {
			put(aboveAll.Add(nextEqual))
			ptx.Set(nextEqual, nextEqual.AddN(1))
		})
	}
	b.Barrier()
	return aboveAll.Add(room.Min(all.ShrN(16)))
}

// scan is the sum of x over the threads before this one, and over all.
func (t *topKKernel) scan(x ptx.U32) (before, all ptx.U32) {
	b, lane := t.b, t.b.Lane()
	within := prefixSum(b, x)
	b.If(lane.EqN(31), func() { t.counts.At(b.Warp(), 4).StoreU32(within) })
	b.Barrier()
	part := t.perWarp(t.counts)
	upTo := prefixSum(b, part)
	warpsBefore := ptx.ShuffleIdx(upTo.Sub(part), b.Warp())
	return warpsBefore.Add(within).Sub(x), ptx.ShuffleIdx(upTo, b.U32(31))
}

// prefixSum is the sum of x over the lanes up to this one.
func prefixSum(b *ptx.Builder, x ptx.U32) ptx.U32 {
	for n := 1; n < 32; n *= 2 {
		up := ptx.ShuffleUp(x, n)
		x = x.Add(ptx.Select(b.Lane().GeN(n), up, b.U32(0)))
	}
	return x
}

// TopKArgs are the arguments of one launch.
type TopKArgs struct {
	Values     Address // f32 [Rows, N]
	Indices    Address // u32, laid out as Values; not used by the first launch
	OutValues  Address // f32 [Rows, Slices(N), K]
	OutIndices Address // u32, as OutValues
	Rows       int
	N          int // the vocabulary, for Merge K * the slices of the launch before
	Stride     int // elements between the rows of Values; 0 means N
	K          int // at most 256
}

// Slices is the number of parts that a row of n is cut into. A further launch takes
// n = K * Slices(n), until it is 1.
func (TopK) Slices(n int) int { return ceilDiv(n, topKSlice) }

// Launch makes a launch.
func (s TopK) Launch(k *ptx.Kernel, a TopKArgs) (ptx.Launch, error) {
	a.Stride = orElse(a.Stride, a.N)
	if err := checkBounds(k, bound{"Rows", a.Rows, 1, 65535}, bound{"N", a.N, 1, maxSize - topKSlice}, bound{"Stride", a.Stride, a.N, maxSize},
		bound{"K", a.K, 1, topKMost}); err != nil {
		return ptx.Launch{}, err
	}
	if err := checkBounds(k, bound{"Rows", a.Rows, 1, maxSize / (s.Slices(a.N) * a.K)}); err != nil {
		return ptx.Launch{}, err
	}
	need := []pointer{{"Values", a.Values}, {"OutValues", a.OutValues}, {"OutIndices", a.OutIndices}}
	if s.Merge {
		need = append(need, pointer{"Indices", a.Indices})
	}
	if err := checkPointers(k, need...); err != nil {
		return ptx.Launch{}, err
	}
	return k.Launch([3]uint32{uint32(s.Slices(a.N)), uint32(a.Rows), 1}, topKThreads, 0,
		ptx.Addr(a.Values), ptx.Addr(a.Indices), ptx.Addr(a.OutValues), ptx.Addr(a.OutIndices), ptx.Uint(a.N), ptx.Uint(a.Stride), ptx.Uint(a.K))
}
