package sample

import (
	"fmt"
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// row is the row of a CTA, with its parts of the buffers and the parameters of its state.
type row struct {
	b *ptx.Builder
	p sampleParams
	s scratch // at the row's parts

	index, state, length ptx.U32
	slice                ptx.U32 // of the CTA
	threads              int     // per CTA

	params                   ptx.Global // of the state
	flags, topK, top, biases ptx.U32
	choice                   ptx.U32
	scale                    ptx.F64
	topP, minWeight, seed    ptx.U64

	reductions int // so far
}

// newRow declares the parameters and loads those of the state. The CTA of a row of length 0
// returns.
func newRow(b *ptx.Builder, threads int, perSlice bool) *row {
	device.Overlap(b)
	r := &row{b: b, threads: threads}
	ptx.Declare(b, &r.p)
	ptx.Declare(b, &r.s)
	r.index = b.BlockX()
	if perSlice {
		r.slice, r.index = b.BlockX(), b.BlockY()
	}
	r.length = r.p.Lengths.At(r.index, 4).LoadU32()
	b.ReturnIf(r.length.EqN(0))
	r.state = ptx.Var(r.index)
	b.If(device.NonNil(b, r.p.States), func() { ptx.Set(r.state, r.p.States.At(r.index, 4).LoadU32()) })

	at := r.p.Params.At(r.state, 4*ParamWords)
	r.params = at
	words := at.LoadU32x4()
	r.flags, r.topK, r.top, r.biases = words[0], words[1], words[2], words[3]
	r.scale, r.topP, r.minWeight, r.seed = at.Plus(32).LoadF64(), at.Plus(40).LoadU64(), at.Plus(48).LoadU64(), at.Plus(56).LoadU64()
	r.choice = at.Plus(64).LoadU32()

	perRow := func(p ptx.Global, bytes, align int) ptx.Global { return p.At(r.index, bytes).Aligned(align) }
	perLogit := func(p ptx.Global, bytes, align int) ptx.Global {
		return p.AtBytes(r.index.MulWide(r.p.Slices.MulN(bytes))).Aligned(align)
	}
	s := &r.s
	s.Best, s.Sums, s.Tops, s.Keys = perLogit(s.Best, 16, 16), perLogit(s.Sums, 16, 16), perLogit(s.Tops, 8*maxTop, 8), perLogit(s.Keys, 4*slice, 16)
	s.BinSums, s.BinCounts = perRow(s.BinSums, 8*bins, 8), perRow(s.BinCounts, 4*bins, 4)
	s.Bounds, s.Candidates = perRow(s.Bounds, 4*boundWords, 16), perRow(s.Candidates, 8*maxCandidates, 8)
	return r
}

// has reports whether the state has a flag.
func (r *row) has(flag uint32) ptx.Pred { return r.flags.AndN(flag).Ne(r.b.U32(0)) }

// cuts reports whether the state is not greedy and has TopK or TopP.
func (r *row) cuts() ptx.Pred { return r.has(samples).And(r.limited()) }

// limited reports whether the state has TopK or TopP.
func (r *row) limited() ptx.Pred { return r.topK.Ne(r.b.U32(0)).Or(r.topP.Ne(r.b.U64(0))) }

// logits returns the unmodified logits.
func (r *row) logits() device.Row {
	return device.RowAt(r.b, quant.F32, r.p.Logits.AtBytes(r.index.MulWide(r.p.Stride).ShlN(2)).Aligned(4), r.p.Vocab)
}

// key maps a logit to an integer with the order of candidates. The key of NaN and -Inf is 0.
func key(b *ptx.Builder, x ptx.F32) ptx.U32 {
	return ptx.Select(x.Gt(b.F32(float32(math.Inf(-1)))), device.OrderedBits(b, x), b.U32(0))
}

// logitOf returns the logit of a key.
func logitOf(b *ptx.Builder, key ptx.U32) ptx.F32 {
	return key.Xor(key.Not().S32().ShrN(31).U32().Or(b.U32(1 << 31))).AsF32()
}

// weigher computes weights and bins of logits.
type weigher struct {
	b        *ptx.Builder
	most     ptx.F32 // the largest logit
	most64   ptx.F64
	scale    ptx.F64
	perLogit ptx.F32 // bins per logit
}

// newWeigher returns a weigher for the largest logit and log2(e) / temperature. A bin
// covers 1/16 of a factor of 2 in weight, but at most 1/16 in logits.
func newWeigher(b *ptx.Builder, most ptx.F32, scale ptx.F64) weigher {
	perLogit := scale.F32().MulN(16).Max(b.F32(16)).Min(b.F32(math.MaxFloat32))
	return weigher{b, most, most.F64(), scale, perLogit}
}

// weight returns floor(2^44 * e^((x-most)/temperature)) to the bit as model/sampling defines it. It
// returns 0 for NaN, the logit of key 0.
func (w weigher) weight(x ptx.F32) ptx.U64 {
	b := w.b
	y := x.F64().Sub(w.most64).Mul(w.scale)
	sum := y.Add(b.F64(0x1.8p52)) // it has an integer in its low bits
	f := y.Sub(sum.Sub(b.F64(0x1.8p52)))
	f2 := f.Mul(f)
	f4 := f2.Mul(f2)
	linear := func(c0, c1 float64) ptx.F64 { return f.Mul(b.F64(c1)).Add(b.F64(c0)) }
	low := linear(1, 0x1.62e42fefa39efp-1).Add(linear(0x1.ebfbe045f4d3cp-3, 0x1.c6b08d883dca1p-5).Mul(f2))
	high := linear(0x1.3b2a1b7152befp-7, 0x1.5d879ead06a82p-10).Add(linear(0x1.443fffc90db59p-13, 0x1.00a581594758ep-16).Mul(f2))
	p := low.Add(high.Mul(f4)).Bits()
	fraction := p.And(b.U64(1<<52 - 1)).Or(b.U64(1 << 52))
	weight := fraction.Shr(b.U32(8 + 1023).Sub(p.ShrN(52).Low()).Sub(sum.Bits().Low()))
	weight = ptx.Select(y.Ge(b.F64(-64)), weight, b.U64(0))
	return ptx.Select(x.Eq(w.most), b.U64(1<<44), weight)
}

// bin returns the bin of a logit. It rises as the logit falls.
func (w weigher) bin(x ptx.F32) ptx.U32 { return w.below(x).Min(w.b.U32(bins - 1)) }

// below returns how far a logit is below the largest, in bins.
func (w weigher) below(x ptx.F32) ptx.U32 {
	return w.most.Sub(x).Mul(w.perLogit).TruncU32() // Inf - Inf gives 0
}

// partials returns shared memory for a value of each warp. Every reduction has its own, so it needs
// no barrier after the one before it. A loop needs another barrier between two rounds.
func (r *row) partials() ptx.Shared {
	r.reductions++
	return r.b.Shared(fmt.Sprintf("partials%d", r.reductions), 8*32, 8)
}

// ifWarp runs do in the lanes whose index is that of a warp of the CTA.
func (r *row) ifWarp(lane ptx.U32, do func()) {
	if r.threads == 32*32 {
		do()
		return
	}
	r.b.If(lane.LtN(r.threads/32), do)
}

// overCTA returns x reduced over the threads of the CTA by "max" or "min".
func (r *row) overCTA(x ptx.U32, op string, neutral uint32) ptx.U32 {
	b, lane, partials := r.b, r.b.Lane(), r.partials()
	x = x.WarpReduce(op)
	b.If(lane.EqN(0), func() { partials.At(b.Warp(), 8).StoreU32(x) })
	b.Barrier()
	y := ptx.Var(b.U32(neutral))
	r.ifWarp(lane, func() { ptx.Set(y, partials.At(lane, 8).LoadU32()) })
	return y.WarpReduce(op)
}

// first returns the best candidate of the threads of the CTA: the largest key, then the lowest id.
func (r *row) first(x device.Best) device.Best {
	top := r.overCTA(x.Value, "max", 0)
	index := ptx.Select(x.Value.Eq(top), x.Index, r.b.U32(NoIndex))
	return device.Best{Value: top, Index: r.overCTA(index, "min", NoIndex)}
}

// scan returns the sum of x over the threads of the CTA up to this one, and total, which returns
// the sum over all threads.
func (r *row) scan(x ptx.U64) (sum ptx.U64, total func() ptx.U64) {
	b, lane, partials := r.b, r.b.Lane(), r.partials()
	x = warpScan(b, x)
	b.If(lane.EqN(31), func() { partials.At(b.Warp(), 8).StoreU64(x) })
	b.Barrier()
	part := ptx.Var(b.U64(0))
	r.ifWarp(lane, func() { ptx.Set(part, partials.At(lane, 8).LoadU64()) })
	parts := warpScan(b, part)
	return x.Add(shuffle64(parts.Sub(part), b.Warp())), func() ptx.U64 { return shuffle64(parts, b.U32(31)) }
}

// total returns the sum of x over the threads of the CTA.
func (r *row) total(x ptx.U64) ptx.U64 {
	b, lane, partials := r.b, r.b.Lane(), r.partials()
	x = warpTotal(x)
	b.If(lane.EqN(0), func() { partials.At(b.Warp(), 8).StoreU64(x) })
	b.Barrier()
	part := ptx.Var(b.U64(0))
	r.ifWarp(lane, func() { ptx.Set(part, partials.At(lane, 8).LoadU64()) })
	return warpTotal(part)
}

func warpTotal(x ptx.U64) ptx.U64 {
	for mask := 16; mask > 0; mask /= 2 {
		x = x.Add(ptx.ShuffleXor(x.Low(), mask).U64().Or(ptx.ShuffleXor(x.ShrN(32).Low(), mask).U64().ShlN(32)))
	}
	return x
}

func warpScan(b *ptx.Builder, x ptx.U64) ptx.U64 {
	for n := 1; n < 32; n *= 2 {
		x = x.Add(ptx.Select(b.Lane().GeN(n), ptx.ShuffleUp64(x, n), b.U64(0)))
	}
	return x
}

// shuffle64 returns x of the given lane.
func shuffle64(x ptx.U64, lane ptx.U32) ptx.U64 {
	return ptx.ShuffleIdx(x.Low(), lane).U64().Or(ptx.ShuffleIdx(x.ShrN(32).Low(), lane).U64().ShlN(32))
}

// add adds x to the u64 at p by two additions of 32 bits, because shared memory has no atomic
// addition of 64 bits in hardware. Each addition that overflows the lower half carries once.
func add(b *ptx.Builder, p ptx.Shared, x ptx.U64) {
	low := x.Low()
	carry := p.AddU32(low).Gt(low.Not())
	p.Plus(4).AddU32(x.ShrN(32).Low().Add(ptx.Select(carry, b.U32(1), b.U32(0))))
}

// best returns the first candidate of the row.
func (r *row) best() device.Best {
	mine := device.NewBest(r.b)
	r.ifSlice(func() {
		pair := r.s.Best.At(r.b.ThreadX(), 16).LoadU32x2()
		ptx.Set(mine.Value, pair[0])
		ptx.Set(mine.Index, pair[1])
	})
	return r.first(mine)
}

// weigher returns the weigher of the adjusted logits.
func (r *row) weigher() weigher { return newWeigher(r.b, logitOf(r.b, r.largest(0)), r.scale) }

// rawWeigher returns the weigher of the unmodified logits, at temperature 1.
func (r *row) rawWeigher() weigher {
	return newWeigher(r.b, logitOf(r.b, r.largest(8)), ptx.Var(r.b.F64(math.Log2E)))
}

// largest returns the largest of the slices' keys at an offset in Best.
func (r *row) largest(offset int) ptx.U32 {
	most := ptx.Var(r.b.U32(0))
	r.ifSlice(func() { ptx.Set(most, r.s.Best.At(r.b.ThreadX(), 16).Plus(offset).LoadU32()) })
	return r.overCTA(most, "max", 0)
}

// ifSlice runs do in one thread per slice of the row. The thread and the slice have the same index.
func (r *row) ifSlice(do func()) { r.b.If(r.b.ThreadX().Lt(r.p.Slices), do) }

// eachKey calls do for the keys of the slice, four at a time, with their index in the row
// divided by 4.
func (r *row) eachKey(do func(i ptx.U32, keys [4]ptx.U32)) {
	b, begin := r.b, r.slice.MulN(slice/4)
	b.For(begin.Add(b.ThreadX()), begin.AddN(slice/4), b.N(sliceThreads), func(i ptx.U32) { do(i, r.s.Keys.At(i, 16).LoadU32x4()) })
}
