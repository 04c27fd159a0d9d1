package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// gemm is a GEMM being built: the entry's parameters and what the parts of the kernel
// share.
type gemm struct {
	GEMM
	b *ptx.Builder

	x, scale, w, y, bias, residual ptx.Global // w and bias are of the CTA's expert
	n, units, tileBytes            ptx.U32    // columns of y; units of a row of weights, bytes of a tile
	padded                         ptx.U32    // elements of a row of x
	yStride, activation            ptx.U32
	order                          ptx.Global
	share                          ptx.U32
	first, left                    ptx.U32 // of the expert's rows: the tile's first, and how many follow
	column                         ptx.U32 // the tile's first column
	steps                          ptx.U32
	thread                         ptx.U32

	memory  ptx.Shared // the ring, then the decoded tiles
	sources ptx.Shared // u32 [BlockM]: rows of x, in the order in which threads copy them
	results ptx.Shared // {row of y, scale} [BlockM]

	read, write ptx.U32 // variables: offsets of the stages that are multiplied and filled
	decoded     ptx.U32 // variable: offset of the decoded tile that is multiplied

	xFrom    ptx.Global // variable: the thread's chunk of the next step, of row 0
	xChunk   ptx.U32    // variable: which chunk of a row that is
	xTo      ptx.U32    // offset of the thread's first chunk in a stage
	wFrom    ptx.Global // variable: where weights are copied, the thread's chunk of row 0
	wUnit    ptx.U32    // variable: the unit that it belongs to
	copies   []chunkCopy
	held     []*heldUnit // where weights are decoded: the thread's units of the step after the next
	decoding *decoder
	expert   ptx.U32
}

// The entries of the two tables of the tile's rows.
const (
	sourceBytes = 4
	resultBytes = 8
)

// noRow marks rows of the tile that y does not have.
const noRow = 0xFFFFFFFF

// gemmParams are the parameters of GEMM.
type gemmParams struct {
	X                   ptx.Global `align:"16"`
	Scale               ptx.Global
	W                   ptx.Global `align:"16"`
	Y, Bias, Residual   ptx.Global
	M                   ptx.U32
	N, Units, TileBytes ptx.U32
	YStride, Activation ptx.U32
	Offsets, Order      ptx.Global
	RowsPerX            ptx.U32
	ExpertBytes         ptx.U64
}

// newGemm declares the parameters, and ends
// CTAs that have no rows.
func newGemm(b *ptx.Builder, s GEMM) *gemm {
	g := &gemm{GEMM: s, b: b, decoding: decoderOf(s.Format)}
	var p gemmParams
	ptx.Declare(b, &p)
	g.x, g.scale, g.w = p.X, p.Scale, p.W
	g.y, g.bias, g.residual = p.Y, p.Bias, p.Residual
	m := p.M
	g.n, g.units, g.tileBytes = p.N, p.Units, p.TileBytes
	g.yStride, g.activation = p.YStride, p.Activation
	offsets := p.Offsets
	g.order, g.share = p.Order, p.RowsPerX
	expertBytes := p.ExpertBytes
	g.memory = b.DynamicShared(16)
	g.sources = b.Shared("sources", sourceBytes*s.BlockM, 16)
	g.results = b.Shared("results", resultBytes*s.BlockM, 8)

	g.expert = b.BlockZ()
	first, count := ptx.Var(b.U32(0)), ptx.Var(m)
	b.If(device.NonNil(g.b, offsets), func() {
		at := offsets.At(g.expert, 4)
		ptx.Set(first, at.LoadU32())
		ptx.Set(count, at.Plus(4).LoadU32().Sub(first))
	})
	start := b.BlockX().MulN(s.BlockM)
	b.ReturnIf(start.Ge(count))
	g.first, g.left = first.Add(start), count.Sub(start)
	g.w = g.w.AtBytes(g.expert.U64().Mul(expertBytes)).Aligned(rowAlign)
	g.column = b.BlockY().MulN(s.BlockN)
	g.padded = g.units.MulN(unitLen)
	g.steps = g.padded.CeilDivN(s.BlockK)
	g.thread = b.ThreadX()
	return g
}

// tabulate writes down, for each row of the tile, which row of x it is and which row of
// y it makes. Rows past the last are the last one, read again and not stored.
func (g *gemm) tabulate() {
	b := g.b
	b.Comment("the rows of the tile")
	hasOrder, hasScale := device.NonNil(g.b, g.order), device.NonNil(g.b, g.scale)
	passes := g.BlockM / g.rowsPerPass()
	b.For(g.thread, b.N(g.BlockM), b.N(g.threads()), func(i ptx.U32) {
		from, to, scale := ptx.Var(g.first.Add(i.Min(g.left.AddN(-1)))), ptx.Undefined[ptx.U32](b), ptx.Var(b.F32(1))
		ptx.Set(to, from)
		b.If(hasOrder, func() {
			ptx.Set(to, g.order.At(from, 4).LoadU32())
			ptx.Set(from, to.Div(g.share))
		})
		b.If(hasScale, func() { ptx.Set(scale, g.scale.At(from, 4).LoadF32()) })
		g.sources.At(i.RemN(g.rowsPerPass()).MulN(passes).Add(i.DivN(g.rowsPerPass())), sourceBytes).StoreU32(from)
		row := ptx.Select(i.Lt(g.left), to, b.U32(noRow))
		g.results.At(i, resultBytes).StoreU32x2([2]ptx.U32{row, scale.Bits()})
	}, ptx.NoUnroll)
}
