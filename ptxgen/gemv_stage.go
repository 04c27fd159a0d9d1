package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// What RMSNorm divides by is the same for a whole vector, so it is not needed to begin:
// the vector goes into shared memory multiplied by the norm's weight alone, while its
// squares are added up, and the results are multiplied by the inverse in the end. Where
// that could overflow or lose digits, where there is a bias, and for LayerNorm, a
// vector is staged after its moments are known.

// stage puts the slice of all vectors into shared memory, after a barrier for all.
func (n *gemvInteger) stage() {
	b := n.b
	late := n.norm.EqN(int(LayerNorm)).Or(n.norm.Ne(b.U32(0)).And(n.normBias.Address().Ne(b.U64(0))))
	b.If(b.ThreadX().LtN(n.columns()), func() {
		n.stats.At(b.ThreadX(), 16).StoreF32x2([2]ptx.F32{b.F32(1), ptx.Select(late, b.F32(1), b.F32(0))})
	})
	b.IfElse(late, func() { b.Barrier() }, func() {
		n.stageBlocks()
		b.Barrier()
		b.If(n.norm.Ne(b.U32(0)), func() {
			n.inverses()
			b.Barrier()
		})
	})
	b.For(b.U32(0), n.columnCount, b.U32(1), func(c ptx.U32) {
		b.If(n.stats.At(c, 16).Plus(4).LoadF32().Ne(b.F32(0)), func() { n.stageLate(c) })
	}, ptx.NoUnroll)
}

// stageBlocks stages the blocks of all vectors, a block a warp, and adds up the squares
// of each; of blocks outside of the slice only those. The next block is under way while
// one is staged.
func (n *gemvInteger) stageBlocks() {
	b := n.b
	squared := n.norm.Ne(b.U32(0))
	first := ptx.Select(squared, b.U32(0), n.origin)
	count := ptx.Select(squared, n.span, n.limit.Sub(n.origin))
	items := count.MulN(n.columns())
	it := n.item(n.warp, items, first, count)
	n.loadItem(it)
	it.index, it.column, it.block = ptx.Var(it.index), ptx.Var(it.column), ptx.Var(it.block)
	b.While(func() ptx.Pred { return it.index.Lt(items) }, func() {
		next := n.item(it.index.AddN(n.warps()), items, first, count)
		n.loadItem(next)
		b.If(squared, func() { n.square(it) })
		b.If(it.block.Ge(n.origin).And(it.block.Lt(n.limit)), func() {
			for i, v := range it.values {
				for j := range v {
					ptx.Set(v[j], v[j].Mul(it.gains[i][j]))
				}
			}
			n.stageQuads(it.values, n.stagedBlock(it.block.Sub(n.origin)), it.column)
		})
		it.set(next)
	}, ptx.NoUnroll)
}

// stagedItem is a block of a vector on its way to shared memory.
type stagedItem struct {
	index         ptx.U32 // among all
	column, block ptx.U32
	first         ptx.U32 // the lane's first quad of the row; the next is 32 further on
	limit         ptx.U32 // where the quads end that are loaded
	values, gains []quad  // variables
}

// set gives an item of variables what another holds, but for what loading it takes.
func (it stagedItem) set(from stagedItem) {
	ptx.Set(it.index, from.index)
	ptx.Set(it.column, from.column)
	ptx.Set(it.block, from.block)
	for i := range it.values {
		setQuad(it.values[i], from.values[i])
		setQuad(it.gains[i], from.gains[i])
	}
}

func (n *gemvInteger) item(i, items, first, count ptx.U32) stagedItem {
	b := n.b
	it := stagedItem{index: i, column: b.U32(0)}
	if n.columns() > 1 {
		it.column = i.Div(count)
	}
	it.block = first.Add(i.Sub(it.column.Mul(count)))
	it.first = it.block.MulN(n.d.units * UnitLen / 4).Add(n.lane)
	used := i.Lt(items).And(it.column.Lt(n.columnCount)) // the others are zeros
	it.limit = ptx.Select(used, n.k.CeilDivN(4), b.U32(0))
	for range n.d.units / 4 {
		var v, g quad
		for j := range v {
			v[j], g[j] = ptx.Var(b.F32(0)), ptx.Var(b.F32(1))
		}
		it.values, it.gains = append(it.values, v), append(it.gains, g)
	}
	return it
}

