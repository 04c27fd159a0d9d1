package matmul

import "github.com/lockstep-go/lockstep/ptxgen/ptx"

// stages is how many blocks a warp's ring holds: enough bytes under way in all warps to
// keep memory busy, and two or three, since a longer one delays the first product.
func (s Gemv) stages() int {
	underWay := 128 << 10
	if s.Small {
		underWay = 32 << 10
	}
	return min(max(underWay/s.warps()/decoderOf(s.Format).blockBytes(), 2), 3)
}

func (s Gemv) ringBytes() int { return s.stages() * decoderOf(s.Format).blockBytes() }

// reach is how far an instruction's offset goes either way: from there on is all of a
// block.
const reach = 2048

// fetch starts to copy the next block to the stage at ringAt and goes on to the block
// after: of the part, of its other matrix, of the next tile. Beyond the warp's last block
// there is nothing to copy, but a group of copies all the same, since step counts them.
func (n *gemvInteger) fetch() {
	n.copyBlock(ptx.GlobalAt(n.next, 16), n.copier)
	n.goOn()
}

// copyBlock starts to copy a block to the stage at ringAt. The lane's copies begin reach
// bytes before from; copier is the lane, or 32 where there is nothing to copy.
func (n *gemvInteger) copyBlock(from ptx.Global, copier ptx.U32) {
	b, size := n.b, n.d.blockBytes()
	from = from.Plus(-reach)
	to := n.ring.At(n.ringAt, 16).At(n.lane, 16)
	live := copier.LtN(32)
	const round = 32 * 16 // bytes that a warp copies at a time
	rest := size % round
	if rest > 0 {
		b.When(copier.LtN(rest/16), func() { b.CopyAsync(to, from) })
	}
	b.When(live, func() {
		for at := rest; at < size; at += round {
			b.CopyAsync(to.Plus(at), from.Plus(at))
		}
	})
	b.CopyCommit()
}

// nextStage goes on in a ring of so many stages.
func (n *gemvInteger) nextStage(stages int) {
	size := n.d.blockBytes() / 16
	stage := n.ringAt.AddN(size)
	ptx.Set(n.ringAt, ptx.Select(stage.EqN(stages*size), n.b.U32(0), stage))
}

// goOn names the next stage and block.
func (n *gemvInteger) goOn() {
	b := n.b
	n.nextStage(n.stages())
	ptx.Set(n.next, n.next.Add(b.U64(uint64(n.d.blockBytes()))))
	ptx.Set(n.left, n.left.AddN(-1))
	b.If(n.left.EqN(0), func() {
		n.nextOf(func() {
			ptx.Set(n.nextGroup, n.nextGroup.AddN(1))
			if n.onePart() {
				ptx.Set(n.nextPart, n.turned(n.nextPart, b.U32(1)))
			}
		})
		n.beginPart()
	})
}

// beginPart names the first block of the next part, and how many it has.
func (n *gemvInteger) beginPart() {
	matrix := n.matrices[0]
	if n.Gated {
		other := ptx.Select(n.nextMatrix.EqN(0), matrix.Address(), n.matrices[1].Address())
		matrix = ptx.GlobalAt(other, rowAlign)
	}
	tile, block := n.tile(n.nextGroup), n.bound(n.nextPart)
	from := matrix.At(tile.Mul(n.span).Add(block), n.d.blockBytes()).At(n.lane.AddN(reach/16), 16)
	ptx.Set(n.next, from.Address())
	ptx.Set(n.left, n.bound(n.nextPart.AddN(1)).Sub(block))
	live := n.nextGroup.Lt(n.finalGroup()).And(tile.Lt(n.tiles))
	ptx.Set(n.copier, ptx.Select(live, n.lane, n.b.U32(32)))
}

// nextOf goes on to the part's other matrix, from there to the warp's next part, and after
// the last to what done says.
func (n *gemvInteger) nextOf(done func()) {
	b := n.b
	part := done
	if !n.onePart() {
		part = func() {
			ptx.Set(n.nextPart, n.nextPart.AddN(n.warps()))
			b.If(n.nextPart.Ge(n.parts), func() {
				ptx.Set(n.nextPart, n.part)
				done()
			})
		}
	}
	if !n.Gated {
		part()
		return
	}
	ptx.Set(n.nextMatrix, n.nextMatrix.Xor(b.U32(1)))
	b.If(n.nextMatrix.EqN(0), part)
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
