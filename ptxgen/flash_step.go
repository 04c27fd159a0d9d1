package ptxgen

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// flashState is what a warp keeps from block to block. In each of its tiles a lane
// has the rows lane/4 and lane/4 + 8, and of every eight columns 2·(lane%4) and the
// next.
type flashState[T ptx.Half2] struct {
	queryAt, keyAt, valueAt ptx.Shared // what this lane addresses for matrices of queries, K and V
	queries                 [][][4]T   // [tile][16 columns]; nil where registers do not suffice
	row                     ptx.U32    // the first of this lane's, of the tile
	rows                    []flashRow // two a tile, eight positions apart
	out                     [][][4]ptx.F32
}

// flashRow is one query of a lane. Where registers are scarce, what can be had from
// shared memory once a block is not kept.
type flashRow struct {
	most ptx.F32 // of the scores so far, as a power of two
	sum  ptx.F32 // of the weights so far, in this lane's columns
}

// inverse is the power of two that undoes the scaling of the lane's row i.
func (f *flashing[T]) inverse(s *flashState[T], i int) ptx.F32 {
	return f.shared.Plus(4*8*i).At(s.row, 4).LoadF32()
}

func (f *flashing[T]) newState() *flashState[T] {
	b := f.b
	s := &flashState[T]{}
	high, low := f.lane.Field(3, 1).MulN(8).Add(f.lane.AndN(7)), f.lane.ShrN(4)
	warpRow := f.warp.MulN(16 * f.tiles)
	s.queryAt = f.shared.Plus(f.queriesAt()).At(warpRow.Add(high), f.stride).At(low, 16)
	s.valueAt = f.shared.Plus(f.valuesAt()).At(high, f.stride).At(low, 16)
	s.keyAt = f.shared.Plus(f.keysAt()).At(low.MulN(8).Add(f.lane.AndN(7)), f.stride).At(f.lane.Field(3, 1), 16)
	const most = 32 // registers for queries
	s.row = warpRow.Add(f.lane.ShrN(2))
	for t := range f.tiles {
		for range 2 {
			s.rows = append(s.rows, flashRow{most: ptx.Var(minusInf(b)), sum: ptx.Var(b.F32(0))})
		}
		if f.tiles*f.width/4 <= most {
			var list [][4]T
			for k := range f.width / 16 {
				list = append(list, f.loadQuery(s, t, k))
			}
			s.queries = append(s.queries, list)
		}
		s.out = append(s.out, f.zeros(f.headDim/8))
	}
	return s
}

// zeros are accumulators of n matrices of 16 rows and 8 columns.
func (f *flashing[T]) zeros(n int) [][4]ptx.F32 {
	list := make([][4]ptx.F32, n)
	for i := range list {
		for j := range list[i] {
			list[i][j] = ptx.Var(f.b.F32(0))
		}
	}
	return list
}

func (f *flashing[T]) loadQuery(s *flashState[T], tile, k int) [4]T {
	return [4]T(ptx.LoadMatrices[T](s.queryAt.Plus(16*tile*f.stride+32*k), 4, false))
}

// step takes one block of keys into account.
func (f *flashing[T]) step(s *flashState[T], block ptx.U32) {
	stage := block.AndN(1)
	scores := f.scores(s, stage)
	f.b.If(f.capped, func() { f.softcap(s, scores) })
	f.mask(s, scores, block)
	f.softmax(s, scores)
	f.addValues(s, scores, stage)
}

