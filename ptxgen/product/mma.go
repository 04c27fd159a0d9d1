package product

import (
	"math/bits"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// maxMMAWarps is the largest number of warps of a Tile that multiplies by mma.sync: each may have 255 registers
// per thread.
const maxMMAWarps = 8

// emitMMA emits a Tile that multiplies by mma.sync.
//
// A warp computes 16 rows. All threads copy the activations of a segment to shared memory, while the warps multiply
// by those of the segments before. A lane reads its weights from global memory: each warp has other weights.
func (s Tile) emitMMA(b *ptx.Builder) {
	n := beginTile(b, s)
	device.Overlap(b)
	n.countTiles()
	n.acts = b.DynamicShared(16)
	totals, acc := make([]ptx.F32, s.Tokens/2), make([]ptx.F32, s.Tokens/2)
	for i := range totals {
		totals[i], acc[i] = ptx.Undefined[ptx.F32](b), ptx.Undefined[ptx.F32](b)
	}
	out := ptx.Var(b.BlockX())
	b.While(func() ptx.Pred { return out.Lt(n.own.OutputTiles) }, func() {
		n.multiplyTile(out, acc, totals)
		n.newResults(out, 0).store(totals)
		ptx.Set(out, out.Add(b.GridX()))
	}, ptx.NoUnroll)
}

// multiplyTile computes the sums of a tile.
func (n *tile) multiplyTile(out ptx.U32, acc, totals []ptx.F32) {
	b, s := n.b, n.spec
	for _, v := range totals {
		ptx.Set(v, b.F32(0))
	}
	tokenTile, rowGroup := n.coords(out)
	w := n.matrixOf(tokenTile)
	acts := n.p.X.Aligned(16).At(tokenTile.Mul(n.p.Segments), s.round().segmentBytes())
	b.Comment("all warps have multiplied by the activations of the tile before")
	b.Barrier()
	n.copyActivations(acts, b.N(0))
	b.CopyCommit()
	seg, copied := ptx.Var(b.U32(0)), ptx.Var(b.U32(1))
	copyNext := func() {
		b.If(copied.Lt(n.p.Segments), func() { n.copyActivations(acts, copied) })
		b.CopyCommit()
		ptx.Set(copied, copied.AddN(1))
	}
	for range s.RingX - 2 {
		copyNext()
	}
	weights := rowGroup.MulN(s.rowTilesPerOutput()).Add(n.warp).Min(n.own.RowTiles.AddN(-1)).Mul(n.p.Segments)
	b.While(func() ptx.Pred { return seg.Lt(n.p.Segments) }, func() {
		b.CopyWait(s.RingX - 2)
		b.Barrier()
		copyNext()
		r := newGlobalReader(n.c, s.Format, w.At(weights.Add(seg), n.l.segmentBytes()), n.lane)
		acts := n.acts.At(seg.RemN(s.RingX), s.round().segmentBytes())
		n.multiplyMMA(r, acts, acc)
		n.add(n.compareXScales(acts.Plus(s.round().xScalesAt())), r, acc, totals)
		ptx.Set(seg, seg.AddN(1))
	}, ptx.NoUnroll)
}

// copyActivations begins to copy a segment of the activations of a token tile.
func (n *tile) copyActivations(acts ptx.Global, seg ptx.U32) {
	b, size := n.b, n.spec.round().segmentBytes()
	from, to := acts.At(seg, size), n.acts.At(seg.RemN(n.spec.RingX), size)
	b.For(b.ThreadX(), b.N(size/16), b.N(n.spec.threads()), func(i ptx.U32) { b.CopyAsync(to.At(i, 16), from.At(i, 16)) })
}

// multiplyMMA computes the sums of a segment. The activations are at acts.
func (n *tile) multiplyMMA(r *segmentReader, acts ptx.Shared, acc []ptx.F32) {
	for _, v := range acc {
		ptx.Set(v, n.b.F32(0))
	}
	round, perStep := n.spec.round(), n.l.operands()
	for g := range groups {
		operands, stage := r.group(g), acts.Plus(g*round.groupBytes())
		for i := 0; i < groupSteps; i += 2 {
			n.multiplySteps(operands[i*perStep:(i+2)*perStep], operandLayout(n.spec.Tokens), stage, 2, i, acc)
		}
	}
	if offsets := r.offsets(); len(offsets) > 0 {
		n.multiplySteps(offsets, round.xSumsLayout(len(offsets)), acts.Plus(round.xSumsAt(len(offsets))), len(offsets), 0, acc)
	}
}

// multiplySteps multiplies by one or two steps of a matrix of activations, from step first on. A line has 16 bytes of
// each step for each of the two registers of an operand.
func (n *tile) multiplySteps(operands [][4]ptx.F16x2, l ptx.MatrixLayout, acts ptx.Shared, count, first int, acc []ptx.F32) {
	// Lane 8m+t gives the address of chunk m of the line of token t. The layout puts it where chunk m xor the upper
	// bits of t would be. In the lane's number these are as far from the bits of m as the number of a chunk is wide.
	width := bits.Len(uint(l.Line/16)) - 1
	at := 3 - width // the lowest bit of the chunk's number
	chunk := n.lane.Xor(n.lane.ShrN(width))
	if first > 0 {
		chunk = chunk.Xor(n.b.N(2 * first << at))
	}
	from := acts.At(n.lane.AndN(7), l.Line).At(chunk.AndN(uint32(l.Line/16-1)<<at), 16>>at).Aligned(16)
	for j := range n.spec.Tokens / 8 {
		x := ptx.LoadMatrices[ptx.F16x2](from.Plus(8*l.Line*j), 2*count, false)
		for i, a := range operands {
			step := i * count / len(operands)
			ptx.MMA([4]ptx.F32(acc[4*j:]), a, [2]ptx.F16x2(x[2*step:]))
		}
	}
}
