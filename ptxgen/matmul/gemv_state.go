package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// gemv is a Gemv being built: the entry's parameters, and what both ways to multiply
// have in common.
type gemv struct {
	Gemv
	b *ptx.Builder
	d *decoder

	x, y, bias, residual ptx.Global
	matrices             []ptx.Global // one, or gate and up; of the slot's expert
	count, k             ptx.U32      // rows of the matrix, weights of a row
	span                 ptx.U32      // units or blocks of a row
	tileBytes            ptx.U32
	columnCount          ptx.U32
	xStride, yStride     ptx.U32
	norm                 ptx.U32
	normWeight, normBias ptx.Global
	eps, cap             ptx.F32
	activation           ptx.U32
	chunk                ptx.U32 // of a row: what is staged at a time
	splitLog             ptx.U32 // log2 of how many warps share a row
	slot, xRow           ptx.U32
	lane, warp           ptx.U32

	staged ptx.Shared // dynamic
	stats  ptx.Shared // [column]: moments
	cta    device.Group
}

// normThreads is how many threads take a norm's moments.
const normThreads = 256

// gemvInputs are the first parameters of Gemv.
type gemvInputs struct {
	X ptx.Global
	W ptx.Global `align:"16"`
}

// upMatrix is the parameter of the second matrix of a gated kernel, after the first.
type upMatrix struct {
	Up ptx.Global `align:"16"`
}

// gemvParams are the further parameters of Gemv.
type gemvParams struct {
	Y, Bias, Residual         ptx.Global
	Rows, K, Span, TileBytes  ptx.U32
	Columns, XStride, YStride ptx.U32
	Norm                      ptx.U32
	NormWeight, NormBias      ptx.Global
	Eps                       ptx.F32
	Activation                ptx.U32
	Softcap                   ptx.F32
	Chunk, SplitLog2          ptx.U32
	Experts                   ptx.Global
	SlotsPerX                 ptx.U32
	ExpertBytes               ptx.U64
}

// integerParams are the last parameters of Gemv of quantized weights.
type integerParams struct {
	PartsLog2, Share ptx.U32
	Workspace        ptx.Global `align:"16"`
}

func newGemv(b *ptx.Builder, s Gemv) *gemv {
	g := &gemv{Gemv: s, b: b, d: decoderOf(s.Format), cta: device.FirstThreads(b, normThreads)}
	var in gemvInputs
	ptx.Declare(b, &in)
	g.x, g.matrices = in.X, []ptx.Global{in.W}
	if s.Gated {
		var up upMatrix
		ptx.Declare(b, &up)
		g.matrices = append(g.matrices, up.Up)
	}
	var p gemvParams
	ptx.Declare(b, &p)
	g.y, g.bias, g.residual = p.Y, p.Bias, p.Residual
	g.count, g.k, g.span, g.tileBytes = p.Rows, p.K, p.Span, p.TileBytes
	g.columnCount, g.xStride, g.yStride = p.Columns, p.XStride, p.YStride
	g.norm, g.normWeight, g.normBias, g.eps = p.Norm, p.NormWeight, p.NormBias, p.Eps
	g.activation, g.cap = p.Activation, p.Softcap
	g.chunk, g.splitLog = p.Chunk, p.SplitLog2

	g.slot, g.xRow = b.BlockY(), ptx.Var(b.U32(0))
	g.lane, g.warp = b.Lane(), b.Warp()
	g.chooseExpert(p.Experts, p.SlotsPerX, p.ExpertBytes)
	g.staged = b.DynamicShared(16)
	g.stats = b.Shared("stats", g.columns()*16, 16)
	return g
}

// chooseExpert moves the matrices and the vector to those of the slot's expert, if there
// are experts.
func (g *gemv) chooseExpert(experts ptx.Global, share ptx.U32, stride ptx.U64) {
	offset := ptx.Var(g.b.U64(0))
	g.b.If(device.NonNil(g.b, experts), func() {
		g.b.WaitForPrior() // which may have chosen them
		ptx.Set(offset, experts.At(g.slot, 4).LoadU32().U64().Mul(stride))
		ptx.Set(g.xRow, g.slot.Div(share))
	})
	for i, m := range g.matrices {
		g.matrices[i] = m.AtBytes(offset).Aligned(rowAlign)
	}
}

// xAt is vector c.
func (g *gemv) xAt(c ptx.U32) device.Row {
	start := g.xRow.Add(c).MulWide(g.xStride).Mul(g.b.U64(4))
	return device.RowAt(g.b, quant.F32, g.x.AtBytes(start).Aligned(4), g.k)
}

// loadQuad is quad i, and fill from quads on.
func (g *gemv) loadQuad(x device.Row, i, quads ptx.U32, fill float32, cache ...ptx.Cache) device.Vec4 {
	var v device.Vec4
	for j := range v {
		v[j] = ptx.Var(g.b.F32(fill))
	}
	g.b.If(i.Lt(quads), func() {
		for j, e := range x.Load(i, 0, cache...) {
			ptx.Set(v[j], e)
		}
	})
	return v
}

// loadGain is quad i of the norm's weight: 1 where there is none.
func (g *gemv) loadGain(i ptx.U32) device.Vec4 {
	weight := device.RowAt(g.b, quant.F32, g.normWeight, g.k)
	quads := ptx.Select(device.NonNil(g.b, g.normWeight), weight.Vec4s(), g.b.U32(0))
	return g.loadQuad(weight, i, quads, 1, ptx.ReadOnly)
}

// normalize replaces quad i of vector c, which must be of variables and in the row.
func (g *gemv) normalize(v device.Vec4, gain device.Vec4, i, c ptx.U32) {
	b := g.b
	stats := g.stats.At(c, 16).LoadF32x4()
	st := device.Moments{Scale: stats[0], Inverse: stats[1], Mean: stats[2], Rest: stats[3], Centered: true}
	for j := range v {
		ptx.Set(v[j], st.Normalize(v[j]).Mul(gain[j]))
	}
	b.If(device.NonNil(b, g.normBias), func() {
		for j, c := range device.RowAt(b, quant.F32, g.normBias, g.k).Load(i, 0, ptx.ReadOnly) {
			ptx.Set(v[j], v[j].Add(c))
		}
	})
}

// finished takes a sum of a row and column through the epilogue to y, and multiplies it by
// what a gate is for, if that is given.
func (g *gemv) finished(row, column ptx.U32, sum ptx.F32, up ...ptx.F32) {
	b := g.b
	b.Comment("bias, cap, activation, gate, residual")
	value := ptx.Var(sum)
	b.If(device.NonNil(b, g.bias), func() { ptx.Set(value, value.Add(g.bias.At(row, 4).LoadF32(ptx.ReadOnly))) })
	b.If(g.cap.Gt(b.F32(0)), func() { ptx.Set(value, device.Softcap(b, value, g.cap)) })
	ptx.Set(value, device.Activate(b, g.activation, value))
	for _, up := range up {
		ptx.Set(value, value.Mul(up))
	}
	offset := g.slot.Add(column).MulWide(g.yStride).Add(row.U64()).Mul(b.U64(4))
	b.If(device.NonNil(b, g.residual), func() {
		ptx.Set(value, value.Add(g.residual.AtBytes(offset).Aligned(4).LoadF32()))
	})
	g.y.AtBytes(offset).Aligned(4).StoreF32(value)
}
