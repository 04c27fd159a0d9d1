package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// What norm.RMS divides by is the same for a whole vector, so it is not needed to begin:
// the vector goes into shared memory multiplied by the norm's weight alone, while its
// squares are added up, and the results are multiplied by the inverse in the end. Where
// that could overflow or lose digits, where there is a bias, and for norm.Layer, the
// vector is staged after its moments are known.

// late reports whether the vector is staged after its moments.
func (n *gemvInteger) late() ptx.Pred {
	b := n.b
	biased := n.norm.Ne(b.U32(0)).And(device.NonNil(b, n.normBias))
	return n.norm.EqN(int(norm.Layer)).Or(biased)
}

// whole reports whether all quads are aligned, so that they can be copied.
func (n *gemvInteger) whole() ptx.Pred {
	addresses := n.x.Address().Or(n.normWeight.Address()).Low()
	return addresses.Or(n.xStride.Or(n.k).ShlN(2)).AndN(15).EqN(0)
}

// input is the vector.
func (n *gemvInteger) input() device.Row { return n.xAt(n.b.U32(0)) }

// copyVector starts to copy the warp's blocks of x to where their digits will be, and to
// load the norm's weight for the first of them.
func (n *gemvInteger) copyVector() {
	b := n.b
	for range n.d.units / 4 {
		n.gains = append(n.gains, n.filled(1))
	}
	b.If(n.late().Not(), func() {
		first, end := n.extent()
		first = first.Add(n.warp)
		b.If(n.whole(), func() {
			b.For(first, end, b.N(n.warps()), func(block ptx.U32) {
				b.If(n.inSlice(block), func() {
					x, quad := n.input(), n.firstQuad(block)
					from := x.Base.Aligned(16).At(quad, 16)
					for j := range n.d.units / 4 {
						inside := ptx.Select(quad.AddN(32*j).Lt(x.Vec4s()), b.U32(16), b.U32(0))
						b.CopyAsyncZeroFill(n.raw(block).Plus(512*j), from.Plus(512*j), inside)
					}
				})
			}, ptx.NoUnroll)
		})
		n.loadGains(first)
	})
	b.CopyCommit()
}

// raw is where the lane's quads of a block are copied.
func (n *gemvInteger) raw(block ptx.U32) ptx.Shared {
	return n.stagedBlock(block.Sub(n.origin)).At(n.lane, 16)
}

// stage puts the slice of the vector into shared memory, with a barrier for all. Before
// that it begins so many fetches: not sooner, since a warp that begins copies waits for
// those before, and x has come by then.
func (n *gemvInteger) stage(fetches int) {
	b := n.b
	late := n.late()
	b.If(b.ThreadX().EqN(0), func() {
		n.stats.StoreF32x2([2]ptx.F32{b.F32(1), ptx.Select(late, b.F32(1), b.F32(0))})
	})
	b.If(late.Not(), func() {
		b.CopyWait(0)
		n.stageBlocks()
	})
	for range fetches {
		n.fetch()
	}
	b.Barrier()
	b.If(n.squared().And(late.Not()), func() {
		b.If(n.warp.EqN(0), n.inverse)
		b.Barrier()
	})
	b.If(n.stats.Plus(4).LoadF32().Ne(b.F32(0)), n.stageLate)
}

// stageBlocks stages the blocks of the slice, a block a warp, and adds up the squares of
// each; of blocks outside of the slice only those.
func (n *gemvInteger) stageBlocks() {
	b := n.b
	first, end := n.extent()
	b.For(first.Add(n.warp), end, b.N(n.warps()), func(block ptx.U32) {
		values := n.loadValues(block)
		b.If(n.squared(), func() { n.square(block, values) })
		b.If(n.inSlice(block), func() {
			b.If(device.NonNil(b, n.normWeight), func() {
				for i, v := range values {
					for j := range v {
						ptx.Set(v[j], v[j].Mul(n.gains[i][j]))
					}
				}
			})
			n.put(values, n.stagedBlock(block.Sub(n.origin)))
		})
		n.loadGains(block.AddN(n.warps()))
	}, ptx.NoUnroll)
}

// squared reports whether squares are added up, which takes all blocks.
func (n *gemvInteger) squared() ptx.Pred { return n.norm.Ne(n.b.U32(0)) }

// extent is which blocks of the vector are staged or squared.
func (n *gemvInteger) extent() (first, end ptx.U32) {
	squared := n.squared()
	return ptx.Select(squared, n.b.U32(0), n.origin), ptx.Select(squared, n.span, n.limit)
}

func (n *gemvInteger) inSlice(block ptx.U32) ptx.Pred {
	return block.Ge(n.origin).And(block.Lt(n.limit))
}

