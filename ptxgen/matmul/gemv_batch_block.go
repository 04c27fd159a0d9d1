package matmul

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// multiplyRound multiplies the round's tiles by the warp's blocks.
func (n *gemvBatch) multiplyRound() {
	b := n.b
	block := ptx.Var(n.word(stateOrigin))
	b.While(func() ptx.Pred { return block.Lt(n.word(stateLimit)) }, func() {
		n.loadColumns(block)
		entry, entries := ptx.Var(b.U32(0)), ptx.Var(n.word(stateEntries))
		b.While(func() ptx.Pred { return entry.Lt(entries) }, func() {
			b.CopyWait(n.s.stages() - 1)
			b.WarpSync() // the other lanes' copies, too
			n.multiply(entry, block)
			ptx.Set(entries, n.fetch())
			ptx.Set(entry, entry.AddN(1))
		}, ptx.NoUnroll)
		ptx.Set(block, block.AddN(1))
	}, ptx.NoUnroll)
}

// loadColumns loads the digits of a block of all vectors of the set.
func (n *gemvBatch) loadColumns(block ptx.U32) {
	first := n.digits.At(block.Mul(n.room).Add(n.word(stateSet).MulN(n.s.Columns)), digitBlock)
	n.setState(func() { n.state.Plus(stateBlock).StoreU64(first.Address()) })
	at := first.At(n.lane.ShrN(4), digitBlock).At(n.lane.AndN(15), 16)
	n.columns = make([][4][4]ptx.U32, n.s.groups())
	for g := range n.columns {
		for pair := range n.columns[g] {
			n.columns[g][pair] = at.Plus(2*g*digitBlock + 256*pair).LoadU32x4()
		}
	}
}

// before is the sums of the part's blocks before, of two groups: variables.
func (n *gemvBatch) before(pending ptx.Shared, first ptx.Pred, group int) (sums [][2]ptx.F32) {
	for range 2 {
		sums = append(sums, [2]ptx.F32{ptx.Var(n.b.F32(0)), ptx.Var(n.b.F32(0))})
	}
	n.b.Unless(first, func() {
		for i, x := range pending.Plus(256 * group).LoadF32x4() {
			ptx.Set(sums[i/2][i%2], x)
		}
	})
	return sums
}

// keep leaves the sums for the part's next block.
func (n *gemvBatch) keep(sums [][2]ptx.F32, pending ptx.Shared) {
	for g := 0; g < len(sums); g += 2 {
		first, second := sums[g], sums[g+1]
		pending.Plus(256 * g).StoreF32x4([4]ptx.F32{first[0], first[1], second[0], second[1]})
	}
}

// join brings the digits of each vector together at a part's end: a lane has a row of each
// group, even lanes the upper one.
func (n *gemvBatch) join(sums [][2]ptx.F32) (totals []ptx.F32) {
	upper := n.quad.AndN(1).EqN(0)
	for _, rows := range sums {
		own, other := ptx.Select(upper, rows[0], rows[1]), ptx.Select(upper, rows[1], rows[0])
		totals = append(totals, own.Add(ptx.ShuffleXor(other, 1)))
	}
	return totals
}

// end leaves the sums of the part: {column, row}. A warp's second part is added to its
// first.
func (n *gemvBatch) end(totals []ptx.F32, entry ptx.U32, second ptx.Pred) {
	b := n.b
	at := n.resultsAt(entry).At(n.quad.ShrN(1), 4*tileRows).At(n.quad.AndN(1), 4*tileRows/2).At(n.row, 4)
	for g, total := range totals {
		total, to := ptx.Var(total), at.Plus(2*4*tileRows*g)
		b.If(second, func() { ptx.Set(total, to.LoadF32().Add(total)) })
		to.StoreF32(total)
	}
}

// finish adds up the parts of the round's tiles and stores the results.
func (n *gemvBatch) finish() {
	b, each := n.b, tileRows*n.s.Columns
	set, teamsLog, group := n.word(stateSet), n.word(stateTeamsLog), n.word(stateGroup)
	one := b.U32(1)
	teams, ranks := one.Shl(teamsLog), one.Shl(b.N(bits.TrailingZeros(uint(n.s.warps()))).Sub(teamsLog))
	groups := n.word(stateFinal).Sub(group).Min(n.round)
	b.For(b.ThreadX(), groups.Shl(teamsLog).MulN(each), b.N(32*n.s.warps()), func(i ptx.U32) {
		tile, place := i.DivN(each), i.RemN(each)
		entry, team := tile.Shr(teamsLog).ShlN(n.matrixLog), tile.And(teams.AddN(-1))
		row := group.Shl(teamsLog).Add(tile).MulN(tileRows).Add(place.RemN(tileRows))
		vector := set.MulN(n.s.Columns).Add(place.DivN(tileRows))
		b.If(row.Lt(n.count).And(vector.Lt(n.columnCount)), func() {
			inverse := n.digits.At(n.span.Mul(n.room), digitBlock).At(vector, 4).LoadF32()
			var sums []ptx.F32
			for m := range n.matrices {
				at := n.results.At(entry.AddN(m), n.s.warps()*n.s.sumsBytes()).At(team.Mul(ranks), n.s.sumsBytes()).At(place, 4)
				sum := n.tree(ranks, n.s.warps(), func(p int) ptx.F32 { return at.Plus(p * n.s.sumsBytes()).LoadF32() })
				sums = append(sums, sum.Mul(inverse))
			}
			n.finished(row, vector, sums[0], sums[1:]...)
		})
	}, ptx.NoUnroll)
}
