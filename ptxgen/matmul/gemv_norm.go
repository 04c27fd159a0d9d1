package matmul

import (
	"math"

	"github.com/lockstep-go/lockstep/ptxgen/internal/device"
	"github.com/lockstep-go/lockstep/ptxgen/norm"
	"github.com/lockstep-go/lockstep/ptxgen/ptx"
)

// moments computes what each vector is normalized by, and keeps it in stats.
func (g *gemv) moments() {
	b := g.b
	b.Comment("the moments of each vector")
	b.If(g.norm.Ne(b.U32(0)), func() {
		b.For(b.U32(0), g.columnCount, b.U32(1), g.moment, ptx.NoUnroll)
	})
}

// moment computes those of vector c.
func (g *gemv) moment(c ptx.U32) {
	b := g.b
	m := [4]ptx.F32{ptx.Var(b.F32(1)), ptx.Var(b.F32(0)), ptx.Var(b.F32(0)), ptx.Var(b.F32(0))}
	x := g.xAt(c)
	slow := ptx.Var(g.norm)
	if !g.integer() {
		b.If(g.norm.EqN(int(norm.RMS)), func() {
			inverse, usual := g.rms(x)
			ptx.Set(m[1], inverse)
			b.When(usual, func() { ptx.Set(slow, b.U32(0)) })
		})
	}
	for _, kind := range []norm.Kind{norm.RMS, norm.Layer} {
		b.If(slow.EqN(int(kind)), func() {
			st := g.cta.Cache(x, 0).Moments(kind == norm.Layer, g.eps)
			for i, v := range []ptx.F32{st.Scale, st.Inverse, st.Mean, st.Rest} {
				ptx.Set(m[i], v)
			}
		})
	}
	b.If(b.ThreadX().EqN(0), func() { g.stats.At(c, 16).StoreF32x4(m) })
}

// rmsBatch is how many quads a thread loads before it uses the first.
const rmsBatch = 8

// rms is 1/sqrt(mean(x^2) + eps), and whether the squares are neither too large nor too
// small for that. It waits for memory once where Norm's statistics wait for each quad.
func (g *gemv) rms(x device.Row) (inverse ptx.F32, usual ptx.Pred) {
	const least = 0x1p-80
	b := g.b
	sum := device.NewSum2(b)
	b.For(g.cta.Rank(), x.Vec4s(), g.cta.Size().MulN(rmsBatch), func(i ptx.U32) {
		var batch [rmsBatch]device.Vec4
		for n := range batch {
			batch[n] = g.loadQuad(x, i.Add(g.cta.Size().MulN(n)), x.Vec4s(), 0)
		}
		for _, v := range batch {
			for _, e := range v {
				sum.AddSquare(e)
			}
		}
	}, ptx.NoUnroll)
	square := g.cta.Sum(sum).Value(b)
	usual = square.Lt(b.F32(float32(math.Inf(1)))).And(square.Ge(b.F32(least)))
	return square.Div(x.Width.F32()).Add(g.eps).Sqrt().Rcp(), usual
}
