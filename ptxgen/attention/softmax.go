package attention

import (
	"fmt"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// softmax holds variables of a lane: the softmax of one query. Four lanes share the query. Each has some of its scores.
type softmax struct {
	top, sum       ptx.F32 // of the split so far: the largest exponent, and the sum of the lane's weights relative to it
	allTop, allSum ptx.F32 // of the splits before it: likewise, but the sum of all weights
}

func newSoftmax(b *ptx.Builder) softmax {
	none := func() ptx.F32 { return ptx.Var(minusInf(b)) }
	zero := func() ptx.F32 { return ptx.Var(b.F32(0)) }
	return softmax{none(), zero(), none(), zero()}
}

// raise raises top to x, the largest exponent of a block, if it is larger. The caller multiplies its sums by shrink, which
// is 1 if top did not change. Weights are 2 to the power of an exponent minus base.
func (s softmax) raise(b *ptx.Builder, x ptx.F32) (base, shrink ptx.F32) {
	x = x.Max(s.top)
	base = finiteMax(b, x)
	shrink = ptx.Select(x.Eq(s.top), b.F32(1), s.top.Sub(base).Ex2ApproxFTZ())
	ptx.Set(s.top, x)
	return base, shrink
}

// add adds the sum of the lane's weights of a block.
func (s softmax) add(shrink, sum ptx.F32) { ptx.Set(s.sum, s.sum.FMA(shrink, sum)) }

// addWeights adds a lane's weights of a block, in the order of their columns: two of each eight.
func addWeights(weights []ptx.F32) (sum ptx.F32) {
	for i := 0; i < len(weights); i += 2 {
		pair := weights[i].Add(weights[i+1])
		if i == 0 {
			sum = pair
		} else {
			sum = sum.Add(pair)
		}
	}
	return sum
}

// addLanes returns the sum of the four lanes of a query.
func addLanes(x ptx.F32) ptx.F32 {
	for _, lanes := range []int{1, 2} {
		x = x.Add(ptx.ShuffleXor(x, lanes))
	}
	return x
}

// endSplit adds the split to those before it and begins another one. Sums o of weighted values in the split, and all of those before it, become
// now·o + before·all.
func (s softmax) endSplit(b *ptx.Builder) (before, now ptx.F32) {
	top := s.allTop.Max(s.top)
	before, now = mergeFactors(b, s.allTop, s.top, top)
	ptx.Set(s.allSum, now.FMA(addLanes(s.sum), s.allSum.Mul(before)))
	ptx.Set(s.allTop, top)
	s.clear(b)
	return before, now
}

// clear begins another split.
func (s softmax) clear(b *ptx.Builder) {
	ptx.Set(s.top, minusInf(b))
	ptx.Set(s.sum, b.F32(0))
}

// mergeFactors returns the factors of sums relative to a and to m that make them relative to top, the larger one. Both are 0 if it is -Inf.
func mergeFactors(b *ptx.Builder, a, m, top ptx.F32) (before, now ptx.F32) {
	base := finiteMax(b, top)
	return a.Sub(base).Ex2ApproxFTZ(), m.Sub(base).Ex2ApproxFTZ()
}

// inverseSum returns the inverse of the sum of all weights and the sink's.
func (s softmax) inverseSum(b *ptx.Builder, scoring *scoringParams, head ptx.U32) ptx.F32 {
	return scoring.addSink(b, s.allSum, head, s.allTop).Rcp()
}

// quotient returns x·inverse, and +0 instead of −0: whether a sum of 0 is −0 depends on which splits, all masked, were
// added to it.
func quotient(b *ptx.Builder, x, inverse ptx.F32) ptx.F32 { return x.FMA(inverse, b.F32(0)) }

// queryTile is the 16 queries of a warp in a prefill. A lane has rows lane/4 and lane/4 + 8, and of every eight
// columns 2·(lane%4) and the next, as tensor cores leave them.
type queryTile struct {
	b       *ptx.Builder
	scoring *scoringParams
	lane    ptx.U32
	row     ptx.U32               // the lane's first row in the CTA
	rows    [2]softmax            // eight positions apart
	unscale func(row int) ptx.F32 // returns the power of two that undoes the scaling of a query
}

func newQueryTile(b *ptx.Builder, scoring *scoringParams, lane, row ptx.U32) queryTile {
	return queryTile{b: b, scoring: scoring, lane: lane, row: row, rows: [2]softmax{newSoftmax(b), newSoftmax(b)}}
}

// rowOf returns the lane's numbers of a row, of [8 columns].
func rowOf(list [][4]ptx.F32, row int) (numbers []ptx.F32) {
	for _, x := range list {
		numbers = append(numbers, x[2*row:][:2]...)
	}
	return numbers
}

// softcap replaces products, [8 keys], by exponents of 2.
func (t *queryTile) softcap(scores [][4]ptx.F32) {
	t.b.If(t.scoring.hasSoftcap(t.b), func() {
		t.b.Comment("softcap")
		for i := range t.rows {
			t.scoring.softcap(t.b, rowOf(scores, i), t.unscale(i))
		}
	})
}

// factors returns what products are multiplied by to become exponents of 2, by row.
func (t *queryTile) factors() (list [2]ptx.F32) {
	for i := range t.rows {
		list[i] = t.scoring.factor(t.b, t.unscale(i))
	}
	return list
}

// mask replaces the scores of positions that a query does not see by -Inf. key is the position of the
// block's first key, query that of the CTA's first query.
func (t *queryTile) mask(scores [][4]ptx.F32, key, query ptx.U32) {
	b := t.b
	column := key.Add(t.lane.AndN(3).MulN(2))
	for i := range t.rows {
		end := query.Add(t.row).AddN(8*i + 1)
		low, high := t.scoring.windowStart(end).Sub(column).S32(), end.Sub(column).S32()
		for j, x := range rowOf(scores, i) {
			next := b.S32(int32(j/2*8 + j%2 + 1))
			ptx.Set(x, ptx.Select(high.Ge(next).And(low.Lt(next)), x, minusInf(b)))
		}
	}
}

// weigh replaces the scores of a block by weights and adds these to the sums of each row. If a row sees nothing of a block, the
// block leaves the row's bits unchanged. shrink is what weighted values so far are to be multiplied by, by row.
func (t *queryTile) weigh(scores [][4]ptx.F32, factor [2]ptx.F32) (shrink [2]ptx.F32) {
	for i, r := range t.rows {
		list := rowOf(scores, i)
		x := list[0]
		for _, y := range list[1:] {
			x = y.Max(x)
		}
		for _, lanes := range []int{1, 2} {
			x = x.Max(ptx.ShuffleXor(x, lanes))
		}
		base, factorOfRow := r.raise(t.b, x.Mul(factor[i]))
		for _, y := range list {
			ptx.Set(y, y.FMA(factor[i], base.Neg()).Ex2ApproxFTZ())
		}
		r.add(factorOfRow, addWeights(list))
		shrink[i] = factorOfRow
	}
	return shrink
}

// rescale multiplies weighted values, [8 columns], by factors, by row. It skips a warp whose factors are all 1, as most are.
func (t *queryTile) rescale(values [][4]ptx.F32, factors [2]ptx.F32) {
	one := t.b.F32(1)
	t.b.If(factors[0].Ne(one).Or(factors[1].Ne(one)).Any(), func() {
		for i, factor := range factors {
			for _, x := range rowOf(values, i) {
				ptx.Set(x, x.Mul(factor))
			}
		}
	})
}

// splitFactors are the factors by which a split is added to those before it, by row: see softmax.endSplit.
type splitFactors struct{ before, now [2]ptx.F32 }

// endSplit ends the split of each row, so that the next weigh begins another one.
func (t *queryTile) endSplit() (f splitFactors) {
	for i, r := range t.rows {
		f.before[i], f.now[i] = r.endSplit(t.b)
	}
	return f
}

// addSplit adds the weighted values of a split that has ended to those of the splits before it, both [8 columns].
func (t *queryTile) addSplit(values, all [][4]ptx.F32, f splitFactors) {
	t.rescale(all, f.before)
	for i, now := range f.now {
		of := rowOf(values, i)
		for j, x := range rowOf(all, i) {
			ptx.Set(x, now.FMA(of[j], x))
		}
	}
}

// store divides the sums, [8 columns], by those of the weights and stores the rows that are
// queries: count of them, from query on. headDim is the head dimension; each of valueParts CTAs stores a part of it.
func (t *queryTile) store(sums [][4]ptx.F32, p *prefillParams, query, count ptx.U32, headDim, valueParts int) {
	b := t.b
	columns := p.Out.At(b.BlockX(), 4*headDim/valueParts) // not computed before the loop, where it would occupy registers
	b.Comment("divide by the sum of the weights and the sink's")
	for i, r := range t.rows {
		inverse := r.inverseSum(b, t.scoring, headOf(b, valueParts))
		row := t.row.AddN(8 * i)
		b.If(row.Lt(count), func() {
			to := columns.AtBytes(query.Add(row).MulWide(p.OutStride).ShlN(2)).Aligned(16).At(t.lane.AndN(3), 8)
			of := rowOf(sums, i)
			for j := 0; j < len(of); j += 2 {
				to.Plus(16 * j).StoreF32x2([2]ptx.F32{quotient(b, of[j], inverse), quotient(b, of[j+1], inverse)})
			}
		})
	}
}

// headText is headOf in the text of a kernel.
func headText(valueParts int) string {
	if valueParts == 1 {
		return "ctaid.x"
	}
	return fmt.Sprintf("ctaid.x/%d", valueParts)
}

// headOf returns the head of a CTA. valueParts CTAs share a head.
func headOf(b *ptx.Builder, valueParts int) ptx.U32 {
	if valueParts == 1 {
		return b.BlockX()
	}
	return b.BlockX().DivN(valueParts)
}

// queryScale returns the power of two by which a query is multiplied before it is rounded, and the one that undoes that.
// Both are normal numbers. largest is the largest absolute value of its elements, as bits; exponent is what
// the exponent of that element becomes.
func queryScale(b *ptx.Builder, largest ptx.U32, exponent int) (scale, unscale ptx.F32) {
	e := b.N(254 + exponent).Sub(largest.ShrN(23)).Min(b.N(253))
	return e.ShlN(23).AsF32(), b.N(254).Sub(e).ShlN(23).AsF32()
}
