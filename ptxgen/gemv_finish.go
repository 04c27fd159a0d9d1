package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// finish adds up the lanes, then the warps of a row, and stores the tile's results:
// lane i has sum i of the warp.
func (g *gemv) finish() {
	b := g.b
	b.Comment("sums of the lanes; lane i keeps sum i")
	mine := ptx.Var(b.F32(0))
	for i, s := range g.sums {
		total := ptx.WarpSum(s)
		b.When(g.lane.EqN(i), func() { ptx.Set(mine, total) })
	}
	b.If(g.split.Gt(b.U32(1)), func() { g.combine(mine) })
	b.If(g.part.EqN(0), func() { g.epilogue(mine) })
}

// combine adds the sums of the warps that share rows, in their order, in the first.
// The tiles take turns with two buffers, so one barrier each is enough.
func (g *gemv) combine(mine ptx.F32) {
	b := g.b
	b.Comment("sums of the warps that share rows")
	turn := g.tile.Div(b.GridX()).AndN(1)
	at := g.parts.At(turn, gemvWarps*32*4).At(b.ThreadX(), 4)
	at.StoreF32(mine)
	b.Barrier()
	b.If(g.part.EqN(0), func() {
		b.For(b.U32(1), g.split, b.U32(1), func(w ptx.U32) {
			ptx.Set(mine, mine.Add(at.At(w, 32*4).LoadF32()))
		})
	})
}

// epilogue stores the result of row lane/columns and column lane%columns.
func (g *gemv) epilogue(mine ptx.F32) {
	b, columns, rows := g.b, g.columns(), g.rows()
	b.Comment("bias, cap, activation, gate, residual")
	up := mine
	if g.Gated {
		up = ptx.ShuffleIdx(mine, g.lane.AddN(rows*columns).AndN(31))
	}
	row := g.tile.Mul(g.tileRows).Add(g.team.MulN(rows)).Add(g.lane.DivN(columns))
	column := g.lane.RemN(columns)
	active := g.lane.LtN(rows * columns).And(row.Lt(g.count)).And(column.Lt(g.columnCount))
	given := func(p ptx.Global) ptx.Pred { return p.Address().Ne(b.U64(0)) }
	b.If(active, func() {
		value := ptx.Var(mine)
		b.If(given(g.bias), func() { ptx.Set(value, value.Add(g.bias.At(row, 4).LoadF32(ptx.ReadOnly))) })
		b.If(g.cap.Gt(b.F32(0)), func() { ptx.Set(value, softcap(b, value, g.cap)) })
		ptx.Set(value, activate(b, g.activation, value))
		if g.Gated {
			ptx.Set(value, value.Mul(up))
		}
		offset := g.slot.Add(column).MulWide(g.yStride).Add(row.Wide()).Mul(b.U64(4))
		b.If(given(g.residual), func() {
			ptx.Set(value, value.Add(g.residual.AtBytes(offset).Aligned(4).LoadF32()))
		})
		g.y.AtBytes(offset).Aligned(4).StoreF32(value)
	})
}
