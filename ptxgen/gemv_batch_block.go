package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// multiplyPart multiplies the round's tiles by the warp's i-th part.
func (n *gemvBatch) multiplyPart(i ptx.U32) {
	b, part := n.b, n.rank.Mul(n.per).Add(i)
	begin, end := n.bound(part), n.bound(part.AddN(1))
	b.For(begin, end, b.U32(1), func(block ptx.U32) {
		n.loadColumns(block)
		b.For(b.U32(0), n.entries(n.group), b.U32(1), func(entry ptx.U32) {
			b.CopyWait(n.s.stages() - 1)
			b.WarpSync() // the other lanes' copies, too
			b.If(n.tileOf(n.group, entry).Lt(n.tiles), func() {
				n.multiply(entry, block.Eq(begin), block.AddN(1).Ge(end), i)
			})
			b.WarpSync() // all lanes have read
			n.fetch()
		}, ptx.NoUnroll)
	}, ptx.NoUnroll)
}

// loadColumns loads the digits of a block of all vectors of the set.
func (n *gemvBatch) loadColumns(block ptx.U32) {
	n.block = n.digits.At(block.Mul(n.room).Add(n.set.MulN(n.s.Columns)), digitBlock)
	at := n.block.At(n.lane.ShrN(4), digitBlock).At(n.lane.AndN(15), 16)
	n.columns = make([][4][4]ptx.U32, n.s.groups())
	for g := range n.columns {
		for pair := range n.columns[g] {
			n.columns[g][pair] = at.Plus(2*g*digitBlock + 256*pair).LoadU32x4()
		}
	}
}

// pendingAt is where the sums of an entry are while the part goes on.
func (n *gemvBatch) pendingAt(entry ptx.U32) ptx.Shared {
	return n.pending.At(entry, n.s.warps()*n.s.pendingBytes())
}

// before is the sums of the part's blocks before: variables.
func (n *gemvBatch) before(entry ptx.U32, first ptx.Pred) (sums [][2]ptx.F32) {
	for range n.s.groups() {
		sums = append(sums, [2]ptx.F32{ptx.Var(n.b.F32(0)), ptx.Var(n.b.F32(0))})
	}
	n.b.If(first.Not(), func() {
		for g := 0; g < len(sums); g += 2 {
			for i, x := range n.pendingAt(entry).Plus(256 * g).LoadF32x4() {
				ptx.Set(sums[g+i/2][i%2], x)
			}
		}
	})
	return sums
}

// keep leaves the sums for the part's next block.
func (n *gemvBatch) keep(sums [][2]ptx.F32, entry ptx.U32) {
	for g := 0; g < len(sums); g += 2 {
		first, second := sums[g], sums[g+1]
		to := n.pendingAt(entry).Plus(256 * g)
		to.StoreF32x4([4]ptx.F32{first[0], first[1], second[0], second[1]})
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
func (n *gemvBatch) end(totals []ptx.F32, entry, part ptx.U32) {
	b := n.b
	at := n.results.At(entry, n.s.warps()*n.s.sumsBytes()).At(n.warp, n.s.sumsBytes())
	at = at.At(n.quad.ShrN(1), 4*tileRows).At(n.quad.AndN(1), 4*tileRows/2).At(n.row, 4)
	for g, total := range totals {
		total, to := ptx.Var(total), at.Plus(2*4*tileRows*g)
		b.If(part.Ne(b.U32(0)), func() { ptx.Set(total, to.LoadF32().Add(total)) })
		to.StoreF32(total)
	}
}

// finish adds up the parts of the round's tiles and stores the results.
func (n *gemvBatch) finish() {
	b, each := n.b, tileRows*n.s.Columns
	groups := n.final.Sub(n.group).Min(n.round)
	b.For(b.ThreadX(), groups.Shl(n.teamsLog).MulN(each), b.N(32*n.s.warps()), func(i ptx.U32) {
		tile, place := i.DivN(each), i.RemN(each)
		entry, team := tile.Shr(n.teamsLog).ShlN(n.matrixLog), tile.And(n.teams.AddN(-1))
		row := n.group.Shl(n.teamsLog).Add(tile).MulN(tileRows).Add(place.RemN(tileRows))
		vector := n.set.MulN(n.s.Columns).Add(place.DivN(tileRows))
		b.If(row.Lt(n.count).And(vector.Lt(n.columnCount)), func() {
			inverse := n.digits.At(n.span.Mul(n.room), digitBlock).At(vector, 4).LoadF32()
			var sums []ptx.F32
			for m := range n.matrices {
				at := n.results.At(entry.AddN(m), n.s.warps()*n.s.sumsBytes()).At(team.Mul(n.ranks), n.s.sumsBytes()).At(place, 4)
				sum := n.tree(n.ranks, n.s.warps(), func(p int) ptx.F32 { return at.Plus(p * n.s.sumsBytes()).LoadF32() })
				sums = append(sums, sum.Mul(inverse))
			}
			n.finished(row, vector, sums[0], sums[1:]...)
		})
	}, ptx.NoUnroll)
}
