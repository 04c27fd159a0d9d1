package sample

import (
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// boundKernel finds the bins of the last candidates that TopK and TopP keep. TopP depends on the sum of
// the weights that TopK keeps. Here that sum is not known for TopK's bin, so the kernel finds the first
// bin in which the last candidate of TopP may be.
func boundKernel() kernel.Typed[Args] { return stage("sample_bound", bins, false, buildBound) }

// bounds is what sample_bound stores for a row, in this order. The last candidate that stays is in one
// of the bins from low on. With low = bins, all stay.
type bounds struct {
	bin, low ptx.U32 // bin has the last candidate that TopK keeps; bins: TopK keeps all
	above    ptx.U64 // number of candidates in the bins before bin
	sum      ptx.U64 // of the weights in the bins before bin; of all weights if TopK keeps all
	sumLow   ptx.U64 // of the weights in the bins before low
}

// The words of a row in scratch.Bounds.
const (
	foundWord   = 8 // after those of bounds, u64: the number of candidates that sample_gather found
	storedWords = 10
	boundWords  = 16
)

func buildBound(r *row) {
	b := r.b
	b.Doc("bounds = the bins of the last candidates of top-k and top-p")
	b.ReturnIf(r.cuts().Not())
	bin := b.ThreadX()
	count, sum := r.s.BinCounts.At(bin, 4).LoadU32().U64(), r.s.BinSums.At(bin, 8).LoadU64()
	counts, _ := r.scan(count)
	sums, _ := r.scan(sum)

	shared := b.Shared("shared_bounds", 4*storedWords, 16)
	lowAt, aboveAt, sumAt, sumLowAt := shared.Plus(4), shared.Plus(8), shared.Plus(16), shared.Plus(24)
	b.If(bin.EqN(bins-1), func() { // no bin has the last candidate
		none := ptx.Var(b.U32(bins))
		shared.StoreU32x2([2]ptx.U32{none, none})
		shared.Plus(4 * foundWord).StoreU64(b.U64(0))
		aboveAt.StoreU64(counts)
		sumAt.StoreU64(sums)
		sumLowAt.StoreU64(sums)
	})
	b.Barrier()
	k := r.topK.U64()
	b.If(counts.Ge(k).And(counts.Sub(count).Lt(k)), func() { // at most one thread
		shared.StoreU32x2([2]ptx.U32{bin, bin})
		aboveAt.StoreU64(counts.Sub(count))
		sumAt.StoreU64(sums.Sub(sum))
	})
	b.Barrier()
	need := ceil64(b, r.topP, sumAt.LoadU64())
	b.If(r.topP.Ne(b.U64(0)).And(sums.Ge(need)).And(sums.Sub(sum).Lt(need).Or(bin.EqN(0))), func() { // the first bin that reaches need
		lowAt.StoreU32(bin)
		sumLowAt.StoreU64(sums.Sub(sum))
	})
	b.Barrier()
	b.If(bin.LtN(storedWords), func() { r.s.Bounds.At(bin, 4).StoreU32(shared.At(bin, 4).LoadU32()) })
}

// loadBounds returns the bounds of the row.
func (r *row) loadBounds() bounds {
	at, words := r.s.Bounds, r.s.Bounds.LoadU32x2()
	bin, low := words[0], words[1]
	return bounds{bin, low, at.Plus(8).LoadU64(), at.Plus(16).LoadU64(), at.Plus(24).LoadU64()}
}

// found returns the address of the number of candidates that sample_gather found, which fits 32 bits.
func (r *row) found() ptx.Global { return r.s.Bounds.Plus(4 * foundWord) }

// ceil64 returns ceil(x * y / 2^64).
func ceil64(b *ptx.Builder, x, y ptx.U64) ptx.U64 {
	return x.MulHigh(y).Add(ptx.Select(x.Mul(y).Ne(b.U64(0)), b.U64(1), b.U64(0)))
}
