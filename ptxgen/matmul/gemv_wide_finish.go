package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// finish stores the results of the round, with those of other slices if this is the last to
// come.
func (n *gemvWide) finish() {
	const each = wideRows * wideVectors
	b := n.b
	tiles := n.final.Sub(n.group).Min(b.N(n.s.teams()))
	b.For(b.ThreadX(), tiles.MulN(each), b.N(32*wideWarps), func(i ptx.U32) {
		team, column, place := i.DivN(each), i.DivN(wideRows).RemN(wideVectors), i.RemN(wideRows)
		r := integerResult{group: n.group.Add(team), place: place}
		r.row = r.group.MulN(wideRows).Add(place)
		vector := n.set.MulN(wideVectors).Add(column)
		b.If(r.row.Lt(n.count).And(vector.Lt(n.columnCount)), func() {
			sums, at := make([]ptx.F32, n.matrixCount()), n.sumAt(team, place, column)
			for m := range sums {
				sums[m] = ptx.Var(at.Plus(4 * m * wideLevel / wideWarps).LoadF32())
			}
			n.slot = vector
			b.If(n.meet(r, sums), func() {
				inverse := n.digits.At(n.span.Mul(n.room), digitBlock).At(vector, 4).LoadF32()
				var up []ptx.F32
				for _, sum := range sums[1:] {
					up = append(up, sum.Mul(inverse))
				}
				n.finished(r.row, b.U32(0), sums[0].Mul(inverse), up...)
			})
		})
	}, ptx.NoUnroll)
}

// sumAt is where a warp left the sum of a row, of the team's first matrix, by a column: see
// pile.
func (n *gemvWide) sumAt(team, row, column ptx.U32) ptx.Shared {
	warp := team.MulN(4 * n.matrixCount()).Add(row.DivN(tileRows))
	lane := row.RemN(8).MulN(4).Add(column.RemN(4))
	four, second := column.DivN(4), row.DivN(8).RemN(2)
	at := n.firstLevel.At(warp, wideLevel/wideWarps).At(four.DivN(2), wideLevel/wideWarps/2).At(lane, 16)
	return at.At(four.RemN(2), 8).At(second, 4)
}
