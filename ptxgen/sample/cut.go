package sample

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// cut finds the last candidate that TopK and TopP keep, and adds the weights of the listed
// candidates that stay to the sums of their slices.
func (r *row) cut(w weigher, end last, sums ptx.Shared) {
	b := r.b
	bounds := r.loadBounds()
	s := newSelection(r)
	topK, topP := bounds.bin.LtN(bins), r.topP.Ne(b.U64(0))
	inBin := func(k ptx.U32) ptx.Pred { return w.bin(logitOf(b, k)).Eq(bounds.bin) }
	fromLow := func(k ptx.U32) ptx.Pred { return w.below(logitOf(b, k)).Ge(bounds.low) }
	s.last(topK, end, r.topK.U64().Sub(bounds.above), limit{
		weight:    func(ptx.F32) ptx.U64 { return ptx.Var(b.U64(1)) },
		add:       func(sum ptx.Shared, _ ptx.F32) { sum.AddU32(b.U32(1)) },
		takesPart: inBin,
	})

	kept := ptx.Var(b.U64(0)) // weights of TopK's bin that stay
	s.each(func(k, id ptx.U32) {
		stays := inBin(k).And(end.keeps(k, id))
		ptx.Set(kept, kept.Add(ptx.Select(stays, w.weight(logitOf(b, k)), b.U64(0))))
	})
	kept = r.total(kept)
	need := ceil64(b, r.topP, bounds.sum.Add(kept))
	s.last(topP, end, need.Sub(bounds.sumLow), limit{
		weight:    w.weight,
		add:       func(sum ptx.Shared, x ptx.F32) { add(b, sum, w.weight(x)) },
		takesPart: fromLow, // also those that TopK dropped, which come after the last one of TopP
		allListed: true,
	})

	s.each(func(k, id ptx.U32) {
		weight := w.weight(logitOf(b, k))
		b.If(fromLow(k).And(end.keeps(k, id)).And(weight.Ge(r.minWeight)), func() {
			add(b, sums.At(id.DivN(slice), 8), weight)
		})
	})
}

// limit is TopK or TopP, as a limit of a sum of weights. The weights of TopK are 1.
type limit struct {
	weight    func(x ptx.F32) ptx.U64
	add       func(sum ptx.Shared, x ptx.F32) // adds the weight to a u64
	takesPart func(key ptx.U32) ptx.Pred
	allListed bool // each listed candidate takes part
}

// selection selects among the listed candidates, or among all of the row if there are too many
// for the list.
type selection struct {
	r      *row
	n      ptx.U32 // number of candidates to look at
	whole  ptx.Pred
	few    ptx.Pred   // of n: there are at most fewCandidates
	listed ptx.Shared // u32 [fewCandidates, 2]: keys and ids
	weigh  ptx.Shared // u64 [fewCandidates]: weights of listed; 0: the candidate does not take part
	digits ptx.Shared // u64 [256]
	chosen ptx.Shared // u64 what is left of n; u64 the digit's sum; u32 the digit. Of a few: u32 key and id
}

// fewCandidates is the largest number of candidates that are compared with each other. That takes two
// barriers, a radix selection eight times as many.
const fewCandidates = 128

func newSelection(r *row) *selection {
	b, found := r.b, r.found().LoadU32()
	whole := found.Gt(b.U32(maxCandidates))
	return &selection{
		r: r, n: ptx.Select(whole, r.p.Vocab, found), whole: whole,
		few: found.Le(b.U32(fewCandidates)), listed: b.Shared("few", 8*fewCandidates, 8), weigh: b.Shared("few_weights", 8*fewCandidates, 8),
		digits: b.Shared("digits", 8*256, 8), chosen: b.Shared("chosen", 24, 8),
	}
}

// each calls do for the thread's part of the candidates. A key of 0 is no candidate, but it
// does no harm: it is the last in their order, and its weight is 0. The code has no branch but the
// loop, because ptxas spills the masks of deeply nested branches.
func (s *selection) each(do func(key, id ptx.U32)) {
	b, r := s.r.b, s.r
	i := ptx.Var(b.ThreadX())
	b.While(func() ptx.Pred { return i.Lt(s.n) }, func() {
		listed := r.s.Candidates.At(i, 8)
		at := ptx.Select(s.whole, r.s.Keys.At(i, 4).Address(), listed.Address())
		k, id := ptx.GlobalAt(at, 4).LoadU32(), ptx.Var(i)
		b.Unless(s.whole, func() { ptx.Set(id, listed.Plus(4).LoadU32()) })
		do(k, id)
		ptx.Set(i, i.AddN(drawThreads))
	}, ptx.NoUnroll)
}

