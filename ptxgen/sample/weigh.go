package sample

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// weighKernel adds up the weights of each slice of a row. With TopK or TopP it adds the number of
// candidates and their weights to the row's histogram. A bin covers a range of logits, those of
// bin 0 being the largest.
func weighKernel() kernel.Typed[Args] { return stage("sample_weigh", sliceThreads, true, buildWeigh) }

func buildWeigh(r *row) {
	b := r.b
	b.Doc("sums[slice] = sums of the weights; bins = histogram of candidates and weights")
	b.ReturnIf(r.flags.AndN(samples | logProbs).EqN(0))
	sum := ptx.Var(b.U64(0))
	b.If(r.has(samples), func() {
		w := r.weigher()
		h := newHistogram(r)
		r.eachKey(func(_ ptx.U32, keys [4]ptx.U32) {
			for _, k := range keys {
				b.If(k.Ne(b.U32(0)), func() {
					x := logitOf(b, k)
					weight := w.weight(x)
					ptx.Set(sum, sum.Add(ptx.Select(weight.Ge(r.minWeight), weight, b.U64(0))))
					h.add(w.bin(x), weight)
				})
			}
		})
		h.flush()
	})
	raw := ptx.Var(b.U64(0))
	b.If(r.has(logProbs), func() {
		w := r.rawWeigher()
		in, begin := r.logits(), r.slice.MulN(slice/4)
		b.For(begin.Add(b.ThreadX()), begin.AddN(slice/4), b.U32(sliceThreads), func(i ptx.U32) {
			for _, x := range in.Load(i, float32(math.NaN())) {
				ptx.Set(raw, raw.Add(w.weight(x)))
			}
		})
	})
	sum, raw = r.total(sum), r.total(raw)
	b.If(b.ThreadX().EqN(0), func() {
		at := r.s.Sums.At(r.slice, 16)
		at.StoreU64(sum)
		at.Plus(8).StoreU64(raw)
	})
}

// histogram collects a slice's part of the row's histogram in shared memory.
type histogram struct {
	r      *row
	on     ptx.Pred // the state has TopK or TopP
	sums   ptx.Shared
	counts ptx.Shared
}

func newHistogram(r *row) histogram {
	b := r.b
	h := histogram{r, r.limited(), b.Shared("histogram_sums", 8*bins, 8), b.Shared("histogram_counts", 4*bins, 4)}
	b.If(h.on, func() {
		h.each(func(i ptx.U32) {
			h.sums.At(i, 8).StoreU64(b.U64(0))
			h.counts.At(i, 4).StoreU32(b.U32(0))
		})
		b.Barrier()
	})
	return h
}

// each calls do for the bins of the thread.
func (h histogram) each(do func(i ptx.U32)) {
	b := h.r.b
	b.For(b.ThreadX(), b.U32(bins), b.U32(sliceThreads), do, ptx.NoUnroll)
}

func (h histogram) add(bin ptx.U32, weight ptx.U64) {
	h.r.b.If(h.on, func() {
		add(h.r.b, h.sums.At(bin, 8), weight)
		h.counts.At(bin, 4).AddU32(h.r.b.U32(1))
	})
}

// flush adds the bins to those of the row.
func (h histogram) flush() {
	b := h.r.b
	b.If(h.on, func() {
		b.Barrier()
		h.each(func(i ptx.U32) {
			count := h.counts.At(i, 4).LoadU32()
			b.If(count.Ne(b.U32(0)), func() {
				h.r.s.BinCounts.At(i, 4).AddU32(count)
				h.r.s.BinSums.At(i, 8).AddU64(h.sums.At(i, 8).LoadU64())
			})
		})
	})
}
