package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// What RMSNorm divides by is the same for a whole vector, so it is not needed to begin:
// the vector goes into shared memory multiplied by the norm's weight alone, while its
// squares are added up, and the results are multiplied by the inverse in the end. Where
// that could overflow or lose digits, where there is a bias, and for LayerNorm, a
// vector is staged after its moments are known.

// late reports whether all vectors are staged after their moments.
func (n *gemvInteger) late() ptx.Pred {
	b := n.b
	biased := n.norm.Ne(b.U32(0)).And(given(b, n.normBias))
	return n.norm.EqN(int(LayerNorm)).Or(biased)
}

// whole reports whether all quads are aligned, so that they can be copied.
func (n *gemvInteger) whole() ptx.Pred {
	addresses := n.x.Address().Or(n.normWeight.Address()).Low()
	return addresses.Or(n.xStride.Or(n.k).ShlN(2)).AndN(15).EqN(0)
}

// copyVectors starts to copy the warp's blocks of x to where their digits will be, and to
// load the norm's weight for the first of them.
func (n *gemvInteger) copyVectors() {
	b := n.b
	n.first = n.item(n.warp)
	for range n.d.units / 4 {
		n.first.gains = append(n.first.gains, n.filled(1))
	}
	b.If(n.late().Not(), func() {
		b.If(n.whole(), func() {
			b.For(n.warp, n.items(), b.N(n.warps()), func(i ptx.U32) {
				it := n.item(i)
				b.If(n.inSlice(it.block), func() {
					quad, limit := n.quads(it)
					from := n.xAt(it.column).at.Aligned(16).At(quad, 16)
					for j := range n.d.units / 4 {
						inside := ptx.Select(quad.AddN(32*j).Lt(limit), b.U32(16), b.U32(0))
						b.CopyAsyncPart(n.raw(it).Plus(512*j), from.Plus(512*j), inside)
					}
				})
			}, ptx.NoUnroll)
		})
		n.loadGains(n.first)
	})
	b.CopyCommit()
}

// raw is where the lane's quads of a block are copied.
func (n *gemvInteger) raw(it stagedItem) ptx.Shared {
	return n.stagedBlock(it.block.Sub(n.origin)).At(it.column, n.digitBytes()).At(n.lane, 16)
}

// stage puts the slice of all vectors into shared memory, after a barrier for all. So many
// groups of copies have begun after those of the vectors.
func (n *gemvInteger) stage(later int) {
	b := n.b
	late := n.late()
	b.If(b.ThreadX().LtN(n.columns()), func() {
		n.stats.At(b.ThreadX(), 16).StoreF32x2([2]ptx.F32{b.F32(1), ptx.Select(late, b.F32(1), b.F32(0))})
	})
	b.IfElse(late, func() { b.Barrier() }, func() {
		b.CopyWait(later)
		n.stageBlocks()
		b.Barrier()
		b.If(n.norm.Ne(b.U32(0)), func() {
			n.inverses()
			b.Barrier()
		})
	})
	b.For(b.U32(0), b.N(n.columns()), b.U32(1), func(c ptx.U32) {
		b.If(n.stats.At(c, 16).Plus(4).LoadF32().Ne(b.F32(0)), func() { n.stageLate(c) })
	}, ptx.NoUnroll)
}

// stageBlocks stages the blocks of all vectors, a block a warp, and adds up the squares
// of each; of blocks outside of the slice only those.
func (n *gemvInteger) stageBlocks() {
	b := n.b
	it := n.first
	it.index, it.column, it.block = ptx.Var(it.index), ptx.Var(it.column), ptx.Var(it.block)
	b.While(func() ptx.Pred { return it.index.Lt(n.items()) }, func() {
		values := n.loadValues(it)
		next, gains := n.item(it.index.AddN(n.warps())), it.gains
		next.gains = gains
		b.If(n.squared(), func() { n.square(it, values) })
		b.If(n.inSlice(it.block), func() {
			b.If(given(b, n.normWeight), func() {
				for i, v := range values {
					for j := range v {
						ptx.Set(v[j], v[j].Mul(gains[i][j]))
					}
				}
			})
			n.put(values, n.stagedBlock(it.block.Sub(n.origin)), it.column)
		})
		n.loadGains(next)
		it.set(next)
	}, ptx.NoUnroll)
}

// squared reports whether squares are added up, which takes all blocks.
func (n *gemvInteger) squared() ptx.Pred { return n.norm.Ne(n.b.U32(0)) }

// items is how many blocks of all vectors are staged or squared.
func (n *gemvInteger) items() ptx.U32 {
	_, count := n.extent()
	return count.MulN(n.columns())
}

// extent is which blocks of each vector those are.
func (n *gemvInteger) extent() (first, count ptx.U32) {
	squared := n.squared()
	return ptx.Select(squared, n.b.U32(0), n.origin), ptx.Select(squared, n.span, n.limit.Sub(n.origin))
}

func (n *gemvInteger) inSlice(block ptx.U32) ptx.Pred {
	return block.Ge(n.origin).And(block.Lt(n.limit))
}

// stagedItem is a block of a vector on its way to shared memory.
type stagedItem struct {
	index         ptx.U32 // among all
	column, block ptx.U32
	gains         []quad // variables
}

// set gives an item of variables what another holds.
func (it stagedItem) set(from stagedItem) {
	ptx.Set(it.index, from.index)
	ptx.Set(it.column, from.column)
	ptx.Set(it.block, from.block)
}

