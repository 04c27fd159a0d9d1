package attention

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// onlineSoftmax turns scores into weights, block by block of keys, with a running maximum per query. A warp
// has tiles of 16 queries. In each tile a lane has rows lane/4 and lane/4 + 8, and of every eight
// columns 2·(lane%4) and the next, as tensor cores leave them.
type onlineSoftmax struct {
	b          *ptx.Builder
	p          *prefillParams
	lane       ptx.U32
	hasSoftcap ptx.Pred
	row        ptx.U32               // this lane's first row in the CTA
	rows       []queryRow            // two per tile, eight positions apart
	inverse    func(row int) ptx.F32 // returns the power of two that undoes the scaling of a query
}

// queryRow is the running softmax of one query in a lane.
type queryRow struct {
	max ptx.F32 // maximum score so far, as an exponent of 2
	sum ptx.F32 // sum of the weights so far, of this lane's columns
}

// addTile adds the rows of a tile.
func (o *onlineSoftmax) addTile() {
	for range 2 {
		o.rows = append(o.rows, queryRow{max: ptx.Var(minusInf(o.b)), sum: ptx.Var(o.b.F32(0))})
	}
}

// eachScore calls do for every score: that of a row and of column 8·n + 2·(lane%4) + odd. Scores are
// [tile][8 keys].
func eachScore(scores [][][4]ptx.F32, do func(row, n, odd int, x ptx.F32)) {
	for t := range scores {
		for upper := range 2 {
			for n, x := range scores[t] {
				for odd := range 2 {
					do(2*t+upper, n, odd, x[2*upper+odd])
				}
			}
		}
	}
}

// softcap replaces the products x by exponents of 2: cap·tanh(scale·x/cap)·log2 e. quotient is scale/cap.
func (o *onlineSoftmax) softcap(scores [][][4]ptx.F32, quotient ptx.F32) {
	o.b.Comment("softcap")
	capLog2 := o.p.Softcap.MulN(math.Log2E)
	factor := make([]ptx.F32, len(o.rows))
	for i := range factor {
		factor[i] = quotient.Mul(o.inverse(i))
	}
	eachScore(scores, func(row, _, _ int, x ptx.F32) {
		ptx.Set(x, device.Tanh(o.b, x.Mul(factor[row])).Mul(capLog2))
	})
}

// factors returns what products are multiplied by to become exponents of 2; 1 if softcap has
// done so.
func (o *onlineSoftmax) factors() []ptx.F32 {
	list := make([]ptx.F32, len(o.rows))
	for i := range list {
		// 0 times an infinite score would be NaN.
		x := o.p.ScaleLog2e.Mul(o.inverse(i)).Max(o.b.F32(math.SmallestNonzeroFloat32))
		list[i] = ptx.Select(o.hasSoftcap, o.b.F32(1), x)
	}
	return list
}

// mask replaces the scores of positions that a query does not see by -Inf. key is the position of the
// block's first key, query that of the CTA's first query.
func (o *onlineSoftmax) mask(scores [][][4]ptx.F32, key, query ptx.U32) {
	b := o.b
	column := key.Add(o.lane.AndN(3).MulN(2))
	low, high := make([]ptx.S32, len(o.rows)), make([]ptx.S32, len(o.rows))
	for i := range o.rows {
		end := query.Add(o.row).AddN(8*i + 1)
		low[i], high[i] = o.p.windowStart(end).Sub(column).S32(), end.Sub(column).S32()
	}
	eachScore(scores, func(row, n, odd int, x ptx.F32) {
		next := b.S32(int32(8*n + odd + 1))
		ptx.Set(x, ptx.Select(high[row].Ge(next).And(low[row].Lt(next)), x, minusInf(b)))
	})
}

