package ptxgen

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// stages is how many blocks a warp's ring holds: enough bytes under way in all warps to
// keep memory busy, and at least two. Kernels of eight warps leave more room, so that
// they run on devices with less shared memory, too.
func (s Gemv) stages() int {
	underWay := 96 << 10
	if s.warps() == 8 {
		underWay = 64 << 10
	}
	return min(max(underWay/s.warps()/decoderOf(s.Format).blockBytes(), 2), 6)
}

func (s Gemv) ringBytes() int { return s.stages() * decoderOf(s.Format).blockBytes() }

// fetch starts to copy the next block to the stage at ringAt and goes on to the block
// after: of the part, of its other matrix, of the next tile. Beyond the warp's last block
// there is nothing to copy, but a group of copies all the same, since step counts them.
func (n *gemvInteger) fetch() {
	b := n.b
	size := n.d.blockBytes()
	matrix := n.matrices[0]
	if n.Gated {
		other := ptx.Select(n.nextMatrix.EqN(0), matrix.Address(), n.matrices[1].Address())
		matrix = ptx.GlobalAt(other, rowAlign)
	}
	tile := n.tile(n.nextGroup)
	from := matrix.At(tile.Mul(n.span).Add(n.next), size).At(n.lane, 16)
	to := n.ring.At(n.ringAt, 16).At(n.lane, 16)
	live := n.nextGroup.Lt(n.finalGroup()).And(tile.Lt(n.tiles))
	const round = 32 * 16 // bytes that a warp copies at a time
	b.When(live, func() {
		for at := 0; at+round <= size; at += round {
			b.CopyAsync(to.Plus(at), from.Plus(at))
		}
	})
	if rest := size % round; rest > 0 {
		b.When(live.And(n.lane.LtN(rest/16)), func() { b.CopyAsync(to.Plus(size-rest), from.Plus(size-rest)) })
	}
	b.CopyCommit()
	n.goOn()
}

// goOn names the next stage and block.
func (n *gemvInteger) goOn() {
	b := n.b
	stage := n.ringAt.AddN(n.d.blockBytes() / 16)
	ptx.Set(n.ringAt, ptx.Select(stage.EqN(n.ringBytes()/16), b.U32(0), stage))
	after := n.next.AddN(1)
	wrap := after.Ge(n.end)
	ptx.Set(n.next, ptx.Select(wrap, n.begin, after))
	if n.Gated {
		last := n.nextMatrix.EqN(1)
		ptx.Set(n.nextMatrix, ptx.Select(wrap, b.U32(1).Sub(n.nextMatrix), n.nextMatrix))
		wrap = wrap.And(last)
	}
	ptx.Set(n.nextGroup, ptx.Select(wrap, n.nextGroup.AddN(1), n.nextGroup))
}

// step multiplies a block, which is at ringAt, and reuses its stage.
func (n *gemvInteger) step(block ptx.U32) {
	b := n.b
	b.CopyWait(n.stages() - 1)
	b.WarpSync() // the other lanes' copies, too
	n.multiply(n.ring.At(n.ringAt, 16), n.block0.At(block, n.stagedBytes()))
	b.WarpSync() // all lanes have read
	n.fetch()
}
