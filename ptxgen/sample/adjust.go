package sample

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// adjustKernel computes the adjusted logits of each slice of a row, and the first candidate of the
// slice. With log-probabilities it also finds the largest unmodified logits. It clears the histogram.
func adjustKernel() kernel.Typed[Args] {
	return stage("sample_adjust", sliceThreads, true, buildAdjust)
}

func buildAdjust(r *row) {
	b := r.b
	b.Doc("keys = ordered bits of the adjusted logits; best[slice] = the first candidate")
	x := newAdjuster(r)
	minusInf := float32(math.Inf(-1))
	in, begin := r.logits(), r.slice.MulN(slice/4)
	best, raw := device.NewBest(b), ptx.Var(b.F32(minusInf))
	b.For(begin.Add(b.ThreadX()), begin.AddN(slice/4), b.U32(sliceThreads), func(i ptx.U32) {
		logits := in.Load(i, minusInf)
		var keys [4]ptx.U32
		for j, logit := range logits {
			id := i.MulN(4).AddN(j)
			keys[j] = key(b, x.adjust(id, logit))
			improve(best, keys[j], id)
			ptx.Set(raw, raw.Max(logit)) // NaN is not larger
		}
		b.If(r.has(samples), func() { r.s.Keys.At(i, 16).StoreU32x4(keys) })
	}, ptx.NoUnroll)
	best = r.first(best)
	most := r.overCTA(key(b, raw), "max", 0)
	b.If(b.ThreadX().EqN(0), func() {
		at := r.s.Best.At(r.slice, 16)
		at.StoreU32x2([2]ptx.U32{best.Value, best.Index})
		at.Plus(8).StoreU32(most)
	})
	b.If(r.has(samples).And(r.slice.EqN(0)), func() {
		for i := range bins / sliceThreads {
			r.s.BinSums.At(b.ThreadX(), 8).Plus(8 * sliceThreads * i).StoreU64(b.U64(0))
			r.s.BinCounts.At(b.ThreadX(), 4).Plus(4 * sliceThreads * i).StoreU32(b.U32(0))
		}
	})
	r.topOfSlice(in, begin)
}

// improve replaces best by a better candidate. Of equal keys, the lowest id must come first.
func improve(best device.Best, key, id ptx.U32) {
	better := key.Gt(best.Value)
	ptx.Set(best.Value, ptx.Select(better, key, best.Value))
	ptx.Set(best.Index, ptx.Select(better, id, best.Index))
}

// adjuster applies bias, penalties and mask to logits of the slice.
type adjuster struct {
	row    *row
	bias   ptx.Shared // f32 [slice]
	counts ptx.Global
	mask   ptx.Global
}

// newAdjuster spreads the biases of the slice over shared memory.
func newAdjuster(r *row) adjuster {
	b := r.b
	x := adjuster{row: r, bias: b.Shared("bias", 4*slice, 16)}
	x.counts = r.p.Counts.AtBytes(r.state.MulWide(r.p.Vocab).ShlN(2)).Aligned(4)
	x.mask = r.p.Masks.AtBytes(r.state.MulWide(r.p.Vocab.CeilDivN(32)).ShlN(2)).Aligned(4)
	list := r.p.Biases.AtBytes(r.state.MulWide(r.p.MaxBiases).ShlN(3)).Aligned(8)
	b.If(r.biases.Ne(b.U32(0)), func() {
		for i := range slice / sliceThreads {
			x.bias.At(b.ThreadX(), 4).Plus(4 * sliceThreads * i).StoreF32(b.F32(0))
		}
		b.Barrier()
		b.For(b.ThreadX(), r.biases, b.U32(sliceThreads), func(i ptx.U32) {
			pair := list.At(i, 8).LoadU32x2()
			at := pair[0].Sub(r.slice.MulN(slice))
			b.If(at.LtN(slice), func() { x.bias.At(at, 4).StoreU32(pair[1]) })
		}, ptx.NoUnroll)
		b.Barrier()
	})
	return x
}