// weigh replaces the scores by weights relative to the largest score so far, and updates the maximum
// and the sum of each row. If a row sees nothing of a block, the block leaves the row's bits unchanged.
// shrink is what earlier sums of each row are to be multiplied by, see rescale; changed reports whether one of
// them is not 1.
func (o *onlineSoftmax) weigh(scores [][][4]ptx.F32, factor []ptx.F32) (shrink []ptx.F32, changed ptx.Pred) {
	rows := len(o.rows)
	top, sum := make([]ptx.F32, rows), make([]ptx.F32, rows)
	eachScore(scores, func(row, n, odd int, x ptx.F32) {
		if n+odd > 0 {
			x = x.Max(top[row])
		}
		top[row] = x
	})
	shrink, changed = o.raiseMax(top, factor)
	eachScore(scores, func(row, n, odd int, x ptx.F32) {
		ptx.Set(x, x.FMA(factor[row], top[row].Neg()).Ex2ApproxFTZ())
		if n+odd > 0 {
			sum[row] = sum[row].Add(x)
		} else {
			sum[row] = x
		}
	})
	for i, r := range o.rows {
		ptx.Set(r.sum, r.sum.FMA(shrink[i], sum[i]))
	}
	return shrink, changed
}

// raiseMax updates the running maximum of each row, an exponent of 2. top holds the lane's
// largest product of each row, and on return the new maximum, or 0 if it is -Inf.
func (o *onlineSoftmax) raiseMax(top, factor []ptx.F32) (shrink []ptx.F32, changed ptx.Pred) {
	b := o.b
	for i, r := range o.rows {
		x := top[i]
		for _, lanes := range []int{1, 2} {
			x = x.Max(ptx.ShuffleXor(x, lanes))
		}
		x = x.Mul(factor[i]).Max(r.max)
		same := x.Eq(r.max)
		top[i] = finiteMax(b, x)
		shrink = append(shrink, ptx.Select(same, b.F32(1), r.max.Sub(top[i]).Ex2ApproxFTZ()))
		ptx.Set(r.max, x)
		if i == 0 {
			changed = same.Not()
		} else {
			changed = changed.Or(same.Not())
		}
	}
	return shrink, changed
}

// rescale multiplies the outputs so far, [tile][8 columns], by what weigh returned.
func (o *onlineSoftmax) rescale(out [][][4]ptx.F32, shrink []ptx.F32, changed ptx.Pred) {
	o.b.If(changed.Any(), func() {
		for t := range out {
			for n := range out[t] {
				for i, x := range out[t][n] {
					ptx.Set(x, x.Mul(shrink[2*t+i/2]))
				}
			}
		}
	})
}

// store divides the outputs, [tile][8 columns], by the sums of the weights and stores the rows that are
// queries: count of them, from query on. headDim is the head dimension, of which each of parts CTAs stores a part.
func (o *onlineSoftmax) store(out [][][4]ptx.F32, query, count ptx.U32, headDim, parts int) {
	b := o.b
	columns := o.p.Out.At(b.BlockX(), 4*headDim/parts) // not computed before the loop, where it would occupy registers
	b.Comment("divide by the sum of the weights and the sink's")
	for i, r := range o.rows {
		sum := r.sum
		for _, lanes := range []int{1, 2} {
			sum = sum.Add(ptx.ShuffleXor(sum, lanes))
		}
		sum = addSink(b, sum, o.p.Sinks, headOf(b, parts), func(x ptx.F32) ptx.F32 { return x.FMA(b.F32(math.Log2E), r.max.Neg()).Ex2ApproxFTZ() })
		inverse := sum.Rcp()
		row := o.row.AddN(8 * i)
		b.If(row.Lt(count), func() {
			to := columns.AtBytes(query.Add(row).MulWide(o.p.OutStride).ShlN(2)).Aligned(16).At(o.lane.AndN(3), 8)
			for n, x := range out[i/2] {
				pair := x[2*(i%2):]
				to.Plus(32 * n).StoreF32x2([2]ptx.F32{pair[0].Mul(inverse), pair[1].Mul(inverse)})
			}
		})
	}
}

// headOf returns the head of a CTA, of which each head has parts.
func headOf(b *ptx.Builder, parts int) ptx.U32 {
	if parts == 1 {
		return b.BlockX()
	}
	return b.BlockX().DivN(parts)
}

// queryScale returns the power of two by which a query is multiplied before it is rounded, and its inverse.
// Both are normal numbers. largest is the largest absolute value of its elements, as bits; exponent is what
// the exponent of that element becomes.
func queryScale(b *ptx.Builder, largest ptx.U32, exponent int) (factor, inverse ptx.F32) {
	e := b.N(254 + exponent).Sub(largest.ShrN(23)).Min(b.N(253))
	return e.ShlN(23).AsF32(), b.N(254).Sub(e).ShlN(23).AsF32()
}
