package matmul

import (
	"github.com/lockstep-go/lockstep/ptxgen/elementwise"
	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// gemmOutput is a lane's part of the results: a quad of columns of some of the warp's rows.
type gemmOutput struct {
	*gemm
	slab   ptx.Shared // f32 [warpM][slabStride]: the warp's sums
	rows   ptx.Shared // results of the warp's rows
	lane   ptx.U32
	quad   ptx.U32 // which four columns of the warp's
	column ptx.U32 // of y, the first of the four
	bias   device.Vec4
	step   int // rows that the warp takes at a time
}

// store leaves the sums in shared memory, where each warp has its own part of what was
// the ring, and lets each lane finish quads of them.
func (p *gemmProduct[T]) store() {
	b := p.b
	b.Comment("the sums, by rows")
	lane := b.Lane()
	slab := p.memory.At(b.Warp(), p.warpM()*p.slabStride()*4)
	mine := slab.At(lane.ShrN(2), p.slabStride()*4).At(lane.AndN(3), 8)
	for i, row := range p.sums {
		for j, c := range row {
			at := mine.Plus((16*i*p.slabStride() + 8*j) * 4)
			at.StoreF32x2([2]ptx.F32{c[0], c[1]})
			at.Plus(8 * p.slabStride() * 4).StoreF32x2([2]ptx.F32{c[2], c[3]})
		}
	}
	b.WarpSync()
	quads := p.warpN() / 4
	o := gemmOutput{gemm: p.gemm, slab: slab, rows: p.results.At(p.originM(), resultBytes), lane: lane, quad: lane.RemN(quads), step: 32 / quads}
	o.column = p.column.Add(p.originN()).Add(o.quad.MulN(4))
	o.loadBias()
	b.If(p.activation.Ne(b.U32(uint32(elementwise.Identity))), o.activate)
	o.write()
}

// loadBias loads the bias of the lane's columns.
func (o *gemmOutput) loadBias() {
	b := o.b
	for i := range o.bias {
		o.bias[i] = ptx.Var(b.F32(0))
	}
	b.If(device.NonNil(o.b, o.gemm.bias), func() {
		bias := o.gemm.bias.AtBytes(o.expert.MulWide(o.n).ShlN(2)).Aligned(4).At(o.column, 4)
		for i := range o.bias {
			b.If(o.column.AddN(i).Lt(o.n), func() { ptx.Set(o.bias[i], bias.Plus(4*i).LoadF32()) })
		}
	})
}

// eachRows calls f with every so many rows of the lane: where their quads begin, and what
// is known of them.
func (o *gemmOutput) eachRows(unroll int, f func(sums []ptx.Shared, results []ptx.Shared)) {
	b := o.b
	start := o.lane.DivN(32 / o.step)
	b.For(start, b.N(o.warpM()), b.N(unroll*o.step), func(row ptx.U32) {
		at, result := o.slab.At(row, o.slabStride()*4).At(o.quad, 16), o.rows.At(row, resultBytes)
		var sums, results []ptx.Shared
		for i := range unroll {
			sums = append(sums, at.Plus(i*o.step*o.slabStride()*4))
			results = append(results, result.Plus(resultBytes*i*o.step))
		}
		f(sums, results)
	}, ptx.NoUnroll)
}

// activate applies scale, bias and activation to the sums where they are.
func (o *gemmOutput) activate() {
	b := o.b
	b.Comment("scale, bias and activation")
	o.eachRows(1, func(sums, results []ptx.Shared) {
		v, scale := device.Vec4(sums[0].LoadF32x4()), results[0].Plus(4).LoadF32()
		for i := range v {
			v[i] = device.Activate(b, o.activation, v[i].FMA(scale, o.bias[i]))
		}
		sums[0].StoreF32x4(v)
	})
}

// write stores the results: quads where all four columns exist and lie at multiples of
// 16 bytes, otherwise one by one.
func (o *gemmOutput) write() {
	b := o.b
	b.Comment("scale and bias if not yet applied, residual")
	plain := o.activation.EqN(int(elementwise.Identity))
	for i, v := range o.bias {
		o.bias[i] = ptx.Select(plain, v, b.F32(0))
	}
	low := func(p ptx.Global) ptx.U32 { return p.Address().Low() }
	aligned := low(o.y).Or(low(o.residual)).Or(o.yStride.MulN(4)).AndN(15).EqN(0)
	whole := aligned.And(o.column.AddN(4).Le(o.n))
	many := min(4, o.warpM()/o.step)
	b.IfElse(whole,
		func() { o.finish(many, plain, o.moveQuads) },
		func() { o.finish(1, plain, o.moveSingly) })
}

// finish lets move load the residuals of rows and then store what they are part of.
func (o *gemmOutput) finish(unroll int, plain ptx.Pred, move func(at []gemmRow)) {
	b := o.b
	hasResidual := device.NonNil(o.b, o.residual)
	o.eachRows(unroll, func(sums, results []ptx.Shared) {
		rows := make([]gemmRow, unroll)
		for i := range rows {
			result := results[i].LoadU32x2()
			offset := result[0].MulWide(o.yStride).Add(o.column.U64()).ShlN(2)
			rows[i] = gemmRow{
				y: o.y.AtBytes(offset).Aligned(4), residual: o.residual.AtBytes(offset).Aligned(4),
				there: result[0].Ne(b.U32(noRow)),
			}
			rows[i].added = rows[i].there.And(hasResidual)
			scale := ptx.Select(plain, result[1].AsF32(), b.F32(1))
			for j, v := range sums[i].LoadF32x4() {
				rows[i].value[j] = v.FMA(scale, o.bias[j])
			}
		}
		move(rows)
	})
}

// gemmRow is a quad of results.
type gemmRow struct {
	y, residual  ptx.Global
	there, added ptx.Pred // whether y has the row, and whether there is a residual
	value        device.Vec4
}

func (o *gemmOutput) moveQuads(rows []gemmRow) {
	b := o.b
	residuals := make([]device.Vec4, len(rows))
	for i, r := range rows {
		for j := range residuals[i] {
			residuals[i][j] = ptx.Var(b.F32(0))
		}
		b.When(r.added, func() {
			for j, v := range r.residual.Aligned(16).LoadF32x4() {
				ptx.Set(residuals[i][j], v)
			}
		})
	}
	for i, r := range rows {
		for j := range r.value {
			r.value[j] = r.value[j].Add(residuals[i][j])
		}
		b.When(r.there, func() { r.y.Aligned(16).StoreF32x4(r.value) })
	}
}

func (o *gemmOutput) moveSingly(rows []gemmRow) {
	b := o.b
	for _, r := range rows {
		for j, v := range r.value {
			inside := o.column.AddN(j).Lt(o.n)
			residual := ptx.Var(b.F32(0))
			b.When(r.added.And(inside), func() { ptx.Set(residual, r.residual.Plus(4*j).LoadF32()) })
			sum := v.Add(residual)
			b.When(r.there.And(inside), func() { r.y.Plus(4 * j).StoreF32(sum) })
		}
	}
}