// adjust returns the adjusted logit of a token.
func (a adjuster) adjust(id ptx.U32, logit ptx.F32) ptx.F32 {
	r, b := a.row, a.row.b
	x, inside := ptx.Var(logit), id.Lt(r.p.Vocab)
	b.If(r.biases.Ne(b.U32(0)), func() { ptx.Set(x, x.Add(a.bias.At(id.AndN(slice-1), 4).LoadF32())) })
	b.If(r.has(penalizes).And(inside), func() {
		count, words := a.counts.At(id, 4).LoadU32(), r.params.Plus(16).LoadU32x4()
		repeat, inverse, presence, frequency := words[0].AsF32(), words[1].AsF32(), words[2].AsF32(), words[3].AsF32()
		b.If(count.Ne(b.U32(0)), func() { ptx.Set(x, x.Mul(ptx.Select(x.Gt(b.F32(0)), inverse, repeat))) })
		n := count.AndN(InPrompt - 1)
		b.If(n.Ne(b.U32(0)), func() { ptx.Set(x, x.Sub(n.F32().Mul(frequency)).Sub(presence)) })
	})
	b.If(r.has(Masked).And(inside), func() {
		permitted := a.mask.At(id.ShrN(5), 4).LoadU32().Shr(id.AndN(31)).AndN(1)
		ptx.Set(x, ptx.Select(permitted.Ne(b.U32(0)), x, b.F32(float32(math.Inf(-1)))))
	})
	return x
}

// topOfSlice stores the largest unmodified logits of the slice, in order. Each warp finds those of
// its threads, then one warp merges the lists of all.
func (r *row) topOfSlice(in device.Row, begin ptx.U32) {
	const warps = sliceThreads / 32
	b := r.b
	b.ReturnIf(r.top.EqN(0))
	lists := b.Shared("tops_of_warps", 8*maxTop*warps, 8) // keys and ids [top, warps]
	var mine []device.Best
	for at := 0; at < slice; at += 4 * sliceThreads {
		i := begin.Add(b.ThreadX()).AddN(at / 4)
		for j, x := range in.Load(i, float32(math.Inf(-1))) {
			mine = append(mine, device.Best{Value: ptx.Var(key(b, x)), Index: i.MulN(4).AddN(j)})
		}
	}
	r.topOfWarp(mine, func(n ptx.U32, top device.Best) {
		lists.At(n.MulN(warps).Add(b.Warp()), 8).StoreU32x2([2]ptx.U32{top.Value, top.Index})
	})
	b.Barrier()
	b.ReturnIf(b.Warp().Ne(b.U32(0)))
	mine = nil
	final := r.top.MulN(warps).AddN(-1)
	for at := 0; at < maxTop*warps; at += 32 { // all of a lane are of one list, so they are in order
		pair := lists.At(b.Lane().AddN(at).Min(final), 8).LoadU32x2() // the final candidate may be in several lanes
		mine = append(mine, device.Best{Value: ptx.Var(pair[0]), Index: pair[1]})
	}
	r.topOfWarp(mine, func(n ptx.U32, top device.Best) {
		id := ptx.Select(top.Value.Ne(b.U32(0)), top.Index, b.U32(NoIndex))
		r.s.Tops.At(r.slice.MulN(maxTop).Add(n), 8).StoreU32x2([2]ptx.U32{top.Value, id})
	})
}

// topOfWarp calls store in one lane with keys and ids of the first candidates of the warp, in order.
// With a key of 0 the id means nothing. Of equal keys of a lane, the lowest id must come first. The
// keys of mine become 0.
func (r *row) topOfWarp(mine []device.Best, store func(n ptx.U32, top device.Best)) {
	b := r.b
	b.For(b.U32(0), r.top, b.U32(1), func(n ptx.U32) {
		best := device.Best{Value: ptx.Var(mine[0].Value), Index: ptx.Var(mine[0].Index)}
		for _, x := range mine[1:] {
			improve(best, x.Value, x.Index)
		}
		best = best.OverWarp(b)
		for _, x := range mine {
			ptx.Set(x.Value, ptx.Select(x.Index.Eq(best.Index), b.U32(0), x.Value))
		}
		b.If(b.Lane().EqN(0), func() { store(n, best) })
	}, ptx.NoUnroll)
}
