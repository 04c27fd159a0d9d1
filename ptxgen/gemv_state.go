package ptxgen

import (
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
	"github.com/lockstep-go/lockstep/quant"
)

// gemv is a Gemv being built: the entry's parameters and what the parts of the kernel
// share.
type gemv struct {
	Gemv
	b *ptx.Builder
	d *decoder

	x, y, bias, residual   ptx.Global
	matrices               []ptx.Global // one, or gate and up; of the slot's expert
	count, k, unitCount    ptx.U32      // rows of the matrix, weights and units of a row
	rowBytes               ptx.U32
	columnCount            ptx.U32
	xStride, yStride       ptx.U32
	norm                   ptx.U32
	normWeight, normBias   ptx.Global
	eps, cap               ptx.F32
	activation             ptx.U32
	chunk, groups          ptx.U32 // groups staged at a time, and of a row
	slot, xRow             ptx.U32
	lane, part, team       ptx.U32 // part: which of the split warps of a row; team: which rows
	split, tileRows, tiles ptx.U32

	tile, step ptx.U32      // variables: what is computed next
	index      ptx.U32      // variable: of the unit being fetched
	pointers   []ptx.Global // to the rows being fetched
	units      []unit       // variables: fetched, not yet used
	sums       []ptx.F32    // variables: [stream][column]

	staged ptx.Shared // [group][column]: a group of x and what belongs to it
	stats  ptx.Shared // [column]: moments
	parts  ptx.Shared // [2][warp][lane]: sums of the warps that share rows
	cta    team
}

// newGemv declares the parameters in the order in which Launch packs them.
func newGemv(b *ptx.Builder, s Gemv) *gemv {
	g := &gemv{Gemv: s, b: b, d: decoderOf(s.Format), cta: ctaTeam(b)}
	g.x = b.Global("x", 4)
	names := []string{"w"}
	if s.Gated {
		names = []string{"gate", "up"}
	}
	for _, name := range names {
		g.matrices = append(g.matrices, b.Global(name, rowAlign))
	}
	g.y, g.bias, g.residual = b.Global("y", 4), b.Global("bias", 4), b.Global("residual", 4)
	g.count, g.k, g.unitCount, g.rowBytes = b.ParamU32("rows"), b.ParamU32("k"), b.ParamU32("units"), b.ParamU32("row_bytes")
	g.columnCount, g.xStride, g.yStride = b.ParamU32("columns"), b.ParamU32("x_stride"), b.ParamU32("y_stride")
	g.norm, g.normWeight, g.normBias, g.eps = b.ParamU32("norm"), b.Global("norm_weight", 4), b.Global("norm_bias", 4), b.ParamF32("eps")
	g.activation, g.cap = b.ParamU32("activation"), b.ParamF32("softcap")
	g.chunk = b.ParamU32("chunk")
	splitLog := b.ParamU32("split_log2")
	experts, share, stride := b.Global("experts", 4), b.ParamU32("slots_per_x"), b.ParamU64("expert_bytes")

	one := b.U32(1)
	g.slot = b.BlockY()
	g.xRow = g.slot.Div(share)
	g.groups = g.unitCount.CeilDivN(32)
	g.lane, g.split = b.Lane(), one.Shl(splitLog)
	g.part, g.team = b.Warp().And(g.split.Sub(one)), b.Warp().Shr(splitLog)
	g.tileRows = b.U32(gemvWarps).Shr(splitLog).MulN(s.rows())
	g.tiles = g.count.Add(g.tileRows).Sub(one).Div(g.tileRows)
	g.tile, g.step, g.index = ptx.Var(b.BlockX()), ptx.Var(g.part), ptx.Var(g.indexIn(g.part))
	g.chooseExpert(experts, stride)
	g.declareState()
	return g
}

// chooseExpert moves the matrices to those of the slot's expert, if there are experts.
func (g *gemv) chooseExpert(experts ptx.Global, stride ptx.U64) {
	offset := ptx.Var(g.b.U64(0))
	g.b.If(experts.Address().Ne(g.b.U64(0)), func() {
		ptx.Set(offset, experts.At(g.slot, 4).LoadU32().Wide().Mul(stride))
	})
	for i, m := range g.matrices {
		g.matrices[i] = m.AtBytes(offset).Aligned(rowAlign)
	}
}

func (g *gemv) declareState() {
	b := g.b
	for i := range g.streams() {
		g.pointers = append(g.pointers, ptx.VarGlobal(g.matrices[i/g.rows()]))
		g.units = append(g.units, g.d.variables(b, g.lane))
	}
	for range g.streams() * g.columns() {
		g.sums = append(g.sums, ptx.Undefined[ptx.F32](b))
	}
	g.staged = b.DynamicShared(16)
	g.stats = b.Shared("stats", g.columns()*16, 16)
	g.parts = b.Shared("parts", 2*gemvWarps*32*4, 4)
}

// point moves the pointers to the warp's rows of a tile; rows past the end are the
// last one, read again and not stored.
func (g *gemv) point(tile ptx.U32) {
	first := tile.Mul(g.tileRows).Add(g.team.MulN(g.rows()))
	last := g.count.AddN(-1)
	for i, p := range g.pointers {
		row := first.AddN(i % g.rows()).Min(last)
		ptx.SetGlobal(p, g.matrices[i/g.rows()].AtBytes(row.MulWide(g.rowBytes)).Aligned(rowAlign))
	}
}

// indexIn is the lane's unit of a group. Beyond the row's end it is the last one, which
// accumulate leaves out.
func (g *gemv) indexIn(group ptx.U32) ptx.U32 {
	return group.MulN(32).Add(g.lane).Min(g.unitCount.AddN(-1))
}

// fetch loads the unit of one stream that index and its pointer name.
func (g *gemv) fetch(stream int) {
	g.units[stream].set(g.d.load(g.b, g.pointers[stream], g.index, g.unitCount))
}

// xAt is vector c.
func (g *gemv) xAt(c ptx.U32) row {
	start := g.xRow.Add(c).MulWide(g.xStride).Mul(g.b.U64(4))
	return rowAt(g.b, quant.F32, g.x.AtBytes(start).Aligned(4), g.k)
}
