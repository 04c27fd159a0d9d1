package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// finish adds up the lanes, then the warps of a row, and stores the tile's results:
// lane i has sum i of the warp.
func (g *gemvFloat) finish() {
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
func (g *gemvFloat) combine(mine ptx.F32) {
	b := g.b
	b.Comment("sums of the warps that share rows")
	turn := g.tile.Div(b.GridX()).AndN(1)
	at := g.parts.At(turn, floatWarps*32*4).At(b.ThreadX(), 4)
	at.StoreF32(mine)
	b.Barrier()
	b.If(g.part.EqN(0), func() {
		b.For(b.U32(1), g.split, b.U32(1), func(w ptx.U32) {
			ptx.Set(mine, mine.Add(at.At(w, 32*4).LoadF32()))
		})
	})
}

// epilogue stores the result of row lane/columns and column lane%columns.
func (g *gemvFloat) epilogue(mine ptx.F32) {
	b, columns, rows := g.b, g.columns(), g.rows()
	var up []ptx.F32
	if g.Gated {
		up = append(up, ptx.ShuffleIdx(mine, g.lane.AddN(rows*columns).AndN(31)))
	}
	row := g.tile.Mul(g.tileRows).Add(g.team.MulN(rows)).Add(g.lane.DivN(columns))
	column := g.lane.RemN(columns)
	active := g.lane.LtN(rows * columns).And(row.Lt(g.count)).And(column.Lt(g.columnCount))
	b.If(active, func() { g.finished(row, column, mine, up...) })
}
