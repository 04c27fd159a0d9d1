package matmul

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// What a warp's loops go by lies in shared memory, before its ring, and is read where it is
// used: the digits leave few registers, ptxas gives them to a block's products first, and
// spills what lives longer and is read seldom. These are offsets; what is read together lies
// in fours.
const (
	stateOrigin   = 4 * iota // the warp's first block
	stateMiddle              // the first of its second part; without that, as stateLimit
	stateLimit               // where its blocks end
	stateSet                 // of vectors
	stateTeam                // the warp's: warps that share a tile
	stateTeamsLog            // log2 of how many teams there are
	stateOwn                 // end of the CTA's groups of tiles that have a tile for the warp
	stateEntries             // how many tiles, of either matrix, the round has of the warp
	stateFinal               // where the CTA's groups of tiles end
	stateGroup               // the round's first
	stateBlock               // 64 bits: the address of the block of digits in registers
	_
	stateResults // from here to the warp's sums of parts
	statePending // from here to its sums of parts before their end
	_
	_
	stateBytes
)

// word is a value of the state.
func (n *gemvBatch) word(at int) ptx.U32 { return n.state.Plus(at).LoadU32() }

// setState lets a lane write to the state what the others read after the next WarpSync.
func (n *gemvBatch) setState(write func()) { n.b.When(n.lane.EqN(0), write) }

// warpBytes is the size of a warp's state and ring.
func (s GemvBatch) warpBytes() int { return stateBytes + s.ringBytes() }

// bound is the first block of a part.
func (n *gemvBatch) bound(part ptx.U32) ptx.U32 { return part.Mul(n.span).Shr(n.partsLog) }

// locate finds what is the CTA's, which begins with a group of tiles and has share of them,
// and the warp's: one or two parts of a row.
func (n *gemvBatch) locate(set, start, share ptx.U32) {
	b, one := n.b, n.b.U32(1)
	warp := ptx.ShuffleIdx(n.warp, b.U32(0)) // which tells ptxas that loops are the same for all lanes
	warpsLog := b.N(bits.TrailingZeros(uint(n.s.warps())))
	ranksLog := n.partsLog.Min(warpsLog) // of warps that share a tile
	perLog := n.partsLog.Sub(ranksLog)   // of parts of a warp
	team, teamsLog := warp.Shr(ranksLog), warpsLog.Sub(ranksLog)
	part := warp.Sub(team.Shl(ranksLog)).Shl(perLog)
	last := one.Shl(teamsLog).Sub(one)
	tiles, end := n.count.CeilDivN(tileRows), start.Add(share)
	origin := n.bound(part)
	own := end.Min(tiles.Add(last).Sub(team).Shr(teamsLog))
	final := end.Min(tiles.Add(last).Shr(teamsLog))

	staged := b.DynamicShared(16)
	n.state = staged.At(warp, n.s.warpBytes())
	n.ring, n.ringAt = n.state.Plus(stateBytes), ptx.Var(b.U32(0))
	n.results = staged.Plus(n.s.warps() * n.s.warpBytes())
	pending := n.results.At(n.round, n.s.warps()*n.s.sumsBytes()<<n.matrixLog)
	from := n.state.Address()
	n.setState(func() {
		n.state.StoreU32x4([4]ptx.U32{origin, n.bound(part.AddN(1)), n.bound(part.Add(one.Shl(perLog))), set})
		n.state.Plus(stateTeam).StoreU32x4([4]ptx.U32{team, teamsLog, own, n.entries(start, own)})
		n.state.Plus(stateFinal).StoreU32(final)
		n.state.Plus(stateGroup).StoreU32(start)
		n.state.Plus(stateResults).StoreU32(n.results.At(warp, n.s.sumsBytes()).Address().Sub(from))
		n.state.Plus(statePending).StoreU32(pending.At(warp, n.s.pendingBytes()).Address().Sub(from))
	})
	b.WarpSync()
	n.nextGroup, n.nextBlock, n.entry = ptx.Var(start), ptx.Var(origin), ptx.Var(b.U32(0))
}

// entries is the number of tiles, of all matrices, in the warp's round that begins at group. own is
// the end of the warp's groups.
func (n *gemvBatch) entries(group, own ptx.U32) ptx.U32 {
	return own.Sub(group).Min(n.round).ShlN(n.matrixLog)
}

// beginRound goes on to the round from a group on.
func (n *gemvBatch) beginRound(group ptx.U32) {
	entries := n.entries(group, n.word(stateOwn))
	n.b.WarpSync() // all lanes have read
	n.setState(func() {
		n.state.Plus(stateGroup).StoreU32(group)
		n.state.Plus(stateEntries).StoreU32(entries)
	})
	n.b.WarpSync()
}

// resultsAt is where the warp's sums of an entry's parts are.
func (n *gemvBatch) resultsAt(entry ptx.U32) ptx.Shared {
	return n.state.AtBytes(n.word(stateResults)).Aligned(16).At(entry, n.s.warps()*n.s.sumsBytes())
}

// pendingAt is where the lane's sums of an entry are while the part goes on.
func (n *gemvBatch) pendingAt(entry ptx.U32) ptx.Shared {
	return n.state.AtBytes(n.word(statePending)).Aligned(16).At(n.lane, 16).At(entry, n.s.warps()*n.s.pendingBytes())
}