// last sets end, if p holds, to the first candidate, in their order and of those that take part,
// at which the sum of weights reaches n.
func (s *selection) last(p ptx.Pred, end last, n ptx.U64, l limit) {
	b := s.r.b
	b.If(p.And(s.few), func() { s.lastOfFew(end, n, l) })
	p = p.And(s.few.Not())
	k, left, sum := s.radix(p, n, l, func(k, _ ptx.U32) ptx.U32 { return k })
	b.Comment("if not all candidates of this key are needed, the lower ids are")
	some := p.And(sum.Sub(left).Ge(l.weight(logitOf(b, k))))
	ofKey := l
	ofKey.takesPart = k.Eq
	inverse, _, _ := s.radix(some, left, ofKey, func(_, id ptx.U32) ptx.U32 { return id.Not() })
	ptx.Set(end.id, ptx.Select(p, inverse.Not(), end.id)) // NoIndex, if all are needed
	ptx.Set(end.key, ptx.Select(p, k, end.key))
}

// lastOfFew is last for at most fewCandidates. Each thread adds up the weights up to its candidate.
func (s *selection) lastOfFew(end last, n ptx.U64, l limit) {
	r, b, thread := s.r, s.r.b, s.r.b.ThreadX()
	k, id, mine, upTo := ptx.Var(b.U32(0)), ptx.Var(b.U32(0)), ptx.Var(b.U64(0)), ptx.Var(b.U64(0))
	has := thread.Lt(s.n)
	b.If(has, func() {
		pair := r.s.Candidates.At(thread, 8).LoadU32x2()
		ptx.Set(k, pair[0])
		ptx.Set(id, pair[1])
		ptx.Set(mine, l.weight(logitOf(b, k)))
		if !l.allListed {
			ptx.Set(mine, ptx.Select(l.takesPart(k), mine, b.U64(0)))
		}
		s.listed.At(thread, 8).StoreU32x2(pair)
		s.weigh.At(thread, 8).StoreU64(mine)
	})
	b.Barrier()
	b.If(has, func() {
		b.For(b.U32(0), s.n, b.U32(1), func(i ptx.U32) {
			other := s.listed.At(i, 8).LoadU32x2()
			earlier := last{k, id}.keeps(other[0], other[1]) // or the candidate itself
			ptx.Set(upTo, upTo.Add(ptx.Select(earlier, s.weigh.At(i, 8).LoadU64(), b.U64(0))))
		}, ptx.NoUnroll)
		b.If(upTo.Ge(n).And(upTo.Sub(mine).Lt(n)), func() { s.chosen.StoreU32x2([2]ptx.U32{k, id}) }) // one thread
	})
	b.Barrier()
	pair := s.chosen.LoadU32x2()
	ptx.Set(end.key, pair[0])
	ptx.Set(end.id, pair[1])
}

// radix returns, if p holds, the largest value at which the sum of the weights of candidates with
// this or a larger value reaches n, what is left of n after those of larger values, and the sum
// of those of this value. It finds the value's four bytes one after the other.
func (s *selection) radix(p ptx.Pred, n ptx.U64, l limit, valueOf func(key, id ptx.U32) ptx.U32) (value ptx.U32, left, sum ptx.U64) {
	r, b, thread := s.r, s.r.b, s.r.b.ThreadX()
	value, left, sum = ptx.Var(b.U32(0)), ptx.Var(n), ptx.Var(b.U64(0))
	shift, end := ptx.Var(b.U32(32)), ptx.Select(p, b.U32(0), b.U32(32))
	b.While(func() ptx.Pred { return shift.Ne(end) }, func() {
		ptx.Set(shift, shift.AddN(-8))
		b.If(thread.LtN(256), func() { s.digits.At(thread, 8).StoreU64(b.U64(0)) })
		b.Barrier()
		s.each(func(k, id ptx.U32) {
			v := valueOf(k, id)
			b.If(l.takesPart(k).And(v.Shr(shift.AddN(8)).Eq(value)), func() {
				l.add(s.digits.At(v.Shr(shift).AndN(255), 8), logitOf(b, k))
			})
		})
		b.Barrier()
		digit, mine := b.U32(255).Sub(thread), ptx.Var(b.U64(0))
		b.If(thread.LtN(256), func() { ptx.Set(mine, s.digits.At(digit, 8).LoadU64()) })
		upTo, _ := r.scan(mine)
		before := upTo.Sub(mine)
		b.If(before.Lt(left).And(upTo.Ge(left)), func() { // one thread
			s.chosen.StoreU64(left.Sub(before))
			s.chosen.Plus(8).StoreU64(mine)
			s.chosen.Plus(16).StoreU32(digit)
		})
		b.Barrier()
		ptx.Set(left, s.chosen.LoadU64())
		ptx.Set(sum, s.chosen.Plus(8).LoadU64())
		ptx.Set(value, value.ShlN(8).Or(s.chosen.Plus(16).LoadU32()))
	}, ptx.NoUnroll)
	return value, left, sum
}