// scores are Q·Kᵀ of the warp's rows and the block's keys: [tile][8 keys].
func (f *flashing[T]) scores(s *flashState[T], stage ptx.U32) [][][4]ptx.F32 {
	f.b.Comment("scores")
	scores := make([][][4]ptx.F32, f.tiles)
	for t := range scores {
		scores[t] = f.zeros(f.blockK / 8)
	}
	keyAt := s.keyAt.At(stage, f.stageBytes())
	for k := range f.width / 16 {
		query := make([][4]T, f.tiles)
		for t := range query {
			if s.queries != nil {
				query[t] = s.queries[t][k]
			} else {
				query[t] = f.loadQuery(s, t, k)
			}
		}
		for n := range f.blockK / 16 {
			key := ptx.LoadMatrices[T](keyAt.Plus(16*n*f.stride+32*k), 4, false)
			for t := range query {
				ptx.MMA(scores[t][2*n], query[t], [2]T(key[:2]))
				ptx.MMA(scores[t][2*n+1], query[t], [2]T(key[2:]))
			}
		}
	}
	return scores
}

// eachScore calls do for the scores of each row: of column 8·n + 2·(lane%4) + odd.
func (f *flashing[T]) eachScore(scores [][][4]ptx.F32, do func(row, n, odd int, x ptx.F32)) {
	for t := range scores {
		for half := range 2 {
			for n, x := range scores[t] {
				for odd := range 2 {
					do(2*t+half, n, odd, x[2*half+odd])
				}
			}
		}
	}
}

// softcap makes powers of two of the products: cap·tanh(scale·x/cap)·log2 e.
func (f *flashing[T]) softcap(s *flashState[T], scores [][][4]ptx.F32) {
	f.b.Comment("softcap")
	scale, capLog2 := f.scale.Div(f.cap), f.cap.MulN(math.Log2E)
	factor := make([]ptx.F32, len(s.rows))
	for i := range factor {
		factor[i] = scale.Mul(f.inverse(s, i))
	}
	f.eachScore(scores, func(row, _, _ int, x ptx.F32) {
		ptx.Set(x, tanh(f.b, x.Mul(factor[row])).Mul(capLog2))
	})
}

// factors turn products into powers of two; softcap has done so where there is one.
func (f *flashing[T]) factors(s *flashState[T]) []ptx.F32 {
	list := make([]ptx.F32, len(s.rows))
	for i := range list {
		// A factor of 0 would make NaN of -Inf.
		x := f.scaleLog2.Mul(f.inverse(s, i)).Max(f.b.F32(math.SmallestNonzeroFloat32))
		list[i] = ptx.Select(f.capped, f.b.F32(1), x)
	}
	return list
}

// mask makes -Inf of the scores of what a query does not see. Most blocks are seen
// by all queries of the tile and are left out.
func (f *flashing[T]) mask(s *flashState[T], scores [][][4]ptx.F32, block ptx.U32) {
	b := f.b
	b.Comment("mask, in blocks at the diagonal or at the window's edge")
	first := block.MulN(f.blockK)
	partly := first.AddN(f.blockK - 1).Gt(f.tile.first).Or(first.Lt(windowStart(b, f.tile.to, f.window)))
	b.If(partly, func() {
		column := first.Add(f.lane.AndN(3).MulN(2))
		low, high := make([]ptx.S32, len(s.rows)), make([]ptx.S32, len(s.rows))
		for i := range s.rows {
			end := f.tile.first.Add(s.row).AddN(8*i + 1)
			low[i], high[i] = windowStart(b, end, f.window).Sub(column).S32(), end.Sub(column).S32()
		}
		f.eachScore(scores, func(row, n, odd int, x ptx.F32) {
			next := b.S32(int32(8*n + odd + 1))
			ptx.Set(x, ptx.Select(high[row].Ge(next).And(low[row].Lt(next)), x, minusInf(b)))
		})
	})
}

