package matmul

import (
	"math"
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// A round is a few groups of tiles, one after the other, after which the warps meet.
// Its results in shared memory: {group, team, part, matrix, row}.

const (
	groupsARound  = 4 // at most
	resultBuffers = 2 // the rounds take turns, so that one barrier each is enough
)

// partBytes is the size of the results of a part of a tile.
func (s Gemv) partBytes() int { return 4 * tileRows * s.matrixCount() }

// groupBytes is the size of a group's results.
func (s Gemv) groupBytes() int { return maxParts * s.partBytes() }

func (s Gemv) roundBytes() int { return groupsARound * s.groupBytes() }

// roundGroups is how many groups this round has.
func (n *gemvInteger) roundGroups() ptx.U32 {
	return n.finalGroup().Sub(n.group).Min(n.b.N(groupsARound))
}

// buffer is where this round's results are.
func (n *gemvInteger) buffer() ptx.Shared {
	turn := n.group.Sub(n.start).DivN(groupsARound).RemN(resultBuffers)
	return n.results.At(turn, n.roundBytes())
}

// finish adds up the parts of a round, and the slices that have met, and stores the
// results.
func (n *gemvInteger) finish() {
	b := n.b
	b.Barrier()
	n.eachResult(n.group, n.roundGroups(), func(r integerResult) {
		b.If(r.row.Lt(n.count), func() {
			sums := make([]ptx.F32, n.matrixCount())
			for m := range sums {
				sums[m] = ptx.Var(n.sumOfParts(r, m))
			}
			b.If(n.meet(r, sums), func() { n.store(r, sums) })
		})
	})
}

// storePart leaves the sums of a part for a matrix of a group. The digits are in two lanes
// of a quad; with halves its other two have those of the lower row.
func (n *gemvInteger) storePart(group, part ptx.U32, matrix int) {
	b := n.b
	to := n.buffer().At(group, n.groupBytes())
	to = to.At(n.team.Mul(n.parts).Add(part), n.partBytes()).At(n.row, 4)
	sums, owner := n.sums[:], n.quad.EqN(0)
	if n.joinsHalves {
		to, sums, owner = to.At(n.second, 4*tileRows/2), n.sums[:1], n.quad.AndN(1).EqN(0)
	}
	for r, sum := range sums {
		total := sum.Add(ptx.ShuffleXor(sum, 1))
		b.When(owner, func() { to.Plus(4 * (matrix*tileRows + 8*r)).StoreF32(total) })
	}
}

// integerResult is a result: where it goes.
type integerResult struct {
	group ptx.U32 // of tiles
	place ptx.U32 // in the group: {team, row}
	row   ptx.U32 // which may be beyond the matrix
}

// eachResult shares the results of count groups out among the threads; i counts them
// {group, team, row}.
func (n *gemvInteger) eachResult(first, count ptx.U32, body func(r integerResult)) {
	b := n.b
	eachLog := n.teamsLog.AddN(bits.TrailingZeros(tileRows))
	b.For(b.ThreadX(), count.Shl(eachLog), b.N(32*n.warps()), func(i ptx.U32) {
		group := i.Shr(eachLog)
		r := integerResult{group: first.Add(group), place: i.Sub(group.Shl(eachLog))}
		tile := r.group.Mul(n.teams).Add(r.place.DivN(tileRows))
		r.row = tile.MulN(tileRows).Add(i.AndN(tileRows - 1))
		body(r)
	}, ptx.NoUnroll)
}

// sumOfParts adds up the parts of a result of the round.
func (n *gemvInteger) sumOfParts(r integerResult, matrix int) ptx.F32 {
	at := n.buffer().At(r.group.Sub(n.group), n.groupBytes())
	at = at.At(r.place.DivN(tileRows).Mul(n.parts), n.partBytes()).At(r.place.RemN(tileRows), 4)
	return n.tree(n.parts, maxParts, func(p int) ptx.F32 { return at.Plus(p*n.partBytes() + 4*matrix*tileRows).LoadF32() })
}

// tree adds up count values, a power of two and at most most, neighbors first. What is
// missing to that is -0, which changes no sum, not even the sign of a zero.
func (n *gemvInteger) tree(count ptx.U32, most int, load func(i int) ptx.F32) ptx.F32 {
	b, nothing := n.b, float32(math.Copysign(0, -1))
	values := make([]ptx.F32, most)
	for i := range values {
		values[i] = ptx.Var(b.F32(nothing))
		b.When(b.N(i).Lt(count), func() { ptx.Set(values[i], load(i)) })
	}
	for len(values) > 1 {
		for i := range len(values) / 2 {
			values[i] = values[2*i].Add(values[2*i+1])
		}
		values = values[:len(values)/2]
	}
	return values[0]
}

// store multiplies the sums of a result by the inverse that the norm left in stats, and stores the
// result.
func (n *gemvInteger) store(r integerResult, sums []ptx.F32) {
	inverse := n.stats.LoadF32()
	var up []ptx.F32
	for _, sum := range sums[1:] {
		up = append(up, sum.Mul(inverse))
	}
	n.finished(r.row, n.b.U32(0), sums[0].Mul(inverse), up...)
}
