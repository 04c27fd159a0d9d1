package sample

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/kernel"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

const drawThreads = 512

// drawKernel chooses the token of a row: the first candidate, or one at random. It also prepares the
// next step of the sequence: it stores the token as the next input, counts it, and advances the
// sequence's position and length.
func drawKernel() kernel.Typed[Args] { return stage("sample_draw", drawThreads, false, buildDraw) }

func buildDraw(r *row) {
	b := r.b
	b.Doc("token = the first candidate, or the first at which the sum of weights exceeds a random number")
	best := r.best()
	token := ptx.Var(best.Index)
	w := newWeigher(b, logitOf(b, best.Value), r.scale)
	sums := b.Shared("sums_of_slices", 8*drawThreads, 8)
	sum := ptx.Var(b.U64(0))
	b.If(r.has(samples).And(b.ThreadX().Lt(r.p.Slices)), func() { ptx.Set(sum, r.s.Sums.At(b.ThreadX(), 16).LoadU64()) })
	sums.At(b.ThreadX(), 8).StoreU64(sum)
	end := last{ptx.Var(b.U32(0)), ptx.Var(b.U32(NoIndex))}
	hasCandidate := best.Value.Ne(b.U32(0))
	b.If(r.cuts().And(hasCandidate), func() { r.cut(w, end, sums) })
	b.Barrier()
	b.If(r.has(samples).And(hasCandidate), func() { ptx.Set(token, r.draw(w, end, sums)) })
	b.If(b.ThreadX().EqN(0), func() {
		r.p.Token.At(r.index.ShlN(1).Or(r.length.AndN(1)), 4).StoreU32(token)
		b.If(token.Ne(b.U32(NoIndex)), func() {
			b.If(device.NonNil(b, r.p.Next), func() { r.p.Next.At(r.index, 4).StoreU32(token) })
			b.If(r.has(penalizes), func() {
				at := r.p.Counts.AtBytes(r.state.MulWide(r.p.Vocab).Add(token.U64()).ShlN(2)).Aligned(4)
				at.StoreU32(at.LoadU32().AddN(1))
			})
		})
		r.p.Positions.At(r.index, 4).StoreU32(r.length)
		r.p.Lengths.At(r.index, 4).StoreU32(r.length.AddN(1))
	})
	b.If(r.has(logProbs), func() { r.storeResult(token) })
}

// last is the last candidate that stays, of those before it in their order.
type last struct{ key, id ptx.U32 }

// keeps reports whether a candidate is not after the last one.
func (l last) keeps(key, id ptx.U32) ptx.Pred {
	return key.Gt(l.key).Or(key.Eq(l.key).And(id.Le(l.id)))
}

// draw returns a token at random.
func (r *row) draw(w weigher, end last, sums ptx.Shared) ptx.U32 {
	b, thread := r.b, r.b.ThreadX()
	b.Comment("the slice of the token")
	sum := sums.At(thread, 8).LoadU64()
	upTo, total := r.scan(sum)
	at := r.random().MulHigh(total())
	found := b.Shared("found", 16, 8)
	before := upTo.Sub(sum)
	b.If(at.Lt(upTo).And(at.Lt(before).Not()), func() {
		found.StoreU64(at.Sub(before))
		found.Plus(8).StoreU32(thread)
	})
	b.Barrier()
	rest, sliceIndex := found.LoadU64(), found.Plus(8).LoadU32()

	b.Comment("the token in the slice")
	first := sliceIndex.MulN(slice / 4).Add(thread)
	var weights [4]ptx.U64
	for j, k := range r.s.Keys.At(first, 16).LoadU32x4() {
		weight := w.weight(logitOf(b, k))
		stays := end.keeps(k, first.MulN(4).AddN(j)).And(weight.Ge(r.minWeight))
		weights[j] = ptx.Select(stays, weight, b.U64(0))
	}
	sum = weights[0].Add(weights[1]).Add(weights[2]).Add(weights[3])
	upTo, _ = r.scan(sum)
	before = upTo.Sub(sum)
	b.If(rest.Lt(upTo).And(rest.Lt(before).Not()), func() {
		id := ptx.Var(first.MulN(4))
		for _, weight := range weights[:3] {
			before = before.Add(weight)
			ptx.Set(id, id.Add(ptx.Select(rest.Lt(before), b.U32(0), b.U32(1))))
		}
		found.Plus(12).StoreU32(id)
	})
	b.Barrier()
	return found.Plus(12).LoadU32()
}

// random returns the random number of the token: Philox4x32-10.
func (r *row) random() ptx.U64 {
	b := r.b
	counter := [4]ptx.U32{r.length, b.U32(0), r.choice, b.U32(0)}
	key := [2]ptx.U32{r.seed.Low(), r.seed.ShrN(32).Low()}
	for range 10 {
		p0, p1 := counter[0].MulWide(b.U32(0xD2511F53)), counter[2].MulWide(b.U32(0xCD9E8D57))
		counter = [4]ptx.U32{
			p1.ShrN(32).Low().Xor(counter[1]).Xor(key[0]), p1.Low(), p0.ShrN(32).Low().Xor(counter[3]).Xor(key[1]), p0.Low(),
		}
		key[0], key[1] = key[0].Add(b.U32(0x9E3779B9)), key[1].Add(b.U32(0xBB67AE85))
	}
	return counter[0].U64().Or(counter[1].U64().ShlN(32))
}

// storeResult stores the numbers that log-probabilities follow from.
func (r *row) storeResult(token ptx.U32) {
	b, thread := r.b, r.b.ThreadX()
	out := r.p.Results.At(r.index.ShlN(1).Or(r.length.AndN(1)), 4*ResultWords).Aligned(8)
	most := r.largest(8)
	sum := ptx.Var(b.U64(0))
	b.If(thread.Lt(r.p.Slices), func() { ptx.Set(sum, r.s.Sums.At(thread, 16).Plus(8).LoadU64()) })
	total := r.total(sum)
	b.If(thread.EqN(0), func() {
		logit := ptx.Var(b.U32(0))
		b.If(token.Ne(b.U32(NoIndex)), func() {
			ptx.Set(logit, r.p.Logits.AtBytes(r.index.MulWide(r.p.Stride).Add(token.U64()).ShlN(2)).Aligned(4).LoadU32())
		})
		out.StoreU32x2([2]ptx.U32{logit, logitOf(b, most).Bits()})
		out.Plus(8).StoreU64(total)
	})
	b.Comment("the most likely tokens: each thread has the first of its slice that is left")
	at, previous, mine := ptx.Var(thread.MulN(maxTop)), ptx.Var(b.U32(NoIndex)), device.NewBest(b)
	next := func() {
		pair := r.s.Tops.At(at, 8).LoadU32x2()
		ptx.Set(mine.Value, pair[0])
		ptx.Set(mine.Index, pair[1])
		ptx.Set(at, at.AddN(1))
	}
	b.If(r.top.Ne(b.U32(0)).And(thread.Lt(r.p.Slices)), next)
	b.For(b.U32(0), r.top, b.U32(1), func(i ptx.U32) {
		b.If(mine.Value.Ne(b.U32(0)).And(mine.Index.Eq(previous)), next)
		top := r.first(mine)
		ptx.Set(previous, top.Index)
		b.If(thread.EqN(0), func() {
			out.Plus(16).At(i, 8).StoreU32x2([2]ptx.U32{top.Index, logitOf(b, top.Value).Bits()})
		})
	}, ptx.NoUnroll)
}