func (n *gemvInteger) item(i ptx.U32) stagedItem {
	b := n.b
	first, count := n.extent()
	it := stagedItem{index: i, column: b.U32(0)}
	if n.columns() > 1 {
		it.column = i.Div(count)
	}
	it.block = first.Add(i.Sub(it.column.Mul(count)))
	return it
}

// quads is the lane's first quad of the row, the next being 32 further on, and where the
// quads end that are loaded.
func (n *gemvInteger) quads(it stagedItem) (first, limit ptx.U32) {
	first = it.block.MulN(n.d.units * UnitLen / 4).Add(n.lane)
	used := it.index.Lt(n.items()).And(it.column.Lt(n.columnCount)) // the others are zeros
	return first, ptx.Select(used, n.k.CeilDivN(4), n.b.U32(0))
}

// filled is a quad of variables.
func (n *gemvInteger) filled(x float32) (q quad) {
	for i := range q {
		q[i] = ptx.Var(n.b.F32(x))
	}
	return q
}

// loadValues gives an item's quads, as variables: those that were copied, or from memory.
func (n *gemvInteger) loadValues(it stagedItem) []quad {
	b := n.b
	var values []quad
	for range n.d.units / 4 {
		values = append(values, n.filled(0))
	}
	b.IfElse(n.whole().And(n.inSlice(it.block)), func() {
		for i, v := range values {
			setQuad(v, n.raw(it).Plus(512*i).LoadF32x4())
		}
		b.WarpSync() // all lanes have read before digits take the place
	}, func() {
		x := n.xAt(it.column)
		quad, limit := n.quads(it)
		for i, v := range values {
			setQuad(v, n.loadQuad(x, quad.AddN(32*i), limit, 0))
		}
	})
	return values
}

// loadGains loads the norm's weight for an item, if there is one.
func (n *gemvInteger) loadGains(it stagedItem) {
	b := n.b
	b.If(given(b, n.normWeight), func() {
		for _, g := range it.gains {
			setQuad(g, n.filled(1))
		}
		quad, limit := n.quads(it)
		b.IfElse(n.whole(), func() {
			at := n.normWeight.Aligned(16).At(quad, 16)
			for i, g := range it.gains {
				b.When(quad.AddN(32*i).Lt(limit), func() { setQuad(g, at.Plus(512*i).LoadF32x4(ptx.ReadOnly)) })
			}
		}, func() {
			for i, g := range it.gains {
				setQuad(g, n.loadGain(quad.AddN(32*i)))
			}
		})
	})
}

func setQuad(dst, src quad) {
	for j := range dst {
		ptx.Set(dst[j], src[j])
	}
}

// square stores the sum of a block's squares: a lane's in order, the lanes by a
// butterfly.
func (n *gemvInteger) square(it stagedItem, values []quad) {
	b := n.b
	sum := b.F32(0)
	for _, v := range values {
		for _, x := range v {
			sum = x.FMA(x, sum)
		}
	}
	sum = ptx.WarpSum(sum)
	b.If(n.lane.EqN(0), func() { n.squares.At(it.column.Mul(n.span).Add(it.block), 4).StoreF32(sum) })
}

// inverses adds up the squares of each vector's blocks, a warp a vector at a time, for its
// stats: what the results are multiplied by, and whether the vector is staged again.
func (n *gemvInteger) inverses() {
	b := n.b
	b.For(n.warp, n.columnCount, b.N(n.warps()), func(c ptx.U32) {
		sum := ptx.Var(b.F32(0))
		b.For(n.lane, n.span, b.U32(32), func(i ptx.U32) {
			ptx.Set(sum, sum.Add(n.squares.At(c.Mul(n.span).Add(i), 4).LoadF32()))
		}, ptx.NoUnroll)
		total := ptx.WarpSum(sum)
		const least, most = 0x1p-80, 0x1p100
		usual := total.Ge(b.F32(least)).And(total.Le(b.F32(most)))
		inverse := total.Div(n.k.F32()).Add(n.eps).Sqrt().Rcp()
		b.If(n.lane.EqN(0), func() {
			n.stats.At(c, 16).StoreF32x2([2]ptx.F32{
				ptx.Select(usual, inverse, b.F32(1)), ptx.Select(usual, b.F32(0), b.F32(1)),
			})
		})
	}, ptx.NoUnroll)
}

// stageLate stages a vector normalised, or zeros for one that is not there.
func (n *gemvInteger) stageLate(c ptx.U32) {
	b := n.b
	b.Comment("a vector whose moments come first")
	used := c.Lt(n.columnCount)
	b.If(used, func() { n.moment(c) })
	b.Barrier()
	x := n.xAt(c)
	quads := ptx.Select(used, x.quads(), b.U32(0))
	b.For(n.warp, n.limit.Sub(n.origin), b.N(n.warps()), func(i ptx.U32) {
		var values []quad
		for j := range n.d.units / 4 {
			at := n.origin.Add(i).MulN(n.d.units * UnitLen / 4).AddN(32 * j).Add(n.lane)
			v := n.loadQuad(x, at, quads, 0)
			b.If(at.Lt(quads), func() { n.normalise(v, n.loadGain(at), at, c) })
			values = append(values, v)
		}
		n.put(values, n.stagedBlock(i), c)
	}, ptx.NoUnroll)
	b.Barrier()
	b.If(b.ThreadX().EqN(0), func() { n.stats.At(c, 16).StoreF32(b.F32(1)) })
}