// softmax makes weights of the scores and scales what was added up so far to the new
// maximum. A block of which a row sees nothing leaves the row's bits as they are.
func (f *flashing[T]) softmax(s *flashState[T], scores [][][4]ptx.F32) {
	f.b.Comment("weights, relative to the largest score so far")
	rows := len(s.rows)
	most, sum, factor := make([]ptx.F32, rows), make([]ptx.F32, rows), f.factors(s)
	f.eachScore(scores, func(row, n, odd int, x ptx.F32) {
		if n+odd > 0 {
			x = x.Max(most[row])
		}
		most[row] = x
	})
	shrink, changed := f.raise(s, most, factor)
	f.eachScore(scores, func(row, n, odd int, x ptx.F32) {
		ptx.Set(x, x.FMA(factor[row], most[row].Neg()).Ex2ApproxFTZ())
		if n+odd > 0 {
			sum[row] = sum[row].Add(x)
		} else {
			sum[row] = x
		}
	})
	for i, r := range s.rows {
		ptx.Set(r.sum, r.sum.FMA(shrink[i], sum[i]))
	}
	f.b.If(changed.Any(), func() {
		for t := range s.out {
			for n := range s.out[t] {
				for i, x := range s.out[t][n] {
					ptx.Set(x, x.Mul(shrink[2*t+i/2]))
				}
			}
		}
	})
}

// raise takes the largest products of this block into each row's maximum, as a power
// of two, leaves that in most, and gives what the sums so far are to be multiplied
// with and whether that is not 1 for all rows of the lane.
func (f *flashing[T]) raise(s *flashState[T], most, factor []ptx.F32) (shrink []ptx.F32, changed ptx.Pred) {
	b := f.b
	for i, r := range s.rows {
		top := most[i]
		for _, lanes := range []int{1, 2} {
			top = top.Max(ptx.ShuffleXor(top, lanes))
		}
		top = top.Mul(factor[i]).Max(r.most)
		same := top.Eq(r.most)
		most[i] = numberOrZero(b, top)
		shrink = append(shrink, ptx.Select(same, b.F32(1), r.most.Sub(most[i]).Ex2ApproxFTZ()))
		ptx.Set(r.most, top)
		if i == 0 {
			changed = same.Not()
		} else {
			changed = changed.Or(same.Not())
		}
	}
	return shrink, changed
}

// addValues adds the weighted values. The accumulators of the scores hold the
// weights as the second product takes its left side.
func (f *flashing[T]) addValues(s *flashState[T], weights [][][4]ptx.F32, stage ptx.U32) {
	f.b.Comment("values")
	valueAt := s.valueAt.At(stage, f.stageBytes())
	for k := range f.blockK / 16 {
		left := make([][4]T, f.tiles)
		for t := range left {
			a, c := weights[t][2*k], weights[t][2*k+1]
			left[t] = [4]T{f.pack(a[0], a[1]), f.pack(a[2], a[3]), f.pack(c[0], c[1]), f.pack(c[2], c[3])}
		}
		for n := range f.width / 16 {
			value := ptx.LoadMatrices[T](valueAt.Plus(16*k*f.stride+32*n), 4, true)
			for t := range left {
				ptx.MMA(s.out[t][2*n], left[t], [2]T(value[:2]))
				if 2*n+1 < len(s.out[t]) {
					ptx.MMA(s.out[t][2*n+1], left[t], [2]T(value[2:]))
				}
			}
		}
	}
}

// store divides by the sums and writes the rows that are queries.
func (f *flashing[T]) store(s *flashState[T]) {
	b := f.b
	out := f.out.At(b.BlockX(), 4*f.headDim) // not before: it would take registers from the loop
	b.Comment("divide by the sum of the weights")
	for i := range s.rows {
		sum := s.rows[i].sum
		for _, lanes := range []int{1, 2} {
			sum = sum.Add(ptx.ShuffleXor(sum, lanes))
		}
		inverse := sum.Rcp()
		row := s.row.AddN(8 * i)
		b.If(row.Lt(f.tile.count), func() {
			to := out.AtBytes(f.tile.rows.Add(row).MulWide(f.outStride).ShlN(2)).Aligned(16).At(f.lane.AndN(3), 8)
			for n, x := range s.out[i/2] {
				pair := x[2*(i%2):]
				to.Plus(32 * n).StoreF32x2([2]ptx.F32{pair[0].Mul(inverse), pair[1].Mul(inverse)})
			}
		})
	}
}