// firstQuad is the lane's first quad of a block in the row, the next being 32 further on.
func (n *gemvInteger) firstQuad(block ptx.U32) ptx.U32 {
	return block.MulN(n.d.units * unitLen / 4).Add(n.lane)
}

// filled is a quad of variables.
func (n *gemvInteger) filled(x float32) (q device.Vec4) {
	for i := range q {
		q[i] = ptx.Var(n.b.F32(x))
	}
	return q
}

// loadValues gives a block's quads, as variables: those that were copied, or from memory.
func (n *gemvInteger) loadValues(block ptx.U32) []device.Vec4 {
	b := n.b
	var values []device.Vec4
	for range n.d.units / 4 {
		values = append(values, n.filled(0))
	}
	b.IfElse(n.whole().And(n.inSlice(block)), func() {
		for i, v := range values {
			setQuad(v, n.raw(block).Plus(512*i).LoadF32x4())
		}
		b.WarpSync() // all lanes have read before digits take the place
	}, func() {
		x, quad := n.input(), n.firstQuad(block)
		for i, v := range values {
			setQuad(v, n.loadQuad(x, quad.AddN(32*i), x.Vec4s(), 0))
		}
	})
	return values
}

// loadGains loads the norm's weight for a block, if there is one; beyond the row it is 1.
func (n *gemvInteger) loadGains(block ptx.U32) {
	b := n.b
	b.If(device.NonNil(b, n.normWeight), func() {
		for _, g := range n.gains {
			setQuad(g, n.filled(1))
		}
		quad := n.firstQuad(block)
		b.IfElse(n.whole(), func() {
			at, quads := n.normWeight.Aligned(16).At(quad, 16), n.input().Vec4s()
			for i, g := range n.gains {
				b.When(quad.AddN(32*i).Lt(quads), func() { setQuad(g, at.Plus(512*i).LoadF32x4(ptx.ReadOnly)) })
			}
		}, func() {
			for i, g := range n.gains {
				setQuad(g, n.loadGain(quad.AddN(32*i)))
			}
		})
	})
}

func setQuad(dst, src device.Vec4) {
	for j := range dst {
		ptx.Set(dst[j], src[j])
	}
}

// square stores the sum of a block's squares: a lane's in order, the lanes by a
// butterfly.
func (n *gemvInteger) square(block ptx.U32, values []device.Vec4) {
	b := n.b
	sum := b.F32(0)
	for _, v := range values {
		for _, x := range v {
			sum = x.FMA(x, sum)
		}
	}
	sum = ptx.WarpSum(sum)
	b.If(n.lane.EqN(0), func() { n.squares.At(block, 4).StoreF32(sum) })
}

// inverse adds up the squares of the blocks, in one warp, for the stats: what the results
// are multiplied by, and whether the vector is staged again.
func (n *gemvInteger) inverse() {
	b := n.b
	sum := ptx.Var(b.F32(0))
	b.For(n.lane, n.span, b.U32(32), func(i ptx.U32) {
		ptx.Set(sum, sum.Add(n.squares.At(i, 4).LoadF32()))
	}, ptx.NoUnroll)
	total := ptx.WarpSum(sum)
	const least, most = 0x1p-80, 0x1p100
	usual := total.Ge(b.F32(least)).And(total.Le(b.F32(most)))
	inverse := total.Div(n.k.F32()).Add(n.eps).Sqrt().Rcp()
	b.If(n.lane.EqN(0), func() {
		n.stats.StoreF32x2([2]ptx.F32{
			ptx.Select(usual, inverse, b.F32(1)), ptx.Select(usual, b.F32(0), b.F32(1)),
		})
	})
}

// stageLate stages the vector normalized.
func (n *gemvInteger) stageLate() {
	b := n.b
	b.Comment("a vector whose moments come first")
	only := b.U32(0)
	n.moment(only)
	b.Barrier()
	x := n.input()
	b.For(n.warp, n.limit.Sub(n.origin), b.N(n.warps()), func(i ptx.U32) {
		var values []device.Vec4
		for j := range n.d.units / 4 {
			at := n.firstQuad(n.origin.Add(i)).AddN(32 * j)
			v := n.loadQuad(x, at, x.Vec4s(), 0)
			b.If(at.Lt(x.Vec4s()), func() { n.normalize(v, n.loadGain(at), at, only) })
			values = append(values, v)
		}
		n.put(values, n.stagedBlock(i))
	}, ptx.NoUnroll)
	b.Barrier()
	b.If(b.ThreadX().EqN(0), func() { n.stats.StoreF32(b.F32(1)) })
}
