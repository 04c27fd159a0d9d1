package ptxgen

import (
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
	cta    team
}

// normThreads is how many threads take a norm's moments.
const normThreads = 256

// newGemv declares the parameters in the order in which Launch packs them.
func newGemv(b *ptx.Builder, s Gemv) *gemv {
	g := &gemv{Gemv: s, b: b, d: decoderOf(s.Format), cta: firstThreads(b, normThreads)}
	g.x = b.Global("x", 4)
	names := []string{"w"}
	if s.Gated {
		names = []string{"gate", "up"}
	}
	for _, name := range names {
		g.matrices = append(g.matrices, b.Global(name, rowAlign))
	}
	g.y, g.bias, g.residual = b.Global("y", 4), b.Global("bias", 4), b.Global("residual", 4)
	g.count, g.k, g.span, g.tileBytes = b.ParamU32("rows"), b.ParamU32("k"), b.ParamU32("span"), b.ParamU32("tile_bytes")
	g.columnCount, g.xStride, g.yStride = b.ParamU32("columns"), b.ParamU32("x_stride"), b.ParamU32("y_stride")
	g.norm, g.normWeight, g.normBias, g.eps = b.ParamU32("norm"), b.Global("norm_weight", 4), b.Global("norm_bias", 4), b.ParamF32("eps")
	g.activation, g.cap = b.ParamU32("activation"), b.ParamF32("softcap")
	g.chunk, g.splitLog = b.ParamU32("chunk"), b.ParamU32("split_log2")
	experts, share, stride := b.Global("experts", 4), b.ParamU32("slots_per_x"), b.ParamU64("expert_bytes")

	g.slot, g.xRow = b.BlockY(), ptx.Var(b.U32(0))
	g.lane, g.warp = b.Lane(), b.Warp()
	g.chooseExpert(experts, share, stride)
	g.staged = b.DynamicShared(16)
	g.stats = b.Shared("stats", g.columns()*16, 16)
	return g
}

// chooseExpert moves the matrices and the vector to those of the slot's expert, if there
// are experts.
func (g *gemv) chooseExpert(experts ptx.Global, share ptx.U32, stride ptx.U64) {
	offset := ptx.Var(g.b.U64(0))
	g.b.If(given(g.b, experts), func() {
		g.b.WaitForPrior() // which may have chosen them
		ptx.Set(offset, experts.At(g.slot, 4).LoadU32().U64().Mul(stride))
		ptx.Set(g.xRow, g.slot.Div(share))
	})
	for i, m := range g.matrices {
		g.matrices[i] = m.AtBytes(offset).Aligned(rowAlign)
	}
}

// xAt is vector c.
func (g *gemv) xAt(c ptx.U32) row {
	start := g.xRow.Add(c).MulWide(g.xStride).Mul(g.b.U64(4))
	return rowAt(g.b, quant.F32, g.x.AtBytes(start).Aligned(4), g.k)
}

// loadQuad is quad i, and fill from quads on.
func (g *gemv) loadQuad(x row, i, quads ptx.U32, fill float32, cache ...ptx.Cache) quad {
	var v quad
	for j := range v {
		v[j] = ptx.Var(g.b.F32(fill))
	}
	g.b.If(i.Lt(quads), func() {
		for j, e := range x.load(i, 0, cache...) {
			ptx.Set(v[j], e)
		}
	})
	return v
}

// loadGain is quad i of the norm's weight: 1 where there is none.
func (g *gemv) loadGain(i ptx.U32) quad {
	weight := rowAt(g.b, quant.F32, g.normWeight, g.k)
	quads := ptx.Select(given(g.b, g.normWeight), weight.quads(), g.b.U32(0))
	return g.loadQuad(weight, i, quads, 1, ptx.ReadOnly)
}

// normalize replaces quad i of vector c, which must be of variables and in the row.
func (g *gemv) normalize(v quad, gain quad, i, c ptx.U32) {
	b := g.b
	stats := g.stats.At(c, 16).LoadF32x4()
	st := moments{scale: stats[0], inverse: stats[1], mean: stats[2], rest: stats[3], layer: true}
	for j := range v {
		ptx.Set(v[j], st.normal(v[j]).Mul(gain[j]))
	}
	b.If(given(b, g.normBias), func() {
		for j, c := range rowAt(b, quant.F32, g.normBias, g.k).load(i, 0, ptx.ReadOnly) {
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
	b.If(given(b, g.bias), func() { ptx.Set(value, value.Add(g.bias.At(row, 4).LoadF32(ptx.ReadOnly))) })
	b.If(g.cap.Gt(b.F32(0)), func() { ptx.Set(value, softcap(b, value, g.cap)) })
	ptx.Set(value, activate(b, g.activation, value))
	for _, up := range up {
		ptx.Set(value, value.Mul(up))
	}
	offset := g.slot.Add(column).MulWide(g.yStride).Add(row.U64()).Mul(b.U64(4))
	b.If(given(b, g.residual), func() {
		ptx.Set(value, value.Add(g.residual.AtBytes(offset).Aligned(4).LoadF32()))
	})
	g.y.AtBytes(offset).Aligned(4).StoreF32(value)
}