// loadItem loads a block and the norm's weight for it, in whole quads if all of those
// are aligned.
func (n *gemvInteger) loadItem(it stagedItem) {
	b := n.b
	given := n.normWeight.Address().Ne(b.U64(0))
	odd := n.x.Address().Or(n.normWeight.Address()).Low().Or(n.xStride.Or(n.k).ShlN(2)).AndN(15)
	x := n.xAt(it.column)
	b.IfElse(odd.EqN(0), func() {
		whole, gain := x.at.Aligned(16).At(it.first, 16), n.normWeight.Aligned(16).At(it.first, 16)
		for i := range it.values {
			inside := it.first.AddN(32 * i).Lt(it.limit)
			b.When(inside, func() { setQuad(it.values[i], whole.Plus(512*i).LoadF32x4()) })
			b.When(inside.And(given), func() { setQuad(it.gains[i], gain.Plus(512*i).LoadF32x4(ptx.ReadOnly)) })
		}
	}, func() {
		for i := range it.values {
			at := it.first.AddN(32 * i)
			setQuad(it.values[i], n.loadQuad(x, at, it.limit, 0))
			setQuad(it.gains[i], n.loadGain(at))
		}
	})
}

func setQuad(dst, src quad) {
	for j := range dst {
		ptx.Set(dst[j], src[j])
	}
}

// square stores the sum of a block's squares: a lane's in order, the lanes by a
// butterfly.
func (n *gemvInteger) square(it stagedItem) {
	b := n.b
	sum := b.F32(0)
	for _, v := range it.values {
		for _, x := range v {
			sum = x.FMA(x, sum)
		}
	}
	sum = ptx.WarpSum(sum)
	b.If(n.lane.EqN(0), func() { n.squares.At(it.column.Mul(n.span).Add(it.block), 4).StoreF32(sum) })
}

// inverses adds up the squares of each vector's blocks, a warp a vector, for its stats:
// what the results are multiplied by, and whether the vector is to be staged again.
func (n *gemvInteger) inverses() {
	b := n.b
	b.If(n.warp.Lt(n.columnCount), func() {
		sum := ptx.Var(b.F32(0))
		b.For(n.lane, n.span, b.U32(32), func(i ptx.U32) {
			ptx.Set(sum, sum.Add(n.squares.At(n.warp.Mul(n.span).Add(i), 4).LoadF32()))
		}, ptx.NoUnroll)
		total := ptx.WarpSum(sum)
		const least, most = 0x1p-80, 0x1p100
		usual := total.Ge(b.F32(least)).And(total.Le(b.F32(most)))
		inverse := total.Div(n.k.F32()).Add(n.eps).Sqrt().Rcp()
		b.If(n.lane.EqN(0), func() {
			n.stats.At(n.warp, 16).StoreF32x2([2]ptx.F32{
				ptx.Select(usual, inverse, b.F32(1)), ptx.Select(usual, b.F32(0), b.F32(1)),
			})
		})
	})
}

// stageLate stages a vector normalised.
func (n *gemvInteger) stageLate(c ptx.U32) {
	b := n.b
	b.Comment("a vector whose moments come first")
	n.moment(c)
	b.Barrier()
	x := n.xAt(c)
	b.For(n.warp, n.limit.Sub(n.origin), b.N(n.warps()), func(i ptx.U32) {
		var values []quad
		for j := range n.d.units / 4 {
			at := n.origin.Add(i).MulN(n.d.units * UnitLen / 4).AddN(32 * j).Add(n.lane)
			v := n.loadQuad(x, at, x.quads(), 0)
			b.If(at.Lt(x.quads()), func() { n.normalise(v, n.loadGain(at), at, c) })
			values = append(values, v)
		}
		n.stageQuads(values, n.stagedBlock(i), c)
	}, ptx.NoUnroll)
	b.Barrier()
	b.If(b.ThreadX().EqN(0), func() { n.stats.At(c, 16).StoreF32(b.F32(1)) })
}
