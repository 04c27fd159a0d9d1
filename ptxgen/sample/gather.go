package sample

import (
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// gatherKernel lists the candidates in the bins that sample_bound found, in any order, and adds up the weights
// of each slice in the bins before these.
func gatherKernel() kernel.Typed[Args] {
	return stage("sample_gather", sliceThreads, true, buildGather)
}

func buildGather(r *row) {
	b := r.b
	b.Doc("candidates = those that top-k and top-p must look at; sums[slice] = weights of those that stay in any case")
	b.ReturnIf(r.cuts().Not())
	w := r.weigher()
	bounds := r.loadBounds()
	high := ptx.Select(bounds.bin.LtN(bins), bounds.bin, bounds.low) // the last bin with candidates that may stay
	sum := ptx.Var(b.U64(0))
	r.eachKey(func(i ptx.U32, keys [4]ptx.U32) {
		for j, k := range keys {
			b.If(k.Ne(b.U32(0)), func() {
				x := logitOf(b, k)
				bin := w.bin(x)
				b.If(bin.Lt(bounds.low), func() {
					weight := w.weight(x)
					ptx.Set(sum, sum.Add(ptx.Select(weight.Ge(r.minWeight), weight, b.U64(0))))
				})
				b.If(bin.Ge(bounds.low).And(bin.Le(high)), func() {
					at := r.found().AddU32(b.U32(1))
					b.If(at.LtN(maxCandidates), func() { r.s.Candidates.At(at, 8).StoreU32x2([2]ptx.U32{k, i.MulN(4).AddN(j)}) })
				})
			})
		}
	})
	sum = r.total(sum)
	b.If(b.ThreadX().EqN(0), func() { r.s.Sums.At(r.slice, 16).StoreU64(sum) })
}
